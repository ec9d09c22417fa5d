//! The answers to writes.

use super::{Machine, Output, Purpose, Stage, portion};
use crate::clock::Moment;
use crate::lease::mutant::Mutant;
use crate::lease::record::{Record, State};
use crate::protocol::{Lease, Loss, Outcome};
use crate::store::{Fault, Put};
use crate::timing::window_of;

impl Machine {
    pub(super) fn take_write(
        &mut self,
        now: Moment,
        sent: Moment,
        record: Record,
        purpose: Purpose,
        answer: Result<Put, Fault>,
        out: &mut Vec<Output>,
    ) {
        let version = match answer {
            Ok(Put::Stored(version)) => version,
            Ok(Put::Conflict) => return self.met_conflict(now),
            Err(fault) => return self.fail(now, fault, out),
        };
        self.conflicts = 0;
        self.sent.clear();
        self.highest_token = self.highest_token.max(record.token);
        let terminal = self.is_terminal(&record);
        match purpose {
            // A weak read showed that a known record is gone. This write proves it.
            Purpose::Create if terminal => {
                self.finish(now, Loss::Vanished, Outcome::Vanished, out);
            }
            Purpose::Create => {
                self.generation = Some(record.generation);
                self.see(now, Some((version, record)));
                // No other candidate knows of the record yet, so no jitter is needed.
                if let Some(view) = &mut self.view {
                    view.draw = 0;
                }
            }
            Purpose::Claim | Purpose::Renew => {
                self.generation = Some(record.generation);
                self.see(now, Some((version, record.clone())));
                self.grant(now, &record, sent, out);
            }
            Purpose::Release => {
                let had_lease = matches!(self.stage, Stage::Leaving { had_lease: true, .. });
                let led = matches!(self.stage, Stage::Leaving { led: true, .. });
                self.lease = None;
                self.over(
                    match (had_lease, led) {
                        (true, _) => Outcome::Released,
                        (false, true) => Outcome::AlreadyLost,
                        (false, false) => Outcome::Withdrawn,
                    },
                    out,
                );
            }
            Purpose::Confirm if terminal => {
                let known = self.highest_token;
                if record.token < known {
                    let outcome = Outcome::Regressed { found: record.token, known };
                    self.finish(now, Loss::Regressed, outcome, out);
                } else {
                    self.finish(now, Loss::Ended, Outcome::Ended, out);
                }
            }
            Purpose::Confirm => {
                self.generation = Some(record.generation);
                if let Some(lease) = self.lease
                    && !(record.is_held_by(&self.me.id) && record.token == lease.token)
                {
                    self.lose(now, Loss::Deposed, out);
                }
                self.see(now, Some((version, record)));
            }
            Purpose::Fence => {
                let outcome = if self.is_kept(&record) {
                    Outcome::AlreadyLost
                } else {
                    self.leaving_empty_handed()
                };
                self.over(outcome, out);
            }
        }
    }

    pub(super) fn grant(
        &mut self,
        now: Moment,
        record: &Record,
        sent: Moment,
        out: &mut Vec<Output>,
    ) {
        if record.token <= self.ended_token
            && !self.is(Mutant::LostTokenReturns)
            && !self.is(Mutant::LateAnswerRevives)
            && !self.is(Mutant::TokenReusedAfterLapse)
        {
            return;
        }
        let from = if self.is(Mutant::WindowFromAnswer) { now } else { sent };
        let window =
            if self.is(Mutant::NoDriftMargin) { record.ttl } else { window_of(record.ttl) };
        let lease = Lease { token: record.token, from, window, grace: self.timing.grace() };
        match self.lease {
            Some(held) => {
                // A late read may find an earlier request of the same tenure; it never shortens the
                // lease.
                if lease.remaining(now) > held.remaining(now) {
                    self.lease = Some(lease);
                    if self.is(Mutant::MustStopNotLatched) {
                        self.stopping = false;
                    }
                    out.push(Output::Extended(lease));
                }
            }
            // A lease that is nearly over is not worth announcing.
            None if lease.until_stop(now).is_zero() => return,
            None => {
                self.lease = Some(lease);
                self.stopping = false;
                self.working = true;
                self.tenure_began = Some(now);
                out.push(Output::Elected(lease));
            }
        }
        if self.suspended {
            self.suspended = false;
            out.push(Output::Resumed);
        }
    }

    pub(super) fn fail(&mut self, now: Moment, fault: Fault, out: &mut Vec<Output>) {
        self.stale = true;
        self.suspend(out);
        match fault {
            Fault::Permanent | Fault::Denied if self.lease.is_none() && !self.working => {
                let outcome = match &self.stage {
                    Stage::Leaving { had_lease: true, since, .. } => {
                        Outcome::Unknown { frees_within: self.frees_within(now, *since) }
                    }
                    Stage::Leaving { had_lease: false, .. } => self.leaving_empty_handed(),
                    Stage::Standing | Stage::Over => Outcome::Refused(fault),
                };
                self.over(outcome, out);
            }
            Fault::Permanent | Fault::Denied | Fault::Unavailable | Fault::Indeterminate => {
                self.rest(now);
            }
        }
    }

    /// Pauses, so that a store that fails at once is not asked again at once.
    pub(super) fn rest(&mut self, now: Moment) {
        let span = if self.lease.is_some() || matches!(self.stage, Stage::Leaving { .. }) {
            self.timing.request() / 4
        } else {
            self.timing.poll(false) / 2
        };
        self.pause = Some((now, span));
    }

    pub(super) fn met_conflict(&mut self, now: Moment) {
        self.stale = true;
        self.conflicts = self.conflicts.saturating_add(1);
        // A replica that lags shows the same old version again and again.
        if self.conflicts > 1 {
            self.rest(now);
            self.spread_out(now);
        }
    }

    /// Spreads conflicting candidates over time.
    ///
    /// Hundreds of candidates may each have to write once, for example to confirm an end on a weak
    /// store. Otherwise they would all come back together, and only one would get through each
    /// time.
    fn spread_out(&mut self, now: Moment) {
        if self.lease.is_none() && matches!(self.stage, Stage::Standing) {
            let most = self.timing.poll(false) * self.conflicts.min(4);
            let draw = self.draw();
            self.pause = Some((now, portion(most, draw)));
        }
    }

    pub(super) fn is_terminal(&self, record: &Record) -> bool {
        matches!(record.state, State::Ended { .. })
            || record.token < self.highest_token
            || self.generation.is_some_and(|generation| generation != record.generation)
    }
}
