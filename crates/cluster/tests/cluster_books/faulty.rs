//! A store that loses answers, and can have weak reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenure::store::{
    Document, Fault, Page, Put, Reads, Store, StoreError, StoreExt, Version, Write,
};
use tenure::{Key, MemoryStore};

/// How many earlier documents of a key a weak read may show.
const HISTORY: usize = 3;

/// The faults, in percent of all writes or reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// The write is applied, but not answered.
    pub(crate) unanswered: u32,
    /// The write is neither applied nor answered.
    pub(crate) lost: u32,
    /// The write is not answered, and applied some time later, if that is still possible.
    pub(crate) late: u32,
    /// The write is refused, without effect.
    pub(crate) refused: u32,
    /// The write is applied, and answered as a conflict with itself.
    pub(crate) doubled: u32,
    /// The read fails.
    pub(crate) unread: u32,
    /// On a weak store: the read shows an earlier document, or one that never lasted.
    pub(crate) untrue: u32,
}

impl Faults {
    pub(crate) const NONE: Faults =
        Faults { unanswered: 0, lost: 0, late: 0, refused: 0, doubled: 0, unread: 0, untrue: 0 };
    pub(crate) const MANY: Faults =
        Faults { unanswered: 8, lost: 8, late: 8, refused: 4, doubled: 4, unread: 4, untrue: 10 };
}

/// The memory store behind a bad line. The seed alone decides the faults.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    pub(crate) inner: MemoryStore,
    reads: Reads,
    faults: Faults,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    rng: StdRng,
    history: BTreeMap<Key, Vec<Option<Document>>>,
    /// Writes that reached only one server, which no other server follows.
    phantoms: BTreeMap<Key, Document>,
    drawn: u64,
}

enum Fate {
    Fine,
    Unanswered,
    Lost,
    Late,
    Refused,
    Doubled,
}

impl Faulty {
    pub(crate) fn new(inner: MemoryStore, reads: Reads, faults: Faults, seed: u64) -> Faulty {
        let rng = StdRng::seed_from_u64(seed);
        let (history, phantoms) = (BTreeMap::new(), BTreeMap::new());
        let state = Arc::new(Mutex::new(State { rng, history, phantoms, drawn: 0 }));
        Faulty { inner, reads, faults, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of faults so far.
    pub(crate) fn drawn(&self) -> u64 {
        self.state().drawn
    }

    /// Yields to other tasks a random number of times, perhaps none.
    async fn dawdle(&self) {
        let yields = self.state().rng.random_range(0..4);
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
    }

    fn fate(&self) -> Fate {
        let mut state = self.state();
        let mut drawn = state.rng.random_range(0..100);
        for (percent, fate) in [
            (self.faults.unanswered, Fate::Unanswered),
            (self.faults.lost, Fate::Lost),
            (self.faults.late, Fate::Late),
            (self.faults.refused, Fate::Refused),
            (self.faults.doubled, Fate::Doubled),
        ] {
            if drawn < percent {
                state.drawn += 1;
                return fate;
            }
            drawn -= percent;
        }
        Fate::Fine
    }

    async fn apply(&self, write: Write) -> Result<Put, StoreError> {
        let key = write.key.clone();
        let before = self.inner.get(&key).await?;
        let put = self.inner.put_one(write).await?;
        if matches!(put, Put::Stored(_)) {
            let mut state = self.state();
            let history = state.history.entry(key.clone()).or_default();
            history.push(before);
            if history.len() > HISTORY {
                history.remove(0);
            }
            state.phantoms.remove(&key);
        }
        Ok(put)
    }

    async fn write(&self, write: Write) -> Result<Put, StoreError> {
        self.dawdle().await;
        let doing = format!("writing {}", write.key);
        let fails = |fault| Err(StoreError::new(fault, "faulty", doing, "drawn"));
        match self.fate() {
            Fate::Fine => self.apply(write).await,
            Fate::Unanswered => {
                let _applied = self.apply(write).await;
                self.dawdle().await;
                fails(Fault::Indeterminate)
            }
            Fate::Lost => {
                self.haunt(&write).await;
                fails(Fault::Indeterminate)
            }
            Fate::Late => {
                let (late, delay) = (self.clone(), self.state().rng.random_range(0..2000));
                drop(tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                    // The caller no longer waits for this answer.
                    let _ = late.apply(write).await;
                }));
                fails(Fault::Indeterminate)
            }
            Fate::Refused => fails(Fault::Unavailable),
            Fate::Doubled => match self.apply(write).await {
                Ok(_) => Ok(Put::Conflict),
                error => error,
            },
        }
    }

    /// Keeps a write that was never applied, which a weak read may show.
    async fn haunt(&self, write: &Write) {
        let Some(body) = write.body.clone() else { return };
        let mut state = self.state();
        let version = Version::new(format!("phantom-{}", state.drawn));
        state.phantoms.insert(write.key.clone(), Document { version, body });
    }

    /// The false content that a weak read shows, if it shows one.
    fn untrue(&self, key: &Key) -> Option<Option<Document>> {
        let mut state = self.state();
        if self.reads == Reads::Linearizable || state.rng.random_range(0..100) >= self.faults.untrue
        {
            return None;
        }
        let phantom = state.phantoms.get(key).cloned();
        let history = state.history.get(key).cloned().unwrap_or_default();
        let mut choices: Vec<Option<Document>> = history;
        choices.extend(phantom.map(Some));
        if choices.is_empty() {
            return None;
        }
        state.drawn += 1;
        let choice = state.rng.random_range(0..choices.len());
        Some(choices.swap_remove(choice))
    }
}

#[async_trait]
impl Store for Faulty {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn notifies(&self) -> bool {
        self.inner.notifies()
    }

    fn forgets_deleted(&self) -> bool {
        self.inner.forgets_deleted()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        self.dawdle().await;
        if self.state().rng.random_range(0..100) < self.faults.unread {
            return Err(StoreError::new(Fault::Unavailable, "faulty", "reading", "drawn"));
        }
        let mut found = self.inner.get_many(keys).await?;
        for (key, found) in keys.iter().zip(&mut found) {
            if let Some(untrue) = self.untrue(key) {
                *found = untrue;
            }
        }
        self.dawdle().await;
        Ok(found)
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let mut outcomes = Vec::new();
        for write in writes {
            outcomes.push(self.write(write).await);
        }
        outcomes
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.inner.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.inner.changed(key, seen).await;
    }
}
