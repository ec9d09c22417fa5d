//! The newest lasting content of each document in a journal.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::format::{self, Change, FIRST, HEAD_BYTES, State};
use super::{DAMAGED, Journal};

/// The most journals with remembered contents.
const MOST_KNOWN: usize = 64;

/// The lasting state of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum Lasting {
    /// A body of this length at this place of the journal.
    Body {
        at: u64,
        length: usize,
    },
    Deleted,
}

/// The contents of a journal, up to some record.
#[derive(Debug, Default)]
pub(in crate::file) struct Contents {
    salt: u64,
    read_to: u64,
    newest: HashMap<String, Lasting>,
    /// The contents of the last record. The next record may undo them.
    last: HashMap<String, Lasting>,
}

impl Contents {
    pub(super) fn none(salt: u64) -> Contents {
        let (newest, last) = (HashMap::new(), HashMap::new());
        Contents { salt, read_to: FIRST, newest, last }
    }

    /// The contents of a journal up to its tail, which was settled.
    ///
    /// Contents in `known` are not read again.
    pub(in crate::file) fn of(
        journal: &Journal,
        known: Option<Contents>,
    ) -> Result<Contents, Errno> {
        let mut contents = match known {
            Some(known) if known.salt == journal.salt => known,
            Some(_) | None => Contents::none(journal.salt),
        };
        while contents.read_to < journal.cursor.tail {
            if !contents.read_one(journal)? {
                return Err(DAMAGED);
            }
        }
        Ok(contents)
    }

    /// The contents of a journal after a power cut.
    ///
    /// The journal then ends with the last whole record.
    pub(in crate::file) fn recover(journal: &mut Journal) -> Result<Contents, Errno> {
        let mut contents = Contents::none(journal.salt);
        while contents.read_one(journal)? {}
        // The cursor was written after the sync of the records before it.
        if contents.read_to < journal.cursor.tail {
            return Err(DAMAGED);
        }
        journal.note(State::Idle, contents.read_to)?;
        Ok(contents)
    }

    fn read_one(&mut self, journal: &Journal) -> Result<bool, Errno> {
        let Some((bytes, end)) = journal.record_at(self.read_to)? else { return Ok(false) };
        let body_base = self.read_to + HEAD_BYTES as u64;
        let entries = format::entries(&bytes).collect::<Result<Vec<_>, Errno>>()?;
        if entries.iter().all(|entry| entry.change != Change::Undone) {
            self.newest.extend(self.last.drain());
        }
        for entry in entries {
            let lasting = match entry.change {
                Change::Written(body) => {
                    Lasting::Body { at: body_base + entry.body_at as u64, length: body.len() }
                }
                Change::Deleted => Lasting::Deleted,
                Change::Undone => {
                    self.last.remove(entry.name);
                    continue;
                }
            };
            self.last.insert(entry.name.to_owned(), lasting);
        }
        self.read_to = end;
        Ok(true)
    }

    /// The lasting state of a document; `None` when the journal does not know it.
    pub(in crate::file) fn lasting(&self, name: &str) -> Option<Lasting> {
        self.last.get(name).or_else(|| self.newest.get(name)).copied()
    }

    /// All documents that the journal knows.
    pub(in crate::file) fn all(&self) -> impl Iterator<Item = (&str, Lasting)> {
        let earlier = self.newest.iter().filter(|(name, _)| !self.last.contains_key(*name));
        earlier.chain(&self.last).map(|(name, lasting)| (name.as_str(), *lasting))
    }
}

/// The contents of journals that this process has read, per directory.
#[derive(Debug, Default)]
pub(in crate::file) struct Known {
    contents: Mutex<HashMap<Vec<String>, Contents>>,
}

impl Known {
    /// Takes the known contents of a directory's journal.
    ///
    /// The directory is locked, so no other thread asks for them.
    pub(in crate::file) fn take(&self, directory: &[String]) -> Option<Contents> {
        self.contents().remove(directory)
    }

    pub(in crate::file) fn keep(&self, directory: &[String], contents: Contents) {
        let mut known = self.contents();
        if known.len() >= MOST_KNOWN {
            // They are read again when they are needed.
            known.clear();
        }
        known.insert(directory.to_vec(), contents);
    }

    fn contents(&self) -> MutexGuard<'_, HashMap<Vec<String>, Contents>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
