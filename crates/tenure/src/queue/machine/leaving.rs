//! Leaving: give up the lease, then the entry, and leave nothing of ours behind.

use std::time::Duration;

use super::{Flight, Leaving, Machine, Output, Request, Stage, Why};
use crate::clock::Moment;
use crate::protocol::{Farewell, Loss, Outcome};
use crate::queue::mutant::Mutant;
use crate::queue::{Entry, Left};
use crate::store::Fault;

impl Machine {
    pub(super) fn begin_leaving(&mut self, now: Moment, farewell: Farewell) {
        let had_lease = self.lease.is_some();
        // Give up the lease before the request is sent: this candidate stops leading whether or not
        // the store applies the request.
        if !self.is(Mutant::LeaderWhileLeaving) {
            self.give_up();
        } else if let Some(mine) = &mut self.mine {
            mine.discard = true;
        }
        self.end_work(now);
        self.pause = None;
        let why = match farewell {
            Farewell::Free => Why::Farewell,
            // Without a generation there was no queue to end.
            Farewell::End if self.generation.is_some() => Why::EndFirst,
            Farewell::End => Why::Farewell,
        };
        match &self.stage {
            Stage::Standing => {
                self.stage = Stage::Leaving(Leaving {
                    why,
                    since: now,
                    had_lease,
                    tried: false,
                    unanswered: false,
                    told: false,
                });
            }
            Stage::Leaving(_) | Stage::Settled => {}
        }
    }

    /// Leaves without ending the work.
    ///
    /// The work may still act as leader, so it keeps its entry as long as the session would have
    /// lived.
    pub(super) fn abandon(&mut self, now: Moment, out: &mut Vec<Output>) {
        self.lose(Loss::Resigned, out);
        let outcome = Outcome::Unknown { frees_within: self.frees_within() };
        let mut leaving = Leaving {
            why: Why::Farewell,
            since: now,
            had_lease: true,
            tried: false,
            unanswered: false,
            told: false,
        };
        if let Stage::Leaving(already) = &self.stage {
            leaving.told = already.told;
        }
        if !leaving.told {
            out.push(Output::Over(outcome));
        }
        self.stage = Stage::Leaving(Leaving { told: true, ..leaving });
    }

    /// Settles at once: no session will follow, so no request can be sent any more.
    pub(super) fn close(&mut self, out: &mut Vec<Output>) {
        self.flight = None;
        let (had_lease, asked) = match &self.stage {
            Stage::Standing => (false, false),
            Stage::Leaving(leaving) => (leaving.had_lease, true),
            Stage::Settled => return,
        };
        let outcome = match (had_lease, self.led, asked) {
            (true, _, true) => Outcome::Unknown { frees_within: self.frees_within() },
            (_, true, _) => Outcome::AlreadyLost,
            (_, false, true) => Outcome::Withdrawn,
            (_, false, false) => Outcome::Refused(Fault::Unavailable),
        };
        self.settle(outcome, out);
    }

    pub(super) fn leave(&mut self, now: Moment, out: &mut Vec<Output>) {
        let Stage::Leaving(leaving) = self.stage.clone() else { return };
        let live = self.session.is_live();
        if let Some(entry) = self.must_go_while_leaving(now, &leaving) {
            if live {
                self.send_leave(entry, out);
            }
            return;
        }
        if self.doubt.is_some() && !self.is(Mutant::LeavesInDoubt) {
            if live {
                self.send_line(self.settles_doubt(), out);
            }
            return;
        }
        if let (Why::EndFirst, Some(generation)) = (leaving.why, self.generation) {
            if live {
                let ask = self.next_ask();
                self.flight = Some(Flight { ask, request: Request::End });
                out.push(Output::End { ask, generation });
            }
            return;
        }
        // While the work goes on, the entry stays for a while, and the caller is told once it has
        // ended.
        if self.mine.is_some() || self.working && !leaving.told {
            return;
        }
        let outcome = match leaving.why {
            Why::Ended => Outcome::Ended,
            Why::Refused(fault) => Outcome::Refused(fault),
            Why::Regressed { found, known } => Outcome::Regressed { found, known },
            Why::Farewell | Why::EndFirst if leaving.had_lease && leaving.unanswered => {
                Outcome::Unknown { frees_within: self.frees_within() }
            }
            Why::Farewell | Why::EndFirst if leaving.had_lease && leaving.tried => {
                Outcome::Released
            }
            Why::Farewell | Why::EndFirst if self.led => Outcome::AlreadyLost,
            Why::Farewell | Why::EndFirst => Outcome::Withdrawn,
        };
        self.settle(outcome, out);
    }

