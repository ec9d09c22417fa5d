//! The meaning of errors of MongoDB and its driver for a request.

use std::time::Duration;

use mongodb::error::{Error, ErrorKind};
use tenure::store::{Fault, StoreError};

/// The kind of a request: whether it changes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// The server's error codes for a missing permission.
const DENIED: [i32; 4] = [
    13,   // Unauthorized
    18,   // AuthenticationFailed
    33,   // UserNotFound, of a login
    8000, // Atlas, for both
];
/// The server's error codes for an unknown or malformed command. Nothing was done.
const PERMANENT: [i32; 6] = [
    2,   // BadValue
    9,   // FailedToParse
    14,  // TypeMismatch
    59,  // CommandNotFound
    72,  // InvalidOptions
    166, // CommandNotSupportedOnView
];

/// The longest message of a server's that is kept, in characters.
const LONGEST_WORDS: usize = 120;

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// The server's error code, if there is one.
    pub(super) code: Option<i32>,
    pub(super) says: String,
}

impl Failure {
    pub(super) fn new(fault: Fault, says: impl Into<String>) -> Failure {
        Failure { fault, code: None, says: says.into() }
    }

    /// No answer came in time.
    pub(super) fn late(kind: Kind, after: Duration) -> Failure {
        Failure::new(unknown(kind), format!("no answer within {after:?}"))
    }

    /// The server or the driver reported an error.
    pub(super) fn of(error: &Error, kind: Kind) -> Failure {
        let fault = match &*error.kind {
            // The driver found no server to send the request to, or none that accepted us.
            ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => Fault::Unavailable,
            ErrorKind::Authentication { .. } => Fault::Denied,
            ErrorKind::InvalidArgument { .. }
            | ErrorKind::InvalidTlsConfig { .. }
            | ErrorKind::IncompatibleServer { .. }
            | ErrorKind::SessionsNotSupported
            | ErrorKind::Shutdown => Fault::Permanent,
            ErrorKind::Command(command) if DENIED.contains(&command.code) => Fault::Denied,
            ErrorKind::Command(command) if PERMANENT.contains(&command.code) => Fault::Permanent,
            // Any other error may have come after a write: a primary that stepped down in the
            // middle of a batch reports the same as one that had stepped down before it.
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

/// The fault if it is unknown whether the request took effect. A read has no effect.
fn unknown(kind: Kind) -> Fault {
    match kind {
        Kind::Read => Fault::Unavailable,
        Kind::Write => Fault::Indeterminate,
    }
}

/// The message of an error, without the answer that contained it.
pub(super) fn told(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Command(command) => {
            let (says, name) = (brief(&command.message), &command.code_name);
            format!("{says} ({} {name})", command.code)
        }
        kind => kind.to_string(),
    }
}

/// Shortens a message. Servers repeat the whole command that they refuse, with documents and
/// signatures.
pub(super) fn brief(words: &str) -> String {
    let end = words.char_indices().map(|(at, _)| at).nth(LONGEST_WORDS).unwrap_or(words.len());
    let more = if end < words.len() { "…" } else { "" };
    format!("{}{more}", &words[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_repeats_is_cut_short() {
        assert_eq!(brief("short"), "short");
        assert_eq!(brief(&"é".repeat(500)), format!("{}…", "é".repeat(LONGEST_WORDS)));
    }

    #[test]
    fn a_failure_before_anything_was_sent_is_no_doubt_and_any_other_is() {
        let io = || Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(Failure::of(&io(), Kind::Write).fault, Fault::Indeterminate);
        assert_eq!(Failure::of(&io(), Kind::Read).fault, Fault::Unavailable);
        let custom = Error::custom("anything");
        assert_eq!(Failure::of(&custom, Kind::Write).fault, Fault::Indeterminate);
        assert_eq!(Failure::late(Kind::Write, Duration::ZERO).fault, Fault::Indeterminate);
        assert_eq!(Failure::late(Kind::Read, Duration::ZERO).fault, Fault::Unavailable);
    }
}
