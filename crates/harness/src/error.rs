use std::io;
use thiserror::Error;

/// A server that is not available on this machine, and the reason.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{server}: {reason}")]
pub struct Skipped {
    /// The server and its version.
    pub server: String,
    /// The missing part, and how to get it.
    pub reason: String,
}

/// Why an operation on a server failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// The server is not available here; the test that needs it is skipped.
    #[error(transparent)]
    Skipped(#[from] Skipped),
    /// The server ended by itself.
    #[error("{server}: ended ({status}); the end of its log:\n{log}")]
    Ended {
        /// The server, its version and its number.
        server: String,
        /// The exit status of its process.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server runs, but did not reach the awaited state within the limit.
    #[error("{server}: {awaited} did not come; the end of its log:\n{log}")]
    Late {
        /// The server, its version and its number.
        server: String,
        /// The awaited state.
        awaited: &'static str,
        /// The last lines of its log.
        log: String,
    },
    /// The server is not running, so it cannot be signalled.
    #[error("{server}: not running")]
    Down {
        /// The server, its version and its number.
        server: String,
    },
    /// The operating system refused.
    #[error("{attempted}")]
    System {
        /// The attempted operation.
        attempted: String,
        /// The system's error.
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
