//! The store of the simulation, and the network between it and a node.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::store::{Document, Fault, Page, Put, Reads, Store, StoreError, Version, Write};
use tenure::{Key, MemoryStore};

use tokio::sync::Notify;

use super::clock::SimulatedClock;
use super::setting;
use crate::kernel::Rng;

/// The rates of network faults in one seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// The longest usual time of a request or an answer.
    delay: Duration,
    /// How much longer a straggler may take.
    straggling: Duration,
    stragglers: u32,
    lost_requests: u32,
    lost_answers: u32,
    refusals: u32,
    /// Writes that are applied, and reported as a conflict.
    denials: u32,
}

impl Weather {
    pub(super) fn draw(rng: &mut Rng, ttl: Duration) -> Weather {
        let mut sometimes = |most| setting::chance(rng, most);
        Weather {
            stragglers: sometimes(120),
            lost_requests: sometimes(200),
            lost_answers: sometimes(200),
            refusals: sometimes(200),
            denials: sometimes(60),
            delay: ttl * u32::try_from(rng.between(1, 40)).unwrap_or(1) / 1000,
            straggling: ttl * 3,
        }
    }

    fn calm() -> Weather {
        Weather {
            delay: Duration::from_millis(1),
            straggling: Duration::ZERO,
            stragglers: 0,
            lost_requests: 0,
            lost_answers: 0,
            refusals: 0,
            denials: 0,
        }
    }
}

/// One store for all nodes, and the network to it.
pub(super) struct Network {
    store: MemoryStore,
    state: Mutex<State>,
    obituary: Notify,
}

struct State {
    weather: Weather,
    rng: Rng,
    cut: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    away: bool,
    /// Whether the store notifies of changes.
    gossip: bool,
}

/// The fate of one call.
enum Fate {
    /// The request never arrives, and no error says so.
    LostRequest,
    Refused,
    Carried {
        out: Duration,
        back: Duration,
        answer: Answer,
    },
}

enum Answer {
    Told,
    Lost,
    /// A stored write is reported as a conflict.
    Denied,
}

impl Network {
    pub(super) fn new(weather: Weather, seed: u64) -> Arc<Network> {
        let mut rng = Rng::new(seed);
        let gossip = rng.permille(600);
        let state = State {
            weather,
            rng,
            cut: BTreeSet::new(),
            dead: BTreeSet::new(),
            away: false,
            gossip,
        };
        Arc::new(Network {
            store: MemoryStore::new(),
            state: Mutex::new(state),
            obituary: Notify::new(),
        })
    }

    /// The store without any network in between.
    pub(super) fn calm_store(&self) -> Arc<MemoryStore> {
        Arc::new(self.store.clone())
    }

    pub(super) fn cut(&self, node: u64) {
        self.lock().cut.insert(node);
    }

    pub(super) fn heal_cuts(&self) {
        self.lock().cut.clear();
    }

    pub(super) fn outage(&self, away: bool) {
        self.lock().away = away;
    }

    pub(super) fn gossip(&self, gossip: bool) {
        self.lock().gossip = gossip;
    }

    pub(super) fn heal(&self) {
        let mut state = self.lock();
        state.weather = Weather::calm();
        state.cut.clear();
        state.away = false;
        state.gossip = true;
    }

    /// Kills a process for good. All nodes can prove its death.
    pub(super) fn bury(&self, node: u64) {
        self.lock().dead.insert(node);
        self.obituary.notify_waiters();
    }

    pub(super) fn is_dead(&self, node: u64) -> bool {
        self.lock().dead.contains(&node)
    }

    pub(super) async fn died(&self, node: u64) {
        loop {
            let mut told = pin!(self.obituary.notified());
            told.as_mut().enable();
            if self.is_dead(node) {
                return;
            }
            told.await;
        }
    }

    fn fate(&self, node: u64) -> Fate {
        let mut guard = self.lock();
        let state = &mut *guard;
        let weather = state.weather;
        if state.away || state.cut.contains(&node) || state.rng.permille(weather.lost_requests) {
            return Fate::LostRequest;
        }
        if state.rng.permille(weather.refusals) {
            return Fate::Refused;
        }
        let mut delay = || {
            let most = if state.rng.permille(weather.stragglers) {
                weather.delay + weather.straggling
            } else {
                weather.delay
            };
            let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
            Duration::from_nanos(state.rng.below(nanos))
        };
        let (out, back) = (delay(), delay());
        let answer = if state.rng.permille(weather.lost_answers) {
            Answer::Lost
        } else if state.rng.permille(weather.denials) {
            Answer::Denied
        } else {
            Answer::Told
        };
        Fate::Carried { out, back, answer }
    }

    fn tells(&self, node: u64) -> bool {
        let state = self.lock();
        state.gossip && !state.away && !state.cut.contains(&node)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

/// The store as one node reaches it.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) node: u64,
    pub(super) network: Arc<Network>,
    pub(super) clock: SimulatedClock,
    pub(super) timeout: Duration,
}

impl Reached {
    fn fail(&self, fault: Fault) -> StoreError {
        StoreError::new(fault, "simulated", format!("node {} asking", self.node), "a fault")
    }

    /// Carries one call there and back. After an error the call may have been applied.
    async fn carry<T>(&self, call: impl Future<Output = T>) -> Result<(T, Answer), StoreError> {
        match self.network.fate(self.node) {
            Fate::LostRequest => {
                tokio::time::sleep(self.timeout).await;
                self.clock.while_running().await;
                Err(self.fail(Fault::Indeterminate))
            }
            Fate::Refused => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                self.clock.while_running().await;
                Err(self.fail(Fault::Unavailable))
            }
            Fate::Carried { out, back, answer } => {
                tokio::time::sleep(out).await;
                let result = call.await;
                tokio::time::sleep(back).await;
                // An answer that arrives while the process is stopped waits for it.
                self.clock.while_running().await;
                match answer {
                    Answer::Lost => Err(self.fail(Fault::Indeterminate)),
                    Answer::Told | Answer::Denied => Ok((result, answer)),
                }
            }
        }
    }
}

#[async_trait]
impl Store for Reached {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        self.network.lock().gossip
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let (documents, _) = self.carry(self.network.store.get_many(keys)).await?;
        documents
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let count = writes.len();
        match self.carry(self.network.store.put_many(writes)).await {
            Ok((outcomes, Answer::Told | Answer::Lost)) => outcomes,
            Ok((_, Answer::Denied)) => (0..count).map(|_| Ok(Put::Conflict)).collect(),
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        }
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let (page, _) = self.carry(self.network.store.list(prefix, after, limit)).await?;
        page
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.network.store.changed(key, seen).await;
        self.clock.while_running().await;
        if !self.network.tells(self.node) {
            std::future::pending::<()>().await;
        }
    }
}
