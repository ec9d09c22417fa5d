//! The phases of the local system, and the transitions between them.

use super::{Closing, Machine, Output, Run, State, Step, Verdict};
use crate::reconcile::reason::Reason;
use crate::reconcile::source::Release;

const OUT_OF_TIME: &str = "it did not finish in time";

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Idle,
    Beginning {
        token: u64,
        run: Run,
        stopped: bool,
    },
    Leading {
        token: u64,
    },
    /// `run` is `None` during the pause before the next attempt.
    Ending {
        token: u64,
        attempt: u32,
        reason: Reason,
        run: Option<Run>,
        stopped: bool,
    },
    /// Over when the handler has finished and the error timeout has passed.
    Failing {
        run: Option<Run>,
        stopped: bool,
        waited: bool,
    },
    /// The local end is done; the source is giving up its leadership or candidacy.
    Leaving,
    /// Over when the last resort has finished and the lease has run out.
    Stuck {
        token: u64,
        last: String,
        run: Option<Run>,
        stopped: bool,
    },
    Over,
}

impl Phase {
    pub(super) fn tenure(&self) -> Option<u64> {
        match self {
            Phase::Beginning { token, .. }
            | Phase::Leading { token }
            | Phase::Ending { token, .. }
            | Phase::Stuck { token, .. } => Some(*token),
            Phase::Idle | Phase::Failing { .. } | Phase::Leaving | Phase::Over => None,
        }
    }

    /// The running handler, and whether it was already told to stop.
    fn handler(&mut self) -> Option<(Run, &mut bool)> {
        match self {
            Phase::Beginning { run, stopped, .. } => Some((*run, stopped)),
            Phase::Ending { run, stopped, .. }
            | Phase::Failing { run, stopped, .. }
            | Phase::Stuck { run, stopped, .. } => run.map(|run| (run, stopped)),
            Phase::Idle | Phase::Leading { .. } | Phase::Leaving | Phase::Over => None,
        }
    }
}

/// Moves towards the state that the source wants, as far as it can without waiting.
impl Machine {
    pub(super) fn settle(&mut self, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Idle => self.settle_idle(out),
            Phase::Beginning { token, .. } => {
                if self.desired != Some(*token)
                    || self.error.is_some()
                    || self.closing == Some(Closing::Stop)
                {
                    self.stop_handler(out);
                }
            }
            Phase::Leading { token } => {
                let token = *token;
                if self.desired != Some(token) || self.error.is_some() || self.closing.is_some() {
                    let reason = self.why_end();
                    self.end(token, reason, 1, out);
                }
            }
            // Events from the source never cut an end short: they would only lead to an end.
            Phase::Ending { .. } => {}
            Phase::Failing { run, waited, .. } => {
                if run.is_none() && (*waited || self.closing.is_some()) {
                    self.recover(out);
                } else if self.closing == Some(Closing::Stop) {
                    self.stop_handler(out);
                }
            }
            Phase::Leaving => {
                if self.releasing == 0 {
                    let verdict = match self.closing {
                        Some(Closing::Stop) | None => Verdict::Stopped,
                        Some(Closing::SourceEnded) => Verdict::SourceEnded,
                    };
                    self.conclude(verdict, out);
                }
            }
            Phase::Stuck { token, last, run, .. } => {
                if run.is_none() && self.releasing == 0 {
                    let verdict = Verdict::Stuck {
                        token: *token,
                        attempts: self.patience.end_attempts.max(1),
                        last: last.clone(),
                    };
                    self.conclude(verdict, out);
                }
            }
            Phase::Over => {}
        }
        self.show(out);
    }

    fn settle_idle(&mut self, out: &mut Vec<Output>) {
        if self.closing == Some(Closing::Stop) {
            return self.give_up(out);
        }
        if let Some(reason) = self.error.take() {
            return self.fail(reason, out);
        }
        if self.closing.is_some() {
            return self.give_up(out);
        }
        if let Some(token) = self.desired {
            return self.begin(token, out);
        }
        if self.lost {
            self.release(Release::StandAgain, out);
        }
    }

    fn begin(&mut self, token: u64, out: &mut Vec<Output>) {
        let run = self.next_run();
        self.phase = Phase::Beginning { token, run, stopped: false };
        self.start(run, Step::Begin, Some(token), Reason::Elected, out);
    }

    fn end(&mut self, token: u64, reason: Reason, attempt: u32, out: &mut Vec<Output>) {
        let run = self.next_run();
        self.phase = Phase::Ending {
            token,
            attempt,
            reason: reason.clone(),
            run: Some(run),
            stopped: false,
        };
        self.start(run, Step::End, Some(token), reason, out);
    }

    /// Gives up the leadership, so that others may lead meanwhile.
    ///
    /// The local system does not act as leader here.
    fn fail(&mut self, reason: Reason, out: &mut Vec<Output>) {
        let run = self.next_run();
        self.phase = Phase::Failing { run: Some(run), stopped: false, waited: false };
        self.release(Release::GiveUp, out);
        self.start(run, Step::Error, None, reason, out);
        out.push(Output::Wait(self.patience.error_timeout));
    }

    fn recover(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Idle;
        if self.closing.is_none() {
            self.release(Release::StandAgain, out);
        }
        self.settle_idle(out);
    }

    fn give_up(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Leaving;
        self.release(Release::GiveUp, out);
    }

    /// Runs the last resort. The local system may act as leader for ever, so nothing is freed and
    /// the lease runs out by itself.
    fn despair(&mut self, token: u64, last: String, out: &mut Vec<Output>) {
        let run = self.next_run();
        let reason = Reason::EndFailed(last.clone());
        self.phase = Phase::Stuck { token, last, run: Some(run), stopped: false };
        self.release(Release::Abandon, out);
        self.start(run, Step::Stuck, Some(token), reason, out);
    }

    fn conclude(&mut self, verdict: Verdict, out: &mut Vec<Output>) {
        self.phase = Phase::Over;
        match &verdict {
            Verdict::Stopped | Verdict::SourceEnded => {
                self.shown = State::Stopped;
                out.push(Output::Entered(State::Stopped));
            }
            // The shown state is already `Stuck`.
            Verdict::Stuck { .. } => {}
        }
        out.push(Output::Over(verdict));
    }

    fn why_end(&self) -> Reason {
        if let Some(error) = &self.error {
            return error.clone();
        }
        match (self.desired, self.closing) {
            (Some(token), _) if self.tenure() != Some(token) => Reason::Superseded,
            (None, _) => self.why_not.clone().unwrap_or_else(|| Reason::NotLeader(String::new())),
            (Some(_), Some(Closing::SourceEnded)) => Reason::SourceEnded,
            (Some(_), Some(Closing::Stop) | None) => Reason::Stop,
        }
    }
}

