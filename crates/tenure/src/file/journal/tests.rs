//! Tests of the journal, and the parts that they share.

mod batches;
mod damage;
mod interrupted;
mod replaced;

use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;

use super::super::power::Luck;
use super::super::{FileOptions, FileStore};
use super::*;
use crate::Key;
use crate::store::{Durability, Expect, Put, StoreError, Version, Write};

/// Enough for a journal, and few enough to try every step.
const MANY: usize = 9;

/// In memory where that is possible: power cuts are simulated, and there are thousands of syncs.
fn directory() -> TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a directory")
}

fn open(at: &TempDir, boot: &str) -> Result<FileStore, StoreError> {
    let options = FileOptions { boot_id: Some(boot.to_owned()), ..FileOptions::default() };
    FileStore::open(&at.path().join("store"), options)
}

fn opened(at: &TempDir, boot: &str) -> FileStore {
    open(at, boot).expect("opened")
}

fn key(number: usize) -> Key {
    Key::parse(&format!("a/{number}")).expect("a key")
}

fn write(number: usize, expect: Expect, body: Option<&str>, durability: Durability) -> Write {
    let body = body.map(|body| Bytes::from(body.to_owned()));
    Write { key: key(number), expect, body, durability }
}

fn lasting(number: usize, expect: Expect, body: &str) -> Write {
    write(number, expect, Some(body), Durability::Lasting)
}

type Outcome = Result<Put, StoreError>;

fn put(store: &FileStore, writes: &[Write]) -> Vec<Outcome> {
    store.shared.put_many(writes, Instant::now() + Duration::from_secs(5))
}

fn stored(outcomes: Vec<Outcome>) -> Vec<Version> {
    let version = |outcome| match outcome {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    };
    outcomes.into_iter().map(version).collect()
}

fn try_body(store: &FileStore, number: usize) -> Result<Option<String>, StoreError> {
    let deadline = Instant::now() + Duration::from_secs(1);
    let read = store.shared.get_many(&[key(number)], deadline)?.pop().flatten();
    Ok(read.map(|document| String::from_utf8(document.body.to_vec()).expect("text")))
}

fn body(store: &FileStore, number: usize) -> Option<String> {
    try_body(store, number).expect("read")
}

fn path(at: &TempDir, name: &str) -> std::path::PathBuf {
    at.path().join("store").join(name)
}

/// Creates documents `0..MANY` through a journal.
fn create(store: &FileStore, body: &str) -> Vec<Version> {
    let writes: Vec<Write> = (0..MANY).map(|n| lasting(n, Expect::Absent, body)).collect();
    stored(put(store, &writes))
}

/// Replaces most, deletes one and creates one, all in one batch.
fn mixed_batch(versions: &[Version], body: &str) -> Vec<Write> {
    let mut writes: Vec<Write> = versions
        .iter()
        .enumerate()
        .map(|(n, version)| lasting(n, Expect::At(version.clone()), body))
        .collect();
    writes[1].body = None;
    writes.push(lasting(MANY, Expect::Absent, body));
    writes
}

/// The kinds of luck to try, with another mixture for each step.
fn lucks(steps: usize) -> [Luck; 3] {
    [Luck::Bad, Luck::Good, Luck::Mixed { seed: steps as u64 }]
}
