//! Documents in Elasticsearch 7 and 8, and in OpenSearch 2 and 3.
//!
//! A read proves nothing ([`Reads::Weak`]): an isolated primary shows writes that never commit.
//! Documents are read by `_mget`, in real time and never by a search. They are written by `_bulk`,
//! each at its own sequence number and primary term. Only a listing searches: it sees its own
//! handle's writes, and other writes that are at least a second old. One `_mget` finds changes for
//! all waits.

mod bulk;
mod client;
mod coalescer;
mod connect;
mod fault;
mod ids;
mod index;
mod read;
mod record;
mod refreshes;
mod search;
mod source;
mod version;
mod waits;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use reqwest::Url;
use tenure::Key;
use tenure::store::{Document, Fault, Page, Put, Reads, Store, StoreError, Version, Write};
use tokio::time::Instant;

use self::client::Client;
use self::coalescer::{Turn, WriteCoalescer};
use self::fault::Failure;
use self::refreshes::Refreshes;
use self::waits::Waits;
use crate::background::Background;
use crate::servers::Servers;

/// The default index.
const INDEX: &str = "tenure";
/// The most documents in one read. More are read by concurrent requests.
const MOST_READS: usize = 1000;
/// The longest pause between polls for changes; shorter if requests are shorter.
const POLL: Duration = Duration::from_millis(250);

/// The product that the servers run. Both have the same wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Elasticsearch.
    Elasticsearch,
    /// OpenSearch.
    Opensearch,
}

impl Product {
    /// The name in URLs and messages.
    fn name(self) -> &'static str {
        match self {
            Product::Elasticsearch => "elasticsearch",
            Product::Opensearch => "opensearch",
        }
    }
}

/// Documents in an index of Elasticsearch or OpenSearch.
pub struct ElasticStore {
    product: Product,
    client: Arc<Client>,
    coalescer: WriteCoalescer,
    refreshes: Refreshes,
    waits: Arc<Waits>,
    poller: Background,
}

impl ElasticStore {
    /// Opens the store that a URL names: creates its index, or checks an existing one.
    ///
    /// An existing index must be safe for documents.
    ///
    /// # Errors
    /// [`StoreError`] when a file cannot be read, no server answers, none lets us in, or the index
    /// is not ours.
    ///
    /// # Cancel safety
    /// Cancel safe; the index may have been created.
    pub async fn open(
        product: Product,
        servers: &Servers,
        request: Duration,
    ) -> Result<ElasticStore, StoreError> {
        let refused = |says: String| refused(product, "reading its address and keys", says);
        let index = if servers.path.is_empty() { INDEX } else { &servers.path };
        let client = Client {
            http: connect::client(servers, request).map_err(refused)?,
            hosts: client::Hosts::new(connect::addresses(servers).map_err(refused)?),
            authorization: connect::authorization(servers).map_err(refused)?,
            index: index::name(index).map_err(refused)?,
            request,
        };
        ElasticStore::with(product, client).await
    }

    /// Opens the store with the caller's HTTP client, and its keys and credentials.
    ///
    /// The client must follow no redirects and never try again by itself
    /// ([`reqwest::retry::never`]): a write that is sent twice takes its own success for a
    /// conflict.
    ///
    /// # Errors
    /// As for [`ElasticStore::open`].
    ///
    /// # Cancel safety
    /// Cancel safe; the index may have been created.
    pub async fn from_client(
        product: Product,
        http: reqwest::Client,
        servers: Vec<Url>,
        index: &str,
        request: Duration,
    ) -> Result<ElasticStore, StoreError> {
        let refused = |says: String| refused(product, "reading its address", says);
        if servers.is_empty() || servers.iter().any(Url::cannot_be_a_base) {
            return Err(refused("it needs the URL of at least one server".into()));
        }
        let index = index::name(index).map_err(refused)?;
        let hosts = client::Hosts::new(servers);
        let client = Client { http, hosts, authorization: None, index, request };
        ElasticStore::with(product, client).await
    }

    async fn with(product: Product, client: Client) -> Result<ElasticStore, StoreError> {
        let doing = format!("opening the index {}", client.index);
        let prepared = index::prepare(&client).await;
        let refreshed = prepared.map_err(|failure| failed(product, &failure, doing))?;
        let (client, waits) = (Arc::new(client), Arc::default());
        Ok(ElasticStore {
            product,
            client,
            coalescer: WriteCoalescer::default(),
            refreshes: Refreshes::new(refreshed),
            waits,
            poller: Background::default(),
        })
    }

    fn poll(&self) {
        self.poller.ensure(|| poll(self.client.clone(), self.waits.clone()));
    }

