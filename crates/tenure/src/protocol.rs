//! The vocabulary that both protocols share: leases and queues.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::candidate::CandidateId;
use crate::clock::Moment;
use crate::store::{Fault, Mark};

/// The protocol that decides an election.
///
/// Using both on one election would make two leaders, so the first opener's choice is recorded with
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Protocol {
    /// By compare-and-set on one document ([`crate::lease`]); every store offers it.
    #[default]
    Lease,
    /// By a queue of entries that vanish with their owners' sessions ([`crate::queue`]).
    Queue,
}

impl Protocol {
    pub(crate) fn is_lease(&self) -> bool {
        *self == Protocol::Lease
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Lease => "lease",
            Protocol::Queue => "queue",
        })
    }
}

/// The holder of a lease, and its published value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Its candidacy.
    pub id: CandidateId,
    /// Its name for people.
    pub name: Arc<str>,
    /// The value it publishes.
    pub value: Bytes,
    /// How to prove its death, where that is possible.
    pub presence: Option<Mark>,
}

/// The number that matches an answer to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ask(u64);

impl Ask {
    /// The request of this number.
    #[must_use]
    pub fn numbered(number: u64) -> Ask {
        Ask(number)
    }
}

/// How a candidate leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Farewell {
    /// Another candidate may lead next.
    Free,
    /// The election ends, for all candidates.
    End,
}

/// A lease as its holder counts it.
///
/// It ends `window` after `from`, by the faster of the two clocks in a [`Moment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The fencing token.
    pub token: u64,
    /// The moment before the request that granted it was sent.
    pub from: Moment,
    /// How long the holder may believe in the lease.
    pub window: Duration,
    /// How long before the lease ends the work is told to stop.
    pub grace: Duration,
}

impl Lease {
    /// How long the holder may still believe in the lease.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.window.saturating_sub(now.at_most_since(self.from))
    }

    /// How long until the work must stop.
    #[must_use]
    pub fn until_stop(&self, now: Moment) -> Duration {
        self.remaining(now).saturating_sub(self.grace)
    }
}

/// Why leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The window passed without a renewal.
    Expired,
    /// The store shows another holder, or this one at another token.
    Deposed,
    /// The election ended.
    Ended,
    /// The record is gone or no longer readable. In a queue: the leader's own entry is.
    Vanished,
    /// The record went back to an earlier token.
    Regressed,
    /// A program under test took it away.
    Forced,
    /// It was given up.
    Resigned,
    /// This is a forked child of the process that leads.
    OtherProcess,
    /// The runtime that renewed it has stopped.
    Stopped,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Expired => "the store did not answer in time to renew the lease",
            Loss::Deposed => "the store shows another leader",
            Loss::Ended => "the election has ended",
            Loss::Vanished => {
                "the election's record, or its own place in the queue, was deleted or overwritten"
            }
            Loss::Regressed => "the election's record went back to an earlier token",
            Loss::Forced => "a test took it away",
            Loss::Resigned => "it was given up",
            Loss::OtherProcess => "this process was forked from the one that leads",
            Loss::Stopped => "the runtime that renewed it has stopped",
        })
    }
}

/// How a candidacy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The lease was given up, and the store confirmed it.
    Released,
    /// There was no lease to give up any more.
    AlreadyLost,
    /// The store did not confirm the release. The lease runs out by itself.
    Unknown {
        /// After this long at the latest, others may lead.
        frees_within: Duration,
    },
    /// The candidate left without ever having led.
    Withdrawn,
    /// The election ended.
    Ended,
    /// The record is gone although it existed before.
    Vanished,
    /// The record went back to an earlier token.
    Regressed {
        /// The token in the record now.
        found: u64,
        /// The highest token known from before.
        known: u64,
    },
    /// The store refuses, and always will.
    Refused(Fault),
    /// The token cannot rise any further.
    Exhausted,
}
