//! Tables that come to be, go and come back, on a server that behaves as RethinkDB does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde_json::json;
use tenure::feed::{FeedStore as _, Item, Origin};
use tenure::{Expect, Fault, Key, Put, StoreError, StoreExt as _, Version};

use crate::rethinkdb::scripted::{Scripted, until};
use crate::rethinkdb::{Connection, RethinkStore};

/// As with a ttl of two seconds.
const REQUEST: Duration = Duration::from_millis(317);
/// Longer than anything here takes, on a machine that does other things meanwhile.
const PATIENT: Duration = Duration::from_secs(20);

fn key() -> Key {
    Key::parse("elections/a").expect("a good key")
}

async fn open(server: &Scripted, request: Duration) -> Result<RethinkStore, StoreError> {
    let servers = Scripted::servers(&[server], "d?table=t");
    RethinkStore::open(&servers, request, true).await
}

fn told(error: &StoreError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    format!("{error}: {}", source.unwrap_or_default())
}

async fn written(store: &RethinkStore) -> Version {
    match store.put(&key(), Expect::Absent, "1".into()).await {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    }
}

/// Before, each of them left a table, and the name was ambiguous until an operator dropped all but one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_leave_one_table_and_use_it() {
    for count in 2..=5 {
        let server = Scripted::start().await;
        server.world().window = Duration::from_millis(40);
        let stores = join_all((0..count).map(|_| open(&server, PATIENT))).await;
        let stores: Result<Vec<_>, _> = stores.into_iter().collect();
        let stores = stores.unwrap_or_else(|error| panic!("{count}: {}", told(&error)));
        let named = server.world().named("d", "t");
        assert_eq!(named.len(), 1, "{count}: {named:?}");
        assert_eq!(server.world().names().len(), 1, "{count}: none stands aside");
        let created = server.world().asked.get(&60).copied().unwrap_or(0);
        assert!(created >= 2, "{count}: they did not start together");
        let version = written(&stores[0]).await;
        for store in &stores {
            let found = store.get(&key()).await.expect("an answer").expect("a document");
            assert_eq!(found.version, version, "{count}: all use the same table");
        }
    }
}

/// Before, the request's time-out ended it: with a ttl of two seconds the outcome of the creation was unknown.
#[tokio::test]
async fn a_table_that_takes_longer_to_create_than_a_request_may_take_is_waited_for() {
    let server = Scripted::start().await;
    server.world().slow = REQUEST * 4;
    let store = open(&server, REQUEST).await.unwrap_or_else(|error| panic!("{}", told(&error)));
    written(&store).await;
    assert_eq!(server.world().asked.get(&60), Some(&1), "it was created once");
}

/// Before, the first question that met the table while it was not ready ended the opening.
#[tokio::test]
async fn a_table_that_is_not_ready_after_a_restart_is_waited_for() {
    let server = Scripted::start().await;
    server.world().add("a", "d", "t", &[json!({ "id": "x" })]);
    server.world().starting = 6;
    let store = open(&server, REQUEST).await.unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(store.get(&key()).await.expect("an answer"), None);
    assert_eq!(server.world().starting, 0);
}

#[tokio::test]
async fn an_empty_table_of_another_creator_is_watched_before_it_is_used_and_then_marked() {
    let server = Scripted::start().await;
    server.world().add("a", "d", "t", &[]);
    let began = tokio::time::Instant::now();
    drop(open(&server, PATIENT).await.expect("it opens"));
    assert!(began.elapsed() >= super::Limits::REAL.watches, "its creator may still drop it");
    assert_eq!(server.world().named("d", "t"), [("a".to_owned(), 1)]);
    let again = tokio::time::Instant::now();
    drop(open(&server, PATIENT).await.expect("it opens"));
    assert!(again.elapsed() < super::Limits::REAL.watches, "a table with rows is in use");
}

#[tokio::test]
async fn of_two_tables_that_stay_the_empty_one_is_renamed_and_none_is_dropped() {
    let server = Scripted::start().await;
    server.world().add("a", "d", "t", &[]);
    server.world().add("b", "d", "t", &[json!({ "id": "x" })]);
    let (one, other) = tokio::join!(open(&server, PATIENT), open(&server, PATIENT));
    for store in [one, other] {
        store.unwrap_or_else(|error| panic!("{}", told(&error)));
    }
    let named = server.world().named("d", "t");
    assert!(matches!(&named[..], [(id, 1..)] if id == "b"), "{named:?}");
    assert_eq!(server.world().named("d", "t_duplicate_a"), [("a".to_owned(), 0)]);
}

