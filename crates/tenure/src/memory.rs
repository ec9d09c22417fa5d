//! The store of one process: for tests, and for programs that elect among their own tasks.

#[cfg(feature = "test-util")]
mod queues;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;

use crate::store::{
    Document, Expect, Fault, MAX_DOCUMENT_BYTES, Page, Put, Reads, Store, StoreError, Version,
    Write,
};
use crate::{Key, name};

#[cfg(feature = "test-util")]
pub use queues::{Counts, MemoryQueue, MemoryQueues};

/// Documents in this process's memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    documents: Mutex<Documents>,
}

#[derive(Debug, Default)]
struct Documents {
    by_key: BTreeMap<Key, Stored>,
    /// The waiters for a change, by key; an entry lives as long as it has waiters.
    waiting: BTreeMap<Key, Arc<Notify>>,
    writes: u64,
}

#[derive(Debug)]
struct Stored {
    number: u64,
    body: Bytes,
}

impl Stored {
    fn version(&self) -> Version {
        Version::new(self.number.to_string())
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    fn documents(&self) -> MutexGuard<'_, Documents> {
        // Every change below is a single insert or remove: a panic leaves nothing half done.
        self.shared.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Documents {
    fn version(&self, key: &Key) -> Option<Version> {
        self.by_key.get(key).map(Stored::version)
    }

    fn write(&mut self, write: Write) -> Result<Put, StoreError> {
        let doing = || format!("writing {}", write.key);
        let held = self.version(&write.key);
        let holds = match &write.expect {
            Expect::Absent => held.is_none(),
            Expect::At(version) => held.as_ref() == Some(version),
        };
        if let Some(body) = &write.body
            && body.len() > MAX_DOCUMENT_BYTES
        {
            let says = format!("{} bytes are more than {MAX_DOCUMENT_BYTES}", body.len());
            return Err(StoreError::new(Fault::Permanent, "memory", doing(), says));
        }
        if !holds {
            return Ok(Put::Conflict);
        }
        self.writes += 1;
        let number = self.writes;
        match write.body {
            Some(body) => self.by_key.insert(write.key.clone(), Stored { number, body }),
            None => self.by_key.remove(&write.key),
        };
        if let Some(waiting) = self.waiting.get(&write.key) {
            waiting.notify_waiters();
        }
        Ok(Put::Stored(Version::new(number.to_string())))
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        true
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let documents = self.documents();
        let read = |key| {
            let stored: &Stored = documents.by_key.get(key)?;
            Some(Document { version: stored.version(), body: stored.body.clone() })
        };
        Ok(keys.iter().map(read).collect())
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let mut documents = self.documents();
        writes.into_iter().map(|write| documents.write(write)).collect()
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let documents = self.documents();
        let from = after.filter(|after| *after > prefix).unwrap_or(prefix);
        let mut page = Page::default();
        for (key, stored) in documents.by_key.range((Bound::Excluded(from), Bound::Unbounded)) {
            if !key.is_under(prefix) {
                // Keys such as `a-b` stand between `a` and `a/b`.
                if !key.as_str().starts_with(prefix.as_str()) {
                    break;
                }
                continue;
            }
            if page.documents.len() == limit {
                page.next = page.documents.last().map(|(key, _)| key.clone());
                break;
            }
            let document = Document { version: stored.version(), body: stored.body.clone() };
            page.documents.push((key.clone(), document));
        }
        Ok(page)
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        let waiting = {
            let mut documents = self.documents();
            if documents.version(key).as_ref() != seen {
                return;
            }
            documents.waiting.entry(key.clone()).or_default().clone()
        };
        let waiter = Waiter { store: self, key, waiting };
        let mut woken = pin!(waiter.waiting.notified());
        woken.as_mut().enable();
        // The document may have changed before the waiter was registered.
        if self.documents().version(key).as_ref() == seen {
            woken.await;
        }
    }
}

/// Forgets a key without waiters.
struct Waiter<'a> {
    store: &'a MemoryStore,
    key: &'a Key,
    waiting: Arc<Notify>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut documents = self.store.documents();
        // One count is the map's, one is ours: there is no other waiter.
        if Arc::strong_count(&self.waiting) <= 2 {
            documents.waiting.remove(self.key);
        }
    }
}

const _: () = assert!(name::MAX_KEY_SEGMENTS * (name::MAX_SEGMENT_BYTES + 1) < MAX_DOCUMENT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreExt;

    fn key(text: &str) -> Key {
        Key::parse(text).expect("a key")
    }

    #[tokio::test]
    async fn a_change_wakes_who_waits_and_leaves_nothing_behind() {
        let store = MemoryStore::new();
        let first = store.put(&key("a/b"), Expect::Absent, "1".into()).await.expect("stored");
        let Put::Stored(version) = first else { panic!("{first:?}") };
        let (waiter, at) = (store.clone(), version.clone());
        let waiting = tokio::spawn(async move { waiter.changed(&key("a/b"), Some(&at)).await });
        tokio::task::yield_now().await;
        let put = store.put(&key("a/b"), Expect::At(version), "2".into()).await.expect("stored");
        assert!(matches!(put, Put::Stored(_)));
        waiting.await.expect("woken");
        assert!(store.documents().waiting.is_empty());
    }

    #[tokio::test]
    async fn a_listing_pages_in_key_order_and_takes_only_what_is_below() {
        let store = MemoryStore::new();
        for text in ["a/c", "a/b", "a", "a-b", "ab/c", "a/b/c"] {
            let _ = store.put(&key(text), Expect::Absent, "x".into()).await.expect("stored");
        }
        let first = store.list(&key("a"), None, 2).await.expect("a page");
        let keys =
            |page: &Page| page.documents.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys(&first), ["a/b", "a/b/c"]);
        let second = store.list(&key("a"), first.next.as_ref(), 2).await.expect("a page");
        assert_eq!((keys(&second), second.next), (vec!["a/c".to_owned()], None));
    }
}
