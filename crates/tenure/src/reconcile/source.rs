//! Where election events come from.

use std::time::Duration;

use async_trait::async_trait;

use super::reason::Reason;
use crate::{Loss, Mandate};

/// A source of election events: an election, a console, a test.
///
/// The loop calls [`next`](Source::next) all the time. It drops that call whenever it has an order
/// for the source. It always lets [`release`](Source::release) finish.
#[async_trait]
pub trait Source: Send {
    /// The candidate and its election. The loop calls this once, before anything else.
    fn identity(&self) -> Identity;

    /// The next event; `None` when there will be no more.
    ///
    /// # Cancel safety
    /// Must be cancel safe: an event is either returned or still to come.
    async fn next(&mut self) -> Option<Event>;

    /// Carries out the loop's decision about the leadership. Returns when that is done.
    ///
    /// # Cancel safety
    /// Need not be cancel safe; it is dropped only together with the source.
    async fn release(&mut self, how: Release);
}

#[async_trait]
impl<S: Source + ?Sized> Source for &mut S {
    fn identity(&self) -> Identity {
        (**self).identity()
    }

    async fn next(&mut self) -> Option<Event> {
        (**self).next().await
    }

    async fn release(&mut self, how: Release) {
        (**self).release(how).await;
    }
}

#[async_trait]
impl<S: Source + ?Sized> Source for Box<S> {
    fn identity(&self) -> Identity {
        (**self).identity()
    }

    async fn next(&mut self) -> Option<Event> {
        (**self).next().await
    }

    async fn release(&mut self, how: Release) {
        (**self).release(how).await;
    }
}

/// A candidate and its election, as handlers see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The election: `TENURE_ELECTION`.
    pub election: String,
    /// The candidate's name, for people: `TENURE_ID`.
    pub id: String,
    /// The lease's length: `TENURE_TTL_MS`.
    pub ttl: Duration,
    /// The time an end may take once leadership is already lost: the stop budget.
    pub stop_budget: Duration,
}

/// An event from a source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// This candidate leads.
    Leader {
        /// The fencing token. A new tenure has a new token; the same token means the same tenure.
        token: u64,
        /// The right to act, if there is one. It says how much time is left.
        mandate: Option<Mandate>,
    },
    /// This candidate does not lead, or must cease to.
    NotLeader {
        /// Why it does not lead.
        reason: Reason,
    },
    /// An error occurred.
    Error {
        /// The error.
        reason: Reason,
    },
}

impl Event {
    /// Creates the event: this candidate leads.
    #[must_use]
    pub fn elected(mandate: Mandate) -> Event {
        Event::Leader { token: mandate.token(), mandate: Some(mandate) }
    }

    /// Creates the event: this candidate leads, without a mandate.
    ///
    /// For tests and the console, where no election knows of the tenure.
    #[must_use]
    pub fn leader(token: u64) -> Event {
        Event::Leader { token, mandate: None }
    }

    /// Creates the event: leadership was lost.
    #[must_use]
    pub fn lost(loss: Loss) -> Event {
        Event::NotLeader { reason: Reason::Lost(loss) }
    }

    /// Creates the event: this candidate does not lead.
    #[must_use]
    pub fn not_leader(why: impl Into<String>) -> Event {
        Event::NotLeader { reason: Reason::NotLeader(why.into()) }
    }

    /// Creates the event: an error occurred.
    #[must_use]
    pub fn error(what: impl Into<String>) -> Event {
        Event::Error { reason: Reason::Error(what.into()) }
    }
}

/// The loop's decision about a leadership and the candidacy behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// Free the leadership in the store, and keep away until told to stand again. The local system
    /// does not act as leader.
    GiveUp,
    /// Stand, after a loss or after [`Release::GiveUp`]. The local system does not act as leader.
    StandAgain,
    /// Stop renewing, free nothing, and return when the lease has run out by itself. The local
    /// system may still act as leader, for ever.
    Abandon,
}
