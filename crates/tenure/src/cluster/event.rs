//! What happens on a node, for whoever shows it.

use tokio::sync::broadcast;

use super::claims::Verdict;
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
    /// An attempt at a task ended here.
    Ended {
        /// The number under which it was accepted.
        serial: u64,
        /// What people call it.
        id: String,
        /// Which attempt, counted from 1.
        attempt: u32,
        /// What came of it, or why it failed.
        result: Result<Option<String>, String>,
        /// Whether that counts.
        verdict: Verdict,
    },
    /// This node began to lead, or stopped.
    Leading(bool),
    /// A document makes no sense.
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
}

/// Where events go. That nobody listens is fine.
pub(super) type Events = broadcast::Sender<Event>;
