//! Tasks that were lost with their documents.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::store::{Expect, Put, StoreExt};
use tenure::{Backend, MemoryStore, Timing};
use tenure_cluster::documents::{
    Assignment, ClusterConfig, Cursor, Format, Intent, OutcomeState, Progress, Slot, first_token,
};
use tenure_cluster::{Cluster, ClusterClient, Context, GivenUp, Handler, Member, TaskError, Tasks};

use crate::stage::{TokioClock, op, order, read, stage, write, write_body};

fn slot(serial: u64, progress: Progress) -> Slot {
    Slot {
        task: Arc::new(order(&serial.to_string()).numbered(serial)),
        progress,
        cancel: false,
        token: first_token(serial) + 1,
        attempt: 1,
        ttl: Duration::from_secs(15),
        revision: 3,
        op: op(serial),
    }
}

/// The task of a vacant slot.
fn nothing(serial: u64) -> Assignment {
    Assignment { id: String::new(), kind: String::new(), attempts: 0, ..order("").numbered(serial) }
}

/// Writes the cluster's records with four slots and this many open tasks.
async fn with_client(client: &ClusterClient, store: &MemoryStore, open: u64, intents: Vec<Intent>) {
    let cluster_config = ClusterConfig { slots: 4, paused: false, revision: 1, op: op(1000) };
    write(store, &client.keys().cluster_config(), &cluster_config).await;
    let cursor = Cursor { next: 90, accepted: 20 + open, done: 20, intents, ..Cursor::new(op(2)) };
    write(store, &client.keys().cursor(), &cursor).await;
}

#[tokio::test]
async fn what_stands_in_a_slot_at_its_end_or_not_is_not_lost() {
    let (client, store) = stage();
    with_client(&client, &store, 3, vec![]).await;
    let waits = Progress::Outstanding { avoid: None, error: None };
    write(&store, &client.keys().slot(0), &slot(7, waits)).await;
    write(&store, &client.keys().slot(1), &slot(8, Progress::Done { result: None })).await;
    let vacant = Slot { task: Arc::new(nothing(6)), ..slot(6, Progress::Vacant) };
    write(&store, &client.keys().slot(2), &vacant).await;
    assert_eq!(client.lost().await.expect("it serves"), Some(1));
    write_body(&store, &client.keys().slot(3), "{".into()).await;
    assert_eq!(client.lost().await.expect("it serves"), Some(1), "whatever that was");
}

#[tokio::test]
async fn what_the_leader_is_about_to_write_is_not_lost_and_what_it_has_counted_does_not_count_again()
 {
    let (client, store) = stage();
    let task = order("a").numbered(80);
    let filling = Intent { slot: 0, serial: 80, task: Some(task), letter: None };
    let vacating = Intent { slot: 1, serial: 81, task: None, letter: None };
    with_client(&client, &store, 1, vec![filling, vacating]).await;
    write(&store, &client.keys().slot(1), &slot(8, Progress::Done { result: None })).await;
    assert_eq!(client.lost().await.expect("it serves"), Some(0));
}

#[tokio::test]
async fn what_the_cursor_still_knows_is_put_back_and_not_given_up() {
    let (client, store) = stage();
    let task = order("a").numbered(80);
    let filling = Intent { slot: 0, serial: 80, task: Some(task.clone()), letter: None };
    with_client(&client, &store, 1, vec![filling]).await;
    write_body(&store, &client.keys().slot(0), "{".into()).await;
    assert_eq!(client.lost().await.expect("it serves"), Some(1));
    let given_up = client.give_up_lost().await.expect("it serves");
    assert_eq!(given_up, GivenUp { restored: 1, lost: 0 });
    let (_, slot) = read::<Slot>(&store, &client.keys().slot(0)).await.expect("it is back");
    assert_eq!((&*slot.task, slot.token, slot.is_live()), (&task, first_token(80), true));
    assert_eq!(client.lost().await.expect("it serves"), Some(0));
}

#[tokio::test]
async fn nothing_is_given_up_while_nothing_is_lost_and_what_makes_no_sense_is_freed() {
    let (client, store) = stage();
    with_client(&client, &store, 0, vec![]).await;
    write_body(&store, &client.keys().slot(2), "{".into()).await;
    assert_eq!(client.give_up_lost().await.expect("it serves"), GivenUp::default());
    assert!(store.get(&client.keys().slot(2)).await.expect("a read").is_none());
}

