//! The seam between the driver and the protocols.

use std::time::Duration;

use futures_util::future::{Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;

use super::SlotId;
use super::hints::Hint;
use super::publisher::HandleMessage;
use super::queue::{self, Sessions, Whose};
use super::requests::{Answer, Batch, Done, Request};
use crate::Key;
use crate::parts::Parts;
use crate::queue::{Entry, Gone, Pace};
use crate::store::{Mark, Version};

/// A candidacy or an observation, under either protocol.
pub(crate) trait Participant: Send {
    /// The key of its election.
    fn key(&self) -> &Key;

    /// Takes an event, asks for requests, and returns its wishes.
    fn take(&mut self, event: Event, io: &mut Io<'_>) -> Wants;

    /// The message to itself when its handles are gone, or its backend is closed.
    ///
    /// `None` for an observer: it ends without a word.
    fn goodbye(&mut self) -> Option<HandleMessage>;
}

/// An event that concerns one participant.
pub(crate) enum Event {
    /// The driver has taken it in. Says whether the store notifies of changes.
    Admitted { notified: bool },
    /// Its alarm went off.
    Tick,
    /// Requests of others are about to leave.
    Batch,
    /// Others look at their queues anyway.
    LookAlong,
    /// The store notifies of changes from now on, or no longer.
    Notified(bool),
    /// The session of the backend's queue has changed.
    Session,
    /// Its handle says something.
    Message(HandleMessage),
    /// A document was read or written.
    Answer(Request, Answer),
    /// The queue answered a call.
    Called(queue::Answer),
    /// The queue was read for an observer.
    Looked(queue::Looked),
    /// The watched document may have changed.
    Changed,
    /// The holder in this version is proven dead.
    HolderGone(Version),
    /// A watched entry may be gone.
    Left(Whose, Entry, Gone),
    /// This generation of the election may have ended.
    Ended(u64),
    /// The queue may have moved.
    Moved,
}

/// The parts of the driver that a participant works with.
pub(crate) struct Io<'a> {
    pub(super) id: SlotId,
    pub(super) parts: &'a Parts,
    /// The session of the backend's queue, where it has one.
    pub(super) sessions: Option<&'a Sessions>,
    pub(super) batch: &'a mut Batch,
    pub(super) requests: &'a FuturesUnordered<BoxFuture<'static, Done>>,
    pub(super) hints: &'a FuturesUnordered<Abortable<BoxFuture<'static, Hint>>>,
}

/// The wishes of a participant after an event.
#[derive(Default)]
pub(crate) struct Wants {
    /// Nothing of it is left in the store: the driver forgets it.
    pub(super) over: bool,
    /// Its handles were told how it ended, and only the clean-up is left.
    pub(super) lingers: bool,
    pub(super) wake: Option<Duration>,
    /// The version of the election's document to wait on.
    pub(super) watch: Option<Option<Version>>,
    /// The holder whose death would help, in this version.
    pub(super) death: Option<(Version, Mark)>,
    /// How eagerly the session must prove its life.
    pub(super) pace: Pace,
    /// It reads the queue although it heard of no change.
    pub(super) looks: bool,
}
