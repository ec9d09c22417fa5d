//! Events on a node, for programs that show them.

use std::time::Duration;

use tenure::Key;
use tokio::sync::broadcast;

use super::claims::{Ending, Verdict};
use super::documents::DocumentError;

/// An event on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt at a task began here.
    Began {
        /// The serial number under which the task was accepted.
        serial: u64,
        /// The task's name for people.
        id: String,
        /// The number of the attempt, counted from 1.
        attempt: u32,
    },
    /// An attempt at a task ended here, and the verdict of the cluster's records is known.
    Ended {
        /// The serial number under which the task was accepted.
        serial: u64,
        /// The task's name for people.
        id: String,
        /// The number of the attempt, counted from 1.
        attempt: u32,
        /// How it ended.
        ending: Ending,
        /// True if the task will be tried again.
        again: bool,
        /// The verdict of the cluster's records on this end.
        verdict: Verdict,
        /// How long it took.
        took: Duration,
    },
    /// This node began to lead, or stopped.
    Leading(bool),
    /// A document makes no sense; it is left alone.
    Garbled {
        /// The key of the document.
        key: Key,
        /// The reason why it makes no sense.
        error: DocumentError,
    },
    /// The number of nodes that take part now.
    Members(usize),
    /// A source gave an item that no cluster accepts; it is counted as dead.
    Refused {
        /// The serial number under which the item was counted.
        serial: u64,
        /// The item's name for people.
        id: String,
        /// The reason why it was refused.
        error: DocumentError,
    },
    /// This member was declared dead or asked to drain: it takes no more tasks.
    Retired,
}

/// The sender of events. It is fine if there is no listener.
pub(super) type Events = broadcast::Sender<Event>;
