//! The format of a journal.
//!
//! ```text
//!    0  "tenure journal 1", salt                   never rewritten
//!  512  tail, state, from                          for processes of this boot only, never waited for
//! 4096  records, one after the other:
//!       length, checksum, then `length` bytes of entries: kind, length of name, length of body, name, body
//! ```
//! Numbers are little-endian. The checksum covers the salt and the record's place. So a partly
//! overwritten record, or a record inside a document's content, cannot be taken for another record.

use rustix::io::Errno;

use super::super::path;
use crate::store::MAX_DOCUMENT_BYTES;

/// Where the records begin.
pub(super) const FIRST: u64 = 4096;
/// The size of the top of the journal.
pub(super) const TOP_BYTES: usize = 1024;
pub(super) const CURSOR_AT: u64 = 512;
pub(super) const CURSOR_BYTES: usize = 24;
/// The size of the head before a record's entries.
pub(super) const HEAD_BYTES: usize = 12;
/// The longest record: many documents of common size, or some of the largest.
pub(in crate::file) const MOST_RECORD_BYTES: usize = 4 * 1024 * 1024;
/// The error for a journal with content that we never write.
pub(in crate::file) const DAMAGED: Errno = Errno::BADMSG;

const MAGIC: &[u8; 16] = b"tenure journal 1";
const ENTRY_BYTES: usize = 6;
const WRITTEN: u8 = 1;
const DELETED: u8 = 2;
const UNDONE: u8 = 3;

/// The progress of the journal's last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The journal has its name, but the name may not be on the disk yet.
    Fresh,
    /// Every record agrees with the documents.
    Idle,
    /// A record may be on its way to the tail. No document shows any of it.
    Writing,
    /// The record that begins here is on the disk. Some of its documents may not show it yet.
    Applying { from: u64 },
}

/// The place of the next record, and the progress of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub tail: u64,
    pub state: State,
}

impl Cursor {
    pub(super) fn bytes(self) -> [u8; CURSOR_BYTES] {
        let (state, from) = match self.state {
            State::Fresh => (1, 0),
            State::Idle => (2, 0),
            State::Writing => (3, 0),
            State::Applying { from } => (4, from),
        };
        let mut bytes = [0; CURSOR_BYTES];
        bytes[..8].copy_from_slice(&self.tail.to_le_bytes());
        bytes[8..16].copy_from_slice(&u64::to_le_bytes(state));
        bytes[16..].copy_from_slice(&from.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8], size: u64) -> Option<Cursor> {
        let (tail, from) = (number(bytes, 0)?, number(bytes, 16)?);
        let state = match number(bytes, 8)? {
            1 => State::Fresh,
            2 => State::Idle,
            3 => State::Writing,
            4 if (FIRST..tail).contains(&from) => State::Applying { from },
            _ => return None,
        };
        (FIRST..=size).contains(&tail).then_some(Cursor { tail, state })
    }
}

/// The top of a new journal.
pub(super) fn top(salt: u64, cursor: Cursor) -> [u8; TOP_BYTES] {
    let mut bytes = [0; TOP_BYTES];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..24].copy_from_slice(&salt.to_le_bytes());
    let at = CURSOR_AT as usize;
    bytes[at..at + CURSOR_BYTES].copy_from_slice(&cursor.bytes());
    bytes
}

/// The salt and the cursor at the top of a journal of this size.
pub(super) fn read_top(bytes: &[u8; TOP_BYTES], size: u64) -> Option<(u64, Cursor)> {
    if &bytes[..16] != MAGIC {
        return None;
    }
    Some((number(bytes, 16)?, Cursor::read(&bytes[CURSOR_AT as usize..], size)?))
}

/// A record's change of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum Change<'b> {
    Written(&'b [u8]),
    Deleted,
    /// The previous record's change of this document is undone.
    Undone,
}

/// An entry of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) struct Entry<'b> {
    /// The document's file, such as `a.json`.
    pub name: &'b str,
    pub change: Change<'b>,
    /// Where its body begins in the record's entries.
    pub body_at: usize,
}

