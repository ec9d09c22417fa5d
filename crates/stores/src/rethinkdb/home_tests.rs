//! Tables that are created, dropped and created again, on a scripted server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde_json::json;
use tenure::Key;
use tenure::feed::{FeedStore as _, Item, Origin};
use tenure::store::{Expect, Fault, Put, StoreError, StoreExt as _, Version};

use tokio::time::Instant;

use super::{Home, Limits, aside};
use crate::rethinkdb::scripted::{Scripted, until};
use crate::rethinkdb::{Connection, RethinkStore, term};

/// The request time-out with a ttl of two seconds.
const REQUEST: Duration = Duration::from_millis(317);
/// Longer than any test here takes, even on a busy machine.
const PATIENT: Duration = Duration::from_secs(20);
/// An answer while the table's name leads to several tables.
const AMBIGUOUS: &str = "Table `d.t` is ambiguous; there are multiple tables with that name.";
const UNAVAILABLE: &str =
    "Cannot perform read: primary replica for shard [\"\", +inf) not available";

fn key() -> Key {
    Key::parse("elections/a").expect("a good key")
}

async fn open(server: &Scripted, request: Duration) -> Result<RethinkStore, StoreError> {
    let servers = Scripted::servers(&[server], "d?table=t");
    RethinkStore::open(&servers, request, true).await
}

