//! The batch of conditional writes.
//!
//! Contents are staged in temporary files first, without a lock, and brought to the disk together.
//! Then each directory is locked for as long as comparing and renaming take. The directories are
//! brought to the disk last. Renewals skip both syncs: a power cut ends every leader anyway.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{AtFlags, fsync, syncfs, unlinkat};
use rustix::io::Errno;

use super::directory::{Root, unlock};
use super::document;
use super::error::{failed, refused, unsure};
use super::path::{self, Place};
use super::spare::{self, Failure, Renewal};
use super::step::step;
use super::temporary::{Kept, Temporary, link_over};
use super::unsettled::Unsettled;
use crate::store::{
    Document, Durability, Expect, Fault, MAX_DOCUMENT_BYTES, Put, StoreError, Version, Write,
};

/// From so many files on, the whole file system is synced once instead of each file.
const SYNC_ONE_BY_ONE: usize = 8;
/// Directories that are open at the same time.
const DIRECTORIES_AT_ONCE: usize = 64;

/// What a batch works with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    pub root: &'a Root,
    pub unsettled: &'a Unsettled,
    /// When to stop waiting for locks.
    pub deadline: Instant,
}

impl Batch<'_> {
    /// Carries out the writes; there are as many outcomes, in their order.
    pub(super) fn put_many(self, writes: &[Write]) -> Vec<Result<Put, StoreError>> {
        if let Err(error) = self.root.check() {
            return writes.iter().map(|_| Err(error.clone())).collect();
        }
        let mut jobs: BTreeMap<Vec<String>, Vec<Job<'_>>> = BTreeMap::new();
        for (index, write) in writes.iter().enumerate() {
            let place = Place::of(&write.key);
            let (kept, name) = (place.kept(), place.name);
            jobs.entry(place.directory).or_default().push(Job { index, write, name, kept });
        }
        let mut outcomes: Vec<Outcome> = writes.iter().map(|_| None).collect();
        let jobs: Vec<_> = jobs.into_iter().collect();
        for chunk in jobs.chunks(DIRECTORIES_AT_ONCE) {
            self.put_chunk(chunk, &mut outcomes);
        }
        let missing = |index: usize| {
            let doing = format!("writing {}", writes[index].key);
            Err(refused(Fault::Indeterminate, doing, "the batch forgot it; this is a bug"))
        };
        let fill = |(index, outcome): (usize, Outcome)| outcome.unwrap_or_else(|| missing(index));
        outcomes.into_iter().enumerate().map(fill).collect()
    }

    fn put_chunk(self, chunk: &[(Vec<String>, Vec<Job<'_>>)], outcomes: &mut [Outcome]) {
        let mut opened = Vec::with_capacity(chunk.len());
        for (directory, jobs) in chunk {
            if let Some(descriptor) = self.open(directory, jobs, outcomes) {
                opened.push((directory, descriptor, jobs));
            }
        }
        let mut staged: BTreeMap<usize, Temporary<'_>> = BTreeMap::new();
        for (_, descriptor, jobs) in &opened {
            for job in jobs.iter().filter(|job| job.lasts()) {
                match job.stage(descriptor) {
                    Ok(Stage::Nothing) => {}
                    Ok(Stage::Written(temporary)) => drop(staged.insert(job.index, temporary)),
                    Ok(Stage::Conflict) => outcomes[job.index] = Some(Ok(Put::Conflict)),
                    Err(error) => outcomes[job.index] = Some(Err(error)),
                }
            }
        }
        self.sync_staged(chunk, &mut staged, outcomes);
        let mut dirty = Vec::new();
        for (directory, descriptor, jobs) in &opened {
            let lasting = self.commit(directory, descriptor, jobs, &mut staged, outcomes);
            if !lasting.is_empty() {
                dirty.push((descriptor, lasting));
            }
        }
        self.sync_directories(&dirty, outcomes);
    }

    /// Opens the directory of some jobs; it is only made for a document that may be created.
    fn open(
        self,
        directory: &[String],
        jobs: &[Job<'_>],
        outcomes: &mut [Outcome],
    ) -> Option<OwnedFd> {
        let creates = jobs.iter().any(Job::creates);
        let opened = match self.root.find(directory) {
            Ok(None) if creates => self.root.make(directory).map(Some),
            found => found,
        };
        match opened {
            Ok(Some(descriptor)) => Some(descriptor),
            Ok(None) => {
                for job in jobs {
                    outcomes[job.index] = Some(Ok(job.without_directory()));
                }
                None
            }
            Err(errno) => {
                fail(jobs.iter(), errno, outcomes);
                None
            }
        }
    }

    fn sync_staged(
        self,
        chunk: &[(Vec<String>, Vec<Job<'_>>)],
        staged: &mut BTreeMap<usize, Temporary<'_>>,
        outcomes: &mut [Outcome],
    ) {
        let together = staged.len() > SYNC_ONE_BY_ONE;
        let all =
            if together { step().and_then(|()| syncfs(self.root.descriptor())) } else { Ok(()) };
        for job in chunk.iter().flat_map(|(_, jobs)| jobs) {
            let Some(temporary) = staged.get(&job.index) else { continue };
            let synced = if together { all } else { temporary.sync() };
            if let Err(errno) = synced {
                staged.remove(&job.index);
                outcomes[job.index] = Some(Err(failed(job.doing(), errno)));
            }
        }
    }

    /// Compares and renames under the directory's lock; gives the jobs that must reach the disk.
    fn commit<'j, 'd>(
        self,
        directory: &[String],
        descriptor: &'d OwnedFd,
        jobs: &'j [Job<'j>],
        staged: &mut BTreeMap<usize, Temporary<'d>>,
        outcomes: &mut [Outcome],
    ) -> Vec<&'j Job<'j>> {
        let waiting: Vec<&Job<'_>> =
            jobs.iter().filter(|job| outcomes[job.index].is_none()).collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        if let Err(errno) = self.root.lock(directory, descriptor, self.deadline) {
            unlock(descriptor);
            fail(waiting.into_iter(), errno, outcomes);
            return Vec::new();
        }
        let mut lasting = Vec::new();
        for job in waiting {
            let outcome = job.commit(descriptor, staged.remove(&job.index), self.unsettled);
            if job.lasts() && matches!(outcome, Ok(Put::Stored(_))) {
                lasting.push(job);
            }
            outcomes[job.index] = Some(outcome);
        }
        unlock(descriptor);
        lasting
    }

    fn sync_directories(self, dirty: &[(&OwnedFd, Vec<&Job<'_>>)], outcomes: &mut [Outcome]) {
        let together = dirty.len() > SYNC_ONE_BY_ONE;
        let all =
            if together { step().and_then(|()| syncfs(self.root.descriptor())) } else { Ok(()) };
        for (descriptor, jobs) in dirty {
            let synced = if together { all } else { step().and_then(|()| fsync(descriptor)) };
            for job in jobs {
                match synced {
                    Ok(()) => self.unsettled.settle(&job.write.key),
                    Err(errno) => {
                        outcomes[job.index] = Some(Err(unsure(job.doing(), errno)));
                    }
                }
            }
        }
    }
}

type Outcome = Option<Result<Put, StoreError>>;

fn fail<'j>(jobs: impl Iterator<Item = &'j Job<'j>>, errno: Errno, outcomes: &mut [Outcome]) {
    for job in jobs {
        outcomes[job.index] = Some(Err(failed(job.doing(), errno)));
    }
}

/// One write, and the names it concerns in its directory.
#[derive(Debug)]
struct Job<'a> {
    index: usize,
    write: &'a Write,
    name: String,
    kept: String,
}

enum Stage<'d> {
    Nothing,
    Written(Temporary<'d>),
    Conflict,
}

impl Job<'_> {
    fn doing(&self) -> String {
        match self.write.body {
            Some(_) => format!("writing {}", self.write.key),
            None => format!("deleting {}", self.write.key),
        }
    }

    fn lasts(&self) -> bool {
        match self.write.durability {
            Durability::Lasting => true,
            Durability::UntilPowerCut => false,
        }
    }

    fn creates(&self) -> bool {
        self.write.body.is_some() && self.write.expect == Expect::Absent
    }

    fn without_directory(&self) -> Put {
        match self.write.expect {
            Expect::Absent => Put::Stored(gone()),
            Expect::At(_) => Put::Conflict,
        }
    }

    /// Writes the content next to the document, unless the race is lost already.
    fn stage<'d>(&self, directory: &'d OwnedFd) -> Result<Stage<'d>, StoreError> {
        let Some(body) = &self.write.body else { return Ok(Stage::Nothing) };
        self.check_size()?;
        if !self.holds(document::read(directory, &self.name)?) {
            return Ok(Stage::Conflict);
        }
        let temporary = Temporary::write(directory, body);
        temporary.map(Stage::Written).map_err(|errno| failed(self.doing(), errno))
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

    fn commit(
        &self,
        directory: &OwnedFd,
        staged: Option<Temporary<'_>>,
        unsettled: &Unsettled,
    ) -> Result<Put, StoreError> {
        self.check_size()?;
        if !self.holds(document::read_locked(directory, &self.name)?) {
            return Ok(Put::Conflict);
        }
        let Some(body) = &self.write.body else {
            return self.remove(directory, unsettled);
        };
        if self.creates() && self.put_back(directory)? {
            return Ok(Put::Conflict);
        }
        if !self.lasts() && !self.creates() {
            match spare::renew(directory, &self.name, body) {
                Ok(Renewal::Done) => return Ok(Put::Stored(document::version(body))),
                Ok(Renewal::Unsupported) => {}
                Err(Failure::Untouched(errno)) => return Err(failed(self.doing(), errno)),
                Err(Failure::Unsure(errno)) => return Err(unsure(self.doing(), errno)),
            }
        }
        let temporary = match staged {
            Some(temporary) => temporary,
            None => {
                Temporary::write(directory, body).map_err(|errno| failed(self.doing(), errno))?
            }
        };
        if self.lasts() {
            unsettled.begin(&self.write.key);
            // The kept copy goes first: what people read is then never ahead of what lasts.
            if let Err(kept) = temporary.keep_as(&self.kept) {
                return Err(match kept {
                    Kept::Untouched(errno) => {
                        unsettled.settle(&self.write.key);
                        failed(self.doing(), errno)
                    }
                    Kept::Unsure(errno) => unsure(self.doing(), errno),
                });
            }
        }
        let renamed = temporary.rename_to(&self.name);
        renamed.map_err(|errno| unsure(self.doing(), errno))?;
        Ok(Put::Stored(document::version(body)))
    }

    /// Puts a document back that somebody removed without asking the store. To create it anew would be to
    /// forget its token, and whom it was held by.
    fn put_back(&self, directory: &OwnedFd) -> Result<bool, StoreError> {
        match link_over(directory, &self.kept, &self.name) {
            Ok(()) => {
                tracing::warn!(key = %self.write.key, "a document that was deleted by hand is back");
                Ok(true)
            }
            Err(Kept::Untouched(Errno::NOENT)) => Ok(false),
            Err(Kept::Untouched(errno)) => Err(failed(self.doing(), errno)),
            Err(Kept::Unsure(errno)) => Err(unsure(self.doing(), errno)),
        }
    }

    fn remove(&self, directory: &OwnedFd, unsettled: &Unsettled) -> Result<Put, StoreError> {
        if self.lasts() {
            unsettled.begin(&self.write.key);
        }
        let unlink =
            |name: &str| match step().and_then(|()| unlinkat(directory, name, AtFlags::empty())) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(unsure(self.doing(), errno)),
            };
        unlink(&self.name)?;
        unlink(&self.kept)?;
        unlink(&path::spare(&self.name))?;
        Ok(Put::Stored(gone()))
    }
}

/// After a deletion the version means nothing.
fn gone() -> Version {
    document::version(&[])
}
