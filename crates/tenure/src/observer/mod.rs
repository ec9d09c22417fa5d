//! Watching an election without standing in it.

pub(crate) mod queue;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::lease::record::{Record, State};
use crate::status::Leader;
use crate::{Error, Name, Protocol};

/// The state of an election, as the store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The name of the election.
    pub election: Name,
    /// The state.
    pub state: ElectionState,
    /// The leader, or the last one before its lease lapsed or others ended the election.
    pub leader: Option<Leader>,
    /// The token of the newest tenure; 0 before the first.
    ///
    /// In a queue: the token of the first candidate, or of an earlier leader while its lock
    /// delay is waited out. In a free queue it is the highest recorded token, 0 if none is
    /// recorded.
    pub token: u64,
    /// When the lease ends by the leader's own wall clock, in milliseconds since 1970.
    ///
    /// It is for people, and only as good as that clock. It is 0 in a queue, where only the leader
    /// knows it.
    pub expire: u64,
}

/// The state of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElectionState {
    /// There is no such election.
    Missing,
    /// There is no leader.
    Free,
    /// There is a leader.
    Led,
    /// The leader was silent for its ttl, or is dead.
    Lapsed,
    /// The election has ended, until it is created again.
    Ended,
    /// The election is a queue, and this backend was opened without queues.
    Unseen,
}

/// The last observation.
pub(crate) type Seen = Result<Standing, Error>;

impl Standing {
    pub(crate) fn of(election: &Name, record: Option<&Record>, lapsed: bool) -> Standing {
        let (state, holder) = match record.map(|record| &record.state) {
            None | Some(State::Ended { deleted: true, .. }) => (ElectionState::Missing, None),
            Some(_) if record.is_some_and(|record| record.protocol == Protocol::Queue) => {
                (ElectionState::Unseen, None)
            }
            Some(State::Free { .. }) => (ElectionState::Free, None),
            Some(State::Held(holder)) if lapsed => (ElectionState::Lapsed, Some(holder)),
            Some(State::Held(holder)) => (ElectionState::Led, Some(holder)),
            Some(State::Ended { kept, .. }) => (ElectionState::Ended, kept.as_ref()),
        };
        Standing {
            election: election.clone(),
            state,
            leader: holder.map(|holder| Leader::from(&**holder)),
            token: record.map_or(0, |record| record.token),
            expire: match state {
                ElectionState::Led | ElectionState::Lapsed => {
                    record.map_or(0, |record| record.expire)
                }
                ElectionState::Missing
                | ElectionState::Free
                | ElectionState::Ended
                | ElectionState::Unseen => 0,
            },
        }
    }

    /// Returns true if both differ at most in the time when the lease ends.
    pub(crate) fn is_like(&self, other: &Standing) -> bool {
        let mut same = self.clone();
        same.expire = other.expire;
        same == *other
    }

    /// How long the lease lasts by this wall clock, in milliseconds since 1970.
    #[must_use]
    pub fn remaining(&self, wall: u64) -> Duration {
        Duration::from_millis(self.expire.saturating_sub(wall))
    }
}

/// Follows an election: the latest standing as a value, and every new one as a stream.
///
/// A slow reader misses older standings, never the newest. A renewal is not a new standing: it only
/// moves [`Standing::expire`] in [`Observer::latest`].
#[derive(Debug)]
pub struct Observer {
    latest: watch::Receiver<Option<Seen>>,
    stream: WatchStream<Option<Seen>>,
}

impl Observer {
    pub(crate) fn new(latest: watch::Receiver<Option<Seen>>) -> Observer {
        let stream = WatchStream::new(latest.clone());
        Observer { latest, stream }
    }

    /// The last observation; `None` before the first answer of the store.
    ///
    /// # Errors
    /// The last [`Error`], when the store did not answer or the record is invalid.
    #[must_use]
    pub fn latest(&self) -> Option<Result<Standing, Error>> {
        self.latest.borrow().clone()
    }
}

impl Stream for Observer {
    type Item = Result<Standing, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match Pin::new(&mut this.stream).poll_next(context) {
                Poll::Ready(Some(Some(seen))) => return Poll::Ready(Some(seen)),
                // There is no observation yet.
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
