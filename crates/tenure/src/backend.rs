//! A store, ready for elections.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::candidate::CandidateId;
use crate::clock::{Clock, system};
use crate::driver::{self, Handle};
use crate::feed::FeedStore;
use crate::memory::MemoryStore;
use crate::store::{Presence, Store};
use crate::{Error, lease::record::Op};

/// A store and what belongs to it. Clones share one driver, which serves all elections in batches.
///
/// Get one from `tenure_stores::open(url)`, or build one from a client of your own:
///
/// ```
/// use std::sync::Arc;
/// use tenure::{Backend, MemoryStore};
/// let backend = Backend::new(Arc::new(MemoryStore::new()));
/// ```
#[derive(Clone)]
pub struct Backend {
    parts: Parts,
    driver: Arc<Mutex<Option<Handle>>>,
}

/// What the driver works with.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) presence: Option<Arc<dyn Presence>>,
    pub(crate) feed: Option<Arc<dyn FeedStore>>,
    pub(crate) clock: Arc<dyn Clock>,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Backend {
    /// A backend on this store, with the machine's own clock.
    pub fn new(store: Arc<dyn Store>) -> Backend {
        let random = Arc::new(rand::random::<u64>);
        let parts = Parts { store, presence: None, feed: None, clock: system(), random };
        Backend { parts, driver: Arc::default() }
    }

    /// A backend in this process's memory.
    #[must_use]
    pub fn memory() -> Backend {
        Backend::new(Arc::new(MemoryStore::new()))
    }

    /// The same, where dead processes can be told from hung ones.
    #[must_use]
    pub fn with_presence(mut self, presence: Arc<dyn Presence>) -> Backend {
        self.parts.presence = Some(presence);
        self.driver = Arc::default();
        self
    }

    /// The same, whose tables' changes can be followed: what a [`Feed`](crate::feed) needs.
    #[must_use]
    pub fn with_feed(mut self, feed: Arc<dyn FeedStore>) -> Backend {
        self.parts.feed = Some(feed);
        self
    }

    /// The same, on another clock: the test clock, a simulator's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Backend {
        self.parts.clock = clock;
        self.driver = Arc::default();
        self
    }

    /// The same, with ids and jitters that can be drawn again.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_randomness(mut self, random: Arc<dyn Fn() -> u64 + Send + Sync>) -> Backend {
        self.parts.random = random;
        self.driver = Arc::default();
        self
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.parts.store
    }

    /// How dead processes are told from hung ones, where they can be.
    #[must_use]
    pub fn presence(&self) -> Option<&Arc<dyn Presence>> {
        self.parts.presence.as_ref()
    }

    /// How tables are followed, where they can be.
    #[must_use]
    pub fn feed(&self) -> Option<&Arc<dyn FeedStore>> {
        self.parts.feed.as_ref()
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.parts.clock
    }

    /// Releases every leadership and candidacy on this backend, and waits until the store has answered.
    ///
    /// Their mandates are revoked at once. What the store does not answer within the ttl is left to
    /// expire.
    ///
    /// # Cancel safety
    /// Cancel safe: the releases go on in the background.
    pub async fn close(&self) {
        let handle = self.lock().clone();
        if let Some(handle) = handle {
            handle.close().await;
        }
    }

    /// A backend on another store, with the same clock and randomness and nothing else.
    pub(crate) fn on_store(&self, store: Arc<dyn Store>) -> Backend {
        let parts = Parts { store, presence: None, feed: None, ..self.parts.clone() };
        Backend { parts, driver: Arc::default() }
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The driver of this backend, started on the current runtime if it does not run.
    pub(crate) fn driver(&self) -> Result<Handle, Error> {
        let mut driver = self.lock();
        if let Some(handle) = driver.as_ref().filter(|handle| handle.is_alive()) {
            return Ok(handle.clone());
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::Stopped)?;
        let handle = driver::start(&runtime, self.parts.clone());
        *driver = Some(handle.clone());
        Ok(handle)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Handle>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    pub(crate) fn random(&self) -> u64 {
        (self.random)()
    }

    pub(crate) fn fresh_id(&self) -> CandidateId {
        let (high, low) = (self.random(), self.random());
        CandidateId::from_bits(u128::from(high) << 64 | u128::from(low))
    }

    /// The op of a write by somebody who is no candidate.
    pub(crate) fn fresh_op(&self) -> Op {
        Op::new(&self.fresh_id(), 0)
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("store", &self.store).finish_non_exhaustive()
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("store", &self.parts.store)
            .field("presence", &self.parts.presence)
            .finish_non_exhaustive()
    }
}
