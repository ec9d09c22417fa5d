//! What happens on a node, for whoever shows it.

use std::time::Duration;

use tokio::sync::broadcast;

use super::claims::{Ending, Verdict};
use super::documents::DocumentError;
use crate::Key;

/// Something that happened on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt at a task began here.
    Began {
        /// The number under which it was accepted.
        serial: u64,
        /// What people call it.
        id: String,
        /// Which attempt, counted from 1.
        attempt: u32,
    },
    /// An attempt at a task ended here, and the books have said what they make of it.
    Ended {
        /// The number under which it was accepted.
        serial: u64,
        /// What people call it.
        id: String,
        /// Which attempt, counted from 1.
        attempt: u32,
        /// How it ended.
        ending: Ending,
        /// Whether it will be tried again.
        again: bool,
        /// What the books made of it.
        verdict: Verdict,
        /// How long it took.
        took: Duration,
    },
    /// This node began to plan for all, or stopped.
    Leading(bool),
    /// A document makes no sense; it is left alone.
    Garbled {
        /// Where it stands.
        key: Key,
        /// What is wrong with it.
        error: DocumentError,
    },
    /// So many nodes take part now.
    Members(usize),
    /// A source gave something that no cluster takes; it is counted as dead.
    Refused {
        /// The number under which it was counted.
        serial: u64,
        /// What it was called.
        id: String,
        /// What is wrong with it.
        error: DocumentError,
    },
    /// Somebody declared this member dead, or asked it to finish what it has: it takes nothing
    /// more.
    Retired,
}

/// Where events go. That nobody listens is fine.
pub(super) type Events = broadcast::Sender<Event>;