    fn failed(&self, failure: &Failure, doing: String) -> StoreError {
        failed(self.product, failure, doing)
    }
}

#[async_trait]
impl Store for ElasticStore {
    fn reads(&self) -> Reads {
        Reads::Weak
    }

    fn notifies(&self) -> bool {
        self.waits.served()
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let (asked, places) = once_each(keys);
        let parts = asked.chunks(MOST_READS).map(|some| read::documents(&self.client, some));
        let parts = try_join_all(parts).await.map_err(|failure| {
            let doing = match keys {
                [] | [_] => keys.iter().map(|key| format!("reading {key}")).collect(),
                [first, rest @ ..] => format!("reading {first} and {} others", rest.len()),
            };
            self.failed(&failure, doing)
        })?;
        let found: Vec<Option<Document>> = parts.into_iter().flatten().collect();
        Ok(places.into_iter().map(|place| found[place].clone()).collect())
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let keys: Vec<Key> = writes.iter().map(|write| write.key.clone()).collect();
        let (mut sending, mut behind) = (Vec::new(), Vec::new());
        let mut firsts = HashMap::new();
        for (place, write) in writes.into_iter().enumerate() {
            match self.coalescer.take(&write) {
                Turn::First(first) => {
                    firsts.insert(place, first);
                    sending.push((place, write));
                }
                Turn::Behind(other) => behind.push((place, other)),
            }
        }
        let batches = bulk::batches(sending);
        let sent = join_all(batches.into_iter().map(|batch| batch.send(&self.client))).await;
        self.refreshes.written();
        let mut outcomes: Vec<(usize, Result<Put, Failure>)> = sent.into_iter().flatten().collect();
        for (place, outcome) in &outcomes {
            let first = firsts.remove(place);
            if let (Some(first), Ok(_)) = (first, outcome) {
                first.decided();
            }
        }
        // All writes of this call have ended: these can only wait for other calls.
        let waited = behind
            .into_iter()
            .map(|(place, behind)| async move { (place, behind.outcome().await) });
        outcomes.extend(join_all(waited).await);
        outcomes.sort_by_key(|(at, _)| *at);
        let told = |(key, (_, outcome)): (&Key, (usize, Result<Put, Failure>))| {
            outcome.map_err(|failure| self.failed(&failure, format!("writing {key}")))
        };
        keys.iter().zip(outcomes).map(told).collect()
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let page = search::page(&self.client, &self.refreshes, prefix, after, limit).await;
        page.map_err(|failure| self.failed(&failure, format!("listing {prefix}")))
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.poll();
        self.waits.changed(key, seen).await;
    }
}

impl fmt::Debug for ElasticStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = &self.client.index;
        f.debug_struct("ElasticStore").field("index", index).finish_non_exhaustive()
    }
}

/// Each key once, and for each key of `keys` its index among those.
///
/// Hundreds of candidates of one process read the same record.
fn once_each(keys: &[Key]) -> (Vec<Key>, Vec<usize>) {
    let mut asked = Vec::new();
    let mut known = HashMap::with_capacity(keys.len());
    let place = |key| {
        *known.entry(key).or_insert_with(|| {
            asked.push(Key::clone(key));
            asked.len() - 1
        })
    };
    let places = keys.iter().map(place).collect();
    (asked, places)
}

/// Reads all documents with waits, again and again, in one request each time.
async fn poll(client: Arc<Client>, waits: Arc<Waits>) {
    let pause = POLL.min(client.request);
    loop {
        waits.somebody().await;
        tokio::time::sleep(pause).await;
        let asked = waits.asked();
        let end = Instant::now() + client.request;
        let parts = asked.keys.chunks(MOST_READS).map(|some| read::versions(&client, some, end));
        match try_join_all(parts).await {
            Ok(versions) => waits.found(&asked, versions.into_iter().flatten()),
            Err(failure) => {
                tracing::debug!(error = %failure.says, "elastic: looking for changes failed");
                waits.failed();
            }
        }
    }
}

fn failed(product: Product, failure: &Failure, doing: String) -> StoreError {
    StoreError::new(failure.fault, product.name(), doing, failure.says.clone())
}

fn refused(product: Product, doing: &str, says: String) -> StoreError {
    StoreError::new(Fault::Permanent, product.name(), doing, says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_many_ask_for_is_asked_for_once() {
        let key = |text| Key::parse(text).expect("a good key");
        let keys = ["a", "b", "a", "c", "b", "a"].map(key);
        let (asked, places) = once_each(&keys);
        assert_eq!(asked, ["a", "b", "c"].map(key));
        assert_eq!(places, [0, 1, 0, 2, 1, 0]);
        assert_eq!(once_each(&[]), (vec![], vec![]));
    }
}
