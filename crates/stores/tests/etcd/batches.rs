//! Batches: many writes in few transactions of etcd, each with its own outcome.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure::Key;
use tenure::store::{
    Durability, Expect, Fault, MAX_DOCUMENT_BYTES, Put, Store, StoreError, StoreExt, Version, Write,
};
use tenure_harness::{Etcd, Failure, etcd, require};

use crate::secured::with_users;
use crate::support::open;

const REQUEST: Duration = Duration::from_secs(20);
const PREFIX: &str = "batches";

macro_rules! on_both_versions {
    ($($claim:ident)*) => {
        mod current {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                super::$claim(tenure_harness::Version::Current).await;
            })*
        }

        mod debian {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                super::$claim(tenure_harness::Version::Debian).await;
            })*
        }
    };
}

on_both_versions! {
    a_batch_in_which_one_write_conflicts_stores_all_the_others_and_says_which
    creations_replacements_and_deletions_go_in_one_batch
    what_goes_in_one_batch_is_one_revision
    a_second_write_of_a_document_in_one_batch_has_an_outcome_of_its_own
    a_batch_larger_than_any_request_is_stored
    a_server_that_allows_few_operations_a_transaction_is_asked_for_few
    a_server_that_takes_small_requests_only_is_sent_small_ones
    whoever_waits_on_a_document_of_a_batch_is_woken
    of_a_batch_a_user_writes_what_it_may_and_is_denied_the_rest
    on_a_full_server_the_deletions_of_a_batch_go_through
    neighbours_are_read_whatever_else_is_between_them
    whoever_may_read_each_of_many_neighbours_reads_them
}

async fn server(version: tenure_harness::Version, arguments: &[&str]) -> Result<Etcd, Failure> {
    let arguments = arguments.iter().map(ToString::to_string).collect();
    Etcd::single(etcd::Options { version, arguments, ..etcd::Options::default() }).await
}

async fn store(server: &Etcd) -> Arc<dyn Store> {
    let url = format!("etcd://{}/{PREFIX}", server[0].address());
    open(&url, REQUEST).await.store().clone()
}

fn key(number: usize) -> Key {
    Key::parse(&format!("documents/{number:04}")).expect("a good key")
}

fn keys(count: usize) -> Vec<Key> {
    (0..count).map(key).collect()
}

fn write(number: usize, expect: Expect, body: Option<&str>) -> Write {
    let body = body.map(|body| body.to_owned().into());
    Write { key: key(number), expect, body, durability: Durability::Lasting }
}

fn create(number: usize, body: &str) -> Write {
    write(number, Expect::Absent, Some(body))
}

fn creations(count: usize, body: &str) -> Vec<Write> {
    (0..count).map(|number| create(number, body)).collect()
}

fn at(version: &Version) -> Expect {
    Expect::At(version.clone())
}

fn versions(outcomes: Vec<Result<Put, StoreError>>) -> Vec<Version> {
    let version = |outcome| match outcome {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    };
    outcomes.into_iter().map(version).collect()
}

/// The stored bodies, as text.
async fn bodies(store: &dyn Store, count: usize) -> Vec<Option<String>> {
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    let found = store.get_many(&keys(count)).await.expect("an answer");
    found.into_iter().map(|found| found.map(|found| text(&found.body))).collect()
}

/// Checks that a read finds this body, at the versions that the writes returned.
async fn are_stored(store: &dyn Store, versions: &[Version], body: &str) {
    let found = store.get_many(&keys(versions.len())).await.expect("an answer");
    for (found, version) in found.iter().zip(versions) {
        let found = found.as_ref().expect("it is there");
        assert_eq!((&found.version, &found.body[..]), (version, body.as_bytes()));
    }
}

