//! The reconciliation as a pure state machine: [`Input`]s in, [`Output`]s out.
//!
//! The machine is level-triggered. It keeps the newest state that the source wants, and the state
//! of the local system. Whenever a handler has finished, it takes one step from the local state
//! towards the wanted one. It skips events that newer ones have overtaken, with two exceptions:
//! once a begin has started, the end of its tenure always runs, and an error is always handled.

use std::time::Duration;

use super::reason::Reason;
use super::source::Release;

mod phases;
#[cfg(test)]
mod tests;

use phases::Phase;

/// The machine's timeouts and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How long to wait after an end that failed.
    pub end_retry: Duration,
    /// How often an end is tried. At least once, even if this is 0.
    pub end_attempts: u32,
    /// How long to stay away from the election after an error.
    pub error_timeout: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            end_retry: Duration::from_secs(5),
            end_attempts: 12,
            error_timeout: Duration::from_secs(30),
        }
    }
}

/// Identifies one run of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run(u64);

/// The kind of handler that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Begin to act as leader.
    Begin,
    /// Cease to act as leader.
    End,
    /// Report an error. The local system does not act as leader.
    Error,
    /// The last resort: the local system may act as leader for ever.
    Stuck,
}

impl Step {
    /// The value of `TENURE_STATE` for this step.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Step::Begin => "begin",
            Step::End => "end",
            Step::Error => "error",
            Step::Stuck => "stuck",
        }
    }
}

/// The state of the local system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The local system does not act as leader.
    NotLeading,
    /// The begin handler runs.
    Beginning {
        /// The tenure's token.
        token: u64,
    },
    /// The begin handler succeeded.
    Leading {
        /// The tenure's token.
        token: u64,
    },
    /// The end handler runs, or waits to be tried again.
    Ending {
        /// The tenure's token.
        token: u64,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// After an error: the error handler runs, or the rest of the error timeout passes.
    Failing,
    /// The end failed for good. The local system may act as leader for ever.
    Stuck {
        /// The tenure's token.
        token: u64,
    },
    /// The loop is over, and the local system does not act as leader.
    Stopped,
}

/// An event that the machine reacts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The source says that this candidate leads.
    Leader {
        /// The token that tells tenures apart.
        token: u64,
    },
    /// The source says that this candidate does not lead, or must stop.
    NotLeader {
        /// Why it does not lead.
        reason: Reason,
    },
    /// The source reports an error.
    Error {
        /// The error.
        reason: Reason,
    },
    /// The source has no more events.
    SourceEnded,
    /// The source has carried out an [`Output::Release`].
    Released,
    /// A handler has finished. If it was stopped, none of its processes runs any more.
    Finished(Run, Result<(), String>),
    /// A handler has used up its time.
    DeadlinePassed(Run),
    /// The time of [`Output::Wait`] has passed.
    Waited,
    /// A stop was requested.
    StopRequested,
}

/// An action that the machine asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The local state has changed.
    Entered(State),
    /// Run a handler. There is never more than one.
    Run {
        /// To be given back in [`Input::Finished`].
        run: Run,
        /// Which handler to run.
        step: Step,
        /// The tenure the handler is about, if any.
        token: Option<u64>,
        /// Why it runs.
        reason: Reason,
    },
    /// Stop this handler: its process group is sent TERM, then KILL. [`Input::Finished`] follows.
    Stop(Run),
    /// Send [`Input::Waited`] after this time. Replaces an earlier wait.
    Wait(Duration),
    /// Tell the source to release the leadership. [`Input::Released`] follows.
    Release(Release),
    /// The loop is over.
    Over(Verdict),
}

/// The outcome of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A stop was requested; the local system does not act as leader.
    Stopped,
    /// The source had no more events; the local system does not act as leader.
    SourceEnded,
    /// The end handler never succeeded: the local system may still act as leader.
    Stuck {
        /// The tenure that could not be ended.
        token: u64,
        /// How often the end was tried.
        attempts: u32,
        /// The error of the last attempt.
        last: String,
    },
}

/// Why the loop is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    Stop,
    /// Not urgent: a begin may finish, and an error is still handled.
    SourceEnded,
}

/// One reconciliation.
#[derive(Clone, Debug)]
pub struct Machine {
    patience: Patience,
    runs: u64,
    phase: Phase,
    shown: State,
    /// The tenure that the source reported last.
    desired: Option<u64>,
    /// The reason in the source's last [`Input::NotLeader`].
    why_not: Option<Reason>,
    /// The source has lost a tenure, and waits until the local work has ended.
    lost: bool,
    /// An error that is not handled yet. Later errors are ignored until it is.
    error: Option<Reason>,
    closing: Option<Closing>,
    /// The number of [`Output::Release`]s that the source has not carried out yet.
    releasing: u32,
    /// Ignore the source's events until it has given up.
    ///
    /// Until then they are about a leadership that this machine has already released.
    deaf: bool,
}

impl Machine {
    /// A machine that does not lead yet.
    #[must_use]
    pub fn new(patience: Patience) -> Machine {
        Machine {
            patience,
            runs: 0,
            phase: Phase::Idle,
            shown: State::NotLeading,
            desired: None,
            why_not: None,
            lost: false,
            error: None,
            closing: None,
            releasing: 0,
            deaf: false,
        }
    }

    /// The tenure that handlers have begun, or are beginning, here.
    #[must_use]
    pub fn tenure(&self) -> Option<u64> {
        self.phase.tenure()
    }

    /// Takes one input, and returns the actions to take, in order.
    #[must_use]
    pub fn step(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        if matches!(self.phase, Phase::Over) {
            return out;
        }
        self.take(input, &mut out);
        self.settle(&mut out);
        out
    }

    fn take(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Leader { .. } | Input::NotLeader { .. } | Input::Error { .. } if self.deaf => {}
            Input::Leader { token } => {
                self.desired = Some(token);
                self.lost = false;
            }
            Input::NotLeader { reason } => {
                self.desired = None;
                self.why_not = Some(reason);
                self.lost = true;
            }
            Input::Error { reason } => {
                self.error.get_or_insert(reason);
            }
            Input::SourceEnded => {
                self.closing.get_or_insert(Closing::SourceEnded);
            }
            Input::StopRequested => self.closing = Some(Closing::Stop),
            Input::Released => {
                self.releasing = self.releasing.saturating_sub(1);
                self.deaf &= self.releasing > 0;
            }
            Input::Finished(run, result) => self.finish(run, result, out),
            Input::DeadlinePassed(run) => self.overrun(run, out),
            Input::Waited => self.wait_over(out),
        }
    }

    fn release(&mut self, how: Release, out: &mut Vec<Output>) {
        self.releasing += 1;
        match how {
            Release::GiveUp | Release::Abandon => {
                self.deaf = true;
                self.desired = None;
                self.lost = false;
            }
            Release::StandAgain => self.lost = false,
        }
        out.push(Output::Release(how));
    }

    fn next_run(&mut self) -> Run {
        self.runs += 1;
        Run(self.runs)
    }

    /// Starts a handler. The caller has already entered the phase it runs in.
    fn start(
        &mut self,
        run: Run,
        step: Step,
        token: Option<u64>,
        reason: Reason,
        out: &mut Vec<Output>,
    ) {
        // The state comes first, so that watchers see it before the handler acts.
        self.show(out);
        out.push(Output::Run { run, step, token, reason });
    }
}
