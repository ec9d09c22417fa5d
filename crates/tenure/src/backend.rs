//! A store, ready for elections.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::candidate::CandidateId;
use crate::clock::{Clock, system};
use crate::driver::{self, Handle};
use crate::lease::record::Op;
use crate::memory::MemoryStore;
use crate::parts::Parts;
use crate::queue::SessionQueue;
use crate::store::feed::FeedStore;
use crate::store::{Presence, Store};
use crate::{Error, Key, Name, Protocol};

/// A store and its companions. Clones share one driver, which serves all elections in batches.
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
    creates: bool,
    driver: Arc<Mutex<Option<Handle>>>,
}

impl Backend {
    /// A backend on this store, with the machine's own clock.
    pub fn new(store: Arc<dyn Store>) -> Backend {
        let (clock, random) = (system(), Arc::new(rand::random::<u64>));
        let (presence, queue, feed) = (None, None, None);
        let tokens = Arc::default();
        let parts = Parts { store, presence, queue, feed, clock, random, tokens };
        Backend { parts, creates: true, driver: Arc::default() }
    }

    /// A backend in this process's memory.
    #[must_use]
    pub fn memory() -> Backend {
        Backend::new(Arc::new(MemoryStore::new()))
    }

    /// Adds a presence, which tells dead processes from hung ones.
    #[must_use]
    pub fn with_presence(mut self, presence: Arc<dyn Presence>) -> Backend {
        self.parts.presence = Some(presence);
        self.driver = Arc::default();
        self
    }

    /// Decides its elections by queues: first come, first led.
    ///
    /// The documents of the store list the elections, and mark them as queues.
    #[must_use]
    pub fn with_queue(mut self, queue: Arc<dyn SessionQueue>) -> Backend {
        self.parts.queue = Some(queue);
        self.parts.tokens = Arc::default();
        self.driver = Arc::default();
        self
    }

    /// Makes its elections leases only (`?protocol=lease`).
    #[must_use]
    pub fn without_queue(mut self) -> Backend {
        self.parts.queue = None;
        self.driver = Arc::default();
        self
    }

    /// Sets whether opening an election that does not exist creates it; default `true`.
    ///
    /// [`Builder::create_if_missing`](crate::Builder::create_if_missing) overrides it.
    #[must_use]
    pub fn with_creation(mut self, creates: bool) -> Backend {
        self.creates = creates;
        self
    }

    /// Adds a change feed on the store's tables, as a [`Feed`](crate::feed) needs it.
    #[must_use]
    pub fn with_feed(mut self, feed: Arc<dyn FeedStore>) -> Backend {
        self.parts.feed = Some(feed);
        self
    }

    /// Replaces the clock: the test clock, or a simulator's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Backend {
        self.parts.clock = clock;
        self.driver = Arc::default();
        self
    }

    /// Replaces the randomness, so that ids and jitters are repeatable.
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

    /// The presence that tells dead processes from hung ones, where there is one.
    #[must_use]
    pub fn presence(&self) -> Option<&Arc<dyn Presence>> {
        self.parts.presence.as_ref()
    }

    /// The queues that decide its elections, if leases do not.
    #[must_use]
    pub fn queue(&self) -> Option<&Arc<dyn SessionQueue>> {
        self.parts.queue.as_ref()
    }

    /// The protocol that decides its elections.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match &self.parts.queue {
            Some(_) => Protocol::Queue,
            None => Protocol::Lease,
        }
    }

    pub(crate) fn creates(&self) -> bool {
        self.creates
    }

    /// The change feed of its tables, where there is one.
    #[must_use]
    pub fn feed(&self) -> Option<&Arc<dyn FeedStore>> {
        self.parts.feed.as_ref()
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.parts.clock
    }

    /// Releases every leadership and candidacy on this backend, and waits for the store.
    ///
    /// Call it last, before the runtime ends. A dropped candidacy or leadership releases itself in
    /// the background; if the runtime ends first, the release is lost and others wait for the ttl.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// use tenure::{Backend, Election};
    /// let backend = Backend::memory();
    /// let election = Election::open(&backend, "billing/primary").await?;
    /// let leadership = election.campaign("host-a".try_into()?).await?;
    /// drop(leadership); // resigns in the background
    /// backend.close().await; // now others may lead
    /// # Ok(()) }
    /// ```
    ///
    /// All mandates are revoked at once. If the store does not answer a release within the ttl, the
    /// lease is left to expire; the driver goes on trying to leave a queue in the background. The
    /// backend can be used again afterwards.
    ///
    /// # Cancel safety
    /// Cancel safe: the releases go on in the background.
    pub async fn close(&self) {
        let handle = self.lock().clone();
        if let Some(handle) = handle {
            handle.close().await;
        }
    }

    /// A backend on a store of one record, with the same clock and randomness and nothing else.
    pub(crate) fn on_store(&self, store: Arc<dyn Store>) -> Backend {
        let (presence, queue, feed) = (None, None, None);
        let tokens = Arc::default();
        let parts = Parts { store, presence, queue, feed, tokens, ..self.parts.clone() };
        Backend { parts, creates: true, driver: Arc::default() }
    }

    /// The key of an election's floor, if a floor is kept.
    ///
    /// A queue needs none: its tokens are the store's own numbers.
    pub(crate) fn floor(&self, election: &Name) -> Option<Key> {
        (self.parts.store.forgets_deleted() && self.parts.queue.is_none())
            .then(|| Key::floor(election))
    }

    /// A random number, from the same source as the backend's ids.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.parts.random()
    }

    /// An id that no other candidate or node has.
    #[must_use]
    pub fn fresh_id(&self) -> CandidateId {
        self.parts.fresh_id()
    }

    /// The op of a write that no candidate makes.
    #[must_use]
    pub fn fresh_op(&self) -> Op {
        self.parts.fresh_op()
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

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("store", &self.parts.store)
            .field("presence", &self.parts.presence)
            .field("queue", &self.parts.queue)
            .finish_non_exhaustive()
    }
}
