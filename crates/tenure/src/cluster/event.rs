//! What a node tells whoever watches it.

use super::claims::Verdict;
use super::documents::DocumentError;
use crate::Key;

/// Something happened on this node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The work of a task has begun here.
    Began {
        /// Under which number it was accepted.
        serial: u64,
        /// What people call it.
        id: String,
        /// Which attempt, counted from 1.
        attempt: u32,
    },
    /// The work of a task has ended here, and the books have said what they make of it.
    Ended {
        /// Under which number it was accepted.
        serial: u64,
        /// What people call it.
        id: String,
        /// Which attempt, counted from 1.
        attempt: u32,
        /// How it ended.
        ending: super::claims::Ending,
        /// Whether it will be tried again.
        again: bool,
        /// What the books made of it.
        verdict: Verdict,
        /// How long it took.
        took: std::time::Duration,
    },
    /// Whether this node plans for all.
    Leading(bool),
    /// How many nodes there are.
    Members(usize),
    /// A document makes no sense; it is left alone.
    Garbled(Key, DocumentError),
    /// Somebody declared this member dead, or asked it to finish what it has: it takes nothing more.
    Retired,
}
