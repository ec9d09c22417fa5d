//! The answers to reads. A read proves its content on most stores, but nothing on a weak one.

use std::sync::Arc;

use super::{Known, MOST_SEEN, Machine, Output, Seen, Stage, View};
use crate::clock::Moment;
use crate::lease::mutant::Mutant;
use crate::lease::record::{Record, RecordError, State};
use crate::protocol::{Farewell, Holder, Loss, Outcome};
use crate::store::{Fault, Reads, Version};

impl Machine {
    pub(super) fn take_read(
        &mut self,
        now: Moment,
        sent: Moment,
        answer: Result<Option<Seen>, Fault>,
        out: &mut Vec<Output>,
    ) {
        let found = match answer {
            Ok(found) => found,
            Err(fault) => return self.fail(now, fault, out),
        };
        self.stale = false;
        let found = match found {
            None => None,
            Some(Seen { version, record: Ok(record) }) => Some((version, record)),
            Some(Seen { version: _, record: Err(error) }) => {
                return self.take_garbled(now, error, out);
            }
        };
        let since = if self.is(Mutant::ObservedAtSend) { sent } else { now };
        match self.reads {
            Reads::Linearizable => self.take_proof(now, since, found, out),
            // The record is missing although it existed: this replica lags. Without a floor, never
            // create a record here.
            Reads::Weak if found.is_none() && self.highest_token > 0 && self.block.is_none() => {
                self.fail(now, Fault::Unavailable, out);
            }
            Reads::Weak => {
                if self.is(Mutant::TerminalOnWeakRead) || self.is(Mutant::GrantOnWeakRead) {
                    self.take_believed(now, since, found, out);
                } else {
                    self.see(since, found);
                }
            }
        }
    }

    /// Takes a read that proves the current record.
    pub(super) fn take_proof(
        &mut self,
        now: Moment,
        since: Moment,
        found: Option<(Version, Record)>,
        out: &mut Vec<Output>,
    ) {
        let Some((version, record)) = found else {
            if self.generation.is_some() {
                return self.finish(now, Loss::Vanished, Outcome::Vanished, out);
            }
            return self.see(since, None);
        };
        if record.token < self.highest_token && !self.is(Mutant::RegressionBelieved) {
            let outcome = Outcome::Regressed { found: record.token, known: self.highest_token };
            return self.finish(now, Loss::Regressed, outcome, out);
        }
        let ended = matches!(record.state, State::Ended { .. });
        if ended || self.generation.is_some_and(|generation| generation != record.generation) {
            let outcome = if self.is_kept(&record) { Outcome::AlreadyLost } else { Outcome::Ended };
            return self.finish(now, Loss::Ended, outcome, out);
        }
        self.generation = Some(record.generation);
        self.highest_token = self.highest_token.max(record.token);
        if let Some(lease) = self.lease
            && !(record.is_held_by(&self.me.id) && record.token == lease.token)
        {
            self.lose(now, Loss::Deposed, out);
        }
        self.see(since, Some((version, record)));
        self.grant_what_was_found(now, out);
    }

    /// Takes a weak read for a proof. One mutant grants on it, another ends on it.
    pub(super) fn take_believed(
        &mut self,
        now: Moment,
        since: Moment,
        found: Option<(Version, Record)>,
        out: &mut Vec<Output>,
    ) {
        let terminal = found.as_ref().is_some_and(|(_, record)| self.is_terminal(record));
        self.see(since, found);
        if self.is(Mutant::GrantOnWeakRead) {
            self.grant_what_was_found(now, out);
        } else if terminal {
            self.finish(now, Loss::Ended, Outcome::Ended, out);
        }
    }

