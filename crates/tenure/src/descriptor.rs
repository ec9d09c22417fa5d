//! Descriptors that tokio watches: a timer, a stream of file changes.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime that is current.
///
/// tokio deprecated the safe constructor because a *type* may lie about its descriptor; an
/// `OwnedFd` cannot. The other constructor would be this workspace's only unsafe code.
#[expect(deprecated, reason = "sound for OwnedFd, see above")]
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}
