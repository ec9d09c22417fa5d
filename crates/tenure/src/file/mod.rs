//! Documents in a directory of this machine: no server, and people read them with `cat`.
//!
//! The key `elections/a/b` is the file `DIR/elections/a/b.json`, which holds the unchanged body.
//! Several processes share a directory. Each write locks its document's directory, compares, and
//! renames a new file into place. So a reader sees the old content or the new, never half of one.
//!
//! A lasting write reaches the disk before it is acknowledged: a few as files of their own, many in
//! one directory through its journal, `.journal`. A renewal does not: a power cut ends every
//! leader, and the first process to open the directory afterwards puts every document back to its
//! last lasting content. (The outcome of the last renewals does not matter then.)
//!
//! All processes must see the same kernel's locks, so only local file systems are accepted.
//! Changes are noticed by inotify, without polling. [`FilePresence`] proves that a process is dead,
//! so that a crashed leader is replaced at once.

mod directory;
mod directory_locks;
mod disk;
mod document;
mod error;
mod held;
mod job;
mod journal;
mod notify;
mod parents;
mod path;
mod presence;
mod recovery;
mod spare;
mod step;
mod sweep;
mod temporary;
mod tree;
mod unsynced;
mod write;

#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::io::Errno;

use self::directory::{Root, unlock};
use self::directory_locks::DirectoryLocks;
use self::disk::fsync;
use self::error::{BACKEND, failed, refused};
use self::held::Held;
use self::journal::Known;
use self::notify::{FileWatchers, Ring};
use self::parents::Parents;
use self::path::Place;
pub use self::presence::{
    ControlGroup, FilePresence, StartedWork, Starter, WorkFile, WorkProbe, WorkStart,
};
use self::unsynced::UnsyncedWrites;
use self::write::Batch;
use crate::Key;
use crate::store::{Document, Fault, Page, Put, Reads, Store, StoreError, Version, Write};

/// The options for opening a directory.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Every call ends within this time.
    pub request: Duration,
    /// Accept a file system that is not known to keep the store's promises.
    pub force_file_system: bool,
    /// Accept parents of the directory that another user could rename.
    ///
    /// That user could then have a second leader elected. For user namespaces, where root's
    /// directories do not look like root's.
    pub trust_parents: bool,
    /// Pretend that the machine was booted under this name. For tests of recovery.
    #[doc(hidden)]
    pub boot_id: Option<String>,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            request: Duration::from_secs(2),
            force_file_system: false,
            trust_parents: false,
            boot_id: None,
        }
    }
}

/// Documents in a directory. Clones share it.
#[derive(Clone)]
pub struct FileStore {
    shared: Arc<Shared>,
}

struct Shared {
    root: Arc<Root>,
    request: Duration,
    directory_locks: DirectoryLocks,
    known: Known,
    unsynced: UnsyncedWrites,
    watchers: Arc<FileWatchers>,
    presence: Arc<FilePresence>,
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl FileStore {
    /// Opens a directory, and creates it if it is missing. Blocks for a moment.
    ///
    /// # Errors
    /// [`Fault::Permanent`] for a link, for anything but a directory, for a file system where locks
    /// are not known to hold, for a directory that others may enter, or if another user could
    /// rename one of its parents. [`Fault::Denied`] when it is another user's, or not writable.
    /// [`Fault::Unavailable`] when another process keeps it locked.
    pub fn open(directory: &Path, options: FileOptions) -> Result<FileStore, StoreError> {
        let parents = if options.trust_parents { Parents::Trusted } else { Parents::Checked };
        let root = Root::open(directory, options.force_file_system, parents)?;
        let boot = match options.boot_id {
            Some(boot) => boot,
            None => recovery::boot_id().map_err(|error| {
                let doing = "reading which boot of the machine this is; is /proc mounted";
                StoreError::new(Fault::Permanent, BACKEND, doing, error)
            })?,
        };
        let deadline = Instant::now() + options.request;
        recovery::recover(&root, &boot, deadline).map_err(|errno| {
            failed(format!("recovering the documents in {}", root.path().display()), errno)
        })?;
        sweep::sweep(&root);
        let root = Arc::new(root);
        let watchers = Arc::new(FileWatchers::new(Arc::clone(&root)));
        let presence = FilePresence::new(Arc::clone(&root), Arc::clone(&watchers), boot);
        let shared = Shared {
            root,
            request: options.request,
            directory_locks: DirectoryLocks::default(),
            known: Known::default(),
            unsynced: UnsyncedWrites::default(),
            watchers,
            presence: Arc::new(presence),
        };
        Ok(FileStore { shared: Arc::new(shared) })
    }

    /// The directory, as an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.shared.root.path()
    }

    /// This process's proof of life here, and the proof of other processes' death.
    ///
    /// All clones share one.
    #[must_use]
    pub fn presence(&self) -> Arc<FilePresence> {
        Arc::clone(&self.shared.presence)
    }

