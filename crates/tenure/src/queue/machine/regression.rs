//! Regressions: a store whose numbers have fallen gives out tokens that were given out before.
//!
//! The numbers of ZooKeeper and etcd rise as long as their data lives. They fall when the data is replaced: by a
//! backup, or by a copy of its contents in fresh servers. No read shows that, because everything in such a store agrees
//! with itself. Two numbers show it: the token that the store records for the election's tenures as data, and the
//! token that this process led with last.
//!
//! The leader has the lowest token in line. So while an entry stands, the store can only have recorded its own tenure
//! and earlier ones, with lower tokens. An entry at or below another recorded token stands in a store that has
//! fallen, and never leads. A line and the record are not read at one moment, though: the entry may have gone in
//! between, and its successor may have led. The verdict needs a line that was asked for after the token was known.
//!
//! An election with a lock delay records its token before a tenure is announced. The others do it some time after, so
//! that a handover does not wait for it. A tenure that ends sooner is not recorded, and costs nothing.

use super::*;

impl Machine {
    /// A line shows the highest token that is recorded.
    pub(super) fn take_highest(&mut self, shown: u64) {
        if self.is(Mutant::RegressionIgnored) {
            return;
        }
        let own = self.mine.as_ref().filter(|mine| self.may_have_recorded(mine));
        if own.is_some_and(|mine| mine.entry.token == shown) {
            return;
        }
        self.highest = self.highest.max(shown);
        // Only a line that is asked for now can tell whether the entry stands beside that record.
        self.stale |= self.mine.as_ref().is_some_and(|mine| self.is_too_low(mine));
    }

    /// Whether the token of this entry was given out before, for all that is known.
    pub(super) fn is_too_low(&self, mine: &Mine) -> bool {
        mine.entry.token <= self.highest
    }

    /// The entry stands; says whether its token was known to be too low before that was asked for.
    pub(super) fn judge_token(&mut self, now: Moment, out: &mut Vec<Output>) -> bool {
        let mine = self.mine.as_ref().filter(|mine| !mine.discard && self.is_too_low(mine));
        let Some(found) = mine.map(|mine| mine.entry.token) else { return false };
        self.regress(now, found, self.highest, out);
        true
    }

    /// The store's numbers have fallen: nothing is led here any more, and the entry goes.
    pub(super) fn regress(&mut self, now: Moment, found: u64, known: u64, out: &mut Vec<Output>) {
        let had_lease = self.lease.is_some();
        self.lose(Loss::Regressed, out);
        self.follow(None, out);
        if matches!(self.stage, Stage::Standing) {
            let why = Why::Regressed { found, known };
            self.stage = Stage::Leaving(Leaving {
                why,
                since: now,
                had_lease,
                tried: false,
                unanswered: false,
                told: false,
            });
        }
    }

    /// A tenure of ours is over: no later one has its token.
    pub(super) fn remember(&mut self, token: u64) {
        if !self.is(Mutant::RegressionIgnored) {
            self.highest = self.highest.max(token);
        }
    }

    fn may_have_recorded(&self, mine: &Mine) -> bool {
        let begun = matches!(mine.turn, Turn::Beginning | Turn::Begun);
        begun || mine.note != Note::Unled
    }

    /// How long until the token of a tenure is to be recorded; `None` if it is, or nothing is led.
    pub(super) fn until_note(&self, now: Moment) -> Option<Duration> {
        let mine = self.mine.as_ref().filter(|_| self.lease.is_some() && self.delay.is_zero())?;
        match mine.note {
            Note::Since(since) => Some(left(self.session.ttl / 8, now.at_least_since(since))),
            Note::Unled | Note::Done => None,
        }
    }

    pub(super) fn send_note(&mut self, entry: Entry, out: &mut Vec<Output>) {
        let ask = self.next_ask();
        self.flight = Some(Flight { ask, request: Request::Note(entry.clone()) });
        out.push(Output::Note { ask, entry });
    }

    pub(super) fn take_noted(&mut self, now: Moment, entry: &Entry, answer: Result<(), Fault>) {
        let Some(mine) = self.mine.as_mut().filter(|mine| mine.entry == *entry) else { return };
        match answer {
            // Where it is refused, there is no record. That costs a safeguard, and is no reason to stop.
            Ok(()) | Err(Fault::Permanent | Fault::Denied) => mine.note = Note::Done,
            Err(fault) => self.fail(now, fault),
        }
    }
}