async fn a_batch_in_which_one_write_conflicts_stores_all_the_others_and_says_which(
    version: tenure_harness::Version,
) {
    let server = require!(server(version, &[]).await);
    let store = store(&server).await;
    let before = versions(store.put_many(creations(30, "before")).await);
    let moved = store.put(&key(17), at(&before[17]), "moved".into()).await;
    assert!(matches!(moved, Ok(Put::Stored(_))), "{moved:?}");
    let renew = |(number, version)| write(number, at(version), Some("after"));
    let outcomes = store.put_many(before.iter().enumerate().map(renew).collect()).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(Put::Conflict) => assert_eq!(number, 17),
            Ok(Put::Stored(_)) => assert_ne!(number, 17),
            Err(error) => panic!("{error:?}"),
        }
    }
    for (number, body) in bodies(&*store, 30).await.into_iter().enumerate() {
        let expected = if number == 17 { "moved" } else { "after" };
        assert_eq!(body.as_deref(), Some(expected), "{number}");
    }
}

async fn creations_replacements_and_deletions_go_in_one_batch(version: tenure_harness::Version) {
    let server = require!(server(version, &[]).await);
    let store = store(&server).await;
    let before = versions(store.put_many(creations(40, "before")).await);
    let batch = (0..60).map(|number| match number {
        0..20 => write(number, at(&before[number]), Some("replaced")),
        20..40 => write(number, at(&before[number]), None),
        _ => create(number, "created"),
    });
    let after = versions(store.put_many(batch.collect()).await);
    for (number, body) in bodies(&*store, 60).await.into_iter().enumerate() {
        let expected = match number {
            0..20 => Some("replaced"),
            20..40 => None,
            _ => Some("created"),
        };
        assert_eq!(body.as_deref(), expected, "{number}");
    }
    // The next writes have to name these versions.
    let again = (0..60).map(|number| match number {
        20..40 => create(number, "again"),
        _ => write(number, at(&after[number]), Some("again")),
    });
    let last = versions(store.put_many(again.collect()).await);
    are_stored(&*store, &last, "again").await;
}

/// One revision makes a batch fast: the servers agree once.
async fn what_goes_in_one_batch_is_one_revision(version: tenure_harness::Version) {
    let server = require!(server(version, &[]).await);
    let store = store(&server).await;
    let versions = versions(store.put_many(creations(100, "1")).await);
    assert_eq!(versions.iter().collect::<HashSet<_>>().len(), 1, "{versions:?}");
    are_stored(&*store, &versions, "1").await;
}

/// The caller must not do this, but still gets true outcomes. etcd would not notice a second
/// deletion.
async fn a_second_write_of_a_document_in_one_batch_has_an_outcome_of_its_own(
    version: tenure_harness::Version,
) {
    let server = require!(server(version, &[]).await);
    let store = store(&server).await;
    let one_of = |outcomes: Vec<Result<Put, StoreError>>| {
        let [Ok(first), Ok(other), Ok(second)] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(matches!(other, Put::Stored(_)), "{other:?}");
        match [first, second] {
            [Put::Stored(version), Put::Conflict] | [Put::Conflict, Put::Stored(version)] => {
                version.clone()
            }
            both => panic!("{both:?}"),
        }
    };
    let twice = |expect: &Expect, body| write(0, expect.clone(), body);
    let absent = Expect::Absent;
    let batch = vec![twice(&absent, Some("a")), create(1, "1"), twice(&absent, Some("b"))];
    let stored = at(&one_of(store.put_many(batch).await));
    let batch = vec![twice(&stored, None), create(2, "1"), twice(&stored, None)];
    one_of(store.put_many(batch).await);
    assert_eq!(store.get(&key(0)).await.expect("an answer"), None);
}

async fn a_batch_larger_than_any_request_is_stored(version: tenure_harness::Version) {
    let server = require!(server(version, &[]).await);
    let store = store(&server).await;
    // A request may have 128 operations and 1.5 MiB.
    let body = "x".repeat(MAX_DOCUMENT_BYTES);
    let stored = versions(store.put_many(creations(300, &body)).await);
    are_stored(&*store, &stored, &body).await;
}

