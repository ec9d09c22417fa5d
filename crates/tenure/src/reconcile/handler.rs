//! What is run when something changes, and what it is told.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::machine::Step;
use super::reason::Reason;
use super::source::Identity;
use crate::Mandate;

/// The variables a handler may be given. What it is not given it does not inherit either.
#[cfg(all(feature = "process", unix))]
pub(super) const VARIABLES: [&str; 7] = [
    "TENURE_ELECTION",
    "TENURE_ID",
    "TENURE_STATE",
    "TENURE_REASON",
    "TENURE_TTL_MS",
    "TENURE_TOKEN",
    "TENURE_DEADLINE_MS",
];

/// What is run when leadership begins, ends, fails or is stuck.
///
/// Processes get a process group of their own, no input, and the output streams of this program.
/// What they are told is in their environment and nowhere else: no value is ever put into the
/// shell's text. One whose time is up is sent TERM, then KILL, group and all, and is reaped; so is
/// what is left of one that failed. What a handler that succeeds leaves running goes on: that is
/// how a begin starts things.
#[derive(Clone)]
#[non_exhaustive]
pub enum Handler {
    /// A text run by `sh -c`.
    #[cfg(all(feature = "process", unix))]
    Shell(String),
    /// A program and its arguments; no shell sees them.
    #[cfg(all(feature = "process", unix))]
    Command(Vec<String>),
    /// A function of this program. Its future is dropped when its time is up.
    Closure(Closure),
}

/// A function that handles a change.
#[derive(Clone)]
pub struct Closure(Arc<dyn Fn(Context) -> BoxFuture<'static, Result<(), String>> + Send + Sync>);

impl Handler {
    /// A text run by `sh -c`.
    #[cfg(all(feature = "process", unix))]
    #[must_use]
    pub fn shell(text: impl Into<String>) -> Handler {
        Handler::Shell(text.into())
    }

    /// A program and its arguments.
    #[cfg(all(feature = "process", unix))]
    #[must_use]
    pub fn command(words: impl IntoIterator<Item = impl Into<String>>) -> Handler {
        Handler::Command(words.into_iter().map(Into::into).collect())
    }

    /// A function of this program. Its future is dropped when its time is up.
    #[must_use]
    pub fn closure<F, R, E>(function: F) -> Handler
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Handler::Closure(Closure(Arc::new(move |context| {
            function(context).map(|done| done.map_err(|error| error.into().to_string())).boxed()
        })))
    }

    /// Whether there is nothing to run in it.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            #[cfg(all(feature = "process", unix))]
            Handler::Command(words) => words.is_empty(),
            #[cfg(all(feature = "process", unix))]
            Handler::Shell(_) => false,
            Handler::Closure(_) => false,
        }
    }

    /// Runs it. `stop` tells it to stop, and how long it may take over that; `kill_after` is how
    /// long what a failure leaves behind may take.
    pub(super) async fn run(
        self,
        context: Context,
        kill_after: Duration,
        stop: oneshot::Receiver<Duration>,
    ) -> Result<(), String> {
        match self {
            #[cfg(all(feature = "process", unix))]
            Handler::Shell(text) => {
                let words = ["sh".to_owned(), "-c".to_owned(), text];
                super::process::run(&words, &context, kill_after, stop).await
            }
            #[cfg(all(feature = "process", unix))]
            Handler::Command(words) => {
                super::process::run(&words, &context, kill_after, stop).await
            }
            Handler::Closure(Closure(function)) => {
                // Only processes leave anything behind.
                let _ = kill_after;
                tokio::select! {
                    biased;
                    done = function(context) => done,
                    () = stopped(stop) => Err("it was stopped".to_owned()),
                }
            }
        }
    }
}

/// Resolves when a stop is asked for; never when nobody can ask any more.
async fn stopped(stop: oneshot::Receiver<Duration>) {
    match stop.await {
        Ok(_) => {}
        Err(_) => std::future::pending().await,
    }
}

impl fmt::Debug for Handler {
    /// A shell's text may hold secrets: it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            #[cfg(all(feature = "process", unix))]
            Handler::Shell(_) => "Shell(..)",
            #[cfg(all(feature = "process", unix))]
            Handler::Command(_) => "Command(..)",
            Handler::Closure(_) => "Closure(..)",
        })
    }
}

impl fmt::Debug for Closure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closure(..)")
    }
}

/// What a handler is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Context {
    /// The election.
    pub election: String,
    /// Who stands in it, as people call it.
    pub id: String,
    /// The fencing token, where a tenure is concerned.
    pub token: Option<u64>,
    /// Which handler this is.
    pub state: Step,
    /// Why it runs.
    pub reason: Reason,
    /// The lease's length.
    pub ttl: Duration,
    /// How long it has; none is as long as it leads.
    pub deadline: Option<Duration>,
    /// The right to act, where there is one.
    pub mandate: Option<Mandate>,
    /// What processes find in their environment beside this, or do not find there.
    #[cfg_attr(not(all(feature = "process", unix)), expect(dead_code, reason = "for processes"))]
    pub(super) variables: Variables,
}

/// Variables that processes get, or that are taken from them.
pub(super) type Variables = Arc<Vec<(String, Option<String>)>>;

impl Context {
    pub(super) fn new(identity: &Identity, state: Step, reason: Reason) -> Context {
        Context {
            election: identity.election.clone(),
            id: identity.id.clone(),
            token: None,
            state,
            reason,
            ttl: identity.ttl,
            deadline: None,
            mandate: None,
            variables: Variables::default(),
        }
    }

    /// The same as environment variables, as processes get it.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("TENURE_ELECTION", self.election.clone()),
            ("TENURE_ID", self.id.clone()),
            ("TENURE_STATE", self.state.word().to_owned()),
            ("TENURE_REASON", self.reason.to_string()),
            ("TENURE_TTL_MS", self.ttl.as_millis().to_string()),
        ];
        variables.extend(self.token.map(|token| ("TENURE_TOKEN", token.to_string())));
        let deadline = self.deadline.map(|span| span.as_millis().to_string());
        variables.extend(deadline.map(|millis| ("TENURE_DEADLINE_MS", millis)));
        // A process cannot be given a NUL, and an error's text may hold anything.
        variables.iter_mut().for_each(|(_, value)| *value = value.replace('\0', "\u{fffd}"));
        variables
    }
}