    fn must_go_while_leaving(&self, now: Moment, leaving: &Leaving) -> Option<Entry> {
        if let Some(stray) = self.strays.first() {
            return Some(stray.clone());
        }
        // The end must be written first. Otherwise the next candidate would lead for a moment.
        if leaving.why == Why::EndFirst {
            return None;
        }
        let mine = self.mine.as_ref()?;
        let due = !self.working || self.until_beyond(now).is_zero();
        due.then(|| mine.entry.clone())
    }

    pub(super) fn take_left(&mut self, now: Moment, entry: &Entry, answer: Result<Left, Fault>) {
        match answer {
            Ok(Left::Deleted | Left::Absent) => {
                self.strays.retain(|stray| stray != entry);
                if self.mine.as_ref().is_some_and(|mine| mine.entry == *entry) {
                    self.mine = None;
                }
                if self.is(Mutant::LeaderWhileLeaving) {
                    self.give_up();
                }
            }
            Err(fault) => {
                if self.is(Mutant::LostLeaveForgotten) {
                    self.mine = None;
                    self.strays.clear();
                }
                self.fail(now, fault);
            }
        }
    }

    pub(super) fn take_ended(&mut self, now: Moment, answer: Result<(), Fault>) {
        match (answer, &mut self.stage) {
            (Ok(()), Stage::Leaving(leaving)) => leaving.why = Why::Farewell,
            (Ok(()), Stage::Standing | Stage::Settled) => {}
            (Err(Fault::Permanent | Fault::Denied), Stage::Leaving(leaving)) => {
                // We may not end the election, but we may still leave.
                leaving.why = Why::Farewell;
            }
            (Err(fault), _) => self.fail(now, fault),
        }
    }

    /// Tells the caller the outcome after T at the latest.
    ///
    /// The clean-up of the entry goes on for as long as it takes.
    pub(super) fn tell_in_time(&mut self, now: Moment, out: &mut Vec<Output>) {
        let frees_within = self.frees_within();
        let (ttl, led) = (self.session.ttl, self.led);
        let Stage::Leaving(leaving) = &mut self.stage else { return };
        if leaving.told || now.at_least_since(leaving.since) < ttl {
            return;
        }
        leaving.told = true;
        out.push(Output::Over(match leaving.why {
            Why::Ended => Outcome::Ended,
            Why::Refused(fault) => Outcome::Refused(fault),
            Why::Regressed { found, known } => Outcome::Regressed { found, known },
            Why::Farewell | Why::EndFirst if leaving.had_lease => Outcome::Unknown { frees_within },
            Why::Farewell | Why::EndFirst if led => Outcome::AlreadyLost,
            Why::Farewell | Why::EndFirst => Outcome::Withdrawn,
        }));
    }

    /// How long the server may take to end a silent session: after T, and in ticks.
    fn frees_within(&self) -> Duration {
        self.session.ttl * 2
    }

    fn settle(&mut self, outcome: Outcome, out: &mut Vec<Output>) {
        if !self.is_over() {
            out.push(Output::Over(outcome));
        }
        self.stage = Stage::Settled;
        self.flight = None;
        self.mine = None;
    }
}