    pub(super) fn take_garbled(&mut self, now: Moment, error: RecordError, out: &mut Vec<Output>) {
        out.push(Output::Garbled(error));
        if self.reads == Reads::Linearizable {
            // The record at the key is not ours any more. (A weak read would not prove even that.)
            self.lose(now, Loss::Vanished, out);
            if matches!(self.stage, Stage::Leaving { .. }) {
                let outcome = self.leaving_empty_handed();
                return self.over(outcome, out);
            }
        }
        // An operator may mend the record. Until then there is no version to claim.
        self.view = None;
        self.stale = true;
        self.rest(now);
    }

    /// Adopts the record found. The timer of a version runs from when it was first seen.
    pub(super) fn see(&mut self, since: Moment, found: Option<(Version, Record)>) {
        let same = |view: &&View| {
            view.found.as_ref().map(|(version, _)| version)
                == found.as_ref().map(|(version, _)| version)
        };
        if let Some(view) = self.view.as_ref().filter(same) {
            let (since, draw, gone) = (view.since, view.draw, view.gone);
            self.view = Some(View { found, since, draw, gone });
            return;
        }
        self.floor = Known::Unread;
        self.raising = None;
        // Slow down only for a replica that shows the same old version again and again.
        self.conflicts = 0;
        let mut first = since;
        if self.reads == Reads::Weak
            && let Some((version, _)) = &found
        {
            first = self.remember(version, since);
        }
        if self.is(Mutant::TimerSurvivesRenewal)
            && let Some(view) = &self.view
        {
            first = view.since;
        }
        let draw = self.draw();
        self.view = Some(View { found, since: first, draw, gone: None });
    }

    /// When a weak store first showed this version.
    ///
    /// A weak store may show an older version in between.
    pub(super) fn remember(&mut self, version: &Version, now: Moment) -> Moment {
        if let Some((_, first)) = self.first_seen.iter().find(|(seen, _)| seen == version) {
            return *first;
        }
        if self.first_seen.len() == MOST_SEEN {
            self.first_seen.pop_front();
        }
        self.first_seen.push_back((version.clone(), now));
        now
    }

    pub(super) fn grant_what_was_found(&mut self, now: Moment, out: &mut Vec<Output>) {
        let Some((_, record)) = self.view.as_ref().and_then(|view| view.found.clone()) else {
            return;
        };
        if !record.is_held_by(&self.me.id) || !matches!(self.stage, Stage::Standing) {
            return;
        }
        let Some(sent) = self.sent.iter().find(|sent| sent.op == record.op) else { return };
        let at = sent.at;
        // All other writes were aimed at an earlier version: none of them can apply any more.
        self.sent.clear();
        self.grant(now, &record, at, out);
    }

    /// Ends the candidacy for good: it never leads again.
    pub(super) fn finish(
        &mut self,
        now: Moment,
        loss: Loss,
        outcome: Outcome,
        out: &mut Vec<Output>,
    ) {
        self.lose(now, loss, out);
        let outcome =
            match &self.stage {
                // The election was ended or removed while we were leaving: there is nothing left to
                // free.
                Stage::Leaving {
                    farewell: Farewell::End, tried: true, had_lease: true, ..
                } if outcome == Outcome::Ended => Outcome::Released,
                Stage::Leaving { had_lease: true, .. } => Outcome::AlreadyLost,
                Stage::Leaving { had_lease: false, .. } => outcome,
                Stage::Standing | Stage::Over => outcome,
            };
        self.over(outcome, out);
    }

    /// Returns true if others ended the election during our release and kept us as its holder.
    ///
    /// Then it is not released, because our time will have to pass in the next generation.
    pub(super) fn is_kept(&self, record: &Record) -> bool {
        let leaving = matches!(self.stage, Stage::Leaving { .. });
        let mine = |holder: &Arc<Holder>| holder.id == self.me.id;
        leaving
            && match &record.state {
                State::Ended { kept, .. } => kept.as_ref().is_some_and(mine),
                // The next generation has already begun.
                State::Held(holder) => mine(holder),
                State::Free { .. } => false,
            }
    }
}
