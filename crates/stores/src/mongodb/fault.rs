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

/// More of what a server says is left out.
const LONGEST_WORDS: usize = 120;

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
            // Anything else may have come after something was written: a primary that stepped down
            // in the middle of a batch says the same as one that had stepped down before it.
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
            let (says, name) = (brief(&command.message), &command.code_name);
            format!("{says} ({} {name})", command.code)
        }
        kind => kind.to_string(),
    }
}

/// Servers repeat the whole of a command that they refuse, documents and signatures included.
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
