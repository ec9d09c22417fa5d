//! One write of a batch.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::document;
use super::error::{failed, refused, unsure};
use super::held::Held;
use super::journal::Change;
use super::path::{self, Place};
use super::spare::{self, Failure, Renewal};
use super::step::step;
use super::temporary::{Kept, Temporary, link_over};
use super::unsynced::UnsyncedWrites;
use crate::store::{
    Document, Durability, Expect, Fault, MAX_DOCUMENT_BYTES, Put, StoreError, Version, Write,
};

/// One write, and its file name in its directory.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub index: usize,
    pub write: &'a Write,
    pub(super) name: String,
}

pub(super) enum Stage<'d> {
    Nothing,
    Written(Temporary<'d>),
    Conflict,
}

impl<'a> Job<'a> {
    /// Makes a job for the write, and returns its directory.
    pub(super) fn new(index: usize, write: &'a Write) -> (Vec<String>, Job<'a>) {
        let Place { directory, name } = Place::of(&write.key);
        (directory, Job { index, write, name })
    }

    pub(super) fn doing(&self) -> String {
        match self.write.body {
            Some(_) => format!("writing {}", self.write.key),
            None => format!("deleting {}", self.write.key),
        }
    }

    pub(super) fn lasts(&self) -> bool {
        match self.write.durability {
            Durability::Lasting => true,
            Durability::UntilPowerCut => false,
        }
    }

    /// Returns true if the write goes through the journal where there is one.
    ///
    /// Every deletion does. Otherwise the journal's content would be put back, as after a deletion
    /// by hand.
    pub(super) fn is_recorded(&self) -> bool {
        self.lasts() || self.write.body.is_none()
    }

    pub(super) fn creates(&self) -> bool {
        self.write.body.is_some() && self.write.expect == Expect::Absent
    }

    pub(super) fn without_directory(&self) -> Put {
        match self.write.expect {
            Expect::Absent => Put::Stored(gone()),
            Expect::At(_) => Put::Conflict,
        }
    }

