//! The waits of a candidate in the queue.
//!
//! It waits for its own entry, the entry before it, and the election's end.

use std::sync::Arc;

use futures_util::future::FutureExt;

use super::super::SlotId;
use super::super::hints::{Armed, Hint, arm};
use super::Io;
use crate::Key;
use crate::queue::{Entry, SessionQueue};

/// The waits of one candidacy.
///
/// A wait that has fired does not begin again before the queue was read. Otherwise a backend that
/// cannot tell without a read would answer at once, again and again.
#[derive(Default)]
pub(super) struct Waits {
    entries: [Option<Wait<Entry>>; 2],
    end: Option<Wait<u64>>,
}

/// Which of the two watched entries a hint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The candidate's own entry.
    Own,
    /// The entry before it.
    Before,
}

enum Wait<T> {
    On(Armed<T>),
    Fired(T),
}

impl<T> Wait<T> {
    fn on(&self) -> &T {
        match self {
            Wait::On(armed) => &armed.on,
            Wait::Fired(on) => on,
        }
    }
}

impl Waits {
    /// Replaces the waits by these.
    pub(super) fn set(
        &mut self,
        id: SlotId,
        key: &Key,
        entries: [Option<&Entry>; 2],
        end: Option<u64>,
        io: &Io<'_>,
    ) {
        // Watch for the end before watching the predecessor: a candidate that hears of the
        // predecessor's deletion may lead at once.
        if self.end.as_ref().map(Wait::on) != end.as_ref() {
            self.end = end.map(|generation| {
                let (queue, key) = (io.queue.clone(), key.clone());
                let wait = async move {
                    queue.ended(&key, generation).await;
                    Hint::Ended(id, generation)
                };
                Wait::On(arm(io.hints, generation, wait.boxed()))
            });
        }
        for (wait, (whose, entry)) in
            self.entries.iter_mut().zip([Whose::Own, Whose::Before].into_iter().zip(entries))
        {
            if wait.as_ref().map(Wait::on) != entry {
                *wait = entry.map(|entry| {
                    let wait = gone(io.queue.clone(), id, whose, entry.clone());
                    Wait::On(arm(io.hints, entry.clone(), wait.boxed()))
                });
            }
        }
    }

    /// Notes that the wait for this entry has fired.
    pub(super) fn fired(&mut self, whose: Whose, entry: &Entry) {
        let [own, before] = &mut self.entries;
        let wait = match whose {
            Whose::Own => own,
            Whose::Before => before,
        };
        // A wait for an earlier entry may fire while it is being given up.
        if wait.as_ref().is_some_and(|wait| wait.on() == entry) {
            *wait = Some(Wait::Fired(entry.clone()));
        }
    }

    /// Notes that the wait for the election's end has fired.
    pub(super) fn end_fired(&mut self, generation: u64) {
        if self.end.as_ref().is_some_and(|wait| *wait.on() == generation) {
            self.end = Some(Wait::Fired(generation));
        }
    }

    /// Allows all fired waits to begin again, because the queue was read.
    pub(super) fn renew(&mut self) {
        for wait in &mut self.entries {
            wait.take_if(|wait| matches!(wait, Wait::Fired(_)));
        }
        self.end.take_if(|wait| matches!(wait, Wait::Fired(_)));
    }
}

async fn gone(queue: Arc<dyn SessionQueue>, id: SlotId, whose: Whose, entry: Entry) -> Hint {
    let gone = queue.gone(&entry).await;
    Hint::Left(id, whose, entry, gone)
}
