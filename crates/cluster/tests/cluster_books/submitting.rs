//! Submitting on good lines.

use std::time::Duration;

use tenure::store::{Store, StoreExt};
use tenure::{Backend, MemoryStore};
use tenure_cluster::ClusterError;
use tenure_cluster::Order;
use tenure_cluster::documents::{
    Cursor, DocumentError, Entry, INBOX_PAGES, MAX_PAGE_BYTES, MAX_TASK_BYTES, Page,
};

use crate::leader::Leader;
use crate::stage::{client_on, ids, inbox, op, order, read, stage, write, write_body};

#[tokio::test]
async fn what_is_submitted_is_in_the_inbox_in_its_order() {
    let (client, store) = stage();
    client.submit(vec![order("a"), order("b")]).await.expect("accepted");
    client.submit(vec![order("c")]).await.expect("accepted");
    assert_eq!(inbox(&client, &store, 0).await, ["a", "b", "c"]);
    let call = store.get(&client.keys().leader_wake_up()).await.expect("a read");
    assert!(call.is_some(), "nobody rang for the leader");
}

#[tokio::test]
async fn what_does_not_fit_on_one_page_goes_on_on_the_next() {
    let (client, store) = stage();
    let large = |number: u32| Order::new(number.to_string(), "sell", vec![1; MAX_TASK_BYTES]);
    client.submit((0..7).map(large).collect()).await.expect("accepted");
    assert_eq!(inbox(&client, &store, 0).await, ["0", "1", "2", "3", "4", "5", "6"]);
    for number in 0..4 {
        let key = client.keys().page(number);
        let page = store.get(&key).await.expect("a read").expect("a page");
        assert!(page.body.len() < MAX_PAGE_BYTES + 1024, "{}", page.body.len());
    }
}

#[tokio::test]
async fn a_bad_task_is_named_and_nothing_is_accepted() {
    let (client, store) = stage();
    let orders = vec![order("a"), order("b").with_attempts(0), order("")];
    let error = client.submit(orders).await.expect_err("the second is bad");
    let ClusterError::Order { index: 1, source: DocumentError::Field { field: "attempts", .. } } =
        error
    else {
        panic!("{error:?}")
    };
    assert!(inbox(&client, &store, 0).await.is_empty());
}

#[tokio::test]
async fn submitting_nothing_writes_nothing() {
    let (client, store) = stage();
    client.submit(Vec::new()).await.expect("accepted");
    assert!(store.list(client.keys().root(), None, 10).await.expect("a list").documents.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_full_inbox_is_waited_for() {
    let (client, store) = stage();
    for number in 0..INBOX_PAGES {
        client.submit(vec![order(&number.to_string())]).await.expect("accepted");
    }
    let late = client.submit(vec![order("late")]);
    tokio::pin!(late);
    let waited = tokio::time::timeout(Duration::from_secs(100), late.as_mut()).await;
    assert!(waited.is_err(), "there was no room");
    let mut leader = Leader::new(&client, &store, &store, 1);
    leader.take_office().await;
    assert!(leader.step().await);
    late.await.expect("accepted");
    assert_eq!(
        ids(&read::<Page>(&store, &client.keys().page(0)).await.expect("a page").1),
        ["late"]
    );
}

#[tokio::test]
async fn a_page_that_makes_no_sense_is_passed_and_left_to_the_leader() {
    let (client, store) = stage();
    write_body(&store, &client.keys().page(0), "{".into()).await;
    client.submit(vec![order("a")]).await.expect("accepted");
    assert_eq!(inbox(&client, &store, 1).await, ["a"]);
}

#[tokio::test]
async fn a_place_whose_page_was_deleted_is_used_all_the_same() {
    let (client, store) = stage();
    let cursor = Cursor { page: 3 * INBOX_PAGES + 7, ..Cursor::new(op(1)) };
    write(&store, &client.keys().cursor(), &cursor).await;
    client.submit(vec![order("a")]).await.expect("accepted");
    assert_eq!(inbox(&client, &store, cursor.page).await, ["a"]);
}

#[tokio::test]
async fn a_gap_before_what_was_submitted_is_closed() {
    let (client, store) = stage();
    assert!(!client.mend_inbox(0).await.expect("it serves"));
    let page = Page::filling(3, None, vec![Entry::Task(order("a"))], op(1));
    write(&store, &client.keys().page(3), &page).await;
    assert!(client.mend_inbox(0).await.expect("it serves"));
    assert_eq!(inbox(&client, &store, 0).await, ["retry 0", "retry 0", "retry 0", "a"]);
    assert!(!client.mend_inbox(0).await.expect("it serves"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn it_works_on_a_directory_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = tenure::file::FileOptions::default();
    let store =
        tenure::FileStore::open(&directory.path().join("store"), options).expect("it opens");
    let client = client_on(std::sync::Arc::new(store.clone()));
    client
        .submit((0..50).map(|number| order(&number.to_string())).collect())
        .await
        .expect("accepted");
    let execution = client.submit_one(order("last")).await.expect("accepted");
    let waiting = inbox(&client, &store, 0).await;
    assert_eq!((waiting.len(), waiting.last().map(String::as_str)), (51, Some("last")));
    let work = client.tasks(2).await.expect("a look");
    assert_eq!((work.waiting, work.next.len()), (51, 2));
    let cancelled = execution.cancel().await.expect("it serves");
    assert_eq!(cancelled, tenure_cluster::Cancellation::Cancelled);
    assert_eq!(execution.await.expect("an outcome"), tenure_cluster::Ended::Cancelled);
    assert_eq!(client.tasks(2).await.expect("a look").waiting, 50);
}

#[test]
fn a_name_is_refused_for_what_is_wrong_with_it() {
    let backend = Backend::new(std::sync::Arc::new(MemoryStore::new()));
    for name in ["", "a//b", "1/2/3/4/5/6"] {
        let error = tenure_cluster::ClusterClient::open(&backend, name).expect_err("a bad name");
        assert!(matches!(error, ClusterError::Name(_)), "{error}");
    }
}
