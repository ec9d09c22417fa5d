//! The checkers, one promise a file. Each watches a [history](crate::history) for a breach.

mod ended;
mod fencing;
mod lock_delay;
mod one_leader;
mod outcome;
mod stop_first;

use std::fmt;

use crate::history::Event;

pub use ended::EndedIsTerminal;
pub use fencing::Fencing;
pub use lock_delay::LockDelay;
pub use one_leader::OneLeader;
pub use outcome::TruthfulOutcome;
pub use stop_first::StopFirst;

/// A promise that can be found broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// S1: no two leaders at once.
    OneLeader,
    /// S2: tokens rise, and a lost one never returns.
    Fencing,
    /// S3: work is told to stop in time, and ends before the lease is given up.
    StopFirst,
    /// S4: an end is final, and is only reported when there was one.
    EndedIsTerminal,
    /// L3: a candidacy ends, and the outcome that it reports is true.
    TruthfulOutcome,
    /// The lock delay passes after every tenure that did not end cleanly.
    LockDelay,
    /// L2: once faults stop, a candidate leads within the bound.
    Recovery,
    /// L4: on a queue, first come, first led.
    Fairness,
    /// On a queue, the server keeps a session for as long as its owner relies on it.
    Window,
    /// On a queue, no entry is left behind by a candidacy that is over.
    NoGhost,
    /// On a queue, only the candidate that left and the next one are woken.
    NoHerd,
    /// A machine neither spins nor sleeps for ever.
    Wakefulness,
}

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The promise.
    pub promise: Promise,
    /// The way in which it was broken, in words.
    pub how: String,
}

impl Breach {
    /// A breach of this promise.
    pub fn new(promise: Promise, how: impl Into<String>) -> Breach {
        Breach { promise, how: how.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.how)
    }
}

/// Watches one promise.
pub trait Check {
    /// Takes the next event of a history.
    ///
    /// # Errors
    /// The breach that this event shows.
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach>;
}

/// All the safety promises of an election, watched together.
#[derive(Debug, Default)]
pub struct Promises {
    one_leader: OneLeader,
    fencing: Fencing,
    stop_first: StopFirst,
    ended: EndedIsTerminal,
    outcome: TruthfulOutcome,
    lock_delay: LockDelay,
}

impl Promises {
    /// The candidate that leads at this moment of real time.
    #[must_use]
    pub fn leader(&self, at: crate::history::Instant) -> Option<crate::history::Who> {
        self.one_leader.leader(at)
    }
}

impl Check for Promises {
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach> {
        self.one_leader.observe(event)?;
        self.fencing.observe(event)?;
        self.stop_first.observe(event)?;
        self.ended.observe(event)?;
        self.outcome.observe(event)?;
        self.lock_delay.observe(event)
    }
}
