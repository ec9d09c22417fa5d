//! The handlers that run when the leadership changes, and the context they receive.

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

/// The variables a handler may be given. A handler does not inherit the ones it is not given.
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

/// A command or function that runs when leadership begins, ends, fails or is stuck.
///
/// A process gets its own process group, no input, and the output streams of this program. It
/// receives its [`Context`] only through its environment: no value is ever put into the shell's
/// text.
///
/// A process that runs out of time is sent TERM, then KILL, together with its whole group, and is
/// reaped. If a handler fails, the rest of its group is ended in the same way. If a handler
/// succeeds, the processes it has left running go on: this is how a begin starts things.
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

    /// Returns true if the handler is a command without words.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            #[cfg(all(feature = "process", unix))]
            Handler::Command(words) => words.is_empty(),
            #[cfg(all(feature = "process", unix))]
            Handler::Shell(_) => false,
            Handler::Closure(_) => false,
        }
    }

    /// Runs the handler. A message on `stop` tells it to stop and how long that may take. After a
    /// failure, the processes left in its group have `kill_after` to end.
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

/// Resolves when a stop is requested; never resolves once the sender is dropped.
async fn stopped(stop: oneshot::Receiver<Duration>) {
    match stop.await {
        Ok(_) => {}
        Err(_) => std::future::pending().await,
    }
}

impl fmt::Debug for Handler {
    /// Hides the text and the command, which may hold secrets.
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

/// The facts a handler receives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Context {
    /// The election.
    pub election: String,
    /// The candidate's name, for people.
    pub id: String,
    /// The fencing token, if the handler concerns a tenure.
    pub token: Option<u64>,
    /// Which handler this is.
    pub state: Step,
    /// Why the handler runs.
    pub reason: Reason,
    /// The lease's length.
    pub ttl: Duration,
    /// The time the handler has; `None` means for as long as this candidate leads.
    pub deadline: Option<Duration>,
    /// The right to act, if there is one.
    pub mandate: Option<Mandate>,
    /// More variables to set in a process's environment, or to remove from it.
    #[cfg_attr(not(all(feature = "process", unix)), expect(dead_code, reason = "for processes"))]
    pub(super) variables: Variables,
}

/// Variables to set in a process's environment, or to remove from it (`None`).
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

    /// This context as environment variables, as processes receive it.
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
        // An environment variable cannot hold a NUL, and an error's text may contain one.
        variables.iter_mut().for_each(|(_, value)| *value = value.replace('\0', "\u{fffd}"));
        variables
    }
}
