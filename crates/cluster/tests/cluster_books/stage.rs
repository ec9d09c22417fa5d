//! A clock that a test can pause, and a client on a store of the test's own.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::lease::record::Op;
use tenure::store::{Document, Expect, Put, Store, StoreExt, Version};
use tenure::{Backend, CandidateId, Clock, Key, MemoryStore, Moment, Timer};
use tenure_cluster::documents::{Entry, Format, Page};
use tenure_cluster::{ClusterClient, Order};

/// Tokio's clock, which a test can pause.
#[derive(Debug)]
pub(crate) struct TokioClock(tokio::time::Instant);

impl TokioClock {
    pub(crate) fn new() -> Arc<TokioClock> {
        Arc::new(TokioClock(tokio::time::Instant::now()))
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        let elapsed = Duration::from_secs(1000) + self.0.elapsed();
        Moment { boot: elapsed, monotonic: elapsed }
    }

    fn wall(&self) -> u64 {
        1_515_527_529_288 + u64::try_from(self.0.elapsed().as_millis()).expect("a short test")
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(TokioTimer(self.0))
    }
}

struct TokioTimer(tokio::time::Instant);

#[async_trait]
impl Timer for TokioTimer {
    async fn until(&mut self, moment: Moment) {
        let elapsed = moment.boot.saturating_sub(Duration::from_secs(1000));
        tokio::time::sleep_until(self.0 + elapsed).await;
    }
}

/// A client on this store, on tokio's clock.
pub(crate) fn client_on(store: Arc<dyn Store>) -> ClusterClient {
    let backend = Backend::new(store).with_clock(TokioClock::new());
    ClusterClient::open(&backend, "shop/till").expect("a good name")
}

/// A client on an empty store in memory, and that store.
pub(crate) fn stage() -> (ClusterClient, MemoryStore) {
    let store = MemoryStore::new();
    (client_on(Arc::new(store.clone())), store)
}

pub(crate) fn order(id: &str) -> Order {
    Order::new(id, "sell", "one")
}

pub(crate) fn op(number: u64) -> Op {
    Op::new(&CandidateId::from_bits(99), number)
}

pub(crate) fn member(bits: u128) -> CandidateId {
    CandidateId::from_bits(bits)
}

/// Reads a document that must make sense.
pub(crate) async fn read<T: Format>(store: &dyn Store, key: &Key) -> Option<(Version, T)> {
    let Document { version, body } = store.get(key).await.expect("a read")?;
    Some((version, T::decode(&body).expect("it makes sense")))
}

/// Writes a document that no other process writes at the same time.
pub(crate) async fn write<T: Format>(store: &dyn Store, key: &Key, document: &T) -> Version {
    write_body(store, key, document.encode()).await
}

pub(crate) async fn write_body(store: &dyn Store, key: &Key, body: bytes::Bytes) -> Version {
    let found = store.get(key).await.expect("a read");
    let expect = found.map_or(Expect::Absent, |found| Expect::At(found.version));
    match store.put(key, expect, body).await.expect("a write") {
        Put::Stored(version) => version,
        Put::Conflict => panic!("somebody else wrote {key}"),
    }
}

/// The ids of the tasks on a page, and descriptions of its other entries.
pub(crate) fn ids(page: &Page) -> Vec<String> {
    page.entries
        .iter()
        .map(|entry| match entry {
            Entry::Task(order) => order.id.clone(),
            Entry::Retry(serial) => format!("retry {serial}"),
            Entry::Cancelled(receipt) => format!("cancelled {receipt}"),
        })
        .collect()
}

/// The ids of everything in the inbox from this page on, in order.
pub(crate) async fn inbox(client: &ClusterClient, store: &dyn Store, from: u64) -> Vec<String> {
    let mut all = Vec::new();
    for number in from.. {
        match read::<Page>(store, &client.keys().page(number)).await {
            Some((_, page)) if page.number == number && !page.entries.is_empty() => {
                all.extend(ids(&page));
            }
            Some(_) | None => break,
        }
    }
    all
}
