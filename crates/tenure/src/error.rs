//! The errors of an election.

use crate::candidate::CandidateError;
use crate::lease::record::RecordError;
use crate::name::NameError;
use crate::protocol::Outcome;
use crate::store::{Fault, StoreError};
use crate::timing::TimingError;
use crate::{Loss, Name, Protocol};

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
    /// The store did not serve.
    #[error("the store does not serve")]
    Store(#[from] StoreError),
    /// The document at the election's key is not a record.
    #[error("the record of the election {name} makes no sense")]
    Record {
        /// The election.
        name: Name,
        /// The reason.
        #[source]
        source: RecordError,
    },
    /// The election does not exist, and was not to be created.
    #[error("there is no election {name}; create it first")]
    Missing {
        /// The election.
        name: Name,
    },
    /// The election has ended for all candidates, until it is created again.
    #[error("the election {name} has ended; create it again to go on")]
    Ended {
        /// The election.
        name: Name,
    },
    /// An election may not have elections below it.
    #[error(
        "the election {name} cannot stand beside {other}: an election has no elections below it, \
         since ZooKeeper's and etcd's own clients would take one for a candidate of the other"
    )]
    Nested {
        /// The election that was asked for.
        name: Name,
        /// The election above or below it.
        other: Name,
    },
    /// The election is held by the other protocol.
    #[error(
        "the election {name} uses the {recorded} protocol, and this backend the {wanted} protocol, which \
         together would make two leaders; {}, or use another name",
        advice(*recorded)
    )]
    Protocol {
        /// The election.
        name: Name,
        /// The protocol that its first opener chose.
        recorded: Protocol,
        /// The protocol it was opened with now.
        wanted: Protocol,
    },
    /// The election has ended, but candidates still stand in it, so it cannot be deleted yet.
    #[error("the election {name} has ended but is not deleted yet, since {who} still stands in it")]
    Occupied {
        /// The election.
        name: Name,
        /// The names of the candidates that still stand in it, for people.
        who: String,
    },
    /// The record went back to an earlier token: it was deleted, or restored from a backup.
    #[error(
        "the election's token fell from {known} to {found}: its record was deleted or rolled back, \
         and tokens given out before may be given out again"
    )]
    Regressed {
        /// The token in the record now.
        found: u64,
        /// The highest token known from before.
        known: u64,
    },
    /// The record existed and is gone.
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
        /// The number of attempts.
        attempts: u32,
    },
    /// The leadership in question is over.
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
