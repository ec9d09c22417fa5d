//! What a candidacy is in, as a value and as a stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::candidate::CandidateId;
use crate::lease::machine::{Loss, Outcome};
use crate::lease::record::Holder;

/// Somebody who leads, as everyone can read it in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its candidacy.
    pub id: CandidateId,
    /// Its name for people.
    pub name: Arc<str>,
    /// What it publishes.
    pub value: Bytes,
}

impl From<&Holder> for Leader {
    fn from(holder: &Holder) -> Leader {
        Leader { id: holder.id.clone(), name: holder.name.clone(), value: holder.value.clone() }
    }
}

/// What a candidacy is in.
#[derive(Clone, Debug)]
pub struct Status {
    /// Which candidacy.
    pub candidate: CandidateId,
    /// Its part in the election.
    pub role: Role,
    /// Who leads instead, as far as this candidate knows. In a queue only the next in line hears of
    /// a change at once; the others look every 30 s, or two ttls if that is sooner.
    pub follows: Option<Leader>,
    /// Who led before that.
    pub followed: Option<Leader>,
    /// What last went wrong, until something goes well again.
    pub error: Option<crate::Error>,
}

impl Status {
    /// Of a candidacy that has just begun.
    pub(crate) fn waiting(candidate: CandidateId) -> Status {
        Status { candidate, role: Role::Waiting, follows: None, followed: None, error: None }
    }
}

/// The part a candidacy plays.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// It waits for its turn.
    Waiting,
    /// It leads.
    Leading {
        /// The fencing token.
        token: u64,
    },
    /// It leads, but the store does not answer.
    Suspended {
        /// The fencing token.
        token: u64,
        /// How long the lease lasted when this was noticed. The mandate knows how long it still
        /// does.
        remaining: Duration,
    },
    /// It still holds the lease, but its work must stop: the lease might not be renewed in time.
    Stopping {
        /// The fencing token.
        token: u64,
    },
    /// Leadership is over; the candidacy goes on when its work has ended.
    Lost {
        /// The fencing token of the tenure that ended.
        token: u64,
        /// Why it ended.
        loss: Loss,
    },
    /// It has said goodbye, and the store has not answered yet.
    Leaving,
    /// The candidacy is over. Nothing follows.
    Over(Outcome),
}

impl Role {
    /// The token of the tenure, while there is one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        match self {
            Role::Leading { token } | Role::Suspended { token, .. } | Role::Stopping { token } => {
                Some(*token)
            }
            Role::Waiting | Role::Lost { .. } | Role::Leaving | Role::Over(_) => None,
        }
    }
}

/// Every status from now on, the present one first; ends after the one that says it is over.
///
/// A slow reader misses what was overtaken in between, never the newest.
#[derive(Debug)]
pub struct StatusStream {
    statuses: WatchStream<Status>,
    over: bool,
}

impl StatusStream {
    pub(crate) fn new(statuses: watch::Receiver<Status>) -> StatusStream {
        StatusStream { statuses: WatchStream::new(statuses), over: false }
    }
}

impl Stream for StatusStream {
    type Item = Status;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Status>> {
        let this = self.get_mut();
        // A guard that is still held keeps the channel open, though nothing can follow any more.
        if this.over {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut this.statuses).poll_next(context);
        if let Poll::Ready(Some(status)) = &polled {
            this.over = matches!(status.role, Role::Over(_));
        }
        polled
    }
}