async fn a_server_that_allows_few_operations_a_transaction_is_asked_for_few(
    version: tenure_harness::Version,
) {
    let server = require!(server(version, &["--max-txn-ops", "8"]).await);
    let store = store(&server).await;
    let mut stored = versions(store.put_many(creations(100, "0")).await);
    are_stored(&*store, &stored, "0").await;
    let batch = |stored: &[Version], body: &str| {
        let renew = |(number, version)| write(number, at(version), Some(body));
        stored.iter().enumerate().map(renew).collect::<Vec<_>>()
    };
    stored = versions(store.put_many(batch(&stored, "1")).await);
    are_stored(&*store, &stored, "1").await;
    // The limit is remembered, and several writes still go together.
    let revisions = stored.iter().collect::<HashSet<_>>().len();
    assert!((100 / 7..=100 / 2).contains(&revisions), "{revisions} revisions");
}

async fn a_server_that_takes_small_requests_only_is_sent_small_ones(
    version: tenure_harness::Version,
) {
    let server = require!(server(version, &["--max-request-bytes", "80000"]).await);
    let store = store(&server).await;
    let body = "x".repeat(20_000);
    let stored = versions(store.put_many(creations(60, &body)).await);
    are_stored(&*store, &stored, &body).await;
}

async fn whoever_waits_on_a_document_of_a_batch_is_woken(version: tenure_harness::Version) {
    let server = require!(server(version, &[]).await);
    let (here, there) = (store(&server).await, store(&server).await);
    let created = versions(here.put_many(creations(80, "0")).await);
    // The last twenty are missing.
    let seen = |number: usize| created.get(number).cloned();
    // A read, so that each wait begins at a known state.
    let _ = there.get_many(&keys(100)).await.expect("an answer");
    let waits: Vec<_> = (0..100)
        .map(|number| {
            let (there, seen) = (there.clone(), seen(number));
            tokio::spawn(async move { there.changed(&key(number), seen.as_ref()).await })
        })
        .collect();
    let batch = (0..100).map(|number| match number {
        0..40 => write(number, at(&created[number]), Some("1")),
        40..80 => write(number, at(&created[number]), None),
        _ => create(number, "1"),
    });
    let after = versions(here.put_many(batch.collect()).await);
    assert_eq!(after.iter().collect::<HashSet<_>>().len(), 1);
    let all = tokio::time::timeout(REQUEST, join_all(waits)).await.expect("all are woken");
    assert!(all.into_iter().all(|wait| wait.is_ok()));
    // A wait begins at the versions of the batch, so the batch itself wakes no wait.
    let mut again: Vec<_> = (0..40)
        .map(|number| {
            let (here, seen) = (here.clone(), after[number].clone());
            tokio::spawn(async move { here.changed(&key(number), Some(&seen)).await })
        })
        .collect();
    let one = write(20, at(&after[20]), Some("2"));
    versions(there.put_many(vec![one, create(500, "1")]).await);
    let woken = tokio::time::timeout(REQUEST, again.swap_remove(20)).await.expect("it is woken");
    assert!(woken.is_ok());
    assert!(again.iter().all(|wait| !wait.is_finished()));
}

async fn of_a_batch_a_user_writes_what_it_may_and_is_denied_the_rest(
    version: tenure_harness::Version,
) {
    let readable = format!("{PREFIX}//");
    let writable = format!("{PREFIX}//documents/001");
    let server = require!(
        with_users(
            version,
            &[],
            &[
                &["role", "add", "some"],
                &["role", "grant-permission", "some", "read", &readable, "--prefix"],
                &["role", "grant-permission", "some", "readwrite", &writable, "--prefix"],
                &["user", "grant-role", "guest", "some"],
            ]
        )
        .await
    );
    let url = format!("etcd://guest:guest@{}/{PREFIX}", server[0].address());
    let store = open(&url, REQUEST).await.store().clone();
    let outcomes = store.put_many(creations(30, "1")).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(Put::Stored(_)) => assert!((10..20).contains(&number), "{number}"),
            Ok(Put::Conflict) => panic!("{number}: nobody else writes"),
            Err(error) => {
                assert!(!(10..20).contains(&number), "{number}: {error:?}");
                assert_eq!(error.fault, Fault::Denied, "{error:?}");
            }
        }
    }
    for (number, body) in bodies(&*store, 30).await.into_iter().enumerate() {
        assert_eq!(body.is_some(), (10..20).contains(&number), "{number}");
    }
}