#[tokio::test]
async fn two_tables_with_rows_are_refused_by_their_ids() {
    let server = Scripted::start().await;
    for id in ["a", "b"] {
        server.world().add(id, "d", "t", &[json!({ "id": "x" })]);
    }
    let error = open(&server, PATIENT).await.expect_err("nobody can tell which one counts");
    assert_eq!(error.fault, Fault::Permanent, "{}", told(&error));
    for id in ["a (now t_duplicate_a)", "b (now t_duplicate_b)"] {
        assert!(told(&error).contains(id), "{}", told(&error));
    }
    assert_eq!(server.world().names().len(), 2, "nothing is dropped");
}

/// Before, a candidate that stood again found no record, and led under the token 1.
#[tokio::test]
async fn a_table_that_was_dropped_and_created_anew_is_refused_by_those_who_knew_it() {
    let server = Scripted::start().await;
    let store = open(&server, PATIENT).await.expect("it opens");
    written(&store).await;
    let before = server.world().named("d", "t")[0].0.clone();
    server.world().drop_named("d", "t");
    let error = store.get(&key()).await.expect_err("there is no table");
    assert_eq!(error.fault, Fault::Unavailable, "{}", told(&error));
    server.world().add("other", "d", "t", &[json!({ "id": "x" })]);
    for _ in 0..2 {
        let error = store.get(&key()).await.expect_err("it is another table");
        assert_eq!(error.fault, Fault::Permanent, "{}", told(&error));
        assert!(
            told(&error).contains("other") && told(&error).contains(&before),
            "{}",
            told(&error)
        );
    }
}

/// Before, with several hosts, it ended the connection that everything shares: a leader's feed fell deaf.
#[tokio::test]
async fn a_question_that_the_server_refuses_leaves_the_connection_and_its_feeds_alone() {
    let one = Scripted::start().await;
    let other = Scripted::joining(&one).await;
    one.world().add("a", "d", "t", &[json!({ "id": "x" })]);
    let servers = Scripted::servers(&[&one, &other], "d?table=t");
    let connection = Connection::new(&servers, PATIENT).expect("a connection");
    let store = RethinkStore::from_connection(connection.clone(), "d", "t", true).await;
    let store = store.expect("it opens");
    let mut changes = store.feed().subscribe("t", Origin::Now).await.expect("it follows");
    let connections = one.world().connections;
    let missing = json!([16, [[15, [[14, ["d"]], "missing"]], "x"]]);
    let error = connection.run(&missing).await.expect_err("there is no such table");
    assert!(told(&error).contains("does not exist"), "{}", told(&error));
    let table = json!([15, [[14, ["d"]], "t"]]);
    connection.run(&json!([56, [table, { "id": "order-1" }]])).await.expect("an answer");
    match changes.next().await {
        Some(Ok(Item::Change { change, .. })) => assert_eq!(change["new_val"]["id"], "order-1"),
        other => panic!("{other:?}"),
    }
    assert_eq!(one.world().connections, connections, "no other connection was made");
}

/// Before, the server's words were plucked away, and a wait went on although it had missed its change.
#[tokio::test]
async fn a_wait_ends_when_the_server_says_that_it_skipped_changes() {
    let server = Scripted::start().await;
    let store = Arc::new(open(&server, PATIENT).await.expect("it opens"));
    let version = written(&store).await;
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { tenure::Store::changed(&*store, &key(), Some(&version)).await })
    };
    // The wait has looked, after its feed began: from here on only the feed can wake it.
    let reads = server.world().asked.get(&16).copied().unwrap_or(0);
    let looked = || server.world().asked.get(&16).copied().unwrap_or(0) > reads;
    until("the wait has looked", looked).await;
    let connections = server.world().connections;
    server.world().skip_changes("Changefeed cache over array size limit, skipped 3 elements.");
    let woken = tokio::time::timeout(PATIENT, waiting).await.expect("the wait ends");
    woken.expect("nobody panics");
    assert_eq!(server.world().connections, connections, "the connection is as good as before");
}
