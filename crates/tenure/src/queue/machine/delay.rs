//! The lock delay: whoever follows a tenure that did not end cleanly waits before it leads.
//!
//! The store keeps one mark an election: the newest tenure that began and was not left cleanly. It
//! is written before a tenure is announced ([`Output::Begin`]) and taken back in the transaction
//! that deletes the entry after the work has ended. So whoever finds nobody before it, and reads
//! the mark *after* it knew that, sees how the last tenure ended: its mark was written while its
//! entry stood, and nobody but the first in line writes one. A mark read earlier may be older than
//! that tenure, and the notice of a deletion says nothing of it.
//!
//! The wait begins with the answer that shows both, because only then the earlier tenure is known
//! to be over, and it passes on whichever of our clocks is slower. It is not cut short by anything:
//! a connection that is lost meanwhile does not make the earlier leader less dead, and does not
//! make the wait begin anew either. An earlier tenure of this same candidacy is waited for too. Its
//! work has ended, but whoever began at once would write its own mark over that one and could take
//! it back when it leaves, and the next would not know that there was anything to wait for. (The
//! simulation found that within 3,000 seeds.)
//!
//! An election without a lock delay knows none of this, and asks for nothing.

use super::*;

/// How far the lock delay of an entry has come, once nobody is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Turn {
    /// No line was read since: how the last tenure ended is not known.
    Unread,
    /// It did not end cleanly, which is known since this moment.
    Waiting { token: u64, since: Moment },
    /// Nothing is left to be waited for.
    Ready,
    /// The beginning of this tenure is being recorded.
    Beginning,
    /// The beginning of this tenure is recorded.
    Begun,
}

impl Machine {
    /// A line shows the mark; `first` says that it was asked for when nobody was before us any
    /// more.
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
            // The answer to it was lost, and it had arrived.
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

    /// Whether this entry, with nobody before it, may be announced as far as the delay goes.
    pub(super) fn delay_has_passed(&self, mine: &Mine) -> bool {
        match mine.turn {
            _ if self.delay.is_zero() => true,
            Turn::Begun => true,
            Turn::Beginning => self.is(Mutant::BeginNotAwaited),
            Turn::Unread | Turn::Waiting { .. } | Turn::Ready => false,
        }
    }

    /// How long until something is to be asked for on account of the delay; `None` if nothing is.
    pub(super) fn until_turn(&self, now: Moment) -> Option<Duration> {
        let idle = self.lease.is_none() && !self.working;
        if self.delay.is_zero() || !idle {
            return None;
        }
        let mine = self.mine.as_ref().filter(|mine| self.is_next(mine))?;
        match mine.turn {
            Turn::Unread | Turn::Ready => Some(Duration::ZERO),
            Turn::Waiting { since, .. } => Some(left(self.delay, now.at_least_since(since))),
            // An answer that was lost is made good by the look that follows.
            Turn::Beginning | Turn::Begun => None,
        }
    }

    /// What is due now: a line that tells how the last tenure ended, or the record of this one.
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
            // Whoever may not begin must not stand before those who may.
            Err(fault @ (Fault::Permanent | Fault::Denied)) => self.refuse(now, fault),
            Err(fault) => self.fail(now, fault),
        }
    }

    /// The work has ended. In time, if nobody else could lead before: the session was proven to
    /// live until now.
    pub(super) fn end_work(&mut self, now: Moment) {
        let late = self.lost.is_none_or(|lost| lost.remaining(now).is_zero());
        if let Some(mine) = &mut self.mine {
            mine.outlived |= self.working && late;
        }
        self.working = false;
    }

    /// Whether the work of an entry that is about to go, if there was any, has ended in time.
    pub(super) fn leaves_cleanly(&self, entry: &Entry) -> bool {
        let mine = self.mine.as_ref().filter(|mine| mine.entry == *entry);
        let in_time = mine.is_some_and(|mine| !self.working && !mine.outlived);
        in_time || self.is(Mutant::OutlivedCountsAsClean)
    }
}
