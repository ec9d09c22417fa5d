//! Batches: many documents in one request, each with its own outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tenure::store::{
    Durability, Expect, Fault, MAX_DOCUMENT_BYTES, Put, StoreError, StoreExt, Version, Write,
};
use tenure::{Backend, Key};
use tenure_harness::{Direction, Framing, Proxy, Zookeeper, require, zookeeper};

use crate::faults::{Servers, soon};
use crate::kind::{self, Kind};
use crate::support::open;

/// Long, because many cases run at once on few cores.
const REQUEST: Duration = Duration::from_secs(20);
/// Enough documents for several requests.
const MANY: usize = 150;

// The codes of requests on the wire.
const MULTI: i32 = 14;
const MULTI_READ: i32 = 22;

type Outcomes = Vec<Result<Put, StoreError>>;

/// Opens a store on a server that the cases share.
macro_rules! shared {
    () => {
        match kind::single() {
            Ok(shared) => open(shared.url(), REQUEST).await,
            Err(skipped) => {
                tenure_harness::available::<()>(Err(skipped.clone().into()));
                return;
            }
        }
    };
}

fn key(case: &str, number: usize) -> Key {
    Key::parse(&format!("batches/{case}/{number:03}")).expect("a good key")
}

fn keys(case: &str, count: usize) -> Vec<Key> {
    (0..count).map(|number| key(case, number)).collect()
}

fn write(key: &Key, expect: Expect, body: impl Into<Bytes>) -> Write {
    Write { key: key.clone(), expect, body: Some(body.into()), durability: Durability::Lasting }
}

fn deletion(key: &Key, version: &Version) -> Write {
    let expect = Expect::At(version.clone());
    Write { key: key.clone(), expect, body: None, durability: Durability::Lasting }
}

async fn put(backend: &Backend, writes: Vec<Write>) -> Outcomes {
    let count = writes.len();
    let outcomes = backend.store().put_many(writes).await;
    assert_eq!(outcomes.len(), count);
    outcomes
}

/// Creates a document at each key.
async fn create(backend: &Backend, keys: &[Key], body: &str) -> Vec<Version> {
    let writes = keys.iter().map(|key| write(key, Expect::Absent, body.to_owned())).collect();
    versions(put(backend, writes).await)
}

/// Replaces the documents that are at these versions.
fn replacements(keys: &[Key], versions: &[Version], body: &str) -> Vec<Write> {
    let replace =
        |(key, version): (&Key, &Version)| write(key, Expect::At(version.clone()), body.to_owned());
    keys.iter().zip(versions).map(replace).collect()
}

