//! What dead processes left behind.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, fchmod,
    flock, fstat, futimens, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::directory::{FILE_MODE, Root};
use super::path;
use super::presence_directory;
use super::tree::{each_directory, entries};

/// No write takes this long.
const TEMPORARY_AGE: Duration = Duration::from_secs(60 * 60);
/// Longer than anybody waits for a dead leader.
const PRESENCE_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes stale files. Failing to do so harms nobody, so it is only logged.
pub(super) fn sweep(root: &Root) {
    if let Err(errno) = sweep_temporaries(root) {
        tracing::debug!(%errno, "sweeping temporary files");
    }
    if let Err(errno) = sweep_presence(root) {
        tracing::debug!(%errno, "sweeping presence files");
    }
}

fn sweep_temporaries(root: &Root) -> Result<(), Errno> {
    each_directory(root, &mut |_, directory, entries| {
        for entry in entries.iter().filter(|entry| path::is_temporary(&entry.name)) {
            let found = statat(directory, &entry.name, AtFlags::SYMLINK_NOFOLLOW);
            if found.is_ok_and(|found| older_than(&found, TEMPORARY_AGE)) {
                let _ = unlinkat(directory, &entry.name, AtFlags::empty());
            }
        }
        Ok(())
    })
}

/// In two phases: a leader that died just now must be found by those who follow it.
///
/// A file nobody locks is marked first, by its mode, and removed a day later.
fn sweep_presence(root: &Root) -> Result<(), Errno> {
    let Some(directory) = root.find(&presence_directory())? else { return Ok(()) };
    for entry in entries(&directory)? {
        if entry.kind == FileType::RegularFile && path::is_random(&entry.name) {
            let swept = sweep_one(&directory, &entry.name);
            if let Err(errno) = swept {
                tracing::debug!(name = entry.name, %errno, "sweeping a presence file");
            }
        }
    }
    Ok(())
}

fn sweep_one(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !older_than(&found, PRESENCE_AGE) {
        return Ok(());
    }
    // Read-only and shared: a writer would ring the bell, an exclusive lock would look like life.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        return Ok(());
    }
    let found = fstat(&file)?;
    if Mode::from_raw_mode(found.st_mode) == Mode::RUSR {
        return unlinkat(directory, name, AtFlags::empty());
    }
    if Mode::from_raw_mode(found.st_mode) == FILE_MODE {
        // The time first: if we die between the two, the day begins again and is not cut short.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        futimens(&file, &Timestamps { last_access: now, last_modification: now })?;
        fchmod(&file, Mode::RUSR)?;
    }
    Ok(())
}

fn older_than(found: &Stat, age: Duration) -> bool {
    let modified = UNIX_EPOCH + Duration::from_secs(u64::try_from(found.st_mtime).unwrap_or(0));
    // The file system stamps with the wall clock, so that is what its ages are told by.
    SystemTime::now().duration_since(modified).is_ok_and(|passed| passed > age)
}
