//! The meaning of RethinkDB's errors, and of network errors, for a question.

use std::error::Error;
use std::time::Duration;

use tenure::store::Fault;

use super::handshake;
use super::response::{Refusal, Refused, Trouble};

/// The kind of a question: whether it changes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// How another attempt may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hope {
    /// No other attempt helps.
    None,
    /// Another server may succeed: this one is cut off from the others, or reports it. Its
    /// connection is as good as before.
    OtherServer,
    /// Another connection may succeed, even to the same server.
    OtherConnection,
}

/// A question that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    pub(super) hope: Hope,
    pub(super) source: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// There is no connection, so nothing was sent.
    pub(super) fn unsent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { fault: Fault::Unavailable, hope: Hope::OtherConnection, source: source.into() }
    }

    /// No host accepts us, so nothing was sent.
    pub(super) fn unconnected(
        fault: Fault,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Failure {
        // Every host was tried.
        Failure { fault, hope: Hope::None, source: source.into() }
    }

    /// No answer came in time.
    pub(super) fn late(kind: Kind, after: Duration) -> Failure {
        let source = format!("no answer within {after:?}").into();
        Failure { fault: unknown(kind), hope: Hope::OtherConnection, source }
    }

    /// The connection broke, or the answer makes no sense.
    pub(super) fn broken(kind: Kind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { fault: unknown(kind), hope: Hope::OtherConnection, source: source.into() }
    }

    /// The server refused the question.
    pub(super) fn refused(kind: Kind, refusal: Refusal) -> Failure {
        let fault = match refusal.kind {
            Refused::Question => Fault::Permanent,
            Refused::Failed => Fault::Unavailable,
            Refused::Permission => Fault::Denied,
            Refused::Indeterminate | Refused::TooLarge | Refused::Other => unknown(kind),
        };
        let hope = match refusal.kind {
            // Every server knows the same names.
            Refused::Failed if refusal.trouble().is_some() => Hope::None,
            Refused::Failed | Refused::Indeterminate => Hope::OtherServer,
            Refused::Question | Refused::Permission | Refused::TooLarge | Refused::Other => {
                Hope::None
            }
        };
        Failure { fault, hope, source: refusal.into() }
    }

    /// A feed left changes out, because the server could not keep up. Another feed may succeed.
    pub(super) fn skipped(says: &str) -> Failure {
        Failure::told(Fault::Unavailable, says.chars().take(200).collect::<String>())
    }

    /// A failure that we report ourselves. No other attempt helps.
    pub(super) fn told(fault: Fault, says: impl Into<String>) -> Failure {
        Failure { fault, hope: Hope::None, source: says.into().into() }
    }

    /// The server's refusal, if it answered at all.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.source.downcast_ref()
    }

    /// The problem with a name in the question.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.refusal().and_then(Refusal::trouble)
    }

    /// Returns true if a smaller question may succeed.
    pub(super) fn is_too_large(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.kind == Refused::TooLarge)
    }

    /// The handshake failed.
    pub(super) fn unwelcome(refused: handshake::Refused) -> Failure {
        let fault = match refused {
            handshake::Refused::Io(_) => Fault::Unavailable,
            handshake::Refused::Login(_) | handshake::Refused::Distrust(_) => Fault::Denied,
            handshake::Refused::Stranger(_) => Fault::Permanent,
        };
        Failure { fault, hope: Hope::OtherServer, source: refused.into() }
    }
}

/// The fault if it is unknown whether the question took effect. A read has no effect.
fn unknown(kind: Kind) -> Fault {
    match kind {
        Kind::Read => Fault::Unavailable,
        Kind::Write => Fault::Indeterminate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: Kind, refused: Refused) -> Fault {
        Failure::refused(kind, Refusal { kind: refused, message: String::new() }).fault
    }

    #[test]
    fn a_write_is_in_doubt_unless_the_server_refused_it() {
        for (refused, write, read) in [
            (Refused::Failed, Fault::Unavailable, Fault::Unavailable),
            (Refused::Indeterminate, Fault::Indeterminate, Fault::Unavailable),
            (Refused::Other, Fault::Indeterminate, Fault::Unavailable),
            (Refused::TooLarge, Fault::Indeterminate, Fault::Unavailable),
            (Refused::Permission, Fault::Denied, Fault::Denied),
            (Refused::Question, Fault::Permanent, Fault::Permanent),
        ] {
            assert_eq!(fault(Kind::Write, refused), write, "{refused:?}");
            assert_eq!(fault(Kind::Read, refused), read, "{refused:?}");
        }
        assert_eq!(Failure::late(Kind::Read, Duration::ZERO).fault, Fault::Unavailable);
        assert_eq!(Failure::late(Kind::Write, Duration::ZERO).fault, Fault::Indeterminate);
        assert_eq!(Failure::broken(Kind::Write, "reset").fault, Fault::Indeterminate);
        assert_eq!(Failure::unsent("refused").fault, Fault::Unavailable);
    }

    #[test]
    fn another_server_is_hoped_for_only_where_it_could_know_better() {
        for (says, trouble, hope) in [
            ("Table `d.t` does not exist.", Some(Trouble::Missing), Hope::None),
            ("Database `d` does not exist.", Some(Trouble::Missing), Hope::None),
            ("Table `d.t` already exists.", Some(Trouble::Exists), Hope::None),
            (
                "Table `d.t` is ambiguous; there are multiple tables with that name.",
                Some(Trouble::Ambiguous),
                Hope::None,
            ),
            ("Cannot perform write: primary replica not available", None, Hope::OtherServer),
        ] {
            let refusal = Refusal { kind: Refused::Failed, message: says.to_owned() };
            let failure = Failure::refused(Kind::Write, refusal);
            assert_eq!((failure.trouble(), failure.hope), (trouble, hope), "{says}");
        }
    }
}