/// Deletions make room.
async fn on_a_full_server_the_deletions_of_a_batch_go_through(version: tenure_harness::Version) {
    let server = require!(server(version, &["--quota-backend-bytes", "4000000"]).await);
    let store = store(&server).await;
    let old = versions(store.put_many(creations(10, "old")).await);
    let body = "x".repeat(MAX_DOCUMENT_BYTES);
    let mut number = 100;
    let full = |outcome: &Result<Put, StoreError>| matches!(outcome, Err(error) if error.fault == Fault::Unavailable);
    loop {
        let batch = (number..number + 10).map(|number| create(number, &body)).collect();
        number += 10;
        let outcomes = store.put_many(batch).await;
        if outcomes.iter().all(full) {
            break;
        }
        assert!(number < 1000, "it is never full: {outcomes:?}");
    }
    let batch = (0..20).map(|number| match number {
        0..10 => write(number, at(&old[number]), None),
        _ => create(number, "new"),
    });
    let outcomes = store.put_many(batch.collect()).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match number {
            0..10 => assert!(matches!(outcome, Ok(Put::Stored(_))), "{number}: {outcome:?}"),
            _ => assert!(full(outcome), "{number}: {outcome:?}"),
        }
    }
    assert!(bodies(&*store, 20).await.iter().all(Option::is_none));
}

async fn neighbours_are_read_whatever_else_is_between_them(version: tenure_harness::Version) {
    let server = require!(server(version, &[]).await);
    let store = store(&server).await;
    let odd = (0..90).step_by(2).map(|number| create(number, &number.to_string()));
    versions(store.put_many(odd.collect()).await);
    let are_read = async || {
        for (number, body) in bodies(&*store, 100).await.into_iter().enumerate() {
            let is_there = number < 90 && number % 2 == 0;
            assert_eq!(body, is_there.then(|| number.to_string()), "{number}");
        }
    };
    are_read().await;
    let strangers = (0..300).map(|number| Write {
        key: Key::parse(&format!("documents/0040/{number}")).expect("a good key"),
        ..create(0, "stranger")
    });
    versions(store.put_many(strangers.collect()).await);
    are_read().await;
    let mut twice = keys(100);
    twice.extend(keys(100));
    let found = store.get_many(&twice).await.expect("an answer");
    assert_eq!(found[..100], found[100..]);
    assert_eq!(found.iter().flatten().count(), 2 * 45);
}

async fn whoever_may_read_each_of_many_neighbours_reads_them(version: tenure_harness::Version) {
    let names: Vec<String> = keys(40).iter().map(|key| format!("{PREFIX}//{key}")).collect();
    let elections = format!("{PREFIX}//elections");
    let grant = |name| ["role", "grant-permission", "some", "readwrite", name];
    // Every other key: neighbours would be allowed as a range.
    let granted = names.iter().step_by(2).chain([&elections]);
    let grants: Vec<_> = granted.map(|name| grant(name.as_str())).collect();
    let (role, guest) = (["role", "add", "some"], ["user", "grant-role", "guest", "some"]);
    let mut words: Vec<&[&str]> = vec![&role];
    words.extend(grants.iter().map(|grant| &grant[..]));
    words.push(&guest);
    let server = require!(with_users(version, &[], &words).await);
    let url = format!("etcd://guest:guest@{}/{PREFIX}", server[0].address());
    let store = open(&url, REQUEST).await.store().clone();
    let mut asked: Vec<Key> = keys(40).into_iter().step_by(2).collect();
    // Asked for twice, so that there are enough for a range.
    asked.extend(asked.clone());
    let found = store.get_many(&asked).await.expect("it may read each");
    assert_eq!(found, vec![None; 40]);
    let denied = store.get_many(&keys(40)).await.expect_err("it may not read all");
    assert_eq!(denied.fault, Fault::Denied);
}