    /// Does blocking work on a thread of its own.
    ///
    /// Returns `None` if the work did not end in time. It may still end later.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> Option<T> {
        let shared = Arc::clone(&self.shared);
        let working = tokio::task::spawn_blocking(move || work(&shared));
        match tokio::time::timeout(self.shared.request, working).await {
            Ok(Ok(done)) => Some(done),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

impl Shared {
    fn put_many(&self, writes: &[Write], deadline: Instant) -> Vec<Result<Put, StoreError>> {
        let Shared { root, directory_locks, known, unsynced, .. } = self;
        Batch { root, directory_locks, known, unsynced, deadline }.put_many(writes)
    }

    fn get_many(
        &self,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<Vec<Option<Document>>, StoreError> {
        self.root.check()?;
        let mut documents = Vec::with_capacity(keys.len());
        // Most batches are for one directory.
        let mut at: Option<(Vec<String>, Option<OwnedFd>)> = None;
        for key in keys {
            let fails = |errno| failed(format!("reading {key}"), errno);
            let Place { directory, name } = Place::of(key);
            let found = match at.take() {
                Some((last, found)) if last == directory => found,
                Some(_) | None => self.root.find(&directory).map_err(fails)?,
            };
            let document = match &found {
                Some(descriptor) => {
                    self.settle(key, &directory, descriptor, deadline).map_err(fails)?;
                    let document = document::read(descriptor, &name)?;
                    if self.unsynced.contains(key) {
                        fsync(descriptor).map_err(fails)?;
                    }
                    document
                }
                None => None,
            };
            documents.push(document);
            at = Some((directory, found));
        }
        Ok(documents)
    }

    /// Settles the journal before an unsettled document is read.
    ///
    /// The journal could be ahead of the document.
    fn settle(
        &self,
        key: &Key,
        directory: &[String],
        descriptor: &OwnedFd,
        deadline: Instant,
    ) -> Result<(), Errno> {
        if !self.unsynced.contains(key) || !journal::exists(descriptor) {
            return Ok(());
        }
        let turn = self.directory_locks.wait(directory, deadline).ok_or(Errno::AGAIN)?;
        self.root.lock(directory, descriptor, deadline).inspect_err(|_| unlock(descriptor))?;
        drop(Held::settle(directory, descriptor, &self.known)?);
        drop(turn);
        Ok(())
    }

    fn version(&self, path: &str) -> Result<Option<Version>, StoreError> {
        let read = document::read(self.root.descriptor(), path)?;
        Ok(read.map(|document| document.version))
    }
}

/// The deadline for locks.
///
/// It is a little before the whole call's, so that the call's answer is definite.
fn lock_deadline(request: Duration) -> Instant {
    Instant::now() + request * 3 / 4
}

const LATE: &str = "the disk did not answer in time";

#[async_trait]
impl Store for FileStore {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        self.shared.watchers.work()
    }

    fn forgets_deleted(&self) -> bool {
        false
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let owned = keys.to_vec();
        let deadline = lock_deadline(self.shared.request);
        let read = self.blocking(move |shared| shared.get_many(&owned, deadline)).await;
        read.unwrap_or_else(|| {
            let doing = format!("reading {} documents", keys.len());
            Err(refused(Fault::Unavailable, doing, LATE))
        })
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let deadline = lock_deadline(self.shared.request);
        let writes = Arc::new(writes);
        let working = Arc::clone(&writes);
        let written = self.blocking(move |shared| shared.put_many(&working, deadline)).await;
        written.unwrap_or_else(|| {
            let late = |write: &Write| {
                Err(refused(Fault::Indeterminate, format!("writing {}", write.key), LATE))
            };
            writes.iter().map(late).collect()
        })
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let (below, from) = (prefix.clone(), after.cloned());
        let doing = format!("listing {prefix}");
        let listed = self
            .blocking(move |shared| {
                shared.root.check()?;
                tree::list(&shared.root, &below, from.as_ref(), limit)
                    .map_err(|errno| failed(format!("listing {below}"), errno))
            })
            .await;
        listed.unwrap_or_else(|| Err(refused(Fault::Unavailable, doing, LATE)))
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        let place = Place::of(key);
        let path = place.path();
        loop {
            // Listen first, then look, then wait: no change in between is lost.
            let Some(mut watcher) = self.shared.watchers.listen(&place.directory, &place.name)
            else {
                return std::future::pending().await;
            };
            // These reads do not wait for the disk: the caller just read the document, or another
            // process wrote it when the notification came.
            loop {
                match self.shared.version(&path) {
                    Ok(version) if version.as_ref() == seen => {}
                    Ok(_) | Err(_) => return,
                }
                match watcher.rung().await {
                    Ring::Rang => {}
                    Ring::Moved => break,
                }
            }
        }
    }
}
