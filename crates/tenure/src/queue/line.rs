//! Lines, and what stands in them.

use std::fmt;
use std::sync::Arc;

use crate::candidate::CandidateId;
use crate::lease::record::Holder;

/// One attempt of one candidacy to join. Whoever finds it at an entry knows which request made
/// that.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// The candidacy.
    pub candidate: CandidateId,
    /// Which of its attempts, counted from 1.
    pub attempt: u64,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.candidate, self.attempt)
    }
}

/// One entry, whoever's: its name in the store, and when it was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The whole name, as its backend needs it to find the entry again.
    pub name: Arc<str>,
    /// The fencing token: what the store says of its creation (czxid, create revision).
    pub token: u64,
}

/// An entry in line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The entry.
    pub entry: Entry,
    /// Which join made it, if this process did.
    ///
    /// A backend that cannot read it from the entry names the oldest join of its own whose outcome
    /// it does not know.
    pub ticket: Option<Ticket>,
    /// Who stands there, if that was read. It is always read of the first.
    ///
    /// In the whole line ([`SessionQueue::look`](super::SessionQueue::look)) nothing marks an entry
    /// that belongs to no session: somebody put it there by hand. It is no candidate, and nobody
    /// waits for it.
    pub holder: Option<Arc<Holder>>,
}

/// An election's line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// The election is open.
    Open {
        /// Which creation of the election this is. Generations rise. 0 is none of ours: other
        /// clients of the store stand in a line that has not been created yet, and joining it finds
        /// it missing.
        generation: u64,
        /// Those in line, lowest first. Some that nobody asked about may be left out.
        places: Vec<Place>,
        /// The newest tenure that began and was not left cleanly; kept only in elections with a
        /// lock delay.
        ///
        /// It may still stand in line, as its leader.
        unclean: Option<u64>,
        /// The highest token of a tenure that is recorded; 0 if none is, or the backend records
        /// none.
        ///
        /// In a store whose numbers only rise no entry that stands has a lower one than an earlier
        /// leader's.
        highest: u64,
    },
    /// The election has ended. Entries may still stand; each is its owner's to delete.
    Ended {
        /// Which creation of the election has.
        generation: u64,
        /// Those still in line that this process made.
        places: Vec<Place>,
    },
    /// There is no such election, and therefore no entry.
    Missing,
}

/// What came of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The session the entry belongs to.
    pub session: u64,
    /// The entry that was made; `None` only where the line says why.
    pub entry: Option<Entry>,
    /// The line, read after the entry was made.
    pub line: Line,
}

/// What came of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Left {
    /// The entry is deleted.
    Deleted,
    /// There was no such entry any more.
    Absent,
}

/// What a watch of an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Gone {
    /// The store says that this very entry was deleted, and that its election had not ended before
    /// that.
    Deleted,
    /// The store says that this very entry was deleted. Its election may have ended before that;
    /// only a look can tell.
    DeletedMaybeEnded,
    /// It may have been deleted; only a look can tell.
    Perhaps,
}

/// How new a line must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// At least as new as anything this session has seen.
    Session,
    /// As new as the moment of asking: read after a write of ours that a quorum took.
    Barrier,
}