    /// Writes the content next to the document, unless the race is lost already.
    pub(super) fn stage<'d>(&self, directory: &'d OwnedFd) -> Result<Stage<'d>, StoreError> {
        let Some(body) = &self.write.body else { return Ok(Stage::Nothing) };
        self.check_size()?;
        if !self.holds(document::read(directory, &self.name)?) {
            return Ok(Stage::Conflict);
        }
        let temporary = Temporary::write(directory, body);
        temporary.map(Stage::Written).map_err(|errno| failed(self.doing(), errno))
    }

    /// Returns true if the write may happen now: its expectation holds.
    pub(super) fn may_happen(&self, held: &mut Held<'_>) -> Result<bool, StoreError> {
        self.check_size()?;
        if !self.holds(document::read_locked(held.descriptor(), &self.name)?) {
            return Ok(false);
        }
        Ok(!(self.creates() && self.put_back(held)?))
    }

    /// Carries out an allowed write, without a journal.
    pub(super) fn commit(
        &self,
        directory: &OwnedFd,
        staged: Option<Temporary<'_>>,
        unsynced: &UnsyncedWrites,
    ) -> Result<Put, StoreError> {
        let Some(body) = &self.write.body else {
            return self.remove(directory, unsynced);
        };
        if !self.lasts() {
            return match self.show_body(directory, body) {
                Ok(()) => Ok(self.stored()),
                Err(Failure::Untouched(errno)) => Err(failed(self.doing(), errno)),
                Err(Failure::Unsure(errno)) => Err(unsure(self.doing(), errno)),
            };
        }
        let temporary = match staged {
            Some(temporary) => temporary,
            None => {
                Temporary::write(directory, body).map_err(|errno| failed(self.doing(), errno))?
            }
        };
        unsynced.begin(&self.write.key);
        // The kept copy goes first, so that the document is never ahead of the lasting content.
        if let Err(kept) = temporary.keep_as(&path::kept(&self.name)) {
            return Err(match kept {
                Kept::Untouched(errno) => {
                    unsynced.settle(&self.write.key);
                    failed(self.doing(), errno)
                }
                Kept::Unsure(errno) => unsure(self.doing(), errno),
            });
        }
        let renamed = temporary.rename_to(&self.name);
        renamed.map_err(|errno| unsure(self.doing(), errno))?;
        Ok(self.stored())
    }

    /// The document's file name, and the change to write into the journal.
    pub(super) fn change(&self) -> (&str, Change<'_>) {
        let change = self.write.body.as_deref().map_or(Change::Deleted, Change::Written);
        (&self.name, change)
    }

    /// Gives the document the content that the journal already has.
    pub(super) fn show(&self, directory: &OwnedFd) -> Result<(), Errno> {
        match &self.write.body {
            Some(body) => self.show_body(directory, body).map_err(Failure::errno),
            None => unlink_all(directory, &self.name),
        }
    }

    /// Returns true if the document shows this write.
    pub(super) fn is_shown(&self, directory: &OwnedFd) -> Result<bool, StoreError> {
        let shown = document::read_locked(directory, &self.name)?.map(|document| document.body);
        Ok(shown == self.write.body)
    }

    /// The answer once the write has happened.
    pub(super) fn stored(&self) -> Put {
        Put::Stored(self.write.body.as_deref().map_or_else(gone, document::version))
    }

    /// Replaces or creates the document, without a sync.
    fn show_body(&self, directory: &OwnedFd, body: &[u8]) -> Result<(), Failure> {
        if !self.creates() {
            match spare::renew(directory, &self.name, body)? {
                Renewal::Done => return Ok(()),
                Renewal::Unsupported => {}
            }
        }
        let temporary = Temporary::write(directory, body).map_err(Failure::Untouched)?;
        temporary.rename_to(&self.name).map_err(Failure::Unsure)
    }

    fn check_size(&self) -> Result<(), StoreError> {
        match &self.write.body {
            Some(body) if body.len() > MAX_DOCUMENT_BYTES => {
                let says = format!("{} bytes are more than {MAX_DOCUMENT_BYTES}", body.len());
                Err(refused(Fault::Permanent, self.doing(), says))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn holds(&self, current: Option<Document>) -> bool {
        match (&self.write.expect, current) {
            (Expect::Absent, current) => current.is_none(),
            (Expect::At(version), Some(current)) => current.version == *version,
            (Expect::At(_), None) => false,
        }
    }

    /// Puts back a document that was removed without the store.
    ///
    /// Creating it anew would lose its token and its holder.
    fn put_back(&self, held: &mut Held<'_>) -> Result<bool, StoreError> {
        let from_journal =
            held.put_back(&self.name).map_err(|errno| failed(self.doing(), errno))?;
        let is_back = match from_journal {
            Some(is_back) => is_back,
            None => match link_over(held.descriptor(), &path::kept(&self.name), &self.name) {
                Ok(()) => true,
                Err(Kept::Untouched(Errno::NOENT)) => false,
                Err(Kept::Untouched(errno)) => return Err(failed(self.doing(), errno)),
                Err(Kept::Unsure(errno)) => return Err(unsure(self.doing(), errno)),
            },
        };
        if is_back {
            tracing::warn!(key = %self.write.key, "a document that was deleted by hand is back");
        }
        Ok(is_back)
    }

    fn remove(&self, directory: &OwnedFd, unsynced: &UnsyncedWrites) -> Result<Put, StoreError> {
        if self.lasts() {
            unsynced.begin(&self.write.key);
        }
        unlink_all(directory, &self.name).map_err(|errno| unsure(self.doing(), errno))?;
        Ok(Put::Stored(gone()))
    }
}

/// Removes a document, its kept copy and its spare.
pub(super) fn unlink_all(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    for file in [name, &path::kept(name), &path::spare(name)] {
        match step().and_then(|()| unlinkat(directory, file, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The version after a deletion, which means nothing.
fn gone() -> Version {
    document::version(&[])
}
