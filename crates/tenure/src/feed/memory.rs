//! Tables in this process's memory: for tests, and the worked example of docs/adding-a-feed.md.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::store::feed::{
    Beat, Cursor, FeedStore, Fields, Found, Handle, Item, LEADER, Origin, Subscription, is_metadata,
};
use crate::store::{Expect, Fault, MAX_DOCUMENT_BYTES, Put, Reads, StoreError, Version};

/// The most changes of a table that are remembered. A subscriber further behind gets an error.
const MOST_REMEMBERED: usize = 1024;

/// Tables in this process's memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryFeed {
    tables: Arc<Mutex<BTreeMap<String, Arc<Table>>>>,
}

/// One table: its documents and its latest changes.
#[derive(Debug)]
pub struct Table {
    content: Mutex<Content>,
    /// The number of the newest change. Subscribers wait on it.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Content {
    documents: BTreeMap<String, Value>,
    changes: VecDeque<(u64, Item)>,
    written: u64,
}

impl MemoryFeed {
    /// Creates a feed without tables.
    #[must_use]
    pub fn new() -> MemoryFeed {
        MemoryFeed::default()
    }

    /// A table, if it was created.
    #[must_use]
    pub fn open(&self, table: &str) -> Option<Arc<Table>> {
        lock(&self.tables).get(table).cloned()
    }

    fn existing(&self, table: &str, doing: &str) -> Result<Arc<Table>, StoreError> {
        self.open(table).ok_or_else(|| {
            let doing = format!("{doing} the table {table}");
            StoreError::new(Fault::Permanent, "memory", doing, "there is no such table")
        })
    }
}

impl Table {
    /// Inserts or replaces a document of the table's users.
    ///
    /// An id for which [`is_metadata`] is true belongs to us, and a write to it is never shown as a
    /// change.
    pub fn write(&self, id: &str, document: Value) {
        lock(&self.content).replace(id, Some(document), &self.newest);
    }

    /// Deletes a document.
    pub fn delete(&self, id: &str) {
        lock(&self.content).replace(id, None, &self.newest);
    }

    /// A document, one of ours or of the table's users.
    #[must_use]
    pub fn read(&self, id: &str) -> Option<Value> {
        lock(&self.content).documents.get(id).cloned()
    }
}

impl Content {
    fn replace(&mut self, id: &str, new: Option<Value>, newest: &watch::Sender<u64>) {
        let old = match &new {
            Some(new) => self.documents.insert(id.to_owned(), new.clone()),
            None => self.documents.remove(id),
        };
        self.written += 1;
        let change = json!({ "id": id, "old": old, "new": new });
        let item = match is_metadata(id) {
            false => Item::Change { change, cursor: Some(Cursor(self.written.into())) },
            true if id == LEADER => Item::Leader(new.as_ref().and_then(found)),
            true => return,
        };
        if self.changes.len() == MOST_REMEMBERED {
            self.changes.pop_front();
        }
        self.changes.push_back((self.written, item));
        newest.send_replace(self.written);
    }

    /// The first change after this one.
    ///
    /// `None` while there is none; an error when it was forgotten.
    fn after(&self, seen: u64) -> Option<Result<(u64, Item), StoreError>> {
        let (oldest, _) = self.changes.front()?;
        if self.changes.len() == MOST_REMEMBERED && seen + 1 < *oldest {
            let says = "the subscriber is too far behind";
            let doing = "following a table";
            return Some(Err(StoreError::new(Fault::Permanent, "memory", doing, says)));
        }
        let next = self.changes.iter().find(|(number, _)| *number > seen)?;
        Some(Ok(next.clone()))
    }
}

#[async_trait]
impl FeedStore for MemoryFeed {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn table(&self) -> &str {
        "tenure"
    }

    async fn create(&self, table: &str) -> Result<(), StoreError> {
        let content = Mutex::default();
        let create = || Arc::new(Table { content, newest: watch::Sender::new(0) });
        lock(&self.tables).entry(table.to_owned()).or_insert_with(create);
        Ok(())
    }

