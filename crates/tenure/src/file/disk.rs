//! Syncs to the disk. Tests record them, and lose all other data in a power cut.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::step::step;

/// Brings a file with its metadata to the disk, or the names in a directory.
pub(super) fn fsync(descriptor: impl AsFd) -> Result<(), Errno> {
    step()?;
    rustix::fs::fsync(&descriptor)?;
    #[cfg(test)]
    super::power::synced(descriptor.as_fd());
    Ok(())
}

/// Brings a file's content to the disk.
pub(super) fn fdatasync(descriptor: impl AsFd) -> Result<(), Errno> {
    step()?;
    rustix::fs::fdatasync(&descriptor)?;
    #[cfg(test)]
    super::power::synced(descriptor.as_fd());
    Ok(())
}

/// Brings everything below the store's directory to the disk.
///
/// That includes everything else on its file system.
pub(super) fn syncfs(top: impl AsFd) -> Result<(), Errno> {
    step()?;
    rustix::fs::syncfs(&top)?;
    #[cfg(test)]
    super::power::all_synced(top.as_fd());
    Ok(())
}
