//! Removes the files of dead processes.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, chmodat,
    flock, fstat, openat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::{presence_directory, started};
use crate::file::directory::{FILE_MODE, Root};
use crate::file::path;
use crate::file::sweep::older_than;
use crate::file::tree::entries;

/// The mode of a dead process's file.
const DEAD_MODE: Mode = Mode::RUSR;
/// The age at which an unlocked presence file is examined.
const PRESENCE_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the file of a dead process is kept. By then its followers have proven its death.
const DEAD_AGE: Duration = Duration::from_secs(60 * 60);

/// Removes stale files. A failure does no harm, so it is only logged.
pub(super) fn sweep(root: &Root) {
    if let Err(errno) = sweep_presence(root) {
        tracing::debug!(%errno, "sweeping presence files");
    }
}

/// Sweeps in two phases: marks a file as dead, and removes it later.
///
/// The followers of a leader that died just now need its file.
///
/// An unlocked file is first marked as dead by its mode, and removed an hour later at the earliest.
fn sweep_presence(root: &Root) -> Result<(), Errno> {
    let Some(directory) = root.find(&presence_directory())? else { return Ok(()) };
    for entry in entries(&directory)? {
        if entry.kind == FileType::RegularFile && path::is_random(&entry.name) {
            let swept = sweep_one(&directory, &entry.name);
            if let Err(errno) = swept {
                tracing::debug!(name = entry.name, %errno, "sweeping a presence file");
            }
        }
        if let Some(work) = path::work_of_start(&entry.name)
            && started::is_stray(&directory, work)
        {
            started::forget(&directory, work);
        }
    }
    Ok(())
}

fn sweep_one(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let marked = Mode::from_raw_mode(found.st_mode) == DEAD_MODE;
    if !older_than(&found, if marked { DEAD_AGE } else { PRESENCE_AGE }) {
        return Ok(());
    }
    // Read-only and shared: closing a writer would notify, and an exclusive lock would look
    // like life.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        return Ok(());
    }
    match Mode::from_raw_mode(fstat(&file)?.st_mode) {
        DEAD_MODE => unlinkat(directory, name, AtFlags::empty()),
        FILE_MODE => mark_as_dead(directory, name),
        _ => Ok(()),
    }
}

/// Marks the process of this file as dead, or about to be: its hour begins.
pub(super) fn mark_as_dead(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    // The time first: if we die between the two, the hour begins again and is not cut short.
    utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    // The presence directory is ours alone (0700), so no other user can have put a link in its
    // place.
    chmodat(directory, name, DEAD_MODE, AtFlags::empty())
}
