//! What an error of ZooKeeper, or of the way to it, means for the request.

use tenure::{Fault, StoreError};
use zookeeper_client::Error;

/// Whether a request changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// A request that failed.
pub(super) fn failed(error: Error, kind: Kind, doing: impl Into<String>) -> StoreError {
    StoreError::new(fault(&error, kind), "zookeeper", doing, error)
}

/// A request that was not answered in time.
pub(super) fn late(kind: Kind, doing: impl Into<String>) -> StoreError {
    StoreError::new(unknown(kind), "zookeeper", doing, "no answer within the request's time")
}

/// A request that was never sent.
pub(super) fn unsent(doing: impl Into<String>, why: impl Into<String>) -> StoreError {
    StoreError::new(Fault::Unavailable, "zookeeper", doing, why.into())
}

// The client's errors may grow; whatever is new is in doubt.
#[allow(clippy::wildcard_enum_match_arm)]
fn fault(error: &Error, kind: Kind) -> Fault {
    match error {
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => Fault::Denied,
        Error::BadArguments(_) | Error::Unimplemented | Error::MarshallingError => Fault::Permanent,
        // The server said no, and did nothing.
        Error::NoNode
        | Error::NodeExists
        | Error::NotEmpty
        | Error::BadVersion
        | Error::NoChildrenForEphemerals
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::Throttled => Fault::Unavailable,
        // Nobody was reached.
        Error::NoHosts => Fault::Unavailable,
        _ => unknown(kind),
    }
}

/// A read has no effect to be in doubt about.
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
            (Error::ConnectionLoss, Fault::Indeterminate),
            (Error::SessionExpired, Fault::Indeterminate),
            (Error::Timeout, Fault::Indeterminate),
            (Error::UnexpectedError("no response".into()), Fault::Indeterminate),
            (Error::NoAuth, Fault::Denied),
            (Error::NotReadOnly, Fault::Unavailable),
            (Error::BadArguments(&"a path"), Fault::Permanent),
        ] {
            assert_eq!(fault(&error, Kind::Write), expected, "{error}");
        }
        assert_eq!(fault(&Error::ConnectionLoss, Kind::Read), Fault::Unavailable);
    }
}
