//! Documents and queues of candidates in etcd, version 3.4 and later.
//!
//! Reads are linearizable. A read of many documents is one transaction, or one range if they are
//! neighbours. A write is a transaction on the document's own revision, and the writes of a batch
//! share one transaction. Changes arrive over one stream.

mod client;
mod connect;
mod endpoint;
mod fault;
mod keys;
mod known;
mod listener;
mod message;
mod queue;
mod reads;
mod room;
#[allow(missing_docs, unreachable_pub, unnameable_types, dead_code, clippy::all, rust_2018_idioms)]
#[rustfmt::skip]
mod proto;
mod waits;
mod writes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::Key;
use tenure::store::{Document, Page, Put, Reads, Store, StoreError, Version, Write};
use tonic::transport::Channel;

use self::client::Client;
use self::endpoint::Endpoints;
use self::fault::{Failure, Kind};
use self::keys::Keys;
use self::proto::kv_client::KvClient;
pub use self::queue::EtcdQueue;
use self::room::Room;
use self::waits::{Topic, Waits};
use crate::background::Background;
use crate::servers::Servers;

/// The prefix of documents for a URL without a path.
const PREFIX: &str = "tenure";
/// The maximum size of an answer. A page of the largest documents, and a transaction's answer, are
/// smaller.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// Documents in etcd.
pub struct EtcdStore {
    core: Arc<Core>,
    keys: Keys,
}

/// The connections and the stream of changes.
///
/// The documents and queues of a process share them.
struct Core {
    client: Arc<Client>,
    waits: Arc<Waits>,
    room: Room,
    listener: Background,
}

impl EtcdStore {
    /// Opens the store that a URL names, and asks it once whether it serves.
    ///
    /// # Errors
    /// [`StoreError`] when a file cannot be read, no server answers, or none lets us in.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open(servers: &Servers, request: Duration) -> Result<EtcdStore, StoreError> {
        let endpoints = Endpoints::new(connect::endpoints(servers, request)?);
        let client = Client::new(endpoints, request, connect::login(servers)?);
        let prefix = if servers.path.is_empty() { PREFIX } else { &servers.path };
        let store = EtcdStore::new(client, prefix);
        let something = message::read_one(store.keys.encode(&Key::elections()));
        let asked = store.read_range(something).await;
        asked.map_err(|failure| failed(failure, "asking etcd whether it serves"))?;
        Ok(store)
    }

    /// Opens the documents under `prefix`, over the caller's own channel.
    ///
    /// The channel handles failover and TLS itself. Set its HTTP/2 keep-alive to 10 s or more: etcd
    /// closes connections that are probed more often.
    #[must_use]
    pub fn from_channel(channel: Channel, prefix: &str, request: Duration) -> EtcdStore {
        EtcdStore::new(Client::new(Endpoints::owned_by_caller(channel), request, None), prefix)
    }

    fn new(client: Client, prefix: &str) -> EtcdStore {
        let core = Core {
            client: Arc::new(client),
            waits: Arc::default(),
            room: Room::default(),
            listener: Background::default(),
        };
        EtcdStore { core: Arc::new(core), keys: Keys::new(prefix) }
    }

    /// The reason to upgrade the server that answers, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] when none answers.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn advice(&self) -> Result<Option<String>, StoreError> {
        let asked = queue::version::advice(&self.core.client).await;
        asked.map_err(|failure| failed(failure, "asking etcd for its version"))
    }

    /// Opens queues of candidates beside these documents, over the same connections.
    ///
    /// `ttl` is the session's. etcd counts in whole seconds, so it is rounded up.
    #[must_use]
    pub fn queue(&self, ttl: Duration) -> EtcdQueue {
        EtcdQueue::new(self.core.clone(), &self.keys, ttl)
    }

    fn topic(&self, key: &Key) -> Topic {
        Topic::one(self.keys.encode(key))
    }

    async fn read_range(
        &self,
        range: proto::RangeRequest,
    ) -> Result<proto::RangeResponse, Failure> {
        let send = |channel, request| async move { kv(channel).range(request).await };
        self.core.client.call(Kind::Read, range, send).await
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        self.core.waits.listening()
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let doing = || match keys {
            [] => "reading nothing".to_owned(),
            [key] => format!("reading {key}"),
            [first, others @ ..] => format!("reading {first} and {} others", others.len()),
        };
        self.read(keys).await.map_err(|failure| failed(failure, &doing()))
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        self.write(writes).await
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let mut range = self.keys.range(prefix, after);
        let mut page = Page::default();
        // More than one turn is needed only if other clients have written data that is no document
        // of ours.
        loop {
            let missing = limit.saturating_sub(page.documents.len()).max(1);
            let request = message::read_range(range.clone(), missing);
            let failed = |failure| failed(failure, &format!("listing {prefix}"));
            let answer = self.read_range(request).await.map_err(failed)?;
            let last = answer.kvs.last().map(|found| found.key.clone());
            let ours = answer.kvs.into_iter().filter_map(|found| {
                Some((self.keys.decode(&found.key)?, message::document(found)))
            });
            page.documents.extend(ours);
            page.documents.truncate(limit);
            match last.filter(|_| answer.more) {
                None => return Ok(page),
                Some(_) if page.documents.len() >= limit => break,
                Some(last) => range.0 = [&last[..], b"\0"].concat().into(),
            }
        }
        page.next = page.documents.last().map(|(key, _)| key.clone());
        Ok(page)
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        let seen = match seen.map(message::revision) {
            // The document cannot be at a version that is not one of ours.
            Some(None) => return,
            Some(revision) => revision,
            None => None,
        };
        self.core.listen();
        self.core.waits.changed(&self.topic(key), seen).await;
    }
}

impl Core {
    fn listen(&self) {
        self.listener.ensure(|| listener::listen(self.client.clone(), self.waits.clone()));
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(LARGEST_ANSWER)
}

fn failed(failure: Failure, doing: &str) -> StoreError {
    StoreError::new(failure.fault, "etcd", doing, failure.source)
}
