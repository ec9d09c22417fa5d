//! Renewals without new files: a document and its spare change places.
//!
//! A new file for each renewal is expensive. The file system allocates it, flushes it because it is
//! renamed over another (ext4), and frees the old one. And an ext4 without a journal searches
//! longer and longer for a file that was not freed a moment ago. So a renewal rewrites
//! `.NAME.spare`, the file that held the document before, and exchanges the two names.
//!
//! So a file that was read as the document may be rewritten later. Readers therefore hold a shared
//! lock on the file they read, and check that it *still* is the document once they have the lock. A
//! locked spare is not rewritten. All this happens under the directory's lock, so only readers can
//! interfere.

use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, flock, fstat, ftruncate,
    openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::directory::FILE_MODE;
use super::path;
use super::step::step;

/// The result of a renewal.
#[derive(Debug)]
pub(super) enum Renewal {
    Done,
    /// This file system cannot exchange names; nothing changed.
    Unsupported,
}

/// The reason why a renewal failed.
#[derive(Debug)]
pub(super) enum Failure {
    Untouched(Errno),
    Unsure(Errno),
}

impl Failure {
    pub(super) fn errno(self) -> Errno {
        match self {
            Failure::Untouched(errno) | Failure::Unsure(errno) => errno,
        }
    }
}

/// Replaces a document that exists. Its directory must be locked.
pub(super) fn renew(directory: &OwnedFd, name: &str, body: &[u8]) -> Result<Renewal, Failure> {
    let spare = path::spare(name);
    let (file, length) = prepare(directory, &spare).map_err(Failure::Untouched)?;
    fill(&file, length, body).map_err(Failure::Untouched)?;
    // Unlock it before it becomes the document: a process that is stopped here must not keep
    // readers out.
    let _ = flock(&file, FlockOperation::Unlock);
    step().map_err(Failure::Unsure)?;
    match renameat_with(directory, &spare, directory, name, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(Renewal::Done),
        Err(Errno::INVAL | Errno::NOSYS) => {
            let _ = unlinkat(directory, &spare, AtFlags::empty());
            Ok(Renewal::Unsupported)
        }
        Err(errno) => Err(Failure::Unsure(errno)),
    }
}

/// Opens the spare, or a new one if it cannot be rewritten; also returns its length.
fn prepare(directory: &OwnedFd, spare: &str) -> Result<(OwnedFd, usize), Errno> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(directory, spare, flags, Mode::empty()) {
        Ok(file) => {
            let found = fstat(&file)?;
            if is_ours_alone(&file, &found)? {
                return Ok((file, usize::try_from(found.st_size).unwrap_or(usize::MAX)));
            }
            step()?;
            unlinkat(directory, spare, AtFlags::empty())?;
        }
        Err(Errno::LOOP | Errno::NXIO | Errno::ACCESS) => {
            step()?;
            unlinkat(directory, spare, AtFlags::empty())?;
        }
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    step()?;
    let file = openat(directory, spare, flags | OFlags::CREATE | OFlags::EXCL, FILE_MODE)?;
    Ok((file, 0))
}

/// Returns true if the file has no readers and is not a kept copy as well.
fn is_ours_alone(file: &OwnedFd, found: &Stat) -> Result<bool, Errno> {
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 1 {
        return Ok(false);
    }
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn fill(file: &OwnedFd, length: usize, body: &[u8]) -> Result<(), Errno> {
    let mut rest = body;
    while !rest.is_empty() {
        step()?;
        match rustix::io::write(file, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    if length <= body.len() {
        return Ok(());
    }
    step()?;
    ftruncate(file, body.len() as u64)
}
