use std::io;
use thiserror::Error;

/// A server that cannot be had on this machine, and why.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{server}: {reason}")]
pub struct Skipped {
    /// The server and its version.
    pub server: String,
    /// What is missing, and how to get it.
    pub reason: String,
}

/// Why a server does not do what was asked of it.
#[derive(Debug, Error)]
pub enum Failure {
    /// It cannot be had here; the test that needs it is skipped.
    #[error(transparent)]
    Skipped(#[from] Skipped),
    /// It ended by itself.
    #[error("{server}: ended ({status}); the end of its log:\n{log}")]
    Ended {
        /// The server, its version and its number.
        server: String,
        /// How its process ended.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// It runs, and did not come to what was awaited within the limit.
    #[error("{server}: {awaited} did not come; the end of its log:\n{log}")]
    Late {
        /// The server, its version and its number.
        server: String,
        /// What was awaited.
        awaited: &'static str,
        /// The last lines of its log.
        log: String,
    },
    /// It is not running, so there is nothing to signal.
    #[error("{server}: not running")]
    Down {
        /// The server, its version and its number.
        server: String,
    },
    /// The operating system refused.
    #[error("{attempted}")]
    System {
        /// What was attempted.
        attempted: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Failure {
    pub(crate) fn system<T: Into<String>>(
        attempted: T,
    ) -> impl FnOnce(io::Error) -> Failure + use<T> {
        let attempted = attempted.into();
        move |source| Failure::System { attempted: format!("{attempted}: {source}"), source }
    }
}
