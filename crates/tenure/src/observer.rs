//! Watching an election without standing in it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::lease::record::{Record, State};
use crate::status::Leader;
use crate::{Error, Name, Protocol};

/// What an election is in, as the store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which election.
    pub election: Name,
    /// What it is in.
    pub state: ElectionState,
    /// Who leads, or led last before it lapsed or was ended by somebody else.
    pub leader: Option<Leader>,
    /// The token of the newest tenure; 0 before the first. Of a queue: that of the first in line, 0
    /// when nobody stands.
    pub token: u64,
    /// When the lease ends by the leader's own wall clock, in milliseconds since 1970. For people:
    /// it is as wrong as that clock is. 0 where nobody but the leader knows: in a queue.
    pub expire: u64,
}

/// What an election is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElectionState {
    /// There is no such election.
    Missing,
    /// Nobody leads.
    Free,
    /// Somebody leads.
    Led,
    /// Somebody led and has not been heard of for its ttl, or is dead.
    Lapsed,
    /// It has ended, until it is created again.
    Ended,
    /// It is a queue, and this backend was opened without one.
    Unseen,
}

/// What an observer last saw.
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

    /// Whether only the time of its end has moved.
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
/// A slow reader misses what was overtaken in between, never the newest. A renewal is no change: it
/// only moves [`Standing::expire`] in [`Observer::latest`].
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

    /// What was last seen; `None` before the first answer of the store.
    ///
    /// # Errors
    /// The last [`Error`], when the store did not answer or the record makes no sense.
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
                // Nothing has been seen yet.
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