fn versions(outcomes: Outcomes) -> Vec<Version> {
    outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(Put::Stored(version)) => version,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// The bodies of the documents; `None` if one does not exist.
async fn bodies(backend: &Backend, keys: &[Key]) -> Vec<Option<Bytes>> {
    let found = backend.store().get_many(keys).await.expect("they are read");
    found.into_iter().map(|document| document.map(|document| document.body)).collect()
}

fn fault(outcome: &Result<Put, StoreError>) -> Option<Fault> {
    outcome.as_ref().err().map(|error| error.fault)
}

#[tokio::test]
async fn writes_that_conflict_say_so_and_all_the_others_are_stored() {
    let backend = shared!();
    everything_but_conflicts_is_stored(&backend).await;
}

#[tokio::test]
async fn the_same_on_debians_server() {
    let version = tenure_harness::Version::Debian;
    let servers = require!(Kind::start(1, version).await);
    let backend = open(&Kind::url(&servers.addresses(), "batches"), REQUEST).await;
    everything_but_conflicts_is_stored(&backend).await;
    what_is_missing_is_nothing_in_its_place(&backend).await;
}

async fn everything_but_conflicts_is_stored(backend: &Backend) {
    // One conflict; then more conflicts in one request than are taken out one after the other.
    for at_odds in [&[70][..], &[0, 1, 2, 3, 40, 63, 64, 149]] {
        let keys = keys(&format!("conflicts-{}", at_odds.len()), MANY);
        let before = create(backend, &keys, "1").await;
        for at in at_odds {
            let put =
                backend.store().put(&keys[*at], Expect::At(before[*at].clone()), "x".into()).await;
            assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
        }
        let outcomes = put(backend, replacements(&keys, &before, "2")).await;
        let stored = bodies(backend, &keys).await;
        for (at, (outcome, body)) in outcomes.iter().zip(stored).enumerate() {
            let conflicts = at_odds.contains(&at);
            assert_eq!(matches!(outcome, Ok(Put::Conflict)), conflicts, "{at}: {outcome:?}");
            assert_eq!(matches!(outcome, Ok(Put::Stored(_))), !conflicts, "{at}: {outcome:?}");
            assert_eq!(body.as_deref(), Some(if conflicts { &b"x"[..] } else { b"2" }), "{at}");
        }
    }
}

#[tokio::test]
async fn versions_that_a_batch_gives_are_those_of_the_next_write() {
    let backend = shared!();
    let keys = keys("versions", MANY);
    let mut versions_now = create(&backend, &keys, "0").await;
    for round in 1..4 {
        let writes = replacements(&keys, &versions_now, &round.to_string());
        versions_now = versions(put(&backend, writes).await);
    }
    let found = backend.store().get_many(&keys).await.expect("they are read");
    let found: Vec<_> = found.into_iter().flatten().map(|document| document.version).collect();
    assert_eq!(found, versions_now);
}

#[tokio::test]
async fn creations_replacements_and_deletions_share_a_batch() {
    let backend = shared!();
    let keys = keys("mixture", MANY);
    let before = create(&backend, &keys[50..], "1").await;
    let mut writes: Vec<Write> =
        keys[..50].iter().map(|key| write(key, Expect::Absent, "new")).collect();
    writes.extend(replacements(&keys[50..100], &before, "2"));
    let deletions = keys[100..].iter().zip(&before[50..]);
    writes.extend(deletions.map(|(key, version)| deletion(key, version)));
    // One write of each kind is in conflict: a creation, a deletion and a replacement.
    let absent = key("mixture", 999);
    writes[7].key = keys[60].clone();
    writes[60].key = absent.clone();
    writes[120].key = key("mixture", 998);
    let outcomes = put(&backend, writes).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        let conflicts = [7, 60, 120].contains(&at);
        assert_eq!(matches!(outcome, Ok(Put::Conflict)), conflicts, "{at}: {outcome:?}");
        assert_eq!(matches!(outcome, Ok(Put::Stored(_))), !conflicts, "{at}: {outcome:?}");
    }
    for (at, body) in bodies(&backend, &keys).await.into_iter().enumerate() {
        let expected = match at {
            7 => None,
            60 | 120 => Some(&b"1"[..]),
            0..50 => Some(&b"new"[..]),
            50..100 => Some(&b"2"[..]),
            _ => None,
        };
        assert_eq!(body.as_deref(), expected, "{at}");
    }
    assert_eq!(backend.store().get(&absent).await.expect("read"), None);
}

#[tokio::test]
async fn two_writes_of_one_document_in_a_batch_are_judged_one_after_the_other() {
    let backend = shared!();
    let keys = keys("twice", 20);
    let mut writes: Vec<Write> =
        keys.iter().map(|key| write(key, Expect::Absent, "first")).collect();
    writes.insert(10, write(&keys[3], Expect::Absent, "second"));
    let outcomes = put(&backend, writes).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            10 => assert!(matches!(outcome, Ok(Put::Conflict)), "{outcome:?}"),
            _ => assert!(matches!(outcome, Ok(Put::Stored(_))), "{at}: {outcome:?}"),
        }
    }
    let stored = bodies(&backend, &keys).await;
    assert!(stored.iter().all(|body| body.as_deref() == Some(b"first")), "{stored:?}");
}

