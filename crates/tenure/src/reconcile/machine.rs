//! The reconciliation, pure: what happened goes in, what is to be done comes out.
//!
//! Level-triggered: the machine keeps what the source wants *now* and what is the case *here*, and
//! takes one step from the one towards the other whenever a handler has finished. What was
//! overtaken in between is skipped, but for two things that never are: the end of a tenure whose
//! begin has started, and an error.

use std::time::Duration;

use super::reason::Reason;
use super::source::Release;

mod phases;
#[cfg(test)]
mod tests;

use phases::Phase;

/// How patient the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How long to wait after an end that failed.
    pub end_retry: Duration,
    /// How often an end is tried. At least once, whatever this says.
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

/// Which run of a handler is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run(u64);

/// Which handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Begin to act as leader.
    Begin,
    /// Cease to act as leader.
    End,
    /// Something went wrong, and nobody here acts as leader.
    Error,
    /// The last resort: somebody here may act as leader for ever.
    Stuck,
}

impl Step {
    /// The step as `TENURE_STATE` tells it.
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

/// What the local system is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nobody here acts as leader.
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
    /// The end failed for good. Whatever leads here may do so for ever.
    Stuck {
        /// The tenure's token.
        token: u64,
    },
    /// It is over, and nobody here acts as leader.
    Stopped,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The source says that this one leads.
    Leader {
        /// Tells tenures apart.
        token: u64,
    },
    /// The source says that this one does not lead, or must stop.
    NotLeader {
        /// Why.
        reason: Reason,
    },
    /// The source reports an error.
    Error {
        /// Which.
        reason: Reason,
    },
    /// The source has nothing more to say.
    SourceEnded,
    /// The source has carried out what [`Output::Release`] asked for.
    Released,
    /// A handler has finished, and nothing of it runs any more if it was stopped.
    Finished(Run, Result<(), String>),
    /// A handler has used up its time.
    DeadlinePassed(Run),
    /// The time of [`Output::Wait`] has passed.
    Waited,
    /// Somebody wants all this to stop.
    StopRequested,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The local state has changed.
    Entered(State),
    /// Run a handler. There is never more than one.
    Run {
        /// To be given back when it has finished.
        run: Run,
        /// Which handler.
        step: Step,
        /// The tenure it is about, if any.
        token: Option<u64>,
        /// Why.
        reason: Reason,
    },
    /// Stop this handler: its process group is told, then killed; [`Input::Finished`] follows.
    Stop(Run),
    /// Send [`Input::Waited`] after so long. Replaces an earlier wait.
    Wait(Duration),
    /// Tell the source what becomes of the leadership; [`Input::Released`] follows.
    Release(Release),
    /// It is over.
    Over(Verdict),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A stop was asked for; nobody here acts as leader.
    Stopped,
    /// The source had nothing more to say; nobody here acts as leader.
    SourceEnded,
    /// The end handler never succeeded: the local system may still act as leader.
    Stuck {
        /// Which tenure's end.
        token: u64,
        /// How often it was tried.
        attempts: u32,
        /// What the last attempt said.
        last: String,
    },
}

/// Why the loop is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    Stop,
    /// Nobody is in a hurry: a begin may finish, and an error is still told.
    SourceEnded,
}

/// One reconciliation.
#[derive(Clone, Debug)]
pub struct Machine {
    patience: Patience,
    runs: u64,
    phase: Phase,
    shown: State,
    /// The tenure the source speaks of now.
    desired: Option<u64>,
    /// Why the source spoke of none, when it last did.
    why_not: Option<Reason>,
    /// The source has lost a tenure and waits to be told that its work has ended.
    lost: bool,
    /// An error not dealt with yet. The first one counts until it is.
    error: Option<Reason>,
    closing: Option<Closing>,
    /// Orders the source has not carried out yet.
    releasing: u32,
    /// What the source says until it has given up is about a leadership that is already given up.
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

    /// Takes one input, and says what is to be done, in this order.
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

    /// Starts a handler; the phase it runs in has been entered.
    fn start(
        &mut self,
        run: Run,
        step: Step,
        token: Option<u64>,
        reason: Reason,
        out: &mut Vec<Output>,
    ) {
        // The state comes first, so that whoever watches sees it before the handler acts.
        self.show(out);
        out.push(Output::Run { run, step, token, reason });
    }
}
