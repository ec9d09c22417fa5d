//! Why something that was asked was not done, or may not have been.

use super::super::wire::{Code, Malformed};

/// Why something that was asked was not done, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection; nothing was sent.
    #[error("there is no connection to a server")]
    Unsent,
    /// No server could be reached, for this reason; nothing was sent.
    #[error("no server accepts a connection: {0}")]
    Unreachable(String),
    /// The connection ended before the answer came; it may have been done.
    #[error("the connection ended before the answer came")]
    Lost,
    /// The session is closed for good.
    #[error("the session is closed")]
    Closed,
    /// There is no such node.
    #[error("there is no such node")]
    NoNode,
    /// There is such a node already.
    #[error("there is such a node already")]
    NodeExists,
    /// The node is at another version.
    #[error("the node is at another version")]
    BadVersion,
    /// The node has children.
    #[error("the node has children")]
    NotEmpty,
    /// It is not permitted to us.
    #[error("it is not permitted")]
    Denied,
    /// The server refused otherwise, with this number of ZooKeeper's.
    #[error("the server refused ({0})")]
    Refused(String),
    /// It was read, but no quorum took the write that had to go before it: the server may be cut
    /// off.
    #[error("the server refused the write that has to go before this read; it may be cut off")]
    Unproven,
    /// It is longer than ZooKeeper takes; nothing was sent.
    #[error("it has {bytes} bytes; ZooKeeper takes a million at most")]
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// What the server sent is not what its protocol says.
    #[error("the server's answer is malformed")]
    Malformed,
}

impl From<Code> for Error {
    fn from(code: Code) -> Error {
        match code {
            Code::NoNode => Error::NoNode,
            Code::NodeExists => Error::NodeExists,
            Code::BadVersion => Error::BadVersion,
            Code::NotEmpty => Error::NotEmpty,
            Code::NoAuth | Code::AuthFailed | Code::InvalidAcl => Error::Denied,
            Code::SessionExpired | Code::SessionMoved => Error::Lost,
            other @ (Code::Inconsistent
            | Code::Unimplemented
            | Code::BadArguments
            | Code::NoChildrenForEphemerals
            | Code::NotReadOnly
            | Code::QuotaExceeded
            | Code::Throttled
            | Code::Other(_)) => Error::Refused(format!("{other:?}")),
        }
    }
}

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Error {
        Error::Malformed
    }
}
