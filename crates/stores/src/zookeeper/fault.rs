//! Maps errors of ZooKeeper, and of the connection, to faults of the request.

use super::client::Error;
use tenure::store::{Fault, StoreError};

/// Tells requests that change something from reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// The error of a request that failed.
pub(super) fn failed(error: Error, kind: Kind, doing: impl Into<String>) -> StoreError {
    StoreError::new(fault(&error, kind), "zookeeper", doing, error)
}

/// The error of a request that was not answered in time.
pub(super) fn late(kind: Kind, doing: impl Into<String>) -> StoreError {
    StoreError::new(unknown(kind), "zookeeper", doing, "no answer within the request's time")
}

/// The error of a request that was never sent.
pub(super) fn unsent(doing: impl Into<String>, why: impl Into<String>) -> StoreError {
    StoreError::new(Fault::Unavailable, "zookeeper", doing, why.into())
}

fn fault(error: &Error, kind: Kind) -> Fault {
    match error {
        Error::Denied => Fault::Denied,
        Error::TooLong { .. } => Fault::Permanent,
        // The server refused and did nothing, or the request was never sent.
        Error::NoNode
        | Error::NodeExists
        | Error::NotEmpty
        | Error::BadVersion
        | Error::Refused(_)
        | Error::Unproven
        | Error::Unsent
        | Error::Unreachable(_)
        | Error::Closed => Fault::Unavailable,
        Error::Lost | Error::Malformed => unknown(kind),
    }
}

/// The fault of a request with an unknown outcome: a read has no effect to be in doubt about.
fn unknown(kind: Kind) -> Fault {
    match kind {
        Kind::Read => Fault::Unavailable,
        Kind::Write => Fault::Indeterminate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_in_doubt_unless_the_server_refused_it() {
        for (error, expected) in [
            (Error::Lost, Fault::Indeterminate),
            (Error::Malformed, Fault::Indeterminate),
            (Error::Unsent, Fault::Unavailable),
            (Error::Denied, Fault::Denied),
            (Error::Refused("Throttled".into()), Fault::Unavailable),
            (Error::TooLong { bytes: 2_000_000 }, Fault::Permanent),
        ] {
            assert_eq!(fault(&error, Kind::Write), expected, "{error}");
        }
        assert_eq!(fault(&Error::Lost, Kind::Read), Fault::Unavailable);
    }
}
