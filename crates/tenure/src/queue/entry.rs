//! Queues, and the entries in them.

use std::fmt;
use std::sync::Arc;

use crate::candidate::CandidateId;
use crate::protocol::Holder;

/// One attempt of one candidacy to join. The ticket of an entry shows which request made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// The candidacy.
    pub candidate: CandidateId,
    /// The number of the attempt, counted from 1.
    pub attempt: u64,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.candidate, self.attempt)
    }
}

/// One entry of any candidate: its name in the store, and the token of its creation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The whole name, as its backend needs it to find the entry again.
    pub name: Arc<str>,
    /// The fencing token: the store's number of the creation (czxid, create revision).
    pub token: u64,
}

/// An entry in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The entry.
    pub entry: Entry,
    /// The join that made it, if this process made it.
    ///
    /// A backend that cannot read the ticket from the entry names its own oldest join with an
    /// unknown outcome.
    pub ticket: Option<Ticket>,
    /// The candidate, if it was read. It is always read for the first entry.
    ///
    /// In the whole queue ([`SessionQueue::look`](super::SessionQueue::look)), `None` marks an
    /// entry that belongs to no session: an operator put it there by hand. It is no candidate, and
    /// no candidate waits for it.
    pub holder: Option<Arc<Holder>>,
}

/// An election's queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// The election is open.
    Open {
        /// The generation of the election. Generations rise. 0 is none of ours: other clients of
        /// the store stand in a queue that has not been created yet, and a join finds the election
        /// missing.
        generation: u64,
        /// The entries in the queue, lowest first. Entries that were not asked about may be left
        /// out.
        places: Vec<Place>,
        /// The newest tenure that began and was not left cleanly.
        ///
        /// It is kept only in elections with a lock delay.
        ///
        /// That tenure's entry may still stand in the queue, as the leader.
        unclean: Option<u64>,
        /// The highest recorded token of a tenure.
        ///
        /// 0 if none is recorded, or if the backend keeps no such record.
        ///
        /// In a store with numbers that only rise, no standing entry has a lower token than an
        /// earlier leader.
        highest: u64,
    },
    /// The election has ended. Entries may still stand; each owner deletes its own.
    Ended {
        /// The generation that has ended.
        generation: u64,
        /// The entries of this process that are still in the queue.
        places: Vec<Place>,
    },
    /// There is no such election, and therefore no entry.
    Missing,
}

/// The result of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The session the entry belongs to.
    pub session: u64,
    /// The entry that was made; if it is `None`, the queue says why.
    pub entry: Option<Entry>,
    /// The queue, read after the entry was made.
    pub queue: Queue,
}

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Left {
    /// The entry is deleted.
    Deleted,
    /// There was no such entry any more.
    Absent,
}

/// The report of a watch of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Gone {
    /// The store says that this very entry was deleted while its election was still open.
    Deleted,
    /// The store says that this very entry was deleted.
    ///
    /// Its election may have ended before that; only a read can tell.
    DeletedMaybeEnded,
    /// The entry may have been deleted; only a read can tell.
    Perhaps,
}

/// How new a queue must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// At least as new as anything this session has seen.
    Session,
    /// As new as the moment of asking: read after a write of ours that a quorum took.
    Barrier,
}
