//! The batch of conditional writes.
//!
//! A few lasting writes are staged in temporary files first, without a lock, and brought to the
//! disk together. Then each directory is locked, for as long as comparing and renaming take. The
//! directories are brought to the disk last. Renewals skip both syncs: a power cut ends every
//! leader anyway.
//!
//! Many lasting writes in one directory go through its journal, and so do all later ones there.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;

use super::directory::{Root, unlock};
use super::directory_locks::DirectoryLocks;
use super::disk::{fsync, syncfs};
use super::error::{failed, refused, unsure};
use super::held::Held;
use super::job::{Job, Stage};
use super::journal::{self, Known, Record};
use super::spare::Failure;
use super::temporary::Temporary;
use super::unsynced::UnsyncedWrites;
use crate::store::{Fault, Put, StoreError, Write};

/// The most files that are synced one by one.
///
/// For more files, the whole file system is synced once instead, and a directory gets a journal.
const SYNC_ONE_BY_ONE: usize = 8;
/// The most directories that are open at the same time.
const DIRECTORIES_AT_ONCE: usize = 64;

/// The parts of the store that a batch works with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    pub root: &'a Root,
    pub directory_locks: &'a DirectoryLocks,
    pub known: &'a Known,
    pub unsynced: &'a UnsyncedWrites,
    /// The time to stop waiting for locks.
    pub deadline: Instant,
}

/// The jobs in one directory.
struct Share<'j> {
    directory: Vec<String>,
    jobs: Vec<Job<'j>>,
}

/// A share with its directory opened.
struct Opened<'j> {
    share: &'j Share<'j>,
    descriptor: OwnedFd,
    /// True if lasting writes must go through a journal.
    journal: bool,
}

type Outcome = Option<Result<Put, StoreError>>;

