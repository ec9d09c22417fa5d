//! Documents in ZooKeeper, version 3.5 and later.
//!
//! A read follows a `sync` on the same connection. No quorum confirms a `sync`: a leader that was
//! just deposed answers it and shows old documents. So if a document shows another version than
//! this process proved last, it is read again behind a write that a quorum takes. Concurrent reads
//! share that write. A read that shows nothing new proves nothing, and its caller learns nothing
//! from it.
//!
//! A write is a transaction that checks the document's version and its number (see docs/keys.md).
//! The documents of a batch share requests, and all requests of a batch are sent at once. Writes
//! use `multi`: if one write is refused, the others of its transaction are sent again without it
//! (see `batch`). Reads use `multiRead`. Servers before 3.6 do not know it; once one refuses it, it
//! is not sent again.
//!
//! Each document that is waited on has one watch.

mod batch;
mod client;
mod fault;
mod known;
mod list;
mod open;
mod paths;
mod queue;
mod read;
mod record;
mod waits;
mod wire;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::Key;
use tenure::store::{Document, Page, Put, Reads, Store, StoreError, Version, Write};
use tokio::time::{Instant, timeout_at};

pub use self::client::{Client, ClientOptions, Error, Pending};
use self::fault::{Kind, failed, late};
use self::known::Known;
pub use self::open::{Zookeeper, open};
use self::paths::Paths;
pub use self::queue::{Recipe, ZookeeperQueue};
use self::read::Behind;
use self::waits::Waits;
pub use self::wire::{Acl, Lifetime, Stat};

/// Documents in ZooKeeper.
pub struct ZookeeperStore {
    shared: Arc<Shared>,
    client: Client,
    waits: Waits,
    known: Known,
}

/// The settings that every request needs.
#[derive(Debug)]
struct Shared {
    paths: Paths,
    request: Duration,
    acl: Arc<[Acl]>,
}

impl ZookeeperStore {
    /// Opens the documents under the node `root`. A request is given up after `request`.
    #[must_use]
    pub fn new(client: Client, root: &str, request: Duration) -> ZookeeperStore {
        let paths = Paths::new(&absolute(root));
        let shared = Arc::new(Shared { paths, request, acl: Acl::open() });
        ZookeeperStore { shared, client, waits: Waits::default(), known: Known::default() }
    }

    /// Sets the ACL of the nodes that the store creates.
    #[must_use]
    pub fn with_acl(self, acl: Arc<[Acl]>) -> ZookeeperStore {
        let (paths, request) = (self.shared.paths.clone(), self.shared.request);
        ZookeeperStore { shared: Arc::new(Shared { paths, request, acl }), ..self }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.shared.request
    }

    /// Runs a read, and repeats it if a server turned out not to know `multiRead`.
    async fn read<T, F>(
        &self,
        doing: impl Fn() -> String,
        read: impl Fn() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = self.deadline();
        loop {
            let up = self.client.connected_by(deadline).await;
            up.map_err(|error| failed(error, Kind::Read, doing()))?;
            let together = self.client.reads_many();
            match timeout_at(deadline, read()).await {
                Ok(Err(Error::Lost | Error::Unsent)) if together && !self.client.reads_many() => {}
                Ok(outcome) => return outcome.map_err(|error| failed(error, Kind::Read, doing())),
                Err(_) => {
                    self.give_up();
                    return Err(late(Kind::Read, doing()));
                }
            }
        }
    }

    /// Reads documents. News is read again behind a write that a quorum takes.
    async fn look(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, Error> {
        let mut found =
            if self.known.knows_any(keys) { self.poll(keys).await? } else { Vec::new() };
        let news = self.known.news(keys, &found);
        if news.is_empty() {
            return Ok(found);
        }
        let asked = self.known.asked();
        let paths = news.iter().map(|at| self.shared.paths.document(&keys[*at])).collect();
        let proven = read::ask(&self.client, paths, Behind::Barrier).documents().await?;
        found.resize(keys.len(), None);
        for (at, document) in news.into_iter().zip(proven) {
            let version = document.as_ref().map(|document| document.version.clone());
            self.known.read(&keys[at], version, asked);
            found[at] = document;
        }
        Ok(found)
    }

    /// Reads documents after a `sync`. The answer may be old.
    async fn poll(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, Error> {
        // Both requests are sent at once, and the server answers them in that order.
        let synced = self.client.sync(self.shared.paths.root());
        let paths = keys.iter().map(|key| self.shared.paths.document(key)).collect();
        let asked = read::ask(&self.client, paths, Behind::Nothing);
        synced.await?;
        asked.documents().await
    }

    /// Ends the connection, which cancels the requests on their way.
    fn give_up(&self) {
        self.client.give_up(self.client.connection());
    }
}

#[async_trait]
impl Store for ZookeeperStore {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        self.client.is_up()
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let doing = || match keys.len() {
            1 => format!("reading {first}"),
            more => format!("reading {first} and {} others", more - 1),
        };
        self.read(doing, || self.look(keys)).await
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        // The outcome of these writes may stay unknown, and this future may be dropped. So the next
        // read must prove its answer.
        let doubt =
            |write: &Write| (write.key.clone(), write.body.is_some(), self.known.doubt(&write.key));
        let written: Vec<_> = writes.iter().map(doubt).collect();
        let outcomes = batch::carry_out(self, writes, self.deadline()).await;
        for ((key, is_there, sent), outcome) in written.iter().zip(&outcomes) {
            match outcome {
                Ok(Put::Stored(version)) if *is_there => self.known.wrote(key, version, *sent),
                Ok(Put::Stored(_) | Put::Conflict) | Err(_) => {
                    self.known.doubt(key);
                }
            }
        }
        outcomes
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let doing = || format!("listing {prefix}");
        let walk = || list::page(&self.client, &self.shared.paths, prefix, after, limit);
        self.read(doing, walk).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        let (path, request) = (self.shared.paths.document(key), self.shared.request);
        self.waits.changed(&self.client, key, path, seen, request).await;
    }
}

impl fmt::Debug for ZookeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperStore").field("paths", &self.shared.paths).finish_non_exhaustive()
    }
}

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_matches('/'))
}
