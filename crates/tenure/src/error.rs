//! What can go wrong with an election.

use crate::candidate::CandidateError;
use crate::lease::machine::Outcome;
use crate::lease::record::RecordError;
use crate::name::NameError;
use crate::store::{Fault, StoreError};
use crate::timing::TimingError;
use crate::{Key, Loss, Name, Protocol};

/// Why an election could not be opened, entered or changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The election's name is refused.
    #[error("the election's name is refused: {0}")]
    Name(#[from] NameError),
    /// The candidate is refused.
    #[error(transparent)]
    Candidate(#[from] CandidateError),
    /// The times do not fit.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// The times of a feed do not fit.
    #[error(transparent)]
    FeedTiming(#[from] crate::feed::FeedTimingError),
    /// The store's tables cannot be followed.
    #[error("this store has no change feed, and a leader feed needs one")]
    NoFeed,
    /// The table's name is refused.
    #[error("the table's name is refused: {0}")]
    Table(NameError),
    /// The feed is not started, or has stopped.
    #[error("the feed is not started")]
    FeedStopped,
    /// The store did not serve.
    #[error("the store does not serve")]
    Store(#[from] StoreError),
    /// What stands at the election's key is no record.
    #[error("the record of the election {name} makes no sense")]
    Record {
        /// Which election.
        name: Name,
        /// What is wrong with it.
        #[source]
        source: RecordError,
    },
    /// A document of a cluster makes no sense.
    #[error("the document {key} makes no sense")]
    Document {
        /// Which document.
        key: Key,
        /// What is wrong with it.
        #[source]
        source: crate::cluster::documents::DocumentError,
    },
    /// A cluster has as many nodes as it can have.
    #[error("the cluster has {most} nodes, which is as many as a node list holds")]
    Full {
        /// How many there can be.
        most: usize,
    },
    /// A task that was to be submitted is refused.
    #[error("the task at place {index} (counted from 0) is refused, and with it all of them")]
    Order {
        /// Which one, counted from 0.
        index: usize,
        /// What is wrong with it.
        #[source]
        source: crate::cluster::documents::DocumentError,
    },
    /// Only some of the tasks that were submitted were accepted, in their order.
    #[error("of {of} tasks {accepted} were accepted, and {doubtful} may have been")]
    PartlyAccepted {
        /// So many, the first, are in the store.
        accepted: usize,
        /// Of so many that follow it cannot be known; either all of them are in the store or none.
        doubtful: usize,
        /// So many were submitted.
        of: usize,
        /// Why not all.
        #[source]
        source: std::sync::Arc<Error>,
    },
    /// A page of the inbox was used again so often that what became of a write to it cannot be
    /// known.
    #[error("{key} was used again before it was known what became of a write to it")]
    Overtaken {
        /// Where the page is.
        key: Key,
    },
    /// Two inputs of a node have the same name.
    #[error("two inputs have the name {name}; each needs one of its own")]
    InputTwice {
        /// Which name.
        name: String,
    },
    /// The election does not exist, and was not to be created.
    #[error("there is no election {name}; create it first")]
    Missing {
        /// Which election.
        name: Name,
    },
    /// The election has ended, for everyone, until it is created again.
    #[error("the election {name} has ended; create it again to go on")]
    Ended {
        /// Which election.
        name: Name,
    },
    /// An election may not have elections below it.
    #[error(
        "the election {name} cannot stand beside {other}: an election has no elections below it, \
         since ZooKeeper's and etcd's own clients would take one for a candidate of the other"
    )]
    Nested {
        /// Which election was asked for.
        name: Name,
        /// Which one is above or below it.
        other: Name,
    },
    /// The election is held by the other protocol.
    #[error(
        "the election {name} uses the {recorded} protocol, and this backend the {wanted} protocol, which \
         together would make two leaders; {}, or use another name",
        advice(*recorded)
    )]
    Protocol {
        /// Which election.
        name: Name,
        /// What its first opener chose.
        recorded: Protocol,
        /// What it was opened with now.
        wanted: Protocol,
    },
    /// The election has ended, but some still stand in it, so that it cannot be deleted yet.
    #[error("the election {name} has ended but is not deleted yet, since {who} still stands in it")]
    Occupied {
        /// Which election.
        name: Name,
        /// Who stands in it: names, as people read them.
        who: String,
    },
    /// The record went back to an earlier token: somebody deleted it or restored a backup.
    #[error(
        "the election's token fell from {known} to {found}: its record was deleted or rolled back, \
         and tokens given out before may be given out again"
    )]
    Regressed {
        /// What the record says now.
        found: u64,
        /// What it once said.
        known: u64,
    },
    /// The record was there and is gone.
    #[error("the election's record was deleted behind our back")]
    Vanished,
    /// The store refused for good.
    #[error("the store refuses to serve this election ({0:?})")]
    Refused(Fault),
    /// The token or the revision cannot rise any further.
    #[error("the election's numbers are used up; delete it and use another name")]
    Exhausted,
    /// Too many others changed the record at the same time.
    #[error("what we tried to change was changed by others {attempts} times meanwhile")]
    Contended {
        /// How often it was tried.
        attempts: u32,
    },
    /// The leadership this was about is over.
    #[error("the leadership is over: {0}")]
    Lost(Loss),
    /// The candidacy is over; stand again for another.
    #[error("this candidacy is finished; stand again for another one")]
    Finished,
    /// The runtime that served this backend has stopped.
    #[error("the runtime that served this election has stopped")]
    Stopped,
}

fn advice(recorded: Protocol) -> &'static str {
    match recorded {
        Protocol::Lease => "open the store with ?protocol=lease",
        Protocol::Queue => "open the store without ?protocol=lease",
    }
}

impl Error {
    /// The error behind a candidacy that ended without leadership.
    pub(crate) fn from_outcome(name: &Name, outcome: &Outcome) -> Error {
        match outcome {
            Outcome::Ended => Error::Ended { name: name.clone() },
            Outcome::Vanished => Error::Vanished,
            Outcome::Regressed { found, known } => {
                Error::Regressed { found: *found, known: *known }
            }
            Outcome::Refused(fault) => Error::Refused(*fault),
            Outcome::Exhausted => Error::Exhausted,
            Outcome::Released
            | Outcome::AlreadyLost
            | Outcome::Unknown { .. }
            | Outcome::Withdrawn => Error::Finished,
        }
    }
}
