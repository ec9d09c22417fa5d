//! ZooKeeper's wire: frames of jute records. Pure; what a server sends is untrusted.
//!
//! Only what elections and documents need is here. The session's rules are in [`super::client`].

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

/// The number of a notification, which answers nothing.
pub(super) const NOTIFICATION: i32 = -1;
/// The number of what authenticates, and of its answer.
pub(super) const AUTHENTICATION: i32 = -4;
/// Longer frames are refused before they are read.
pub(super) const LONGEST_FRAME: usize = 16 << 20;
