//! The loop's settings, handles and outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::handler::{Handler, Variables};
use super::machine::{Patience, State, Step};
use super::run;
use super::source::Source;

/// How long a handler that is told to stop may take over it, before it is killed.
const KILL_AFTER: Duration = Duration::from_secs(1);
/// How long the last resort may take.
const STUCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs handlers so that the local system does what the election says.
#[derive(Debug)]
pub struct Reconciler {
    pub(super) settings: Settings,
    pub(super) stop: watch::Sender<bool>,
    pub(super) state: watch::Sender<State>,
    /// A second run would begin and end behind the first one's back.
    ran: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Settings {
    begin: Option<Handler>,
    end: Option<Handler>,
    error: Option<Handler>,
    stuck: Option<Handler>,
    pub(super) patience: Patience,
    pub(super) begin_timeout: Option<Duration>,
    pub(super) end_timeout: Option<Duration>,
    pub(super) stuck_timeout: Duration,
    pub(super) kill_after: Duration,
    pub(super) variables: Variables,
}

impl Settings {
    pub(super) fn handler(&self, step: Step) -> Option<&Handler> {
        match step {
            Step::Begin => self.begin.as_ref(),
            Step::End => self.end.as_ref(),
            Step::Error => self.error.as_ref(),
            Step::Stuck => self.stuck.as_ref(),
        }
    }
}

/// How a reconciler is made. A handler that is not set succeeds at once.
#[derive(Debug)]
#[must_use = "nothing happens until `build`"]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    /// What to run to begin to act as leader.
    pub fn begin(mut self, handler: Handler) -> Builder {
        self.settings.begin = Some(handler);
        self
    }

    /// What to run to cease to act as leader. It is run again until it succeeds, and may be run for
    /// a begin that got only half way, so it should not mind when there is nothing to end.
    pub fn end(mut self, handler: Handler) -> Builder {
        self.settings.end = Some(handler);
        self
    }

    /// What to run after an error, when nobody here acts as leader any more.
    pub fn error(mut self, handler: Handler) -> Builder {
        self.settings.error = Some(handler);
        self
    }

    /// The last resort: what to run when the end has failed for good.
    pub fn on_stuck(mut self, handler: Handler) -> Builder {
        self.settings.stuck = Some(handler);
        self
    }

    /// How long to stay away from the election after an error; 30 s. The error handler has as long.
    pub fn error_timeout(mut self, span: Duration) -> Builder {
        self.settings.patience.error_timeout = span;
        self
    }

    /// How long to wait after an end that failed, and how often it is tried; 5 s and 12 times.
    pub fn end_retry(mut self, pause: Duration, attempts: u32) -> Builder {
        self.settings.patience.end_retry = pause;
        self.settings.patience.end_attempts = attempts;
        self
    }

    /// How long a begin may take; as long as it leads, unless this is set.
    pub fn begin_timeout(mut self, span: Duration) -> Builder {
        self.settings.begin_timeout = Some(span);
        self
    }

    /// How long an end may take at most; what is left of the lease, unless this is set.
    ///
    /// While the lease is being renewed an end has all of this time. When leadership is being lost
    /// it has no longer than the lease lasts, and when it is lost no longer than the stop budget.
    pub fn end_timeout(mut self, span: Duration) -> Builder {
        self.settings.end_timeout = Some(span);
        self
    }

    /// How long the last resort may take; 30 s.
    pub fn stuck_timeout(mut self, span: Duration) -> Builder {
        self.settings.stuck_timeout = span;
        self
    }

    /// How long a process that was sent TERM has before it is killed; 1 s, or half of what is left
    /// of the lease if that is less.
    pub fn kill_after(mut self, span: Duration) -> Builder {
        self.settings.kill_after = span;
        self
    }

    /// What handlers that are processes find in their environment beside what they are told; a
    /// variable without a value is one that they must not inherit.
    pub fn variable(mut self, name: impl Into<String>, value: Option<String>) -> Builder {
        Arc::make_mut(&mut self.settings.variables).push((name.into(), value));
        self
    }

    /// The reconciler.
    ///
    /// # Errors
    /// [`BuildError`] when a command is empty, or an end may never be tried.
    pub fn build(self) -> Result<Reconciler, BuildError> {
        for step in [Step::Begin, Step::End, Step::Error, Step::Stuck] {
            if self.settings.handler(step).is_some_and(Handler::is_empty) {
                return Err(BuildError::EmptyCommand { handler: step });
            }
        }
        if self.settings.patience.end_attempts == 0 {
            return Err(BuildError::NoAttempts);
        }
        Ok(Reconciler {
            settings: self.settings,
            stop: watch::Sender::new(false),
            state: watch::Sender::new(State::NotLeading),
            ran: AtomicBool::new(false),
        })
    }
}

impl Reconciler {
    /// A reconciler with handlers and times of one's own.
    pub fn builder() -> Builder {
        Builder {
            settings: Settings {
                begin: None,
                end: None,
                error: None,
                stuck: None,
                patience: Patience::default(),
                begin_timeout: None,
                end_timeout: None,
                stuck_timeout: STUCK_TIMEOUT,
                kill_after: KILL_AFTER,
                variables: Variables::default(),
            },
        }
    }

    /// Runs until it is stopped, the source ends, or an end fails for good.
    ///
    /// # Errors
    /// [`ReconcileError::AlreadyRunning`] when this reconciler runs or has run,
    /// [`ReconcileError::Stuck`] when the local system may still act as leader.
    ///
    /// # Cancel safety
    /// Not cancel safe: a handler that runs is killed with its group, no end is run, and a
    /// leadership of [`ElectionSource`](super::ElectionSource) is left to run out. Stop it with a
    /// [`Stopper`] instead.
    pub async fn run(&self, source: impl Source) -> Result<Finished, ReconcileError> {
        if self.ran.swap(true, Ordering::AcqRel) {
            return Err(ReconcileError::AlreadyRunning);
        }
        run::run(self, source).await
    }

    /// A way to stop it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.stop.clone() }
    }

    /// What the local system is in, now and from now on.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }
}

/// Stops a reconciler. Clones stop the same one.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: watch::Sender<bool>,
}

impl Stopper {
    /// Stops it: the end is run first if there is something to end, then leadership is given up,
    /// then [`Reconciler::run`] returns. Before that has been called it holds too.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// How a reconciler finished, with nothing here that acts as leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It was stopped.
    Stopped,
    /// The source had nothing more to say.
    SourceEnded,
}

/// Why a reconciler gave up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError {
    /// The same reconciler was run twice.
    #[error("this reconciler already runs, or has run; build another one")]
    AlreadyRunning,
    /// The end never succeeded.
    #[error(
        "the end handler of tenure {token} failed {attempts} times, at last because {last}; the local \
         system may still act as leader, so nothing was released and the lease was left to run out"
    )]
    Stuck {
        /// The tenure that could not be ended.
        token: u64,
        /// How often it was tried.
        attempts: u32,
        /// What the last attempt said.
        last: String,
    },
}

/// Why a reconciler cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A command names no program.
    #[error("the {} handler names no program", .handler.word())]
    EmptyCommand {
        /// Which handler's.
        handler: Step,
    },
    /// An end would never be run.
    #[error("an end must be tried at least once")]
    NoAttempts,
}
