//! The lock delay: after a tenure that did not end cleanly, the next candidate waits.
//!
//! The store keeps one mark per election: the newest tenure that began and was not left cleanly. A
//! candidate writes the mark before it announces its tenure ([`Output::Begin`]). After the work has
//! ended, the transaction that deletes the entry also takes the mark back. So a candidate first
//! learns that it is first in the queue, and *then* reads the mark: that shows how the last tenure
//! ended. The mark of that tenure was written while its entry stood, and only the first in the
//! queue writes a mark. A mark read earlier may be older than that tenure, and the notice of a
//! deletion does not include the mark.
//!
//! The wait begins with the answer that shows both, because only then the earlier tenure is known
//! to be over. It passes by the slower of our two clocks. Nothing cuts it short, and nothing
//! restarts it: after a lost connection the earlier leader is just as dead. A candidacy waits for
//! its own earlier tenure too. Its work has ended. But if the candidacy began at once, it would
//! overwrite that mark with its own and could take it back when it leaves, and the next candidate
//! would not know that it has to wait. (The simulation found that within 3,000 seeds.)
//!
//! An election without a lock delay does none of this, and sends no request for it.

use std::time::Duration;

use super::{Ahead, Flight, Machine, Mine, Output, Request, left};
use crate::clock::Moment;
use crate::queue::mutant::Mutant;
use crate::queue::{Entry, Freshness};
use crate::store::Fault;

/// The progress of an entry's lock delay, once the entry is first in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Turn {
    /// No queue was read since then: how the last tenure ended is not known.
    Unread,
    /// The last tenure did not end cleanly; known since this moment.
    Waiting { token: u64, since: Moment },
    /// There is nothing left to wait for.
    Ready,
    /// The beginning of this tenure is being recorded.
    Beginning,
    /// The beginning of this tenure is recorded.
    Begun,
}

impl Machine {
    /// Takes the mark that a queue shows.
    ///
    /// `first` means that our entry was already first when the queue was asked for.
    pub(super) fn take_mark(&mut self, now: Moment, unclean: Option<u64>, first: bool) {
        let ignored = self.is(Mutant::DelayIgnored);
        let any = self.is(Mutant::EarlierMarkCounts);
        let Some(mine) = &mut self.mine else { return };
        if !(first && mine.ahead == Ahead::Nobody || any) {
            return;
        }
        let others = unclean.filter(|token| *token != mine.entry.token);
        mine.turn = match (mine.turn, others) {
            (turn @ Turn::Begun, _) => turn,
            // The record had arrived, and only its answer was lost.
            (Turn::Beginning, _) if unclean == Some(mine.entry.token) => Turn::Begun,
            (Turn::Beginning, _) => Turn::Ready,
            (turn @ Turn::Ready, _) => turn,
            (turn @ Turn::Waiting { token, .. }, Some(shown)) if token == shown => turn,
            (turn @ Turn::Waiting { .. }, None) => turn,
            (Turn::Unread | Turn::Waiting { .. }, Some(token)) if !ignored => {
                Turn::Waiting { token, since: now }
            }
            (Turn::Unread | Turn::Waiting { .. }, Some(_) | None) => Turn::Ready,
        };
    }

    /// Returns true if the lock delay allows this entry, which is first in the queue, to lead.
    pub(super) fn delay_has_passed(&self, mine: &Mine) -> bool {
        match mine.turn {
            _ if self.delay.is_zero() => true,
            Turn::Begun => true,
            Turn::Beginning => self.is(Mutant::BeginNotAwaited),
            Turn::Unread | Turn::Waiting { .. } | Turn::Ready => false,
        }
    }

    /// How long until the lock delay needs a request; `None` if it needs none.
    pub(super) fn until_turn(&self, now: Moment) -> Option<Duration> {
        let idle = self.lease.is_none() && !self.working;
        if self.delay.is_zero() || !idle {
            return None;
        }
        let mine = self.mine.as_ref().filter(|mine| self.is_next(mine))?;
        match mine.turn {
            Turn::Unread | Turn::Ready => Some(Duration::ZERO),
            Turn::Waiting { since, .. } => Some(left(self.delay, now.at_least_since(since))),
            // If the answer was lost, the next read of the queue makes up for it.
            Turn::Beginning | Turn::Begun => None,
        }
    }

    /// Sends the request that is due.
    ///
    /// That is a read of how the last tenure ended, or the record of this tenure's beginning.
    pub(super) fn send_for_turn(&mut self, entry: Entry, out: &mut Vec<Output>) {
        let Some(mine) = &mut self.mine else { return };
        if mine.turn == Turn::Unread {
            return self.send_line(Freshness::Session, out);
        }
        mine.turn = Turn::Beginning;
        let ask = self.next_ask();
        self.flight = Some(Flight { ask, request: Request::Begin(entry.clone()) });
        out.push(Output::Begin { ask, entry });
    }

    pub(super) fn take_begun(&mut self, now: Moment, entry: &Entry, answer: Result<(), Fault>) {
        let Some(mine) = self.mine.as_mut().filter(|mine| mine.entry == *entry) else { return };
        match answer {
            Ok(()) => mine.turn = Turn::Begun,
            // A candidate that may not begin must not block the candidates behind it.
            Err(fault @ (Fault::Permanent | Fault::Denied)) => self.refuse(now, fault),
            Err(fault) => self.fail(now, fault),
        }
    }

    /// Notes that the work has ended.
    ///
    /// It ended in time if the session was proven to live until now, so that no other candidate
    /// could lead.
    pub(super) fn end_work(&mut self, now: Moment) {
        let late = self.lost.is_none_or(|lost| lost.remaining(now).is_zero());
        if let Some(mine) = &mut self.mine {
            mine.outlived |= self.working && late;
        }
        self.working = false;
    }

    /// Returns true if the entry's work, if there was any, has ended in time.
    pub(super) fn leaves_cleanly(&self, entry: &Entry) -> bool {
        let mine = self.mine.as_ref().filter(|mine| mine.entry == *entry);
        let in_time = mine.is_some_and(|mine| !self.working && !mine.outlived);
        in_time || self.is(Mutant::OutlivedCountsAsClean)
    }
}