#[tokio::test]
async fn operators_who_give_up_at_once_give_each_up_once() {
    let (client, store) = stage();
    with_client(&client, &store, 2, vec![]).await;
    write_body(&store, &client.keys().slot(1), "{".into()).await;
    let (one, other) = tokio::join!(client.give_up_lost(), client.give_up_lost());
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    let mut cancelled = 0;
    for number in 0..4 {
        let found = read::<Slot>(&store, &client.keys().slot(number)).await;
        let is_end = |slot: &Slot| matches!(slot.progress, Progress::Dead { .. }) && slot.cancel;
        cancelled += u64::from(found.is_some_and(|(_, slot)| is_end(&slot)));
    }
    assert_eq!(cancelled, 2);
    assert_eq!(client.lost().await.expect("it serves"), Some(0));
}

#[tokio::test(start_paused = true)]
async fn where_the_leaders_document_was_deleted_the_next_leader_goes_on_after_the_last_token() {
    let store = MemoryStore::new();
    let backend = Backend::new(Arc::new(store.clone())).with_clock(TokioClock::new());
    let client = ClusterClient::open(&backend, "shop/till").expect("a good name");
    let cursor = Cursor { leader: 5000, ..Cursor::new(op(2)) };
    write(&store, &client.keys().cursor(), &cursor).await;
    let cluster = Cluster::join(&backend, "shop/till", Member::new(1)).await.expect("a node");
    let began = tokio::time::Instant::now();
    let took_over = async {
        loop {
            let cursor = read::<Cursor>(&store, &client.keys().cursor()).await;
            if cursor.is_some_and(|(_, cursor)| cursor.leader == 5001) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), took_over).await.expect("somebody plans");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    cluster.leave().await;
}

struct Nothing;

#[async_trait]
impl Handler for Nothing {
    async fn handle(&self, _: Bytes, _: &Context) -> Result<Option<String>, TaskError> {
        Ok(None)
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_counts_what_was_given_up_as_cancelled_and_uses_the_slot_again() {
    let store = MemoryStore::new();
    let backend = Backend::new(Arc::new(store.clone())).with_clock(TokioClock::new());
    let cluster = Cluster::builder(&backend, "shop/till")
        .member(Member::new(1))
        .timing(Timing::new(Duration::from_secs(5)).expect("a usable ttl"))
        .tasks(Tasks::new().handling("sell", Arc::new(Nothing)))
        .join()
        .await
        .expect("a node");
    let client = cluster.client();
    let buy = |id: &str| tenure_cluster::Order::new(id, "buy", "nobody can do that");
    client.submit(vec![buy("a"), buy("b")]).await.expect("accepted");
    while client.totals().await.expect("it serves").outstanding < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The cursor moves on, and forgets the intents for these two tasks.
    client.submit(vec![order("c")]).await.expect("accepted");
    while client.totals().await.expect("it serves").done < 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let slots = (0..256).map(|number| client.keys().slot(number));
    let mut broken = 0;
    for key in slots {
        let Some(document) = store.get(&key).await.expect("a read") else { continue };
        if Slot::decode(&document.body).is_ok_and(|slot| slot.task.id == "a") {
            let put = store.put(&key, Expect::At(document.version), "{".into()).await;
            broken += u64::from(matches!(put, Ok(Put::Stored(_))));
        }
    }
    assert_eq!((broken, client.lost().await.expect("it serves")), (1, Some(1)));
    let given_up = client.give_up_lost().await.expect("given up");
    assert_eq!(given_up, GivenUp { restored: 0, lost: 1 });
    while client.totals().await.expect("it serves").open > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let totals = client.totals().await.expect("it serves");
    assert_eq!((totals.accepted, totals.cancelled, totals.outstanding), (3, 1, 1));
    let reports = client.results(0).await.expect("it serves").reports;
    let cancelled = reports.iter().filter(|report| report.state == OutcomeState::Cancelled);
    assert_eq!(cancelled.map(|report| report.id.as_str()).collect::<Vec<_>>(), ["(lost)"]);
    assert!(client.tasks(0).await.expect("it serves").garbled.is_empty());
    cluster.leave().await;
}
