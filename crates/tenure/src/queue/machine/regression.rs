//! Regressions: a store with fallen numbers gives out old tokens again.
//!
//! The numbers of ZooKeeper and etcd rise as long as their data lives. They fall when the data is
//! replaced: by a backup, or by a copy of its contents in fresh servers. No single read shows that,
//! because such a store is consistent in itself. Two numbers show it: the token that the store
//! records as data for the election's tenures, and the token with which this process led last.
//!
//! The leader has the lowest token in the queue. So while an entry stands, the store can only have
//! recorded the entry's own tenure and earlier tenures, with lower tokens. If another tenure is
//! recorded at or above an entry's token, then the store has fallen, and the entry never leads. But
//! the queue and the record are not read at one moment: in between, the entry may have gone and its
//! successor may have led. So the verdict needs a queue that was asked for after the recorded token
//! was known.
//!
//! An election with a lock delay records the token before it announces a tenure. Other elections
//! record it some time later, so that a handover does not wait for it. A tenure that ends sooner is
//! not recorded, and costs nothing.

use std::time::Duration;

use super::delay::Turn;
use super::{Flight, Leaving, Machine, Mine, Note, Output, Request, Stage, Why, left};
use crate::clock::Moment;
use crate::protocol::Loss;
use crate::queue::Entry;
use crate::queue::mutant::Mutant;
use crate::store::Fault;

impl Machine {
    /// Takes the highest recorded token, as a queue shows it.
    pub(super) fn take_highest(&mut self, shown: u64) {
        if self.is(Mutant::RegressionIgnored) {
            return;
        }
        let own = self.mine.as_ref().filter(|mine| self.may_have_recorded(mine));
        if own.is_some_and(|mine| mine.entry.token == shown) {
            return;
        }
        self.highest = self.highest.max(shown);
        // Only a new read can tell whether the entry stands beside that record.
        self.stale |= self.mine.as_ref().is_some_and(|mine| self.is_too_low(mine));
    }

    /// Returns true if the entry's token may have been given out before.
    pub(super) fn is_too_low(&self, mine: &Mine) -> bool {
        mine.entry.token <= self.highest
    }

    /// Judges the token of an entry that a queue shows.
    ///
    /// Returns true if the token was known to be too low before that queue was asked for.
    pub(super) fn judge_token(&mut self, now: Moment, out: &mut Vec<Output>) -> bool {
        let mine = self.mine.as_ref().filter(|mine| !mine.discard && self.is_too_low(mine));
        let Some(found) = mine.map(|mine| mine.entry.token) else { return false };
        self.regress(now, found, self.highest, out);
        true
    }

    /// Leaves because the store's numbers have fallen.
    ///
    /// The lease is lost, and the entry is deleted.
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

    /// Remembers the token of our ended tenure: no later tenure may have it.
    pub(super) fn remember(&mut self, token: u64) {
        if !self.is(Mutant::RegressionIgnored) {
            self.highest = self.highest.max(token);
        }
    }

    fn may_have_recorded(&self, mine: &Mine) -> bool {
        let begun = matches!(mine.turn, Turn::Beginning | Turn::Begun);
        begun || mine.note != Note::Unled
    }

    /// How long until the token of a tenure must be recorded.
    ///
    /// `None` if it is recorded, or if this candidate does not lead.
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
            // If the store refuses, there is no record. That costs a safeguard, but is no reason to
            // stop.
            Ok(()) | Err(Fault::Permanent | Fault::Denied) => mine.note = Note::Done,
            Err(fault) => self.fail(now, fault),
        }
    }
}
