//! Candidacies under the queue protocol, and observers of queues.

mod calls;
mod candidate;
mod observation;
mod session;
mod waits;

use std::sync::Arc;

use futures_util::future::{Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;

use super::hints::Hint;
use super::requests::{Batch, Done};
use super::{SlotId, participant};
use crate::parts::Parts;
use crate::queue::{Session, SessionQueue};

pub(crate) use calls::Answer;
pub(crate) use candidate::QueueCandidate;
pub(crate) use observation::Looked;
pub(crate) use observation::QueueObserver;
pub(super) use session::{Concerns, Sessions};
pub(crate) use waits::Whose;

/// The parts of the driver that a slot of a queue works with.
pub(super) struct Io<'a> {
    pub(super) id: SlotId,
    pub(super) parts: &'a Parts,
    pub(super) queue: &'a Arc<dyn SessionQueue>,
    pub(super) session: Session,
    /// Counts the changes of the session: a slot that is behind is told before any other input.
    pub(super) version: u64,
    pub(super) batch: &'a mut Batch,
    pub(super) requests: &'a FuturesUnordered<BoxFuture<'static, Done>>,
    pub(super) hints: &'a FuturesUnordered<Abortable<BoxFuture<'static, Hint>>>,
}

impl<'a> Io<'a> {
    /// The same with the session, which a backend with queues always has.
    fn of(io: &'a mut participant::Io<'_>) -> Option<Io<'a>> {
        let sessions = io.sessions?;
        Some(Io {
            id: io.id,
            parts: io.parts,
            queue: &sessions.queue,
            session: sessions.now,
            version: sessions.version,
            batch: io.batch,
            requests: io.requests,
            hints: io.hints,
        })
    }
}
