//! Documents and lines of candidates in etcd, version 3.4 and later.
//!
//! Reads are linearizable. A read of many documents is one transaction, a write is a transaction on the
//! document's own revision, and the writes of a batch are sent at once. Changes arrive over one stream.

mod client;
mod connect;
mod endpoint;
mod fault;
mod keys;
mod known;
mod listener;
mod message;
mod queue;
#[allow(missing_docs, unreachable_pub, dead_code, clippy::all, rust_2018_idioms)]
#[rustfmt::skip]
mod proto;
mod waits;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use tenure::{
    Document, Fault, Key, MAX_DOCUMENT_BYTES, Page, Put, Reads, Store, StoreError, Version, Write,
};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use self::client::Client;
use self::endpoint::Endpoints;
use self::fault::{Failure, Kind};
use self::keys::Keys;
use self::known::Glimpse;
use self::proto::kv_client::KvClient;
pub use self::queue::EtcdQueue;
use self::waits::{Topic, Waits};
use crate::servers::Servers;

/// What documents are under when the URL does not say.
const PREFIX: &str = "tenure";
/// etcd allows 128 operations a transaction unless its operator allowed more.
const MOST_READS: usize = 120;
/// A page of the largest documents, and a transaction's answer, are smaller.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// Documents in etcd.
pub struct EtcdStore {
    core: Arc<Core>,
    keys: Keys,
}

/// What documents and queues of a process share: the connections, and the one stream of changes.
struct Core {
    client: Arc<Client>,
    waits: Arc<Waits>,
    listener: Mutex<Option<JoinHandle<()>>>,
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
        store
            .read_one(store.keys.encode(&Key::elections()), "asking etcd whether it serves")
            .await?;
        Ok(store)
    }

    /// The documents under `prefix`, over a channel of the caller's, whose failover and keys are its own.
    ///
    /// Set its HTTP/2 keep-alive to 10 s or more: etcd closes connections that are probed more often.
    #[must_use]
    pub fn from_channel(channel: Channel, prefix: &str, request: Duration) -> EtcdStore {
        EtcdStore::new(Client::new(Endpoints::owned_by_caller(channel), request, None), prefix)
    }

    fn new(client: Client, prefix: &str) -> EtcdStore {
        let core =
            Core { client: Arc::new(client), waits: Arc::default(), listener: Mutex::default() };
        EtcdStore { core: Arc::new(core), keys: Keys::new(prefix) }
    }

    /// Lines of candidates beside these documents, over the same connections; `ttl` is the session's.
    ///
    /// etcd counts in whole seconds: the ttl is rounded up.
    #[must_use]
    pub fn queue(&self, ttl: Duration) -> EtcdQueue {
        EtcdQueue::new(self.core.clone(), &self.keys, ttl)
    }

    fn topic(&self, key: &Key) -> Topic {
        Topic::one(self.keys.encode(key))
    }

    async fn read_one(&self, key: Bytes, doing: &str) -> Result<proto::RangeResponse, StoreError> {
        self.read_range(message::read_one(key)).await.map_err(|failure| failed(failure, doing))
    }

    async fn read_range(
        &self,
        range: proto::RangeRequest,
    ) -> Result<proto::RangeResponse, Failure> {
        let send = |channel, request| async move { kv(channel).range(request).await };
        self.core.client.call(Kind::Read, range, send).await
    }

    async fn read_some(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let (found, revision) = match keys {
            [] => return Ok(Vec::new()),
            [key] => {
                let doing = format!("reading {key}");
                let answer = self.read_one(self.keys.encode(key), &doing).await?;
                let revision = message::at(answer.header.as_ref());
                (vec![answer.kvs.into_iter().next()], revision)
            }
            keys => {
                let txn = message::read_all(keys.iter().map(|key| self.keys.encode(key)));
                let send = |channel, request| async move { kv(channel).txn(request).await };
                let doing = format!("reading {} and {} others", keys[0], keys.len() - 1);
                let answer: proto::TxnResponse = self
                    .core
                    .client
                    .call(Kind::Read, txn, send)
                    .await
                    .map_err(|failure| failed(failure, &doing))?;
                let revision = message::at(answer.header.as_ref());
                if answer.responses.len() != keys.len() {
                    let says = "the answer has another number of parts than the question";
                    return Err(StoreError::new(Fault::Unavailable, "etcd", doing, says));
                }
                (answer.responses.into_iter().map(message::found).collect(), revision)
            }
        };
        let glimpse = |found: &Option<proto::KeyValue>| Glimpse {
            document: found.as_ref().map_or(0, |found| found.mod_revision),
            created: found.as_ref().map_or(0, |found| found.create_revision),
            store: revision,
        };
        self.core.waits.saw(keys.iter().map(|key| self.topic(key)).zip(found.iter().map(glimpse)));
        Ok(found.into_iter().map(|found| found.map(message::document)).collect())
    }

    async fn write(&self, write: Write) -> Result<Put, StoreError> {
        let doing = || format!("writing {}", write.key);
        if let Some(body) = &write.body
            && body.len() > MAX_DOCUMENT_BYTES
        {
            let says = format!("{} bytes are more than {MAX_DOCUMENT_BYTES}", body.len());
            return Err(StoreError::new(Fault::Permanent, "etcd", doing(), says));
        }
        let deletion = write.body.is_none();
        let key = self.keys.encode(&write.key);
        let Some(txn) = message::write(key, &write.expect, write.body.clone()) else {
            // No document was ever at a version that is not one of ours.
            return Ok(Put::Conflict);
        };
        let send = |channel, request| async move { kv(channel).txn(request).await };
        let answer: proto::TxnResponse = self
            .core
            .client
            .call(Kind::Write, txn, send)
            .await
            .map_err(|failure| failed(failure, &doing()))?;
        if !answer.succeeded {
            return Ok(Put::Conflict);
        }
        let store = message::at(answer.header.as_ref());
        let document = if deletion { 0 } else { store };
        let look = Glimpse { document, created: 0, store };
        self.core.waits.saw([(self.topic(&write.key), look)].into_iter());
        Ok(Put::Stored(message::version(store)))
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

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let parts = try_join_all(keys.chunks(MOST_READS).map(|some| self.read_some(some))).await?;
        Ok(parts.into_iter().flatten().collect())
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        join_all(writes.into_iter().map(|write| self.write(write))).await
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let mut range = self.keys.range(prefix, after);
        let mut page = Page::default();
        // More than one turn only where others have written what is no document of ours.
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
            // It is not at a version that is not one of ours.
            Some(None) => return,
            Some(revision) => revision,
            None => None,
        };
        self.core.listen();
        self.core.waits.changed(&self.topic(key), seen).await;
    }
}

impl Core {
    /// Starts to listen, or starts again if the runtime it listened on is gone.
    fn listen(&self) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            let (client, waits) = (self.client.clone(), self.waits.clone());
            *listener = Some(tokio::spawn(listener::listen(client, waits)));
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let listener = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = listener {
            listener.abort();
        }
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
