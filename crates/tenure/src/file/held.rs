//! A locked directory, and its journal if it has one.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::directory::unlock;
use super::journal::{Contents, Journal, Known, Lasting, Record};
use super::spare::Failure;
use super::temporary::Temporary;

/// A locked directory. Its journal, if it has one, agrees with its documents.
#[derive(Debug)]
pub(super) struct Held<'h> {
    path: &'h [String],
    descriptor: &'h OwnedFd,
    journal: Option<Journal>,
    contents: Option<Contents>,
    known: &'h Known,
    /// The reason why there is no journal to write to, although the directory may have one.
    refused: Option<Errno>,
}

impl<'h> Held<'h> {
    /// Settles the unfinished writes of others in a directory that was locked just now.
    ///
    /// The directory is unlocked when this is dropped, and also when this call fails.
    pub(super) fn settle(
        path: &'h [String],
        descriptor: &'h OwnedFd,
        known: &'h Known,
    ) -> Result<Held<'h>, Errno> {
        let mut held =
            Held { path, descriptor, journal: None, contents: None, known, refused: None };
        held.journal = Journal::open(descriptor)?;
        held.settle_again()?;
        Ok(held)
    }

    pub(super) fn descriptor(&self) -> &'h OwnedFd {
        self.descriptor
    }

    pub(super) fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Makes the journal agree with the documents after a failure.
    pub(super) fn settle_again(&mut self) -> Result<(), Errno> {
        match &mut self.journal {
            Some(journal) => journal.settle(self.descriptor),
            None => Ok(()),
        }
    }

    /// Brings a record to the disk, in the existing journal or a new one.
    pub(super) fn append(&mut self, record: &mut Record) -> Result<(), Failure> {
        let journal = self.with_room(record).map_err(Failure::Untouched)?;
        journal.append(record)
    }

    /// Notes that the documents show the last record.
    pub(super) fn finish(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.finish();
        }
    }

    /// Puts a document back from the journal, if it was removed by hand.
    ///
    /// `None` when the journal does not know it, false when it was deleted properly.
    pub(super) fn put_back(&mut self, name: &str) -> Result<Option<bool>, Errno> {
        let Some(contents) = self.contents()? else { return Ok(None) };
        let (at, length) = match contents.lasting(name) {
            Some(Lasting::Body { at, length }) => (at, length),
            Some(Lasting::Deleted) => return Ok(Some(false)),
            None => return Ok(None),
        };
        let Some(journal) = &self.journal else { return Ok(None) };
        let body = journal.body(at, length)?;
        // Without a sync: the journal has the content.
        Temporary::write(self.descriptor, &body)?.rename_to(name)?;
        Ok(Some(true))
    }

    fn with_room(&mut self, record: &Record) -> Result<&mut Journal, Errno> {
        if let Some(errno) = self.refused {
            return Err(errno);
        }
        if !self.journal.as_ref().is_some_and(|journal| journal.fits(record)) {
            self.journal = match self.replacement(record) {
                Ok(journal) => Some(journal),
                Err(errno) => {
                    // The journal that we have open may not be the one that has the name.
                    self.refused = Some(errno);
                    None
                }
            };
        }
        self.journal.as_mut().ok_or(self.refused.unwrap_or(Errno::NOENT))
    }

    fn replacement(&mut self, record: &Record) -> Result<Journal, Errno> {
        let Some(full) = &self.journal else {
            return Journal::create(self.descriptor, record);
        };
        let known = self.contents.take().or_else(|| self.known.take(self.path));
        let contents = Contents::of(full, known)?;
        full.compact(self.descriptor, &contents, record)
    }

    fn contents(&mut self) -> Result<Option<&Contents>, Errno> {
        let Some(journal) = &self.journal else { return Ok(None) };
        let known = self.contents.take().or_else(|| self.known.take(self.path));
        Ok(Some(self.contents.insert(Contents::of(journal, known)?)))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(contents) = self.contents.take() {
            self.known.keep(self.path, contents);
        }
        unlock(self.descriptor);
    }
}
