//! Tests of the file store, and the parts that they share.

mod directories;
mod disks;
mod documents;
mod renewals;
mod waiting;
mod writes;

use std::path::PathBuf;

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::store::{Durability, Expect};

fn key(text: &str) -> Key {
    Key::parse(text).expect("a key")
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn open(at: &TempDir) -> FileStore {
    FileStore::open(&at.path().join("store"), FileOptions::default()).expect("opened")
}

fn open_at_boot(at: &TempDir, boot: &str) -> FileStore {
    let options = FileOptions { boot_id: Some(boot.to_owned()), ..FileOptions::default() };
    FileStore::open(&at.path().join("store"), options).expect("opened")
}

fn file(at: &TempDir, below: &str) -> PathBuf {
    at.path().join("store").join(below)
}

fn stored(put: Result<Put, StoreError>) -> Version {
    match put {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    }
}

fn write(text: &str, expect: Expect, body: &str, durability: Durability) -> Write {
    Write { key: key(text), expect, body: Some(Bytes::from(body.to_owned())), durability }
}

/// Writes on this thread, where a script can be running.
fn put_here(store: &FileStore, write: Write) -> Result<Put, StoreError> {
    let deadline = Instant::now() + Duration::from_secs(1);
    store.shared.put_many(&[write], deadline).pop().expect("one outcome")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

fn body_here(store: &FileStore, text: &str) -> Option<String> {
    let read = store.shared.get_many(&[key(text)], soon()).expect("read").pop().flatten();
    read.map(|document| String::from_utf8(document.body.to_vec()).expect("text"))
}

fn words(error: &StoreError) -> String {
    format!("{error}: {}", error.source)
}
