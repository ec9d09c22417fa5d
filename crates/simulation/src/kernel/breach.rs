//! The promises that a simulation can find broken.

use std::fmt;

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
    /// In a cluster, every task is counted once, as it ended, and nothing is left behind.
    Counted,
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