    async fn start(&self, table: &str) -> Result<(), StoreError> {
        self.existing(table, "starting on").map(drop)
    }

    async fn read(&self, table: &str, ids: &[String]) -> Result<Vec<Option<Found>>, StoreError> {
        let table = self.existing(table, "reading")?;
        Ok(ids.iter().map(|id| table.read(id).as_ref().and_then(found)).collect())
    }

    async fn heartbeat(&self, table: &str, beat: Beat) -> Result<Put, StoreError> {
        let table = self.existing(table, "writing to")?;
        let mut content = lock(&table.content);
        let held = content.documents.get(&beat.id).and_then(found).map(|found| found.version);
        let holds = match &beat.expect {
            Expect::Absent => held.is_none(),
            Expect::At(version) => held.as_ref() == Some(version),
        };
        if !holds {
            return Ok(Put::Conflict);
        }
        let stamped = beat.fields.map(stamp).transpose()?;
        // After a deletion the version means nothing.
        let version = stamped.as_ref().and_then(found).map_or(Version::new(""), |new| new.version);
        content.replace(&beat.id, stamped, &table.newest);
        Ok(Put::Stored(version))
    }

    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError> {
        let table = self.existing(table, "subscribing to")?;
        let content = lock(&table.content);
        let (seen, held) = match from {
            Origin::Now => (content.written, Vec::new()),
            Origin::After(Cursor(place)) => (place.as_u64().unwrap_or(0), Vec::new()),
            Origin::Start => {
                let documents = content.documents.iter().filter(|(id, _)| !is_metadata(id));
                let shown = |(id, new): (&String, &Value)| {
                    let change = json!({ "id": id, "old": null, "new": new });
                    Ok(Item::Change { change, cursor: None })
                };
                (content.written, documents.map(shown).collect())
            }
        };
        drop(content);
        let later = stream::unfold((table.newest.subscribe(), table, seen), async |state| {
            let (mut newest, table, seen) = state;
            loop {
                // Marked as seen first, so that a write after the check wakes us again.
                newest.mark_unchanged();
                match lock(&table.content).after(seen) {
                    Some(Ok((number, item))) => {
                        return Some((Ok(item), (newest, table.clone(), number)));
                    }
                    Some(Err(error)) => return Some((Err(error), (newest, table.clone(), seen))),
                    None => {}
                }
                // The table lives as long as we hold it, and the sender with it.
                newest.changed().await.ok()?;
            }
        });
        Ok(stream::iter(held).chain(later).boxed())
    }

    async fn unsubscribe(&self, subscription: Subscription) {
        drop(subscription);
    }

    fn handle(&self, table: &str, handle: Handle) -> Option<Arc<dyn Any + Send + Sync>> {
        match handle {
            Handle::Connection => Some(Arc::new(self.clone())),
            Handle::Database => None,
            Handle::Table => Some(self.open(table)?),
        }
    }
}

/// Adds the server's time to a document of ours: here it is this machine's time.
fn stamp(mut fields: Fields) -> Result<Value, StoreError> {
    let wall = crate::clock::system().wall();
    fields.insert("timestamp".into(), wall.into());
    let document = Value::Object(fields);
    if document.to_string().len() > MAX_DOCUMENT_BYTES {
        let says = format!("it has more than {MAX_DOCUMENT_BYTES} bytes");
        return Err(StoreError::new(Fault::Permanent, "memory", "writing a document", says));
    }
    Ok(document)
}

/// A document of ours as it is read.
///
/// Its `op` is its version. A document without an `op` was not written by us, and its whole text
/// serves as its version.
fn found(document: &Value) -> Option<Found> {
    let fields = document.as_object()?.clone();
    let op = fields.get("op").and_then(Value::as_str).map(ToOwned::to_owned);
    Some(Found { version: Version::new(op.unwrap_or_else(|| document.to_string())), fields })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change below is complete before a panic can happen.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
