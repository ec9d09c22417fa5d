//! The loop's settings, handles and outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::handler::{Handler, Variables};
use super::machine::{Patience, State, Step};
use super::run;
use super::source::Source;

/// How long a handler that was told to stop may run before it is killed.
const KILL_AFTER: Duration = Duration::from_secs(1);
/// How long the last resort may take.
const STUCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs handlers so that the local system follows the election.
#[derive(Debug)]
pub struct Reconciler {
    pub(super) settings: Settings,
    pub(super) stop: watch::Sender<bool>,
    pub(super) state: watch::Sender<State>,
    /// Prevents a second run, which would interfere with the first one's handlers.
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

/// Builds a reconciler. A handler that is not set succeeds at once.
#[derive(Debug)]
#[must_use = "nothing happens until `build`"]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    /// Sets the handler that begins to act as leader.
    pub fn begin(mut self, handler: Handler) -> Builder {
        self.settings.begin = Some(handler);
        self
    }

    /// Sets the handler that ceases to act as leader.
    ///
    /// It is run again until it succeeds. It may also run for a begin that was cut short, so it
    /// must tolerate that there is nothing to end.
    pub fn end(mut self, handler: Handler) -> Builder {
        self.settings.end = Some(handler);
        self
    }

    /// Sets the handler for errors. It runs when the local system no longer acts as leader.
    pub fn error(mut self, handler: Handler) -> Builder {
        self.settings.error = Some(handler);
        self
    }

    /// Sets the last resort: the handler that runs when the end has failed for good.
    pub fn on_stuck(mut self, handler: Handler) -> Builder {
        self.settings.stuck = Some(handler);
        self
    }

    /// Sets how long to stay away from the election after an error. Default: 30 s.
    ///
    /// The error handler has the same time.
    pub fn error_timeout(mut self, span: Duration) -> Builder {
        self.settings.patience.error_timeout = span;
        self
    }

    /// Sets the pause after a failed end, and the number of attempts. Default: 5 s, 12 attempts.
    pub fn end_retry(mut self, pause: Duration, attempts: u32) -> Builder {
        self.settings.patience.end_retry = pause;
        self.settings.patience.end_attempts = attempts;
        self
    }

    /// Sets how long a begin may take. Default: as long as this candidate leads.
    pub fn begin_timeout(mut self, span: Duration) -> Builder {
        self.settings.begin_timeout = Some(span);
        self
    }

    /// Sets how long an end may take at most. Default: the rest of the lease.
    ///
    /// While the lease is being renewed, an end has all of this time. While leadership is being
    /// lost, it has at most the rest of the lease. Once leadership is lost, it has at most the stop
    /// budget.
    pub fn end_timeout(mut self, span: Duration) -> Builder {
        self.settings.end_timeout = Some(span);
        self
    }

    /// Sets how long the last resort may take. Default: 30 s.
    pub fn stuck_timeout(mut self, span: Duration) -> Builder {
        self.settings.stuck_timeout = span;
        self
    }

    /// Sets the time between TERM and KILL for a process. Default: 1 s.
    ///
    /// If half of the remaining lease is less, that is used instead.
    pub fn kill_after(mut self, span: Duration) -> Builder {
        self.settings.kill_after = span;
        self
    }

    /// Adds an environment variable for handlers that are processes.
    ///
    /// They get it in addition to their [`Context`](super::Context). A variable without a value is
    /// removed from their environment, so they do not inherit it.
    pub fn variable(mut self, name: impl Into<String>, value: Option<String>) -> Builder {
        Arc::make_mut(&mut self.settings.variables).push((name.into(), value));
        self
    }

    /// Builds the reconciler.
    ///
    /// # Errors
    /// [`BuildError`] if a command is empty, or if an end would have no attempts.
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
    /// A builder for a reconciler.
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
    /// [`ReconcileError::AlreadyRunning`] if this reconciler runs or has run,
    /// [`ReconcileError::Stuck`] if the local system may still act as leader.
    ///
    /// # Cancel safety
    /// Not cancel safe: the running handler is killed with its group, no end is run, and a
    /// leadership of [`ElectionSource`](super::ElectionSource) is left to run out. Stop it with a
    /// [`Stopper`] instead.
    pub async fn run(&self, source: impl Source) -> Result<Finished, ReconcileError> {
        if self.ran.swap(true, Ordering::AcqRel) {
            return Err(ReconcileError::AlreadyRunning);
        }
        run::run(self, source).await
    }

    /// A handle that stops this reconciler.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.stop.clone() }
    }

    /// Watches the state of the local system.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }
}

/// Stops a reconciler. All clones stop the same reconciler.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: watch::Sender<bool>,
}

impl Stopper {
    /// Stops the reconciler.
    ///
    /// It first runs the end if a tenure was begun, then gives up the leadership, and then
    /// [`Reconciler::run`] returns. A stop before `run` is called counts too.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// How a reconciler finished. The local system does not act as leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It was stopped.
    Stopped,
    /// The source had no more events.
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
        /// How often the end was tried.
        attempts: u32,
        /// The error of the last attempt.
        last: String,
    },
}

/// Why a reconciler cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A command names no program.
    #[error("the {} handler names no program", .handler.word())]
    EmptyCommand {
        /// The handler with the empty command.
        handler: Step,
    },
    /// An end would never be run.
    #[error("an end must be tried at least once")]
    NoAttempts,
}
