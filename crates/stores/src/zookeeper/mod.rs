//! Documents in ZooKeeper, version 3.5 and later.
//!
//! A read is preceded by a `sync` on the same connection. A write is one transaction that checks the document's
//! version and its number (see docs/keys.md); the requests of a batch are sent at once. Each document that is waited
//! on has one watch.

mod client;
mod fault;
mod list;
mod open;
mod paths;
mod queue;
mod record;
mod waits;
mod wire;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tenure::{Document, Fault, Key, Page, Put, Reads, Store, StoreError, Version, Write};
use tokio::time::{Instant, timeout_at};

pub use self::client::{Client, ClientOptions, Error, Pending};
use self::fault::{Kind, failed, late};
pub use self::open::{Zookeeper, open};
use self::paths::Paths;
pub use self::queue::{Recipe, ZookeeperQueue};
use self::waits::Waits;
pub use self::wire::{Acl, Lifetime, Stat};

/// Documents in ZooKeeper.
pub struct ZookeeperStore {
    shared: Arc<Shared>,
    client: Client,
    waits: Waits,
}

/// What every request needs.
#[derive(Debug)]
struct Shared {
    paths: Paths,
    request: Duration,
    acl: Arc<[Acl]>,
}

impl ZookeeperStore {
    /// The documents under the node `root`, in this session; a request is given up after `request`.
    #[must_use]
    pub fn new(client: Client, root: &str, request: Duration) -> ZookeeperStore {
        let paths = Paths::new(&absolute(root));
        let shared = Arc::new(Shared { paths, request, acl: Acl::open() });
        ZookeeperStore { shared, client, waits: Waits::default() }
    }

    /// The same, with nodes that these may use.
    #[must_use]
    pub fn with_acl(self, acl: Arc<[Acl]>) -> ZookeeperStore {
        let (paths, request) = (self.shared.paths.clone(), self.shared.request);
        ZookeeperStore { shared: Arc::new(Shared { paths, request, acl }), ..self }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.shared.request
    }

    /// Waits for a connection, and says which; nothing was sent when there is none in time.
    async fn connection(
        &self,
        deadline: Instant,
        doing: impl Fn() -> String,
    ) -> Result<u64, StoreError> {
        let up = self.client.connected_by(deadline).await;
        up.map_err(|error| failed(error, Kind::Read, doing()))?;
        Ok(self.client.connection())
    }

    async fn write(&self, write: Write, deadline: Instant) -> Result<Put, StoreError> {
        let doing = || format!("writing {}", write.key);
        write::check(&write)
            .map_err(|says| StoreError::new(Fault::Permanent, "zookeeper", doing(), says))?;
        let connection = self.connection(deadline, doing).await?;
        let writing = write::carry_out(&self.client, &self.shared, &write);
        let Ok(outcome) = timeout_at(deadline, writing).await else {
            // What is still on its way must not happen later.
            self.client.give_up(connection);
            return Err(late(Kind::Write, doing()));
        };
        outcome.map_err(|error| failed(error, Kind::Write, doing()))
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

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let doing = || match keys.len() {
            1 => format!("reading {first}"),
            more => format!("reading {first} and {} others", more - 1),
        };
        let deadline = self.deadline();
        let connection = self.connection(deadline, doing).await?;
        let reading = async {
            // All of it is sent at once, and the server answers in that order.
            let synced = self.client.sync(self.shared.paths.root());
            let reads: Vec<_> =
                keys.iter().map(|key| self.client.data(&self.shared.paths.document(key))).collect();
            synced.await?;
            join_all(reads).await.into_iter().map(found).collect::<Result<Vec<_>, Error>>()
        };
        match timeout_at(deadline, reading).await {
            Ok(read) => read.map_err(|error| failed(error, Kind::Read, doing())),
            Err(_) => {
                self.client.give_up(connection);
                Err(late(Kind::Read, doing()))
            }
        }
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let deadline = self.deadline();
        join_all(writes.into_iter().map(|write| self.write(write, deadline))).await
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let doing = || format!("listing {prefix}");
        let deadline = self.deadline();
        let connection = self.connection(deadline, doing).await?;
        let listing = list::page(&self.client, &self.shared.paths, prefix, after, limit);
        match timeout_at(deadline, listing).await {
            Ok(page) => page.map_err(|error| failed(error, Kind::Read, doing())),
            Err(_) => {
                self.client.give_up(connection);
                Err(late(Kind::Read, doing()))
            }
        }
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

/// What a read found; nothing is an answer too.
fn found(read: Result<(Vec<u8>, Stat), Error>) -> Result<Option<Document>, Error> {
    match read {
        Ok((data, stat)) => Ok(Some(record::document(data, &stat))),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_matches('/'))
}
