//! The status of a candidacy, as a value and as a stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::candidate::CandidateId;
use crate::protocol::Holder;
use crate::protocol::{Loss, Outcome};

/// A leader, as any reader of the store can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The id of its candidacy.
    pub id: CandidateId,
    /// Its name for people.
    pub name: Arc<str>,
    /// The value it publishes.
    pub value: Bytes,
}

impl From<&Holder> for Leader {
    fn from(holder: &Holder) -> Leader {
        Leader { id: holder.id.clone(), name: holder.name.clone(), value: holder.value.clone() }
    }
}

/// The status of a candidacy.
#[derive(Clone, Debug)]
pub struct Status {
    /// The id of the candidacy.
    pub candidate: CandidateId,
    /// Its part in the election.
    pub role: Role,
    /// The current leader, if it is another candidate, as far as this candidate knows.
    ///
    /// In a queue, only the next candidate in line hears of a change at once. The others read the
    /// line every 30 s, or every two ttls if that is shorter.
    pub follows: Option<Leader>,
    /// The leader before that.
    pub followed: Option<Leader>,
    /// The last error, until the next success.
    pub error: Option<crate::Error>,
}

impl Status {
    /// The status of a candidacy that has just begun.
    pub(crate) fn waiting(candidate: CandidateId) -> Status {
        Status { candidate, role: Role::Waiting, follows: None, followed: None, error: None }
    }
}

/// The role of a candidacy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// The candidate waits for its turn.
    Waiting,
    /// The candidate leads.
    Leading {
        /// The fencing token.
        token: u64,
    },
    /// The candidate leads, but the store does not answer.
    Suspended {
        /// The fencing token.
        token: u64,
        /// How long the lease would last when this was noticed. The mandate has the current value.
        remaining: Duration,
    },
    /// The candidate still holds the lease, but its work must stop.
    ///
    /// The lease might not be renewed in time.
    Stopping {
        /// The fencing token.
        token: u64,
    },
    /// Leadership is over; the candidacy goes on when its work has ended.
    Lost {
        /// The fencing token of the tenure that ended.
        token: u64,
        /// The reason.
        loss: Loss,
    },
    /// The candidate has said goodbye, and the store has not answered yet.
    Leaving,
    /// The candidacy is over. No other status follows.
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

/// Every status from now on, the current one first; ends after [`Role::Over`].
///
/// A slow reader misses older statuses, never the newest.
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
        // A handle that is still held keeps the channel open, although no status can follow.
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