/// A record in the making.
#[derive(Debug)]
pub(in crate::file) struct Record {
    bytes: Vec<u8>,
    /// The length of a record that would undo all of this one.
    undoing: usize,
}

impl Record {
    pub(in crate::file) fn new() -> Record {
        Record { bytes: vec![0; HEAD_BYTES], undoing: HEAD_BYTES }
    }

    pub(in crate::file) fn is_empty(&self) -> bool {
        self.bytes.len() == HEAD_BYTES
    }

    /// The number of bytes it takes now.
    pub(super) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The number of bytes that must be free for it, including a record that undoes it.
    pub(super) fn room(&self) -> u64 {
        (self.bytes.len() + self.undoing) as u64
    }

    /// Adds an entry; returns false when it does not fit, and then adds nothing.
    #[must_use]
    pub(in crate::file) fn add(&mut self, name: &str, change: Change<'_>) -> bool {
        let (kind, body): (u8, &[u8]) = match change {
            Change::Written(body) => (WRITTEN, body),
            Change::Deleted => (DELETED, &[]),
            Change::Undone => (UNDONE, &[]),
        };
        let length = ENTRY_BYTES + name.len() + body.len();
        if self.bytes.len() + length > MOST_RECORD_BYTES {
            return false;
        }
        let name_length = u8::try_from(name.len()).expect("a file's name has at most 255 bytes");
        let body_length = u32::try_from(body.len()).expect("the size of documents was checked");
        self.bytes.push(kind);
        self.bytes.push(name_length);
        self.bytes.extend(body_length.to_le_bytes());
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(body);
        self.undoing += ENTRY_BYTES + name.len();
        true
    }

    /// Its bytes, which are valid at one place of one journal only.
    pub(super) fn seal(&mut self, salt: u64, at: u64) -> &[u8] {
        let (head, entries) = self.bytes.split_at_mut(HEAD_BYTES);
        let length = u32::try_from(entries.len()).expect("records are at most 4 MiB");
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..].copy_from_slice(&checksum(salt, at, entries).to_le_bytes());
        &self.bytes
    }
}

/// The length of the entries after this head, if it is valid, and their checksum.
pub(super) fn read_head(head: &[u8; HEAD_BYTES]) -> Option<(usize, u64)> {
    let length = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
    (1..=MOST_RECORD_BYTES).contains(&length).then_some((length, number(head, 4)?))
}

/// The entries of a record with a correct checksum.
pub(super) fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, Errno>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == bytes.len() {
            return None;
        }
        let entry = read_entry(bytes, at);
        at = match entry {
            Some((_, end)) => end,
            None => bytes.len(),
        };
        Some(entry.map(|(entry, _)| entry).ok_or(DAMAGED))
    })
}

fn read_entry(bytes: &[u8], at: usize) -> Option<(Entry<'_>, usize)> {
    let head = bytes.get(at..at + ENTRY_BYTES)?;
    let body_length = u32::from_le_bytes(head[2..].try_into().ok()?) as usize;
    let name_at = at + ENTRY_BYTES;
    let body_at = name_at + usize::from(head[1]);
    let name = std::str::from_utf8(bytes.get(name_at..body_at)?).ok()?;
    // A user who could write here could make us write files of any name.
    path::segment_of_document(name)?;
    if body_length > MAX_DOCUMENT_BYTES {
        return None;
    }
    let end = body_at + body_length;
    let body = bytes.get(body_at..end)?;
    let change = match (head[0], body) {
        (WRITTEN, body) => Change::Written(body),
        (DELETED, []) => Change::Deleted,
        (UNDONE, []) => Change::Undone,
        _ => return None,
    };
    Some((Entry { name, change, body_at }, end))
}

/// The FNV-1a checksum of a record.
///
/// It must tell a whole record from a torn one, not ours from a forger's.
pub(super) fn checksum(salt: u64, at: u64, entries: &[u8]) -> u64 {
    let length = entries.len() as u64;
    let place = [salt, at, length];
    let place = place.iter().flat_map(|number| number.to_le_bytes());
    place.chain(entries.iter().copied()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
