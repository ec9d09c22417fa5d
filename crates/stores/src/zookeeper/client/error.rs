//! The errors of requests.

use super::super::wire::{Code, Malformed};

/// The reason why a request was not carried out, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection. The request was not sent.
    #[error("there is no connection to a server")]
    Unsent,
    /// No server could be reached, for this reason. The request was not sent.
    #[error("no server accepts a connection: {0}")]
    Unreachable(String),
    /// The connection ended before the answer came. The request may have been carried out.
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
    /// We have no permission.
    #[error("it is not permitted")]
    Denied,
    /// The server refused for another reason: the name or number of ZooKeeper's error code.
    #[error("the server refused ({0})")]
    Refused(String),
    /// The read was answered, but no quorum took the write that had to go before it. The server may
    /// be cut off.
    #[error("the server refused the write that has to go before this read; it may be cut off")]
    Unproven,
    /// The request has more data than ZooKeeper takes. It was not sent.
    #[error("it has {bytes} bytes; ZooKeeper takes a million at most")]
    TooLong {
        /// The number of bytes.
        bytes: usize,
    },
    /// The server's answer does not follow the protocol.
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
