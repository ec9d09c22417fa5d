//! The journal of a directory: one sync of one file makes many writes lasting.
//!
//! A lasting write on its own costs a file, two names, and a sync of both the file and the
//! directory. If documents are written by the hundred, the directory gets a file `.journal`. The
//! new contents are appended to it in one record and synced. Only after that the documents are
//! replaced, without any sync, as renewals are. So no process reads content that would not survive
//! a power cut. Within a boot the documents alone are the truth. The journal is read by the first
//! process that opens the directory after a reboot, to put the documents back.
//!
//! # Which content is lasting
//! A document's newest entry in the journal is lasting. If there is none, it is the copy
//! `.NAME.kept`, which lasting writes without a journal leave. For this to hold, once a directory
//! has a journal, every lasting write and every deletion there goes through it, under the
//! directory's lock, and kept copies are no longer written.
//!
//! # A write that got stuck
//! A process may die, or a call to the disk may fail, between any two steps. The rule is: *a write
//! that no document shows never takes effect*, neither in this boot nor after a power cut, once any
//! process has locked the directory again. The cursor at the top of the journal says how far the
//! last record got. It needs no sync, because it is only for processes of the same boot. A process
//! that locks the directory, even just to renew, first settles the state it finds:
//! - *writing*: the record may be at the tail, whole or in part, and may be on the disk. No
//!   document shows it yet, so it is erased there, with a sync. (No record is appended after it: if
//!   its own sync failed, the kernel may have dropped it, and every later record would be out of
//!   reach.)
//! - *applying*: the record is on the disk, and some documents show it. It stays. Another record
//!   follows, which undoes it for the documents that do not show it.
//!
//! The process that had the failure also settles at once. If that succeeds, the write was refused
//! and had no effect. If not, the outcome is indeterminate, and reads of that document by this
//! process settle first, or fail: so if a read shows the old content, that stays right for ever.
//! (If a process died, it is unknown whether it wrote. Until the directory is locked again, a power
//! cut may still make its write take effect, as if it had come just before.)
//!
//! # After a power cut
//! All acknowledged records are whole. One more record may follow them: whole (its failure was
//! never reported) or torn, which its checksum shows. Records before the tail that the disk itself
//! remembers were synced. If one of them is not whole, the disk lost it. Then the directory is
//! refused, because it would otherwise go back to older tokens.
//!
//! # Bounds
//! The journal is filled with zeros when it is made, so that a sync need not write its size as
//! well. When it is full, only the newest entries are written to another journal, which takes its
//! place and is at least twice as large as these entries. Deletions need not be carried over: by
//! then the directory was synced without the document and its kept copy.

mod compact;
mod contents;
mod format;

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::{Errno, pread, pwrite};

pub(super) use self::contents::{Contents, Known, Lasting};
use self::format::{CURSOR_AT, Cursor, Entry, FIRST, HEAD_BYTES, State, TOP_BYTES};
pub(super) use self::format::{Change, DAMAGED, Record};
use super::disk::{fdatasync, fsync};
use super::document;
use super::path::JOURNAL;
use super::spare::Failure;
use super::step::step;
use crate::store::Fault;

/// The largest journal, so that a damaged one does not take all memory.
const MOST_BYTES: u64 = 1024 * 1024 * 1024;

