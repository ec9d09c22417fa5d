//! The few documents of ours in a table.

// The names of the cases are their documentation.
#![allow(missing_docs)]

use std::sync::Arc;

use serde_json::Value;
use tenure::feed::{Beat, FeedStore, LEADER};
use tenure::store::{Expect, Fault, MAX_DOCUMENT_BYTES, Put};

use super::Case;
use super::case::{beat, fields, found, stored};

pub async fn creating_a_table_again_changes_nothing(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    stored(&one, case.table(), Expect::Absent, &fields(LEADER, 1)).await;
    other.create(case.table()).await.expect("what exists is no error");
    assert!(found(&other, case.table(), LEADER).await.is_some());
}

pub async fn starting_on_a_table_that_does_not_exist_fails_for_good(case: &Case) {
    let store = case.subject().open().await;
    let error = store.start(case.table()).await.expect_err("there is no such table");
    assert_eq!(error.fault, Fault::Permanent, "{error:?}");
}

pub async fn a_document_is_read_back_with_every_field(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let mut written = fields(LEADER, 7);
    written.insert("value".into(), Value::Null);
    written.insert("clean".into(), true.into());
    written.insert("größe".into(), "ein „Wert“ mit 'allem'".into());
    written.insert("largest".into(), ((1u64 << 53) - 1).into());
    let version = stored(&one, case.table(), Expect::Absent, &written).await;
    let read = found(&other, case.table(), LEADER).await.expect("it was written");
    assert_eq!(read.version, version);
    for (name, value) in &written {
        assert_eq!(read.fields.get(name), Some(value), "{name}");
    }
    let mut names: Vec<&str> = read.fields.keys().map(String::as_str).collect();
    names.retain(|name| *name != "timestamp" && !written.contains_key(*name));
    assert!(names.is_empty(), "nothing is added: {names:?}");
}

pub async fn a_heartbeat_replaces_every_field(case: &Case) {
    let store = case.open().await;
    let mut first = fields(LEADER, 1);
    first.insert("preferred".into(), "host-b".into());
    let version = stored(&store, case.table(), Expect::Absent, &first).await;
    stored(&store, case.table(), Expect::At(version), &fields(LEADER, 2)).await;
    let read = found(&store, case.table(), LEADER).await.expect("it was written");
    assert_eq!(read.fields.get("preferred"), None, "an old field is gone");
    assert_eq!(read.fields.get("token"), Some(&2.into()));
}

pub async fn the_server_stamps_its_time_into_each_heartbeat(case: &Case) {
    let store = case.open().await;
    let stamp = async || {
        let read = found(&store, case.table(), LEADER).await.expect("it was written");
        read.fields.get("timestamp").and_then(Value::as_u64).expect("milliseconds since 1970")
    };
    let mut version = stored(&store, case.table(), Expect::Absent, &fields(LEADER, 1)).await;
    let first = stamp().await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    version = stored(&store, case.table(), Expect::At(version), &fields(LEADER, 2)).await;
    let second = stamp().await;
    assert!(first > 1_500_000_000_000 && second > first, "{first} {second}");
    let _ = version;
}

pub async fn a_missing_document_reads_as_none_and_order_is_kept(case: &Case) {
    let store = case.open().await;
    stored(&store, case.table(), Expect::Absent, &fields("feeds/b", 5)).await;
    let ids = ["feeds/a", "feeds/b", LEADER].map(ToOwned::to_owned);
    let read = store.read(case.table(), &ids).await.expect("the database answers");
    assert_eq!(read.len(), 3);
    assert!(read[0].is_none() && read[2].is_none());
    let there = read[1].as_ref().expect("it was written");
    assert_eq!(there.fields.get("token"), Some(&5.into()));
}

pub async fn creating_what_exists_is_a_conflict(case: &Case) {
    let store = case.open().await;
    stored(&store, case.table(), Expect::Absent, &fields(LEADER, 1)).await;
    let again = beat(&store, case.table(), Expect::Absent, &fields(LEADER, 2)).await;
    assert_eq!(again.expect("an answer"), Put::Conflict);
    let read = found(&store, case.table(), LEADER).await.expect("it was written");
    assert_eq!(read.fields.get("token"), Some(&1.into()));
}