/// A table that is opened under these limits.
fn home(server: &Scripted, limits: Limits) -> Home {
    let servers = Scripted::servers(&[server], "d?table=t");
    let connection = Connection::new(&servers, PATIENT).expect("a connection");
    Home { limits, ..Home::new(connection, "d", "t") }
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

/// Before, each process left a table, and the name was ambiguous until an operator dropped all but
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_leave_one_table_and_use_it() {
    for count in 2..=5 {
        let server = Scripted::start().await;
        server.world().together = count;
        let stores = join_all((0..count).map(|_| open(&server, PATIENT))).await;
        let stores: Result<Vec<_>, _> = stores.into_iter().collect();
        let stores = stores.unwrap_or_else(|error| panic!("{count}: {}", told(&error)));
        let named = server.world().named("d", "t");
        assert_eq!(named.len(), 1, "{count}: {named:?}");
        assert_eq!(server.world().names().len(), 1, "{count}: none stands aside");
        let version = written(&stores[0]).await;
        for store in &stores {
            let found = store.get(&key()).await.expect("an answer").expect("a document");
            assert_eq!(found.version, version, "{count}: all use the same table");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_tables_that_are_created_together_the_smallest_id_stays() {
    let server = Scripted::start().await;
    server.world().ids = ["c", "a", "b"].into();
    server.world().together = 3;
    // No process stalls for so long.
    let long = Duration::from_secs(3600);
    let limits =
        Limits { yields_after: long, yields_within: long, watches: long, repairs_after: long };
    let homes: Vec<Home> = (0..3).map(|_| home(&server, limits)).collect();
    let end = Instant::now() + 3 * PATIENT;
    for opened in join_all(homes.iter().map(|home| home.open(true, end))).await {
        assert_eq!(opened.expect("it opens").as_deref(), Some("a"));
    }
    assert_eq!(server.world().named("d", "t"), [("a".to_owned(), 1)]);
    assert_eq!(server.world().names(), ["t"], "the others are dropped by their creators");
}

/// Before, a drop that a server carried out late removed the table with its rows.
#[tokio::test]
async fn a_drop_removes_an_empty_table_that_stands_aside_and_no_other() {
    let server = Scripted::start().await;
    let home = home(&server, Limits::REAL);
    let drop = term::drop_empty_table("a", "d", &aside("t", "a"));
    let dropped = async || home.change(&drop).await.expect("an answer");
    let row = [json!({ "id": "x" })];
    for (name, rows, left) in
        [("t", &row[..], 1), ("t", &[], 1), ("t_duplicate_a", &row, 1), ("t_duplicate_a", &[], 0)]
    {
        server.world().add("a", "d", name, rows);
        dropped().await;
        assert_eq!(server.world().names().len(), left, "{name} {rows:?}");
        server.world().drop_named("d", name);
    }
}

/// Before, each look had the time of a request: with a ttl of two seconds a busy server ended the
/// opening.
#[tokio::test]
async fn a_server_that_answers_looks_later_than_a_request_may_take_is_waited_for() {
    let server = Scripted::start().await;
    let late = REQUEST * 3 / 2;
    // COERCE_TO, DB_LIST, IS_EMPTY, CONFIG and WAIT.
    server.world().delays = [51, 59, 86, 174, 177].map(|term| (term, late)).into();
    open(&server, REQUEST).await.unwrap_or_else(|error| panic!("{}", told(&error)));
}

/// Before, only the looks themselves were repeated: a table that appeared after the last look was
/// fatal.
#[tokio::test]
async fn a_name_that_is_ambiguous_for_a_moment_after_it_was_settled_is_waited_for() {
    let server = Scripted::start().await;
    server.world().add("a", "d", "t", &[json!({ "id": "x" })]);
    // The second look at the configuration, and the third at the rows, come after the table was
    // settled.
    server.world().refusals = [((174, 2), AMBIGUOUS), ((86, 3), UNAVAILABLE)].into();
    open(&server, PATIENT).await.unwrap_or_else(|error| panic!("{}", told(&error)));
    let asked = server.world().asked.clone();
    assert!(asked[&174] > 2 && asked[&86] > 3, "both were refused: {asked:?}");
}

/// Before, the error said that the table does not exist.
#[tokio::test]
async fn a_table_that_another_process_has_set_aside_is_there_for_those_who_create_none() {
    let server = Scripted::start().await;
    let servers = Scripted::servers(&[&server], "d?table=t");
    server.world().add("b", "d", "other", &[]);
    let error = RethinkStore::open(&servers, PATIENT, false).await.expect_err("there is none");
    assert_eq!(error.fault, Fault::Permanent, "{}", told(&error));
    assert!(told(&error).contains("does not exist, and creating it was not"), "{}", told(&error));
    server.world().add("a", "d", "t_duplicate_a", &[json!({ "id": "x" })]);
    let store = RethinkStore::open(&servers, PATIENT, false).await;
    drop(store.unwrap_or_else(|error| panic!("{}", told(&error))));
    assert_eq!(server.world().named("d", "t"), [("a".to_owned(), 2)]);
}

/// Before, the request's time-out ended the creation: with a ttl of two seconds its outcome was
/// unknown.
#[tokio::test]
async fn a_table_that_takes_longer_to_create_than_a_request_may_take_is_waited_for() {
    let server = Scripted::start().await;
    server.world().slow = REQUEST * 4;
    open(&server, REQUEST).await.unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(server.world().asked.get(&60), Some(&1), "it was created once");
}

/// Before, the first question that met the table while it was not ready ended the opening.
#[tokio::test]
async fn a_table_that_is_not_ready_after_a_restart_is_waited_for() {
    let server = Scripted::start().await;
    server.world().add("a", "d", "t", &[json!({ "id": "x" })]);
    server.world().starting = 6;
    open(&server, REQUEST).await.unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(server.world().starting, 0);
}

#[tokio::test]
async fn an_empty_table_of_another_creator_is_watched_before_it_is_used_and_then_marked() {
    let server = Scripted::start().await;
    server.world().add("a", "d", "t", &[]);
    let watches = Duration::from_millis(500);
    let home = home(&server, Limits { watches, ..Limits::REAL });
    let began = Instant::now();
    let opened = home.open(true, began + PATIENT).await.expect("it opens");
    assert_eq!(opened.as_deref(), Some("a"));
    assert!(began.elapsed() >= watches, "its creator may still give way");
    assert_eq!(server.world().named("d", "t"), [("a".to_owned(), 1)]);
    let looks = server.world().asked[&51];
    drop(open(&server, PATIENT).await.expect("it opens"));
    assert_eq!(server.world().asked[&51], looks, "a table with rows is in use: nobody watches it");
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

/// Before, only a question to the missing table detected the exchange.
#[tokio::test]
async fn a_table_that_was_exchanged_between_two_writes_is_refused() {
    let server = Scripted::start().await;
    let store = open(&server, PATIENT).await.expect("it opens");
    let version = written(&store).await;
    server.world().drop_named("d", "t");
    server.world().add("other", "d", "t", &[json!({ "id": "x" })]);
    for _ in 0..2 {
        let put = store.put(&key(), Expect::At(version.clone()), "2".into()).await;
        let error = put.expect_err("it is another table");
        assert_eq!(error.fault, Fault::Permanent, "{}", told(&error));
    }
    store.get(&key()).await.expect_err("it is another table for reads, too");
}

#[tokio::test]
async fn a_table_that_was_exchanged_while_there_was_no_connection_is_refused() {
    let server = Scripted::start().await;
    let store = open(&server, PATIENT).await.expect("it opens");
    let version = written(&store).await;
    server.world().sever();
    let found = store.get(&key()).await.expect("an answer over another connection");
    assert_eq!(found.map(|found| found.version), Some(version), "the table is the same");
    {
        let mut world = server.world();
        world.sever();
        world.drop_named("d", "t");
        world.add("other", "d", "t", &[json!({ "id": "x" })]);
    }
    let error = store.get(&key()).await.expect_err("it is another table");
    assert_eq!(error.fault, Fault::Permanent, "{}", told(&error));
}

/// Before, a page of large documents ended the connection, each time it was asked for.
#[tokio::test]
async fn a_page_that_is_too_large_is_read_in_smaller_ones() {
    let server = Scripted::start().await;
    let body = "x".repeat(1024);
    let count = 70;
    let op = "0123456789abcdef0123456789abcdef";
    let row = |number| json!({ "id": format!("p/n{number:04}"), "op": op, "body": body });
    server.world().add("a", "d", "t", &(0..count).map(row).collect::<Vec<_>>());
    server.world().rows_in_a_part = Some(7);
    let servers = Scripted::servers(&[&server], "d?table=t");
    let connection = Connection::new(&servers, PATIENT).expect("a connection");
    let connection = connection.reading_at_most(16 * 1024);
    let store = RethinkStore::from_connection(connection, "d", "t", true).await.expect("it opens");
    let connections = server.world().connections;
    let page =
        tenure::store::Store::list(&store, &Key::parse("p").expect("a good key"), None, 400).await;
    let page = page.unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!((page.documents.len(), page.next), (count, None));
    assert_eq!(server.world().connections, connections, "no other connection was made");
}

/// Before, each of these questions ended the connection that everything shares (some of them only
/// with several hosts), and a leader's feed ended with it.
#[tokio::test]
async fn a_callers_own_question_leaves_the_connection_and_its_feeds_alone() {
    let one = Scripted::start().await;
    let other = Scripted::joining(&one).await;
    let rows = |count: usize| -> Vec<_> {
        (0..count).map(|number| json!({ "id": format!("{number:06}") })).collect()
    };
    one.world().add("a", "d", "t", &rows(3));
    let servers = Scripted::servers(&[&one, &other], "d?table=t");
    let connection = Connection::new(&servers, Duration::from_secs(5)).expect("a connection");
    let connection = connection.reading_at_most(1024);
    one.world().add("b", "d", "large", &rows(100));
    let store = RethinkStore::from_connection(connection.clone(), "d", "t", true).await;
    let store = store.expect("it opens");
    let mut changes = store.feed().subscribe("t", Origin::Now).await.expect("it follows");
    let connections = one.world().connections;
    let table = |name: &str| json!([15, [[14, ["d"]], name]]);

    let refused = async |question: &serde_json::Value, says: &str| {
        let error = connection.run(question).await.expect_err("it is refused");
        assert!(told(&error).contains(says), "{}", told(&error));
    };
    refused(&json!([16, [table("missing"), "x"]]), "does not exist").await;
    for _ in 0..2 {
        one.world().starting = 1;
        refused(&json!([16, [table("t"), "x"]]), "primary replica").await;
    }
    one.world().rows_in_a_part = Some(2);
    refused(&table("large"), "the answer is too large").await;
    one.world().delays = [(16, Duration::from_secs(3600))].into();
    refused(&json!([16, [table("t"), "x"]]), "no answer within").await;
    let whole = connection.run(&table("t")).await.expect("an answer");
    assert_eq!(whole, json!(rows(3)), "all of its parts");

    connection.run(&json!([56, [table("t"), { "id": "order-1" }]])).await.expect("an answer");
    match changes.next().await {
        Some(Ok(Item::Change { change, .. })) => assert_eq!(change["new_val"]["id"], "order-1"),
        other => panic!("{other:?}"),
    }
    assert_eq!(one.world().connections, connections, "no other connection was made");
    assert!(one.world().stopped >= 2, "the server may forget what was too large or too slow");
}

/// Before, the server's message was filtered out, and a wait went on although it had missed its
/// change.
#[tokio::test]
async fn a_wait_ends_when_the_server_says_that_it_skipped_changes() {
    let server = Scripted::start().await;
    let store = Arc::new(open(&server, PATIENT).await.expect("it opens"));
    let version = written(&store).await;
    let waiting = {
        let store = store.clone();
        tokio::spawn(
            async move { tenure::store::Store::changed(&*store, &key(), Some(&version)).await },
        )
    };
    // The wait has read after its feed began: from here on only the feed can wake it.
    let reads = server.world().asked.get(&16).copied().unwrap_or(0);
    let looked = || server.world().asked.get(&16).copied().unwrap_or(0) > reads;
    until("the wait has looked", looked).await;
    let connections = server.world().connections;
    server.world().skip_changes("Changefeed cache over array size limit, skipped 3 elements.");
    let woken = tokio::time::timeout(PATIENT, waiting).await.expect("the wait ends");
    woken.expect("nobody panics");
    assert_eq!(server.world().connections, connections, "the connection is as good as before");
}