/// Handles runs that have finished, and runs that have used up their time.
impl Machine {
    pub(super) fn finish(
        &mut self,
        finished: Run,
        result: Result<(), String>,
        out: &mut Vec<Output>,
    ) {
        match &mut self.phase {
            Phase::Beginning { token, run, stopped } if *run == finished => {
                let token = *token;
                if *stopped {
                    // Ignore the result: the begin was cut short, and may have started half of its
                    // work.
                    let reason = self.why_end();
                    return self.end(token, reason, 1, out);
                }
                match result {
                    Ok(()) => self.phase = Phase::Leading { token },
                    Err(what) => {
                        self.error.get_or_insert(Reason::BeginFailed(what));
                        self.phase = Phase::Idle;
                    }
                }
            }
            Phase::Ending { token, attempt, run, stopped, .. } if *run == Some(finished) => {
                match result {
                    Ok(()) => self.phase = Phase::Idle,
                    Err(what) => {
                        let (token, attempt) = (*token, *attempt);
                        // Only its own deadline can cut an end short.
                        let what = if *stopped { OUT_OF_TIME.to_owned() } else { what };
                        *run = None;
                        if attempt >= self.patience.end_attempts {
                            return self.despair(token, what, out);
                        }
                        self.error.get_or_insert(Reason::EndFailed(what));
                        out.push(Output::Wait(self.patience.end_retry));
                    }
                }
            }
            Phase::Failing { run, .. } | Phase::Stuck { run, .. } if *run == Some(finished) => {
                // The error and stuck handlers only report, so a failure changes nothing. The shell
                // logs it.
                *run = None;
            }
            Phase::Idle
            | Phase::Beginning { .. }
            | Phase::Leading { .. }
            | Phase::Ending { .. }
            | Phase::Failing { .. }
            | Phase::Leaving
            | Phase::Stuck { .. }
            | Phase::Over => {}
        }
    }

    pub(super) fn overrun(&mut self, late: Run, out: &mut Vec<Output>) {
        let begins = matches!(self.phase, Phase::Beginning { stopped: false, .. });
        if self.phase.handler().is_some_and(|(run, _)| run == late) {
            if begins {
                self.error.get_or_insert(Reason::BeginFailed(OUT_OF_TIME.to_owned()));
            }
            self.stop_handler(out);
        }
    }

    pub(super) fn wait_over(&mut self, out: &mut Vec<Output>) {
        match &mut self.phase {
            Phase::Ending { token, attempt, reason, run: None, .. } => {
                let (token, attempt, reason) = (*token, *attempt, reason.clone());
                self.end(token, reason, attempt + 1, out);
            }
            Phase::Failing { waited, .. } => {
                *waited = true;
                self.stop_handler(out);
            }
            Phase::Idle
            | Phase::Beginning { .. }
            | Phase::Leading { .. }
            | Phase::Ending { .. }
            | Phase::Leaving
            | Phase::Stuck { .. }
            | Phase::Over => {}
        }
    }

    fn stop_handler(&mut self, out: &mut Vec<Output>) {
        if let Some((run, stopped)) = self.phase.handler()
            && !*stopped
        {
            *stopped = true;
            out.push(Output::Stop(run));
        }
    }

    pub(super) fn show(&mut self, out: &mut Vec<Output>) {
        let state = match &self.phase {
            Phase::Idle | Phase::Leaving => State::NotLeading,
            Phase::Beginning { token, .. } => State::Beginning { token: *token },
            Phase::Leading { token } => State::Leading { token: *token },
            Phase::Ending { token, attempt, .. } => {
                State::Ending { token: *token, attempt: *attempt }
            }
            Phase::Failing { .. } => State::Failing,
            Phase::Stuck { token, .. } => State::Stuck { token: *token },
            Phase::Over => return,
        };
        if self.shown != state {
            self.shown = state;
            out.push(Output::Entered(state));
        }
    }
}
