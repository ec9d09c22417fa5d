//! The store of docs/adding-a-store.md, whole, and its conformance.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::store::{
    Document, Expect, Fault, MAX_DOCUMENT_BYTES, Page, Put, Reads, Store, StoreError, Version,
    Write,
};
use tenure::{Backend, Key, Timing};
use tenure_conformance::suite::Subject;

// begin: the store
/// Documents in a map. Clones share it, as connections share a server.
#[derive(Clone, Debug, Default)]
struct Toy(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<Key, Row>,
    /// Rises at every write and never falls, so no version is ever given twice.
    writes: u64,
}

#[derive(Clone, Debug)]
struct Row {
    number: u64,
    body: Bytes,
}

impl Row {
    fn version(&self) -> Version {
        Version::new(self.number.to_string())
    }

    fn document(&self) -> Document {
        Document { version: self.version(), body: self.body.clone() }
    }
}

impl Table {
    fn write(&mut self, write: Write) -> Result<Put, StoreError> {
        if write.body.as_ref().is_some_and(|body| body.len() > MAX_DOCUMENT_BYTES) {
            let doing = format!("writing {}", write.key);
            return Err(StoreError::new(Fault::Permanent, "toy", doing, "the body is too large"));
        }
        let holds = match (&write.expect, self.rows.get(&write.key)) {
            (Expect::Absent, None) => true,
            (Expect::At(version), Some(row)) => *version == row.version(),
            (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
        };
        if !holds {
            return Ok(Put::Conflict);
        }
        self.writes += 1;
        let number = self.writes;
        match write.body {
            Some(body) => self.rows.insert(write.key, Row { number, body }),
            None => self.rows.remove(&write.key),
        };
        Ok(Put::Stored(Version::new(number.to_string())))
    }
}

impl Toy {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Toy {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        false
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let table = self.table();
        Ok(keys.iter().map(|key| table.rows.get(key).map(Row::document)).collect())
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let mut table = self.table();
        writes.into_iter().map(|write| table.write(write)).collect()
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let table = self.table();
        let from = after.filter(|after| *after > prefix).unwrap_or(prefix);
        let mut page = Page::default();
        let rows = table.rows.range((Bound::Excluded(from), Bound::Unbounded));
        for (key, row) in rows.filter(|(key, _)| key.is_under(prefix)) {
            if page.documents.len() == limit {
                page.next = page.documents.last().map(|(key, _)| key.clone());
                break;
            }
            page.documents.push((key.clone(), row.document()));
        }
        Ok(page)
    }

    async fn changed(&self, _key: &Key, _seen: Option<&Version>) {
        // There are no notifications: followers read every second or so instead.
        std::future::pending().await
    }
}
// end: the store

// begin: its conformance
#[derive(Default)]
struct ToyServer(Toy);

#[async_trait]
impl Subject for ToyServer {
    fn name(&self) -> &str {
        "toy"
    }

    async fn open(&self) -> Backend {
        Backend::new(Arc::new(self.0.clone()))
    }

    fn timing(&self) -> Timing {
        Timing::new(Duration::from_secs(2)).expect("two seconds leave room for every part")
    }
}

tenure_conformance::conformance!(ToyServer::default());
// end: its conformance

/// The document must show this very code.
#[test]
fn the_document_quotes_this_store_word_for_word() {
    let source = include_str!("adding_a_store.rs");
    let document = include_str!("../../../docs/adding-a-store.md");
    for part in ["the store", "its conformance"] {
        let begin = format!("// begin: {part}\n");
        let quoted = source.split(&begin).nth(1).expect("a beginning");
        let quoted = quoted.split(&format!("// end: {part}")).next().expect("an end");
        assert!(document.contains(&format!("```rust\n{quoted}```")), "{part} differs");
    }
}
