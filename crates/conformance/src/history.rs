//! What a run looks like from outside: the only thing that checkers are shown.
//!
//! A history is written by whoever can see real time: the simulator of machines, a simulation
//! through the driver, or a referee of real processes. Checkers know nothing of machines.

use tenure::lease::machine::{Loss, Outcome};
use tenure::lease::record::Record;

/// Real time in nanoseconds since the run began, on a clock that no candidate can read.
pub type Instant = u64;

/// A candidacy. Never used twice in a history.
pub type Who = u32;

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// When, in real time. Never before the event that was told last.
    pub at: Instant,
    /// What.
    pub what: What<'a>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What<'a> {
    /// A candidate began to stand.
    Stood {
        /// Who.
        who: Who,
        /// How fast its clock runs, in millionths of real time.
        rate: u64,
    },
    /// A candidate was elected.
    Elected {
        /// Who.
        who: Who,
        /// Its lease.
        lease: Term,
    },
    /// A leader's lease was renewed.
    Extended {
        /// Who.
        who: Who,
        /// Its lease.
        lease: Term,
    },
    /// A leader's work was told to stop.
    MustStop {
        /// Who.
        who: Who,
    },
    /// A leader was told that it no longer is one.
    Lost {
        /// Who.
        who: Who,
        /// Which tenure's token.
        token: u64,
        /// Why.
        loss: &'a Loss,
    },
    /// A leader gave its lease up of its own accord, before it told the store.
    GaveUp {
        /// Who.
        who: Who,
    },
    /// The work of a tenure has ended.
    WorkEnded {
        /// Who.
        who: Who,
    },
    /// The process took no step for a while that ends now.
    Paused {
        /// Who.
        who: Who,
    },
    /// The process is gone, and its work with it.
    Crashed {
        /// Who.
        who: Who,
    },
    /// The store proved to a candidate that there is a record at this token.
    Learned {
        /// Who.
        who: Who,
        /// The record's token.
        token: u64,
    },
    /// A candidate sent a write.
    Sent {
        /// Who.
        who: Who,
        /// What it would write.
        record: &'a Record,
        /// Whether it frees or ends what the candidate holds.
        gives_up: bool,
    },
    /// A candidate asked for its entry in line to be deleted.
    Leaves {
        /// Who.
        who: Who,
    },
    /// The store's lasting record changed.
    Committed {
        /// Who wrote it, if a candidate did.
        by: Option<Who>,
        /// Who holds it now.
        holder: Option<Who>,
        /// The record, if there is one.
        record: Option<&'a Record>,
    },
    /// Somebody deleted the record, and its floor was left: candidates may say that it vanished.
    Deleted,
    /// Somebody put an old record back, or freed it for its leader. The promises about it are off.
    Vandalised,
    /// A candidacy is over.
    Over {
        /// Who.
        who: Who,
        /// How it ended.
        outcome: &'a Outcome,
    },
}

/// A lease in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its fencing token.
    pub token: u64,
    /// The first moment at which its holder no longer believes in it.
    pub until: Instant,
    /// The stop budget, in real time by the holder's clock.
    pub grace: u64,
}