/// Returns true if a directory seems to have a journal. It need not be locked.
pub(super) fn exists(directory: &OwnedFd) -> bool {
    statat(directory, JOURNAL, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// The journal of a directory that is locked.
#[derive(Debug)]
pub(super) struct Journal {
    file: OwnedFd,
    /// A random number for each file: a record of one journal is not valid in another.
    salt: u64,
    size: u64,
    cursor: Cursor,
}

impl Journal {
    /// Opens the journal as it is; `None` when the directory has none.
    pub(super) fn open(directory: &OwnedFd) -> Result<Option<Journal>, Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(directory, JOURNAL, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let found = fstat(&file)?;
        let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_file || !(FIRST..=MOST_BYTES).contains(&size) {
            return Err(DAMAGED);
        }
        let mut top = [0; TOP_BYTES];
        read_at(&file, &mut top, 0)?;
        let (salt, cursor) = format::read_top(&top, size).ok_or(DAMAGED)?;
        Ok(Some(Journal { file, salt, size, cursor }))
    }

    /// Makes the journal agree with the documents, after any failure of the last writer.
    pub(super) fn settle(&mut self, directory: &OwnedFd) -> Result<(), Errno> {
        match self.cursor.state {
            State::Idle => Ok(()),
            State::Fresh => {
                fsync(directory)?;
                self.note(State::Idle, self.cursor.tail)
            }
            State::Writing => self.erase(),
            State::Applying { from } => self.undo(directory, from),
        }
    }

    /// Returns true if there is room for a record and for the record that may have to undo it.
    pub(super) fn fits(&self, record: &Record) -> bool {
        self.cursor.tail + record.room() <= self.size
    }

    /// Brings a record to the disk.
    ///
    /// From then on it is being applied, until it is [finished](Journal::finish) or
    /// [settled](Journal::settle).
    pub(super) fn append(&mut self, record: &mut Record) -> Result<(), Failure> {
        debug_assert!(self.fits(record), "room was made");
        debug_assert_eq!(self.cursor.state, State::Idle, "what came before was settled");
        let from = self.cursor.tail;
        let bytes = record.seal(self.salt, from);
        self.note(State::Writing, from).map_err(Failure::Untouched)?;
        let lasts = write_at(&self.file, bytes, from)
            .and_then(|()| fdatasync(&self.file))
            .and_then(|()| self.note(State::Applying { from }, from + record.length()));
        lasts.map_err(|errno| match self.erase() {
            Ok(()) => Failure::Untouched(errno),
            Err(_) => Failure::Unsure(errno),
        })
    }

    /// Notes that every document shows the last record.
    pub(super) fn finish(&mut self) {
        if let Err(errno) = self.note(State::Idle, self.cursor.tail) {
            // The next process compares once more, with the same result.
            tracing::debug!(%errno, "a journal does not say that its last record is done");
        }
    }

    /// Erases any record at the tail. No document shows it.
    fn erase(&mut self) -> Result<(), Errno> {
        let tail = self.cursor.tail;
        let head = HEAD_BYTES.min(usize::try_from(self.size - tail).unwrap_or(HEAD_BYTES));
        write_at(&self.file, &[0; HEAD_BYTES][..head], tail)?;
        fdatasync(&self.file)?;
        // If this fails, the record is erased once more.
        let _ = self.note(State::Idle, tail);
        Ok(())
    }

    /// Undoes the last record for the documents that do not show it.
    fn undo(&mut self, directory: &OwnedFd, from: u64) -> Result<(), Errno> {
        let Some((entries, end)) = self.record_at(from)? else { return Err(DAMAGED) };
        if end != self.cursor.tail {
            return Err(DAMAGED);
        }
        let mut undoing = Record::new();
        for entry in format::entries(&entries) {
            let entry = entry?;
            if !is_shown(directory, &entry)? {
                let added = undoing.add(entry.name, Change::Undone);
                debug_assert!(added, "it is shorter than the record itself");
            }
        }
        let mut tail = end;
        if !undoing.is_empty() {
            if tail + undoing.length() > self.size {
                return Err(DAMAGED);
            }
            tracing::info!("lasting writes that got stuck in a journal are undone");
            write_at(&self.file, undoing.seal(self.salt, tail), tail)?;
            fdatasync(&self.file)?;
            tail += undoing.length();
        }
        self.note(State::Idle, tail)
    }

    /// Notes the current state for the processes of this boot.
    fn note(&mut self, state: State, tail: u64) -> Result<(), Errno> {
        let cursor = Cursor { tail, state };
        write_at(&self.file, &cursor.bytes(), CURSOR_AT)?;
        self.cursor = cursor;
        Ok(())
    }

    /// The entries of the record at this place, and its end.
    ///
    /// `None` when there is no whole record.
    fn record_at(&self, at: u64) -> Result<Option<(Vec<u8>, u64)>, Errno> {
        let begin = at + HEAD_BYTES as u64;
        if begin > self.size {
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        read_at(&self.file, &mut head, at)?;
        let Some((length, checksum)) = format::read_head(&head) else { return Ok(None) };
        let end = begin + length as u64;
        if end > self.size {
            return Ok(None);
        }
        let mut entries = vec![0; length];
        read_at(&self.file, &mut entries, begin)?;
        let whole = format::checksum(self.salt, at, &entries) == checksum;
        Ok(whole.then_some((entries, end)))
    }

    /// Reads a document's content from the journal.
    pub(super) fn body(&self, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut body = vec![0; length];
        read_at(&self.file, &mut body, at)?;
        Ok(body)
    }
}

/// Returns true if the document has the state that this entry describes.
fn is_shown(directory: &OwnedFd, entry: &Entry<'_>) -> Result<bool, Errno> {
    let shown = match document::read_locked(directory, entry.name) {
        Ok(shown) => shown,
        // The file was replaced by hand.
        Err(error) if error.fault == Fault::Permanent => return Ok(false),
        Err(_) => return Err(Errno::IO),
    };
    Ok(match (entry.change, shown) {
        (Change::Written(body), Some(shown)) => body == &shown.body[..],
        (Change::Deleted, None) => true,
        (Change::Written(_) | Change::Deleted | Change::Undone, _) => false,
    })
}

fn read_at(file: &OwnedFd, bytes: &mut [u8], at: u64) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < bytes.len() {
        match pread(file, &mut bytes[filled..], at + filled as u64) {
            // The file was cut short.
            Ok(0) => return Err(DAMAGED),
            Ok(more) => filled += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn write_at(file: &OwnedFd, bytes: &[u8], at: u64) -> Result<(), Errno> {
    let mut written = 0;
    while written < bytes.len() {
        step()?;
        match pwrite(file, &bytes[written..], at + written as u64) {
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
