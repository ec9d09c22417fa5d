//! The next action of a candidate or of a leader.

use std::time::Duration;

use super::{Ahead, Flight, Machine, Mine, Note, Output, Request, Stage, left};
use crate::clock::Moment;
use crate::queue::mutant::Mutant;
use crate::queue::{Entry, Freshness};

impl Machine {
    pub(super) fn act(&mut self, now: Moment, out: &mut Vec<Output>) {
        self.lead(now, out);
        self.tell_in_time(now, out);
        if self.flight.is_some() || self.pause.is_some() {
            return;
        }
        match &self.stage {
            Stage::Settled => {}
            Stage::Leaving(_) => self.leave(now, out),
            Stage::Standing if !self.session.is_live() => {}
            Stage::Standing => self.stand(now, out),
        }
    }

    /// Becomes leader, if our entry is first in the queue and the session is proven to live.
    fn lead(&mut self, now: Moment, out: &mut Vec<Output>) {
        let standing = matches!(self.stage, Stage::Standing);
        if !standing || self.lease.is_some() || self.working || !self.session.is_live() {
            return;
        }
        let Some(mine) = self.mine.as_ref().filter(|mine| self.is_next(mine)) else { return };
        if !self.delay_has_passed(mine) {
            return;
        }
        let Some(lease) = self.proven(now, mine.entry.token) else { return };
        // A lease that is nearly over is not worth announcing.
        if lease.until_stop(now).is_zero() {
            return;
        }
        self.lease = Some(lease);
        self.stopping = false;
        self.suspended = false;
        self.working = true;
        self.led = true;
        if let Some(mine) = &mut self.mine {
            mine.note = Note::Since(now);
        }
        out.push(Output::Elected(lease));
    }

    /// Returns true if our entry is first in the queue, may still lead, and is known to stand.
    pub(super) fn is_next(&self, mine: &Mine) -> bool {
        let returns = self.is(Mutant::LostTokenReturns);
        let usable = !mine.discard && mine.entry.token > self.ended_token || returns;
        let usable = usable && !self.is_too_low(mine) || returns;
        usable && !self.unverified && mine.ahead == Ahead::Nobody && self.is_current(mine)
    }

    fn stand(&mut self, now: Moment, out: &mut Vec<Output>) {
        if let Some(entry) = self.must_go(now) {
            return self.send_leave(entry, out);
        }
        if self.doubt.is_some() {
            return self.send_line(self.settles_doubt(), out);
        }
        if self.lease.is_none() && self.working {
            // Start no new tenure until the earlier work has ended. The entry stays in the queue
            // meanwhile.
            return;
        }
        let Some(mine) = &self.mine else { return self.send_join(out) };
        if self.unverified {
            return self.send_line(Freshness::Barrier, out);
        }
        if self.stale {
            return self.send_line(Freshness::Session, out);
        }
        let (entry, turn) = (mine.entry.clone(), self.until_turn(now));
        if turn.is_some_and(|span| span.is_zero()) {
            return self.send_for_turn(entry, out);
        }
        if self.unpublished {
            let ask = self.next_ask();
            self.unpublished = false;
            self.flight = Some(Flight { ask, request: Request::Publish });
            let value = self.me.value.clone();
            return out.push(Output::Publish { ask, entry, value });
        }
        if self.until_note(now).is_some_and(|span| span.is_zero()) {
            return self.send_note(entry, out);
        }
        if self.until_look(now).is_zero() {
            self.send_line(Freshness::Session, out);
        }
    }

    /// How new a queue must be that tells what became of a join in doubt.
    pub(super) fn settles_doubt(&self) -> Freshness {
        match self.is(Mutant::DoubtWithoutBarrier) {
            true => Freshness::Session,
            false => Freshness::Barrier,
        }
    }

    /// An entry of ours that must be deleted, now.
    pub(super) fn must_go(&self, now: Moment) -> Option<Entry> {
        if let Some(stray) = self.strays.first() {
            return Some(stray.clone());
        }
        let mine = self.mine.as_ref().filter(|mine| mine.discard)?;
        let stays = self.keeps_lost_entry();
        let standing = matches!(self.stage, Stage::Standing);
        let due = !self.working || self.until_beyond(now).is_zero();
        (due && !(stays && standing)).then(|| mine.entry.clone())
    }

    fn keeps_lost_entry(&self) -> bool {
        self.is(Mutant::LostEntryStays) || self.is(Mutant::LostTokenReturns)
    }

    /// How long until the entry is deleted although its work goes on.
    pub(super) fn until_beyond(&self, now: Moment) -> Duration {
        if self.is(Mutant::StuckWorkKeepsEntry) {
            return Duration::MAX;
        }
        let since = self.lost.map_or(Duration::MAX, |lost| now.at_least_since(lost.from));
        left(self.beyond_the_session(), since)
    }

    fn until_look(&self, now: Moment) -> Duration {
        if self.is(Mutant::NoSecondLook) {
            return Duration::MAX;
        }
        let since = self.last_read.map_or(Duration::MAX, |read| now.at_most_since(read));
        left(self.poll(), since)
    }

    /// How long until the next request, when none is under way and the session lives.
    pub(super) fn until_next_request(&self, now: Moment) -> Option<Duration> {
        let winding_down = self.lease.is_none() && self.working;
        match &self.stage {
            Stage::Settled => None,
            Stage::Leaving(_) | Stage::Standing
                if !self.strays.is_empty() || self.doubt.is_some() =>
            {
                Some(Duration::ZERO)
            }
            Stage::Standing if winding_down && self.keeps_lost_entry() => None,
            Stage::Leaving(_) | Stage::Standing if winding_down => {
                self.mine.as_ref().map(|_| self.until_beyond(now))
            }
            Stage::Leaving(_) => Some(Duration::ZERO),
            Stage::Standing if self.mine.is_none() || self.stale => Some(Duration::ZERO),
            Stage::Standing => {
                let sooner = [self.until_turn(now), self.until_note(now)];
                Some(sooner.into_iter().flatten().fold(self.until_look(now), Duration::min))
            }
        }
        .filter(|span| *span != Duration::MAX)
    }

    fn send_join(&mut self, out: &mut Vec<Output>) {
        self.attempts += 1;
        let (ask, ticket) = (self.next_ask(), self.ticket());
        self.flight = Some(Flight { ask, request: Request::Join(ticket.clone()) });
        self.unpublished = false;
        self.stale = false;
        out.push(Output::Join { ask, ticket, holder: self.me.clone() });
    }

    pub(super) fn send_line(&mut self, freshness: Freshness, out: &mut Vec<Output>) {
        let (ask, ticket) = (self.next_ask(), self.ticket());
        // Cleared at sending: a notification that comes while the read is under way asks for
        // another read.
        self.stale = false;
        let first = self.mine.as_ref().is_some_and(|mine| mine.ahead == Ahead::Nobody);
        self.flight = Some(Flight { ask, request: Request::Read { freshness, first } });
        out.push(Output::Read { ask, ticket, freshness });
    }

    pub(super) fn send_leave(&mut self, entry: Entry, out: &mut Vec<Output>) {
        let ask = self.next_ask();
        if let Stage::Leaving(leaving) = &mut self.stage {
            leaving.tried = true;
        }
        let clean = self.leaves_cleanly(&entry);
        self.flight = Some(Flight { ask, request: Request::Leave(entry.clone()) });
        out.push(Output::Leave { ask, entry, clean });
    }
}
