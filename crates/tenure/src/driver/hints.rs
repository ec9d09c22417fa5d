//! The waits that slots have pending, and the hints that the waits give.

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;

use super::SlotId;
use super::queue::Whose;
use crate::queue::{Entry, Gone};
use crate::store::Version;

pub(super) enum Hint {
    Changed(SlotId),
    Gone(SlotId, Version),
    Left(SlotId, Whose, Entry, Gone),
    Ended(SlotId, u64),
    Moved(SlotId),
}

/// A pending wait, cancelled when the slot no longer wants it.
pub(super) struct Armed<T> {
    pub(super) on: T,
    abort: AbortHandle,
}

impl<T> Drop for Armed<T> {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

pub(super) fn arm<T>(
    hints: &FuturesUnordered<Abortable<BoxFuture<'static, Hint>>>,
    on: T,
    wait: BoxFuture<'static, Hint>,
) -> Armed<T> {
    let (abort, registration) = AbortHandle::new_pair();
    hints.push(Abortable::new(wait, registration));
    Armed { on, abort }
}
