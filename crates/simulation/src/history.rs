//! The events of a run, seen from outside. Checkers see nothing else.
//!
//! A history needs an observer that sees real time: the simulator of machines, a simulation through
//! the driver, or a referee of real processes. Checkers know nothing of machines.

use tenure::lease::record::Record;
use tenure::protocol::{Loss, Outcome};

use crate::kernel::{Instant, Term};

/// A candidacy. Never used twice in a history.
pub type Who = u32;

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The real time of the event, never before that of the previous event.
    pub at: Instant,
    /// The event itself.
    pub what: What<'a>,
}

/// The kinds of events.
#[derive(Clone, Debug)]
pub enum What<'a> {
    /// A candidate began to stand.
    Stood {
        /// The candidate.
        who: Who,
        /// How fast its clock runs, in millionths of real time.
        rate: u64,
    },
    /// A candidate was elected.
    Elected {
        /// The candidate.
        who: Who,
        /// Its lease.
        lease: Term,
    },
    /// A leader's lease was renewed.
    Extended {
        /// The leader.
        who: Who,
        /// Its lease.
        lease: Term,
    },
    /// A leader's work was told to stop.
    MustStop {
        /// The leader.
        who: Who,
    },
    /// A leader was told that it no longer leads.
    Lost {
        /// The former leader.
        who: Who,
        /// The token of the lost tenure.
        token: u64,
        /// The reason.
        loss: &'a Loss,
    },
    /// A leader gave up its lease of its own accord, before it told the store.
    GaveUp {
        /// The leader.
        who: Who,
    },
    /// The work of a tenure has ended.
    WorkEnded {
        /// The candidate.
        who: Who,
    },
    /// The process took no step for a while, until now.
    Paused {
        /// The candidate.
        who: Who,
    },
    /// The process is gone, and its work with it.
    Crashed {
        /// The candidate.
        who: Who,
    },
    /// The store proved to a candidate that there is a record at this token.
    Learned {
        /// The candidate.
        who: Who,
        /// The record's token.
        token: u64,
    },
    /// A candidate sent a write.
    Sent {
        /// The candidate.
        who: Who,
        /// The record that it would write.
        record: &'a Record,
        /// Whether the write frees or ends the candidate's tenure.
        gives_up: bool,
    },
    /// A candidate asked for its entry in line to be deleted.
    Leaves {
        /// The candidate.
        who: Who,
    },
    /// The store's lasting record changed.
    Committed {
        /// The candidate that wrote it, if a candidate did.
        by: Option<Who>,
        /// The candidate that holds it now.
        holder: Option<Who>,
        /// The record, if there is one.
        record: Option<&'a Record>,
    },
    /// An operator deleted the record and left its floor. Candidates may report that it vanished.
    Deleted,
    /// An operator put an old record back, or freed it for its leader. The promises about it are
    /// off.
    Vandalised,
    /// A candidacy is over.
    Over {
        /// The candidate.
        who: Who,
        /// How it ended.
        outcome: &'a Outcome,
    },
}
