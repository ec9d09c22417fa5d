//! What an error of MongoDB, or of its driver, means for the request.

use std::time::Duration;

use mongodb::error::{Error, ErrorKind};
use tenure::{Fault, StoreError};

/// Whether a request changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Codes of the server that mean: you may not.
const DENIED: [i32; 4] = [
    13,   // Unauthorized
    18,   // AuthenticationFailed
    33,   // UserNotFound, of a login
    8000, // what Atlas says to both
];
/// Codes that mean: this is no command of this server, or malformed. Nothing was done.
const PERMANENT: [i32; 6] = [
    2,   // BadValue
    9,   // FailedToParse
    14,  // TypeMismatch
    59,  // CommandNotFound
    72,  // InvalidOptions
    166, // CommandNotSupportedOnView
];

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// The server's code, where it said one.
    pub(super) code: Option<i32>,
    pub(super) says: String,
}

impl Failure {
    pub(super) fn new(fault: Fault, says: impl Into<String>) -> Failure {
        Failure { fault, code: None, says: says.into() }
    }

    /// Nothing came back in time.
    pub(super) fn late(kind: Kind, after: Duration) -> Failure {
        Failure::new(unknown(kind), format!("no answer within {after:?}"))
    }

    /// The server or the driver said so.
    pub(super) fn of(error: &Error, kind: Kind) -> Failure {
        let fault = match &*error.kind {
            // The driver found no server to send anything to, or none that let us in.
            ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => Fault::Unavailable,
            ErrorKind::Authentication { .. } => Fault::Denied,
            ErrorKind::InvalidArgument { .. }
            | ErrorKind::InvalidTlsConfig { .. }
            | ErrorKind::IncompatibleServer { .. }
            | ErrorKind::SessionsNotSupported
            | ErrorKind::Shutdown => Fault::Permanent,
            ErrorKind::Command(command) if DENIED.contains(&command.code) => Fault::Denied,
            ErrorKind::Command(command) if PERMANENT.contains(&command.code) => Fault::Permanent,
            // Anything else may have come after something was written: a primary that stepped down in the middle of
            // a batch says the same as one that had stepped down before it.
            _ => unknown(kind),
        };
        let code = match &*error.kind {
            ErrorKind::Command(command) => Some(command.code),
            _ => None,
        };
        Failure { fault, code, says: told(error) }
    }

    pub(super) fn while_doing(&self, doing: impl Into<String>) -> StoreError {
        StoreError::new(self.fault, "mongodb", doing, self.says.clone())
    }
}

/// A read has no effect to be in doubt about.
fn unknown(kind: Kind) -> Fault {
    match kind {
        Kind::Read => Fault::Unavailable,
        Kind::Write => Fault::Indeterminate,
    }
}

/// What was said, without the answer in which it stood.
pub(super) fn told(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Command(command) => {
            format!("{} ({} {})", command.message, command.code, command.code_name)
        }
        kind => kind.to_string(),
    }
}
