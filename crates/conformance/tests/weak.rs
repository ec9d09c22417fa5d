//! A store with weak reads passes the suite. Elections then rely on writes alone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::store::{Document, Page, Put, Reads, Store, StoreError, Version, Write};
use tenure::{Backend, Key, MemoryStore, Timing};
use tenure_conformance::suite::Subject;

/// The memory store, declared to have weak reads.
#[derive(Clone, Debug, Default)]
struct Weak(MemoryStore);

#[async_trait]
impl Store for Weak {
    fn reads(&self) -> Reads {
        Reads::Weak
    }

    fn notifies(&self) -> bool {
        self.0.notifies()
    }

    fn forgets_deleted(&self) -> bool {
        self.0.forgets_deleted()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        self.0.get_many(keys).await
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        self.0.put_many(writes).await
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.0.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.0.changed(key, seen).await;
    }
}

#[derive(Default)]
struct Server(Weak);

#[async_trait]
impl Subject for Server {
    fn name(&self) -> &str {
        "weak"
    }

    async fn open(&self) -> Backend {
        Backend::new(Arc::new(self.0.clone()))
    }

    fn timing(&self) -> Timing {
        Timing::new(Duration::from_secs(2)).expect("two seconds leave room for every part")
    }
}

tenure_conformance::conformance!(Server::default());

mod cluster {
    use super::*;
    tenure_conformance::cluster_conformance!(Server::default());
}
