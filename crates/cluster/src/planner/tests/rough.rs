//! A store that loses requests and answers, and answers late. On weak reads it also shows documents
//! that never existed or exist no more.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use tenure::lease::record::Op;
use tenure::store::{
    Document, Fault, Page, Put, Reads, Store, StoreError, StoreExt as _, Version, Write,
};
use tenure::{CandidateId, Key, MemoryStore};

use super::parts::{Chance, now};
use crate::documents::{Format as _, Progress, Slot};

/// How rough the store is. Each fault happens once in this many times, or never (0).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// Every call takes up to this many polls, before and after it happens.
    pub(super) polls: usize,
    /// The request does not arrive.
    pub(super) refused: usize,
    /// The request arrives, but its answer does not.
    pub(super) unanswered: usize,
    /// The request arrives long after it was given up.
    pub(super) late: usize,
    /// Reads are weak: they prove nothing.
    pub(super) weak: bool,
    /// A weak read shows an earlier state.
    pub(super) stale: usize,
    /// A weak read shows a write that never lasts.
    pub(super) phantom: usize,
}

#[derive(Debug)]
pub(super) struct Rough {
    memory: MemoryStore,
    chance: Chance,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    manner: Manner,
    /// Writes that were given up and are still under way.
    late: Vec<Write>,
    /// The documents that reads have shown, the newest last.
    shown: BTreeMap<Key, Vec<Option<Document>>>,
    /// Documents that reads show although no write stored them, and how often still.
    phantoms: BTreeMap<Key, (Document, usize)>,
    made_up: u64,
}

impl Rough {
    pub(super) fn new(memory: MemoryStore, chance: Chance, manner: Manner) -> Rough {
        Rough { memory, chance, state: Mutex::new(State { manner, ..State::default() }) }
    }

    /// Makes the store work from now on, with nothing under way any more.
    pub(super) fn heal(&self) {
        let mut state = self.state();
        let manner = Manner { polls: 1, weak: state.manner.weak, ..Manner::default() };
        *state = State { manner, ..State::default() };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn manner(&self) -> Manner {
        self.state().manner
    }

    async fn take_a_while(&self) {
        let mut left = self.chance.below(self.manner().polls + 1);
        poll_fn(|_| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            Poll::Pending
        })
        .await;
    }

    fn failure(fault: Fault) -> StoreError {
        StoreError::new(fault, "rough", "being rough", "it is")
    }

    /// Lets some of the given-up writes arrive after all.
    fn deliver(&self) {
        let mut state = self.state();
        let mut index = 0;
        while index < state.late.len() {
            if self.chance.one_in(12) {
                let write = state.late.swap_remove(index);
                let _ = now(self.memory.put_one(write));
            } else {
                index += 1;
            }
        }
    }

    /// The document that a weak read shows instead.
    fn distort(&self, key: &Key, truth: Option<Document>) -> Option<Document> {
        let mut state = self.state();
        let manner = state.manner;
        let shown = state.shown.entry(key.clone()).or_default();
        let is_new = shown.last().is_none_or(|last| {
            last.as_ref().map(|last| &last.version) != truth.as_ref().map(|truth| &truth.version)
        });
        if is_new {
            shown.push(truth.clone());
            let extra = shown.len().saturating_sub(6);
            shown.drain(..extra);
        }
        if self.chance.one_in(manner.stale) {
            return shown[self.chance.below(shown.len())].clone();
        }
        if let Some((phantom, left)) = state.phantoms.get_mut(key) {
            let phantom = phantom.clone();
            *left -= 1;
            if *left == 0 {
                state.phantoms.remove(key);
            }
            return Some(phantom);
        }
        let held = truth.as_ref().and_then(|document| Slot::decode(&document.body).ok());
        if let Some(slot) = held.filter(|slot| slot.holding().is_some())
            && self.chance.one_in(manner.phantom)
        {
            state.made_up += 1;
            let op = Op::new(&CandidateId::from_bits(99), state.made_up);
            let body = slot.following(op, Progress::Done { result: None }).encode();
            let version = Version::new(format!("phantom-{}", state.made_up));
            return Some(Document { version, body });
        }
        truth
    }

    fn put(&self, write: Write) -> Result<Put, StoreError> {
        let manner = self.manner();
        if self.chance.one_in(manner.refused) {
            return Err(Rough::failure(Fault::Unavailable));
        }
        if self.chance.one_in(manner.late) {
            self.state().late.push(write);
            return Err(Rough::failure(Fault::Indeterminate));
        }
        if manner.weak
            && self.chance.one_in(manner.phantom)
            && let Some(body) = write.body.clone()
        {
            let mut state = self.state();
            state.made_up += 1;
            let version = Version::new(format!("phantom-{}", state.made_up));
            state.phantoms.insert(write.key, (Document { version, body }, 3));
            return Err(Rough::failure(Fault::Indeterminate));
        }
        let outcome = now(self.memory.put_one(write));
        if self.chance.one_in(manner.unanswered) {
            return Err(Rough::failure(Fault::Indeterminate));
        }
        outcome
    }
}

#[async_trait]
impl Store for Rough {
    fn reads(&self) -> Reads {
        if self.manner().weak { Reads::Weak } else { Reads::Linearizable }
    }

    fn notifies(&self) -> bool {
        true
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        self.take_a_while().await;
        self.deliver();
        if self.chance.one_in(self.manner().refused) {
            return Err(Rough::failure(Fault::Unavailable));
        }
        let mut documents = now(self.memory.get_many(keys))?;
        if self.manner().weak {
            for (key, document) in keys.iter().zip(&mut documents) {
                *document = self.distort(key, document.take());
            }
        }
        self.take_a_while().await;
        Ok(documents)
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        self.take_a_while().await;
        self.deliver();
        let mut outcomes = Vec::new();
        for write in writes {
            if self.chance.one_in(8) {
                self.take_a_while().await;
            }
            outcomes.push(self.put(write));
        }
        self.take_a_while().await;
        outcomes
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.take_a_while().await;
        now(self.memory.list(prefix, after, limit))
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.memory.changed(key, seen).await;
    }
}
