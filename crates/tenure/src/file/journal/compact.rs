//! A new journal, which takes the place of a full one.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::super::disk::fsync;
use super::super::path::{self, JOURNAL};
use super::super::step::step;
use super::super::temporary::Temporary;
use super::format::{self, Change, Cursor, FIRST, Record, State};
use super::{Contents, DAMAGED, Journal, Lasting, MOST_BYTES, write_at};

/// The size of a directory's first journal; later ones are larger.
const FIRST_BYTES: u64 = 256 * 1024;
/// The size to which journals grow, unless the documents need more.
const COMMON_BYTES: u64 = 8 * 1024 * 1024;
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

impl Journal {
    /// Gives a directory its first journal, with room for a record.
    pub(in crate::file) fn create(directory: &OwnedFd, record: &Record) -> Result<Journal, Errno> {
        place(directory, &mut Vec::new(), FIRST_BYTES, record.room())
    }

    /// Replaces a full journal by one with the lasting contents only, and room for a record.
    pub(in crate::file) fn compact(
        &self,
        directory: &OwnedFd,
        contents: &Contents,
        record: &Record,
    ) -> Result<Journal, Errno> {
        let mut lasting = vec![Record::new()];
        for (name, newest) in contents.all() {
            match newest {
                Lasting::Body { at, length } => {
                    let body = self.body(at, length)?;
                    add(&mut lasting, name, Change::Written(&body));
                }
                // As long as the kept copy exists, the journal must say that it does not count.
                Lasting::Deleted if !forget_kept(directory, name) => {
                    add(&mut lasting, name, Change::Deleted);
                }
                Lasting::Deleted => {}
            }
        }
        // Without this, a power cut could bring back a document with a deletion that is not carried
        // over.
        fsync(directory)?;
        let grown = (self.size * 2).min(COMMON_BYTES);
        place(directory, &mut lasting, grown, record.room())
    }
}

fn add(records: &mut Vec<Record>, name: &str, change: Change<'_>) {
    let last = records.last_mut().expect("there is always one");
    if !last.add(name, change) {
        let mut next = Record::new();
        let added = next.add(name, change);
        debug_assert!(added, "an entry has room in an empty record");
        records.push(next);
    }
}

/// Removes a document's kept copy; returns true if it is gone.
fn forget_kept(directory: &OwnedFd, name: &str) -> bool {
    let removed = step().and_then(|()| unlinkat(directory, path::kept(name), AtFlags::empty()));
    matches!(removed, Ok(()) | Err(Errno::NOENT))
}

/// Writes a journal with these records to the disk, and gives it its name.
fn place(
    directory: &OwnedFd,
    records: &mut [Record],
    least: u64,
    room: u64,
) -> Result<Journal, Errno> {
    let lasting: u64 = records.iter().map(Record::length).sum();
    let needed = FIRST + (lasting + room) * 2;
    let size = least.max(needed).next_multiple_of(FIRST);
    if size > MOST_BYTES {
        return Err(Errno::FBIG);
    }
    let salt = rand::random();
    let temporary = Temporary::empty(directory)?;
    let mut tail = FIRST;
    for record in records.iter_mut().filter(|record| !record.is_empty()) {
        write_at(temporary.file(), record.seal(salt, tail), tail)?;
        tail += record.length();
    }
    fill(temporary.file(), tail, size)?;
    let cursor = Cursor { tail, state: State::Fresh };
    write_at(temporary.file(), &format::top(salt, cursor), 0)?;
    temporary.sync()?;
    temporary.rename_to(JOURNAL)?;
    let mut journal = Journal::open(directory)?.ok_or(DAMAGED)?;
    journal.settle(directory)?;
    Ok(journal)
}

/// Fills the file with zeros.
///
/// Blocks that were written before are synced without their metadata.
fn fill(file: &OwnedFd, mut from: u64, size: u64) -> Result<(), Errno> {
    while from < size {
        let length = usize::try_from(size - from).unwrap_or(ZEROS.len()).min(ZEROS.len());
        write_at(file, &ZEROS[..length], from)?;
        from += length as u64;
    }
    Ok(())
}