#[tokio::test]
async fn documents_whose_levels_do_not_exist_yet_are_created_in_one_batch() {
    let backend = shared!();
    let deep = |number| Key::parse(&format!("batches/levels/{number}/a/b")).expect("a good key");
    let keys: Vec<Key> = (0..30).map(deep).collect();
    create(&backend, &keys, "1").await;
    let stored = bodies(&backend, &keys).await;
    assert!(stored.iter().all(|body| body.as_deref() == Some(b"1")), "{stored:?}");
}

#[tokio::test]
async fn a_batch_longer_than_a_server_takes_at_once_is_stored() {
    let backend = shared!();
    let keys = keys("long", 40);
    let body = "x".repeat(MAX_DOCUMENT_BYTES);
    let before = create(&backend, &keys, &body).await;
    versions(put(&backend, replacements(&keys, &before, &body)).await);
    let stored = bodies(&backend, &keys).await;
    assert!(stored.iter().all(|stored| stored.as_deref() == Some(body.as_bytes())));
}

#[tokio::test]
async fn a_document_that_is_too_long_is_refused_by_itself() {
    let backend = shared!();
    let keys = keys("too-long", 10);
    let mut writes: Vec<Write> = keys.iter().map(|key| write(key, Expect::Absent, "1")).collect();
    writes[4].body = Some("x".repeat(MAX_DOCUMENT_BYTES + 1).into());
    let outcomes = put(&backend, writes).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        let expected = (at == 4).then_some(Fault::Permanent);
        assert_eq!(fault(outcome), expected, "{at}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_document_that_is_not_ours_to_write_is_denied_by_itself() {
    let server = require!(Zookeeper::single(zookeeper::Options::default()).await);
    let address = server[0].address();
    let everyone = open(&format!("zookeeper://{address}/s"), REQUEST).await;
    let keys = keys("denied", 10);
    let before = create(&everyone, &keys[..9], "1").await;
    let owner = open(&format!("zookeeper://ann:canary@{address}/s"), REQUEST).await;
    let hers = create(&owner, &keys[9..], "1").await;
    let mut writes = replacements(&keys[..9], &before, "2");
    writes.insert(4, write(&keys[9], Expect::At(hers[0].clone()), "2"));
    let outcomes = put(&everyone, writes).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        let expected = (at == 4).then_some(Fault::Denied);
        assert_eq!(fault(outcome), expected, "{at}: {outcome:?}");
    }
}

#[tokio::test]
async fn missing_documents_are_read_as_nothing_in_their_place() {
    let backend = shared!();
    what_is_missing_is_nothing_in_its_place(&backend).await;
}

async fn what_is_missing_is_nothing_in_its_place(backend: &Backend) {
    let keys = keys("gaps", MANY);
    let there = |number: usize| !number.is_multiple_of(7);
    let some = keys.iter().enumerate().filter(|(number, _)| there(*number));
    let writes = some.map(|(number, key)| write(key, Expect::Absent, number.to_string()));
    versions(put(backend, writes.collect()).await);
    for (number, body) in bodies(backend, &keys).await.into_iter().enumerate() {
        let expected = there(number).then(|| Bytes::from(number.to_string()));
        assert_eq!(body, expected, "{number}");
    }
}