impl Batch<'_> {
    /// Carries out the writes; returns as many outcomes, in their order.
    pub(super) fn put_many(self, writes: &[Write]) -> Vec<Result<Put, StoreError>> {
        if let Err(error) = self.root.check() {
            return writes.iter().map(|_| Err(error.clone())).collect();
        }
        let mut shares: BTreeMap<Vec<String>, Vec<Job<'_>>> = BTreeMap::new();
        for (index, write) in writes.iter().enumerate() {
            let (directory, job) = Job::new(index, write);
            shares.entry(directory).or_default().push(job);
        }
        let share = |(directory, jobs)| Share { directory, jobs };
        let shares: Vec<Share<'_>> = shares.into_iter().map(share).collect();
        let mut outcomes: Vec<Outcome> = writes.iter().map(|_| None).collect();
        for chunk in shares.chunks(DIRECTORIES_AT_ONCE) {
            self.put_chunk(chunk, &mut outcomes);
        }
        let missing = |index: usize| {
            let doing = format!("writing {}", writes[index].key);
            Err(refused(Fault::Indeterminate, doing, "the batch forgot it; this is a bug"))
        };
        let fill = |(index, outcome): (usize, Outcome)| outcome.unwrap_or_else(|| missing(index));
        outcomes.into_iter().enumerate().map(fill).collect()
    }

    fn put_chunk(self, chunk: &[Share<'_>], outcomes: &mut [Outcome]) {
        let opened: Vec<Opened<'_>> =
            chunk.iter().filter_map(|share| self.open(share, outcomes)).collect();
        let mut staged: BTreeMap<usize, Temporary<'_>> = BTreeMap::new();
        for opened in opened.iter().filter(|opened| !opened.journal) {
            for job in opened.share.jobs.iter().filter(|job| job.lasts()) {
                match job.stage(&opened.descriptor) {
                    Ok(Stage::Nothing) => {}
                    Ok(Stage::Written(temporary)) => drop(staged.insert(job.index, temporary)),
                    Ok(Stage::Conflict) => outcomes[job.index] = Some(Ok(Put::Conflict)),
                    Err(error) => outcomes[job.index] = Some(Err(error)),
                }
            }
        }
        self.sync_staged(chunk, &mut staged, outcomes);
        let mut dirty = Vec::new();
        for opened in &opened {
            let lasting = self.commit(opened, &mut staged, outcomes);
            if !lasting.is_empty() {
                dirty.push((&opened.descriptor, lasting));
            }
        }
        self.sync_directories(&dirty, outcomes);
    }

    /// Opens the directory of some jobs. Creates it only for a document that may be created.
    fn open<'j>(self, share: &'j Share<'j>, outcomes: &mut [Outcome]) -> Option<Opened<'j>> {
        let creates = share.jobs.iter().any(Job::creates);
        let opened = match self.root.find(&share.directory) {
            Ok(None) if creates => self.root.make(&share.directory).map(Some),
            found => found,
        };
        match opened {
            Ok(Some(descriptor)) => {
                let lasting = share.jobs.iter().filter(|job| job.lasts()).count();
                let journal = lasting > SYNC_ONE_BY_ONE || journal::exists(&descriptor);
                Some(Opened { share, descriptor, journal })
            }
            Ok(None) => {
                for job in &share.jobs {
                    outcomes[job.index] = Some(Ok(job.without_directory()));
                }
                None
            }
            Err(errno) => {
                fail(&share.jobs, errno, outcomes);
                None
            }
        }
    }

    fn sync_staged(
        self,
        chunk: &[Share<'_>],
        staged: &mut BTreeMap<usize, Temporary<'_>>,
        outcomes: &mut [Outcome],
    ) {
        let together = staged.len() > SYNC_ONE_BY_ONE;
        let all = if together { syncfs(self.root.descriptor()) } else { Ok(()) };
        for job in chunk.iter().flat_map(|share| &share.jobs) {
            let Some(temporary) = staged.get(&job.index) else { continue };
            let synced = if together { all } else { temporary.sync() };
            if let Err(errno) = synced {
                staged.remove(&job.index);
                outcomes[job.index] = Some(Err(failed(job.doing(), errno)));
            }
        }
    }

    /// Compares and replaces under the directory's lock.
    ///
    /// Returns the jobs that must still be synced.
    fn commit<'j, 'd>(
        self,
        opened: &'d Opened<'j>,
        staged: &mut BTreeMap<usize, Temporary<'d>>,
        outcomes: &mut [Outcome],
    ) -> Vec<&'j Job<'j>> {
        let waiting: Vec<&Job<'_>> =
            opened.share.jobs.iter().filter(|job| outcomes[job.index].is_none()).collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        let directory = &opened.share.directory;
        let Some(_turn) = self.directory_locks.wait(directory, self.deadline) else {
            fail(waiting, Errno::AGAIN, outcomes);
            return Vec::new();
        };
        if let Err(errno) = self.root.lock(directory, &opened.descriptor, self.deadline) {
            unlock(&opened.descriptor);
            fail(waiting, errno, outcomes);
            return Vec::new();
        }
        let mut held = match Held::settle(directory, &opened.descriptor, self.known) {
            Ok(held) => held,
            Err(errno) => {
                fail(waiting, errno, outcomes);
                return Vec::new();
            }
        };
        // Another process may have made a journal since we looked.
        let journal = opened.journal || held.has_journal();
        let (mut unsynced, mut recorded) = (Vec::new(), Vec::new());
        let mut names = BTreeSet::new();
        for job in waiting {
            // A second write of a document is compared with the result of the first.
            if !names.insert(&job.name) {
                self.record(&mut held, &std::mem::take(&mut recorded), outcomes);
            }
            match job.may_happen(&mut held) {
                Ok(true) if journal && job.is_recorded() => recorded.push(job),
                Ok(true) => {
                    let staged = staged.remove(&job.index);
                    let outcome = job.commit(&opened.descriptor, staged, self.unsynced);
                    if job.lasts() && outcome.is_ok() {
                        unsynced.push(job);
                    }
                    outcomes[job.index] = Some(outcome);
                }
                Ok(false) => outcomes[job.index] = Some(Ok(Put::Conflict)),
                Err(error) => outcomes[job.index] = Some(Err(error)),
            }
        }
        self.record(&mut held, &recorded, outcomes);
        unsynced
    }

    /// Carries out writes through the directory's journal, as many in a record as fit.
    ///
    /// Each of them was already found to be allowed.
    fn record(self, held: &mut Held<'_>, jobs: &[&Job<'_>], outcomes: &mut [Outcome]) {
        let mut rest = jobs;
        while !rest.is_empty() {
            let mut record = Record::new();
            let fits = |job: &&&Job<'_>| {
                let (name, change) = job.change();
                record.add(name, change)
            };
            let together = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(together.min(rest.len()));
            self.record_together(held, &mut record, now, outcomes);
            rest = later;
        }
    }

    fn record_together(
        self,
        held: &mut Held<'_>,
        record: &mut Record,
        jobs: &[&Job<'_>],
        outcomes: &mut [Outcome],
    ) {
        let lasts =
            held.settle_again().map_err(Failure::Untouched).and_then(|()| held.append(record));
        match lasts {
            Ok(()) => {}
            Err(Failure::Untouched(errno)) => return fail(jobs.iter().copied(), errno, outcomes),
            Err(Failure::Unsure(errno)) => {
                jobs.iter().for_each(|job| self.leave_unsynced(job, errno, outcomes));
                return;
            }
        }
        let mut stuck = Vec::new();
        for job in jobs {
            match job.show(held.descriptor()) {
                Ok(()) => outcomes[job.index] = Some(Ok(job.stored())),
                Err(errno) => stuck.push((job, errno)),
            }
        }
        if stuck.is_empty() {
            held.finish();
            return;
        }
        let settled = held.settle_again();
        for (job, errno) in stuck {
            if settled.is_err() {
                self.leave_unsynced(job, errno, outcomes);
                continue;
            }
            outcomes[job.index] = Some(match job.is_shown(held.descriptor()) {
                Ok(true) => Ok(job.stored()),
                Ok(false) => Err(failed(job.doing(), errno)),
                Err(_) => Err(unsure(job.doing(), errno)),
            });
        }
    }

    /// Reports an unknown outcome. A later read of the document must settle it first.
    fn leave_unsynced(self, job: &Job<'_>, errno: Errno, outcomes: &mut [Outcome]) {
        self.unsynced.begin(&job.write.key);
        outcomes[job.index] = Some(Err(unsure(job.doing(), errno)));
    }

    fn sync_directories(self, dirty: &[(&OwnedFd, Vec<&Job<'_>>)], outcomes: &mut [Outcome]) {
        let together = dirty.len() > SYNC_ONE_BY_ONE;
        let all = if together { syncfs(self.root.descriptor()) } else { Ok(()) };
        for (descriptor, jobs) in dirty {
            let synced = if together { all } else { fsync(descriptor) };
            for job in jobs {
                match synced {
                    Ok(()) => self.unsynced.settle(&job.write.key),
                    Err(errno) => {
                        outcomes[job.index] = Some(Err(unsure(job.doing(), errno)));
                    }
                }
            }
        }
    }
}

fn fail<'j>(jobs: impl IntoIterator<Item = &'j Job<'j>>, errno: Errno, outcomes: &mut [Outcome]) {
    for job in jobs {
        outcomes[job.index] = Some(Err(failed(job.doing(), errno)));
    }
}
