//! Documents in ZooKeeper, version 3.5 and later.
//!
//! A read is preceded by a `sync` on the same connection. A write is one transaction that checks the document's
//! version and its number (see docs/keys.md); the requests of a batch are sent at once. Each document that is waited
//! on has one watch.

mod fault;
mod keeper;
mod link;
mod list;
mod paths;
mod record;
mod waits;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tenure::{Document, Fault, Key, Page, Put, Reads, Store, StoreError, Version, Write};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Acls, Client, Error};

use self::fault::{Kind, failed, late, unsent};
use self::keeper::Connection;
use self::link::{Link, Plan};
use self::paths::Paths;
use self::waits::Waits;
use crate::servers::{Secret, Servers};

/// What everything is under when the URL does not say.
const ROOT: &str = "tenure";
/// How long the servers remember a connection of ours. Nothing depends on it: documents belong to no session.
const SESSION: Duration = Duration::from_secs(10);

/// Documents in ZooKeeper.
pub struct ZookeeperStore {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    keeper: AbortHandle,
    waits: Waits,
}

/// What every request needs.
#[derive(Debug)]
struct Shared {
    paths: Paths,
    request: Duration,
    acls: Acls<'static>,
}

impl ZookeeperStore {
    /// Opens the store that a URL names, and waits for a connection.
    ///
    /// # Errors
    /// [`StoreError`] when the password cannot be found, or no server accepts us within the request's time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open(servers: &Servers, request: Duration) -> Result<ZookeeperStore, StoreError> {
        let digest = match &servers.user {
            None => None,
            Some(user) => {
                let password = crate::password::of(servers).map_err(|says| {
                    StoreError::new(Fault::Permanent, "zookeeper", "finding the password", says)
                })?;
                Some(Secret::new(format!("{user}:{}", password.reveal())))
            }
        };
        // With somebody to be, our nodes are ours alone.
        let acls = if digest.is_some() { Acls::creator_all() } else { Acls::anyone_all() };
        let (hosts, session) = (servers.hosts.join(","), SESSION);
        let plan = Plan { hosts, digest, session, patience: request };
        let path = servers.path.trim_start_matches('/');
        let root = format!("/{}", if path.is_empty() { ROOT } else { path });
        let connection = Arc::new(Connection::new());
        let keeper = tokio::spawn(connection.clone().keep(plan)).abort_handle();
        let store = ZookeeperStore::new(connection, keeper, &root, request, acls);
        store.link(Instant::now() + request, || "connecting".to_owned()).await?;
        Ok(store)
    }

    /// The documents under the node `root`, over a connection that the program owns and may share.
    ///
    /// The client sends what was asked while it was disconnected as soon as it is connected again: a write that was
    /// given up as indeterminate may happen until the session is over.
    ///
    /// # Panics
    /// Outside a runtime.
    #[must_use]
    pub fn from_client(client: Client, root: &str, request: Duration) -> ZookeeperStore {
        let connection = Arc::new(Connection::new());
        let keeper = tokio::spawn(connection.clone().follow(client)).abort_handle();
        let root = format!("/{}", root.trim_matches('/'));
        ZookeeperStore::new(connection, keeper, &root, request, Acls::anyone_all())
    }

    fn new(
        connection: Arc<Connection>,
        keeper: AbortHandle,
        root: &str,
        request: Duration,
        acls: Acls<'static>,
    ) -> ZookeeperStore {
        let shared = Arc::new(Shared { paths: Paths::new(root), request, acls });
        ZookeeperStore { shared, connection, keeper, waits: Waits::default() }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.shared.request
    }

    /// A connection that works; nothing was sent when there is none in time.
    async fn link(
        &self,
        deadline: Instant,
        doing: impl Fn() -> String,
    ) -> Result<Arc<Link>, StoreError> {
        timeout_at(deadline, self.connection.link()).await.map_err(|_| {
            match self.connection.trouble() {
                Some(error @ (Error::AuthFailed | Error::NoAuth)) => {
                    failed(error, Kind::Read, doing())
                }
                Some(error) => unsent(doing(), error.to_string()),
                None => unsent(doing(), "no server has accepted a connection"),
            }
        })
    }

    async fn write(&self, write: Write, deadline: Instant) -> Result<Put, StoreError> {
        let doing = || format!("writing {}", write.key);
        write::check(&write)
            .map_err(|says| StoreError::new(Fault::Permanent, "zookeeper", doing(), says))?;
        let link = self.link(deadline, doing).await?;
        let Ok(outcome) = timeout_at(deadline, write::carry_out(&link, &self.shared, &write)).await
        else {
            // What is still queued must not happen later.
            link.end();
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
        self.connection.is_up()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let doing = || match keys.len() {
            1 => format!("reading {first}"),
            more => format!("reading {first} and {} others", more - 1),
        };
        let deadline = self.deadline();
        let link = self.link(deadline, doing).await?;
        let reading = async {
            // All of it is sent at once, and the server answers in that order.
            let synced = link.client.sync(self.shared.paths.root());
            let reads: Vec<_> = keys
                .iter()
                .map(|key| link.client.get_data(&self.shared.paths.document(key)))
                .collect();
            synced.await?;
            join_all(reads).await.into_iter().map(found).collect::<Result<Vec<_>, Error>>()
        };
        match timeout_at(deadline, reading).await {
            Ok(read) => read.map_err(|error| failed(error, Kind::Read, doing())),
            Err(_) => {
                link.end();
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
        let link = self.link(deadline, doing).await?;
        let listing = list::page(&link.client, &self.shared.paths, prefix, after, limit);
        match timeout_at(deadline, listing).await {
            Ok(page) => page.map_err(|error| failed(error, Kind::Read, doing())),
            Err(_) => {
                link.end();
                Err(late(Kind::Read, doing()))
            }
        }
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        let (path, request) = (self.shared.paths.document(key), self.shared.request);
        self.waits.changed(&self.connection, key, path, seen, request).await;
    }
}

impl Drop for ZookeeperStore {
    fn drop(&mut self) {
        // The client closes its session by itself when its last handle is dropped.
        self.keeper.abort();
    }
}

impl fmt::Debug for ZookeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperStore").field("paths", &self.shared.paths).finish_non_exhaustive()
    }
}

/// What a read found; nothing is an answer too.
fn found(
    read: Result<(Vec<u8>, zookeeper_client::Stat), Error>,
) -> Result<Option<Document>, Error> {
    match read {
        Ok((data, stat)) => Ok(Some(record::document(data, &stat))),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}
