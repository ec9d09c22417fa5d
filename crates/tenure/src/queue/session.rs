//! A session, as its owner knows it.

use std::time::Duration;

use crate::clock::Moment;

/// A backend's knowledge of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// The number of the session; counted up, 0 before the first. Entries belong to a session.
    pub number: u64,
    /// The number of this process's connection; counted up.
    ///
    /// Values of a watch channel overtake each other: if a connection is lost and made again
    /// between two reads, only this number shows it.
    pub connection: u64,
    /// How long the server keeps a silent session, as the server granted it.
    pub ttl: Duration,
    /// The state of the session.
    pub life: Life,
}

impl Session {
    /// The value before there is any session.
    #[must_use]
    pub fn none() -> Session {
        Session {
            number: 0,
            connection: 0,
            ttl: Duration::from_secs(15),
            life: Life::Suspended { proof: None },
        }
    }

    /// The newest proof that the session lives, if there is one.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        match self.life {
            Life::Live { proof } | Life::Suspended { proof } => proof,
            Life::Over | Life::Closed => None,
        }
    }

    /// Returns true if requests make sense.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.life, Life::Live { .. })
    }
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// Connected, as far as the client can tell.
    Live {
        /// The newest proof that the server keeps the session.
        proof: Option<Proof>,
    },
    /// Not connected; it may come back.
    Suspended {
        /// The newest proof that the server keeps the session.
        proof: Option<Proof>,
    },
    /// The server says that the session and its entries are gone. Another session may follow.
    Over,
    /// The session is over, and no other will follow: its owner closed it, or it was given up.
    Closed,
}

/// A proof that a session lives until `window` after `from`.
///
/// The time passes by the faster of the two clocks in a [`Moment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proof {
    /// A moment at or after which the server that counts the time heard from the session.
    pub from: Moment,
    /// How long that may be relied on.
    pub window: Duration,
}

impl Proof {
    /// How long the proof may still be relied on.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.window.saturating_sub(now.at_most_since(self.from))
    }
}

/// How eagerly a session proves its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Pace {
    /// Just enough that the server keeps the session.
    #[default]
    Waiting,
    /// Often enough to be proven at any moment: one of its candidacies leads, or is next.
    Leading,
}