pub async fn a_heartbeat_at_a_stale_version_is_a_conflict(case: &Case) {
    let store = case.open().await;
    let first = stored(&store, case.table(), Expect::Absent, &fields(LEADER, 1)).await;
    let second = stored(&store, case.table(), Expect::At(first.clone()), &fields(LEADER, 2)).await;
    let stale = beat(&store, case.table(), Expect::At(first), &fields(LEADER, 3)).await;
    assert_eq!(stale.expect("an answer"), Put::Conflict);
    stored(&store, case.table(), Expect::At(second), &fields(LEADER, 4)).await;
}

pub async fn a_heartbeat_of_what_is_gone_is_a_conflict(case: &Case) {
    let store = case.open().await;
    let version = stored(&store, case.table(), Expect::Absent, &fields("feeds/a", 1)).await;
    let deletion =
        || Beat { id: "feeds/a".into(), expect: Expect::At(version.clone()), fields: None };
    let deleted = store.heartbeat(case.table(), deletion()).await.expect("an answer");
    assert!(matches!(deleted, Put::Stored(_)));
    assert!(found(&store, case.table(), "feeds/a").await.is_none());
    let again = store.heartbeat(case.table(), deletion()).await.expect("an answer");
    assert_eq!(again, Put::Conflict);
    let write = beat(&store, case.table(), Expect::At(version), &fields("feeds/a", 2)).await;
    assert_eq!(write.expect("an answer"), Put::Conflict);
    stored(&store, case.table(), Expect::Absent, &fields("feeds/a", 3)).await;
}

pub async fn of_twenty_who_create_the_leaders_document_one_wins(case: &Case) {
    let stores: Vec<Arc<dyn FeedStore>> =
        futures_util::future::join_all((0..4).map(|_| case.open())).await;
    let all: Vec<_> = (0..20).map(|number| fields(LEADER, number)).collect();
    let writes = all
        .iter()
        .enumerate()
        .map(|(at, fields)| beat(&stores[at % stores.len()], case.table(), Expect::Absent, fields));
    let answers = futures_util::future::join_all(writes).await;
    let won = answers.iter().filter(|answer| matches!(answer, Ok(Put::Stored(_)))).count();
    let lost = answers.iter().filter(|answer| matches!(answer, Ok(Put::Conflict))).count();
    assert_eq!((won, lost), (1, 19), "{answers:?}");
}

pub async fn no_heartbeat_is_lost_among_concurrent_writers(case: &Case) {
    let store = case.open().await;
    stored(&store, case.table(), Expect::Absent, &fields(LEADER, 0)).await;
    let write = async || {
        let store = case.open().await;
        let mut won = 0;
        while won < 10 {
            let read = found(&store, case.table(), LEADER).await.expect("it is there");
            let count = read.fields.get("token").and_then(Value::as_u64).expect("a number");
            let next = fields(LEADER, count + 1);
            match beat(&store, case.table(), Expect::At(read.version), &next).await {
                Ok(Put::Stored(_)) => won += 1,
                Ok(Put::Conflict) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    tokio::join!(write(), write(), write());
    let read = found(&store, case.table(), LEADER).await.expect("it is there");
    assert_eq!(read.fields.get("token"), Some(&30.into()));
}

pub async fn a_document_that_is_too_large_is_refused_for_good(case: &Case) {
    let store = case.open().await;
    let mut large = fields(LEADER, 1);
    large.insert("value".into(), "x".repeat(MAX_DOCUMENT_BYTES).into());
    let error = beat(&store, case.table(), Expect::Absent, &large).await.expect_err("too large");
    assert_eq!(error.fault, Fault::Permanent, "{error:?}");
    assert!(found(&store, case.table(), LEADER).await.is_none());
}
