//! The parts of a backend that its driver works with.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Key;
use crate::candidate::CandidateId;
use crate::clock::Clock;
use crate::lease::record::Op;
use crate::queue::SessionQueue;
use crate::store::feed::FeedStore;
use crate::store::{Presence, Store};

/// The parts that the driver works with.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) presence: Option<Arc<dyn Presence>>,
    pub(crate) queue: Option<Arc<dyn SessionQueue>>,
    pub(crate) feed: Option<Arc<dyn FeedStore>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// The highest token with which this process has led each queue. One entry per queue it has
    /// led.
    pub(crate) tokens: Arc<Mutex<HashMap<Key, u64>>>,
}

impl Parts {
    pub(crate) fn random(&self) -> u64 {
        (self.random)()
    }

    /// Notes that this process leads a queue with this token.
    pub(crate) fn remember(&self, election: &Key, token: u64) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = tokens.entry(election.clone()).or_default();
        *highest = token.max(*highest);
    }

    /// The highest token with which this process has led a queue; 0 if it never did.
    pub(crate) fn highest(&self, election: &Key) -> u64 {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(election).copied().unwrap_or(0)
    }

    pub(crate) fn fresh_id(&self) -> CandidateId {
        let (high, low) = (self.random(), self.random());
        CandidateId::from_bits(u128::from(high) << 64 | u128::from(low))
    }

    /// The op of a write that no candidate makes.
    pub(crate) fn fresh_op(&self) -> Op {
        Op::new(&self.fresh_id(), 0)
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("store", &self.store).finish_non_exhaustive()
    }
}
