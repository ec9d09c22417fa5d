//! A session as its owner knows it.

use std::time::Duration;

use crate::clock::Moment;

/// What a backend knows of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// Which session; counted up, 0 before the first. Entries belong to a session.
    pub number: u64,
    /// Which connection of this process; counted up.
    ///
    /// Values of a watch channel overtake each other: a connection that was lost and made again
    /// between two looks shows only here.
    pub connection: u64,
    /// How long the server keeps a session that it does not hear of, as it granted.
    pub ttl: Duration,
    /// How it stands with it.
    pub life: Life,
}

impl Session {
    /// Before there is any.
    #[must_use]
    pub fn none() -> Session {
        Session {
            number: 0,
            connection: 0,
            ttl: Duration::from_secs(15),
            life: Life::Suspended { proof: None },
        }
    }

    /// What proves that it lives, if anything does.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        match self.life {
            Life::Live { proof } | Life::Suspended { proof } => proof,
            Life::Over | Life::Closed => None,
        }
    }

    /// Whether requests make sense.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.life, Life::Live { .. })
    }
}

/// How it stands with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// Connected, as far as can be told.
    Live {
        /// What proves that the server keeps it.
        proof: Option<Proof>,
    },
    /// Not connected; it may come back.
    Suspended {
        /// What proves that the server still keeps it.
        proof: Option<Proof>,
    },
    /// The server says that it is over, and with it its entries. Another may follow.
    Over,
    /// It is over, and no other will follow: closed by its owner, or given up.
    Closed,
}

/// Until when a session is proven to live: `window` after `from`, by whichever clock is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proof {
    /// A moment at which, or after which, the server that counts heard of the session.
    pub from: Moment,
    /// How long that may be relied on.
    pub window: Duration,
}

impl Proof {
    /// How long it may still be relied on.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.window.saturating_sub(now.at_most_since(self.from))
    }
}

/// How eagerly a session proves its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Pace {
    /// So that the server keeps it.
    #[default]
    Waiting,
    /// So that it is proven at any moment: one of its candidacies leads, or is next.
    Leading,
}
