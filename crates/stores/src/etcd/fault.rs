//! Maps errors of etcd, and of the connection, to faults of the request.

use std::error::Error;
use std::time::Duration;

use tenure::store::Fault;
use tonic::{Code, ConnectError, Status};

/// Tells requests that change something from reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// Another server may do better.
    pub(super) elsewhere: bool,
    /// The token, or its absence, was refused. The request had no effect.
    pub(super) token: bool,
    /// The server or the network was silent, so the connection may be dead.
    pub(super) silent: bool,
    /// The trouble with the request's lease. The request had no effect.
    pub(super) lease: Option<LeaseTrouble>,
    /// The limit of the server that the request exceeded. The request had no effect.
    pub(super) excess: Option<Excess>,
    pub(super) source: Box<dyn Error + Send + Sync>,
}

/// The reason why a request about a lease was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseTrouble {
    /// There is no such lease.
    Missing,
    /// There already is a lease with that number.
    Exists,
}

/// A limit of the server that a request exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// Its transaction has more parts than the server's operator allows.
    Parts,
    /// It is larger than the server's operator allows.
    Bytes,
    /// There is no space left for its data. A deletion needs none.
    Storage,
}

impl Excess {
    fn of(message: &str) -> Option<Excess> {
        match message {
            "etcdserver: too many operations in txn request" => Some(Excess::Parts),
            "etcdserver: request is too large" => Some(Excess::Bytes),
            "etcdserver: mvcc: database space exceeded" => Some(Excess::Storage),
            // It is even larger, and the server did not even read it.
            _ if message.starts_with("grpc: received message larger than max") => {
                Some(Excess::Bytes)
            }
            _ => None,
        }
    }
}

/// An error, with the name of the server where it happened.
#[derive(Debug)]
struct At {
    host: String,
    source: Box<dyn Error + Send + Sync>,
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.host, self.source)
    }
}

impl Error for At {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// Answers of a server that had done nothing.
const REFUSED: [&str; 4] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: mvcc: database space exceeded",
    "etcdserver: rpc not supported for learner",
];

/// Answers that a new token helps with.
const TOKEN: [&str; 3] = [
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
    "etcdserver: user name is empty",
];

impl Failure {
    /// No answer came in time.
    pub(super) fn late(kind: Kind, after: Duration) -> Failure {
        let source = format!("no answer within {after:?}").into();
        let fault = unknown(kind);
        Failure { elsewhere: true, silent: true, ..Failure::plain(fault, source) }
    }

    /// The request was never sent: there was too much else to send.
    pub(super) fn unsent(after: Duration) -> Failure {
        let source = format!("it was not sent within {after:?}").into();
        Failure::plain(Fault::Unavailable, source)
    }

    /// The answer does not fit the request.
    pub(super) fn garbled(kind: Kind) -> Failure {
        let source = "the answer has other parts than the question".into();
        Failure::plain(unknown(kind), source)
    }

    fn plain(fault: Fault, source: Box<dyn Error + Send + Sync>) -> Failure {
        let (lease, excess) = (None, None);
        Failure { fault, elsewhere: false, token: false, silent: false, lease, excess, source }
    }

    /// Adds the server's name, if the server or the connection failed.
    pub(super) fn at(self, host: Option<&str>) -> Failure {
        match host {
            Some(host) if self.elsewhere || self.silent => {
                let at = At { host: host.to_owned(), source: self.source };
                Failure { source: Box::new(at), ..self }
            }
            Some(_) | None => self,
        }
    }

    /// A copy for another caller of the same request.
    pub(super) fn copy(&self) -> Failure {
        Failure { source: self.source.to_string().into(), ..*self }
    }

    /// The failure of a request that was refused, or that broke with its connection.
    pub(super) fn of(status: Status, kind: Kind) -> Failure {
        let message = status.message();
        let token = TOKEN.contains(&message);
        let connected = !chain(&status).any(|error| error.is::<ConnectError>());
        let lease = match message {
            "etcdserver: requested lease not found" => Some(LeaseTrouble::Missing),
            "etcdserver: lease already exists" => Some(LeaseTrouble::Exists),
            _ => None,
        };
        let excess = Excess::of(message);
        let fault = match status.code() {
            _ if token => Fault::Denied,
            // The server looks for the lease before it does anything.
            _ if lease.is_some() => Fault::Unavailable,
            _ if !connected || REFUSED.contains(&message) => Fault::Unavailable,
            _ if excess.is_some() => Fault::Permanent,
            Code::PermissionDenied | Code::Unauthenticated => Fault::Denied,
            Code::InvalidArgument if message.contains("authentication failed") => Fault::Denied,
            Code::InvalidArgument | Code::Unimplemented => Fault::Permanent,
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::NotFound
            | Code::AlreadyExists
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => unknown(kind),
        };
        let elsewhere =
            matches!(fault, Fault::Unavailable | Fault::Indeterminate) && lease.is_none();
        let source = told(&status).into();
        Failure { fault, elsewhere, token, silent: false, lease, excess, source }
    }
}

/// The fault of a request with an unknown outcome: a read has no effect to be in doubt about.
fn unknown(kind: Kind) -> Fault {
    match kind {
        Kind::Read => Fault::Unavailable,
        Kind::Write => Fault::Indeterminate,
    }
}

/// The server's message, and the root cause if it says more.
fn told(status: &Status) -> String {
    let said = match status.message() {
        "" => status.code().description(),
        message => message,
    };
    match chain(status).last().map(ToString::to_string) {
        Some(root) if !root.is_empty() && !said.contains(&root) => format!("{said}: {root}"),
        _ => said.to_owned(),
    }
}

fn chain<'a>(status: &'a Status) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(status.source(), |error: &&'a (dyn Error + 'static)| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: Code, message: &str, kind: Kind) -> Fault {
        Failure::of(Status::new(code, message), kind).fault
    }

    #[test]
    fn a_write_is_in_doubt_unless_the_server_refused_it() {
        for (code, message, write) in [
            (Code::Unavailable, "etcdserver: no leader", Fault::Unavailable),
            (Code::ResourceExhausted, "etcdserver: too many requests", Fault::Unavailable),
            (Code::Unavailable, "etcdserver: request timed out", Fault::Indeterminate),
            (Code::Unavailable, "etcdserver: leader changed", Fault::Indeterminate),
            (Code::Unavailable, "etcdserver: server stopped", Fault::Indeterminate),
            (Code::Unavailable, "error reading a body from connection", Fault::Indeterminate),
            (Code::Cancelled, "h2 protocol error", Fault::Indeterminate),
            (Code::Unknown, "raft: stopped", Fault::Indeterminate),
            (Code::PermissionDenied, "etcdserver: permission denied", Fault::Denied),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Fault::Denied),
            (Code::InvalidArgument, "etcdserver: request is too large", Fault::Permanent),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (9 vs. 8)",
                Fault::Permanent,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Fault::Unavailable,
            ),
            (Code::NotFound, "etcdserver: requested lease not found", Fault::Unavailable),
        ] {
            assert_eq!(fault(code, message, Kind::Write), write, "{message}");
        }
    }

    #[test]
    fn a_read_that_fails_has_no_effect() {
        for code in [Code::Unavailable, Code::Cancelled, Code::DeadlineExceeded, Code::Unknown] {
            assert_eq!(fault(code, "", Kind::Read), Fault::Unavailable);
        }
        assert_eq!(Failure::late(Kind::Read, Duration::ZERO).fault, Fault::Unavailable);
        assert_eq!(Failure::late(Kind::Write, Duration::ZERO).fault, Fault::Indeterminate);
    }
}
