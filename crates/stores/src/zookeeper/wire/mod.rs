//! ZooKeeper's wire format: frames of jute records. No I/O; bytes from a server are untrusted.
//!
//! It has only the requests that elections and documents need. The session's rules are in
//! [`super::client`].

mod jute;
mod reply;
mod request;

pub(super) use jute::{Malformed, Reader};
pub use reply::Stat;
pub(super) use reply::{
    Accepted, Code, Event, EventKind, Head, accepted, children, created, data, many_data, names,
    results, stat,
};
pub(super) use reply::{Found, Results};
pub use request::{Acl, Lifetime};
pub(super) use request::{Request, authenticate, connect};

/// The number of a notification, which answers no request.
pub(super) const NOTIFICATION: i32 = -1;
/// The number of an authentication request, and of its answer.
pub(super) const AUTHENTICATION: i32 = -4;
/// The maximum length of a frame. Longer ones are refused before they are read.
pub(super) const LONGEST_FRAME: usize = 16 << 20;
