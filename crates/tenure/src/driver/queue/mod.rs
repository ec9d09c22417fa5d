//! Candidacies under the queue protocol, and observers of lines.

mod calls;
mod candidate;
mod observation;
mod session;
mod waits;

use std::sync::Arc;

use futures_util::future::{Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;

use super::Hint;
use super::requests::{self, Done};
use crate::parts::Parts;
use crate::queue::{Session, SessionQueue};

pub(super) use calls::Answer;
pub(crate) use candidate::Entrant;
pub(super) use candidate::{LineSlot, LineWants};
pub(crate) use observation::LineObservation;
pub(super) use observation::Looked;
pub(super) use session::{Concerns, Sessions};
pub(super) use waits::Whose;

/// The parts of the driver that a slot of a queue works with.
pub(super) struct Io<'a> {
    pub(super) parts: &'a Parts,
    pub(super) line: &'a Arc<dyn SessionQueue>,
    pub(super) session: Session,
    /// Counts the changes of the session: a slot that is behind is told before any other input.
    pub(super) version: u64,
    pub(super) batch: &'a mut requests::Queue,
    pub(super) requests: &'a FuturesUnordered<BoxFuture<'static, Done>>,
    pub(super) hints: &'a FuturesUnordered<Abortable<BoxFuture<'static, Hint>>>,
}
