//! Where election events come from.

use std::time::Duration;

use async_trait::async_trait;

use super::reason::Reason;
use crate::{Loss, Mandate};

/// Something that says who leads: an election, a console, a test.
///
/// The loop calls [`next`](Source::next) all the time and drops that call whenever it has something
/// to tell the source; [`release`](Source::release) is always let finish.
#[async_trait]
pub trait Source: Send {
    /// Who takes part in what; asked once, before anything else.
    fn identity(&self) -> Identity;

    /// The next event; `None` when there will be no more.
    ///
    /// # Cancel safety
    /// Must be cancel safe: an event is either returned or still to come.
    async fn next(&mut self) -> Option<Event>;

    /// Carries out what the loop has decided about the leadership, and returns when that is done.
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

/// Who takes part in what, as handlers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The election: `TENURE_ELECTION`.
    pub election: String,
    /// Who stands in it, as people call it: `TENURE_ID`.
    pub id: String,
    /// The lease's length: `TENURE_TTL_MS`.
    pub ttl: Duration,
    /// What an end may take when leadership is already lost: the stop budget.
    pub stop_budget: Duration,
}

/// What a source has to say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// This one leads.
    Leader {
        /// The fencing token. A new tenure has a new one; the same again is the same tenure.
        token: u64,
        /// The right to act, where there is one: it says how much time there is.
        mandate: Option<Mandate>,
    },
    /// This one does not lead, or must cease to.
    NotLeader {
        /// Why.
        reason: Reason,
    },
    /// Something went wrong.
    Error {
        /// What.
        reason: Reason,
    },
}

impl Event {
    /// This one leads.
    #[must_use]
    pub fn elected(mandate: Mandate) -> Event {
        Event::Leader { token: mandate.token(), mandate: Some(mandate) }
    }

    /// This one leads, in a tenure that nobody else knows of: a test's, the console's.
    #[must_use]
    pub fn leader(token: u64) -> Event {
        Event::Leader { token, mandate: None }
    }

    /// Leadership was lost.
    #[must_use]
    pub fn lost(loss: Loss) -> Event {
        Event::NotLeader { reason: Reason::Lost(loss) }
    }

    /// Somebody else leads, or nobody.
    #[must_use]
    pub fn not_leader(why: impl Into<String>) -> Event {
        Event::NotLeader { reason: Reason::NotLeader(why.into()) }
    }

    /// Something went wrong.
    #[must_use]
    pub fn error(what: impl Into<String>) -> Event {
        Event::Error { reason: Reason::Error(what.into()) }
    }
}

/// What becomes of a leadership, and of the candidacy behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// Nothing here acts as leader: free it in the store, and keep away until told to stand again.
    GiveUp,
    /// Nothing here acts as leader: stand, after a loss or after [`Release::GiveUp`].
    StandAgain,
    /// Something here may still act as leader, for ever: renew no more, free nothing, and return
    /// when the lease has run out by itself.
    Abandon,
}