/// Counts the requests with this code at a proxy.
fn counted(proxy: &Proxy, code: i32) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    proxy.observe(move |message| {
        let is_such = message.bytes.get(8..12) == Some(&code.to_be_bytes()[..]);
        if message.direction == Direction::ToServer && is_such {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    count
}

async fn behind_a_proxy(request: Duration) -> Option<(Zookeeper, Proxy, Backend)> {
    let started = Zookeeper::single(zookeeper::Options::default()).await;
    let server = tenure_harness::available(started)?;
    let proxy = Proxy::start(server[0].address(), Framing::Zookeeper).expect("a proxy");
    let backend = open(&Kind::url(&[proxy.address()], "batches"), request).await;
    Some((server, proxy, backend))
}

#[tokio::test]
async fn many_documents_share_a_request() {
    let Some((_server, proxy, backend)) = behind_a_proxy(REQUEST).await else { return };
    let keys = keys("requests", 100);
    let before = create(&backend, &keys, "1").await;
    let multis = counted(&proxy, MULTI);
    versions(put(&backend, replacements(&keys, &before, "2")).await);
    assert_eq!(multis.load(Ordering::Relaxed), 2);
    let reads = counted(&proxy, MULTI_READ);
    bodies(&backend, &keys).await;
    assert_eq!(reads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_batch_whose_answer_is_lost_is_in_doubt_and_was_sent_once() {
    let Some((server, proxy, backend)) = behind_a_proxy(REQUEST).await else { return };
    let keys = keys("lost", 20);
    let before = create(&backend, &keys, "1").await;
    proxy.lose_answer_of(|request| request.get(8..12) == Some(&MULTI.to_be_bytes()[..]));
    let outcomes = put(&backend, replacements(&keys, &before, "2")).await;
    assert_eq!(proxy.answers_lost(), 1);
    for outcome in &outcomes {
        assert_eq!(fault(outcome), Some(Fault::Indeterminate), "{outcome:?}");
    }
    let direct = open(&Kind::url(&server.addresses(), "batches"), REQUEST).await;
    let found = direct.store().get_many(&keys).await.expect("they are read");
    for (document, before) in found.into_iter().zip(&before) {
        let document = document.expect("it is there");
        assert_eq!(&document.body[..], b"2");
        let version = document.version.as_str();
        assert_eq!(version, before.as_str().replace(":0", ":1"), "written once");
    }
}

#[tokio::test]
async fn a_batch_that_was_cut_off_is_in_doubt_and_does_not_happen_later() {
    let Some((server, proxy, backend)) = behind_a_proxy(REQUEST).await else { return };
    let keys = keys("cut", 40);
    let before = create(&backend, &keys, "1").await;
    // In the middle of a request with all of them.
    proxy.drop_after(Direction::ToServer, 2_000);
    let long = "2".repeat(100);
    let outcomes = put(&backend, replacements(&keys, &before, &long)).await;
    for outcome in &outcomes {
        assert_eq!(fault(outcome), Some(Fault::Indeterminate), "{outcome:?}");
    }
    let found = nothing_happens_later(&server, &backend, &keys).await;
    assert_eq!(found, before, "it never arrived whole");
}

#[tokio::test]
async fn a_batch_that_was_given_up_is_in_doubt_and_does_not_happen_later() {
    let Some((server, proxy, backend)) = behind_a_proxy(Duration::from_secs(2)).await else {
        return;
    };
    let keys = keys("given-up", 40);
    let before = create(&backend, &keys, "1").await;
    proxy.blackhole(Direction::ToServer);
    let outcomes = put(&backend, replacements(&keys, &before, "2")).await;
    for outcome in &outcomes {
        assert_eq!(fault(outcome), Some(Fault::Indeterminate), "{outcome:?}");
    }
    // The data that the network held back arrives now, perhaps before the server knows of the other
    // connection.
    proxy.heal().await;
    let found = nothing_happens_later(&server, &backend, &keys).await;
    let unchanged = found.iter().zip(&before).filter(|(found, before)| found == before).count();
    assert!([0, keys.len()].contains(&unchanged), "all or nothing, not {unchanged}");
}

/// Checks that nothing happens on the old connection once there is another.
///
/// Returns the versions that it found then.
async fn nothing_happens_later(
    server: &Zookeeper,
    backend: &Backend,
    keys: &[Key],
) -> Vec<Version> {
    let found = soon("it is connected again", async {
        loop {
            match backend.store().get_many(keys).await {
                Ok(found) => break found,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let found: Vec<Version> = found.into_iter().flatten().map(|found| found.version).collect();
    let direct = open(&Kind::url(&server.addresses(), "batches"), REQUEST).await;
    versions(put(&direct, replacements(keys, &found, "3")).await);
    for handle in [backend, &direct] {
        let stored = bodies(handle, keys).await;
        assert!(stored.iter().all(|body| body.as_deref() == Some(b"3")), "{stored:?}");
    }
    found
}
