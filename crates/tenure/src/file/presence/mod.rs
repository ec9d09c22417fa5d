//! Proof of life and of death: a file that a process keeps locked for as long as it lives.
//!
//! The kernel frees the lock when the last descriptor of the open file is closed, no matter how its
//! holders die, and inotify reports that close. The lock belongs to the open file, which a guardian
//! process may share. So the file is only ever closed, never unlocked: one unlock would free it for
//! all.

mod mark;
mod proof;
mod started;
mod sweep;
mod work;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use rustix::fs::{AtFlags, FlockOperation, OFlags, flock, fstat, openat, unlinkat};
use rustix::io::Errno;

use self::mark::{Claim, Life, Locked};
use self::proof::{Prover, is_free};
use crate::file::directory::{FILE_MODE, Identity, Root};
use crate::file::error::{failed, refused};
use crate::file::notify::FileWatchers;
use crate::file::path;
use crate::store::{Fault, Mark, Presence, StoreError};

pub use self::started::{ControlGroup, StartedWork, Starter, WorkStart};
pub use self::work::{WorkFile, WorkProbe};

/// This process's proof of life in a directory, and the proof of other processes' death.
pub struct FilePresence {
    root: Arc<Root>,
    watchers: Arc<FileWatchers>,
    boot: String,
    /// A forked child must neither speak for this process nor remove its files.
    process: u32,
    own: Mutex<Own>,
    proofs: Mutex<HashMap<Claim, WeakShared<BoxFuture<'static, ()>>>>,
}

/// The files this process made.
#[derive(Debug, Default)]
struct Own {
    life: Option<(Life, OwnedFd)>,
    work: Option<Locked>,
    /// Files of ended work. Documents may still name them, so they stay until the end.
    earlier: Vec<String>,
}

impl fmt::Debug for FilePresence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePresence").field("path", &self.root.path()).finish_non_exhaustive()
    }
}

impl FilePresence {
    /// Removes files of processes that are long dead. Makes none for this process yet.
    pub(super) fn new(root: Arc<Root>, watchers: Arc<FileWatchers>, boot: String) -> FilePresence {
        sweep::sweep(&root);
        if let Err(errno) = root.make(&presence_directory()) {
            // Documents do not need it, and the first mark tries again.
            tracing::debug!(%errno, "making the directory for presence files");
        }
        FilePresence {
            root,
            watchers,
            boot,
            process: std::process::id(),
            own: Mutex::default(),
            proofs: Mutex::default(),
        }
    }

    /// A copy of the descriptor that holds the lock, for a guardian process to inherit.
    ///
    /// The process counts as alive until every copy is closed. The copy is closed at `exec` unless
    /// the caller changes that.
    ///
    /// # Errors
    /// When there is no presence file and none can be made, or no descriptor is left.
    pub fn share(&self) -> io::Result<OwnedFd> {
        let mut own = self.own();
        let (_, descriptor) = self.life(&mut own).map_err(io::Error::other)?;
        descriptor.try_clone()
    }

    /// Makes a file for the work of this process to inherit; marks name it from now on.
    ///
    /// While any process has the file open, the work is not over, and this process is not proven
    /// dead.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] while earlier work still has its file open: a mark names only one.
    pub fn work(&self) -> Result<WorkFile, StoreError> {
        const DOING: &str = "making a work file";
        let mut own = self.own();
        self.check_process(DOING)?;
        if let Some(earlier) = &own.work {
            if !is_free(&self.root, earlier) {
                let says = "earlier work of this process has not ended";
                return Err(refused(Fault::Unavailable, DOING, says));
            }
            let name = earlier.file.clone();
            if let Ok(Some(directory)) = self.root.find(&presence_directory()) {
                started::forget(&directory, &name);
            }
            own.earlier.push(name);
        }
        let (locked, descriptor) = create(&self.root).map_err(|errno| failed(DOING, errno))?;
        own.work = Some(locked.clone());
        Ok(WorkFile::new(descriptor, locked, Arc::clone(&self.root), Arc::clone(&self.watchers)))
    }

    /// Records that the work that inherits this file starts now.
    ///
    /// [`started`](FilePresence::started) finds the work from now on. Call it before the work
    /// exists.
    ///
    /// # Errors
    /// When the record cannot be written. Then the work must not be started.
    pub fn record_start(&self, work: &WorkFile, start: &WorkStart<'_>) -> Result<(), StoreError> {
        let life = self.life(&mut self.own())?.0.clone();
        started::record(&self.root, work.locked(), &life, start)
            .map_err(|errno| failed("recording the start of the work", errno))
    }

    /// The work of an election that was started and may still run.
    ///
    /// The next leader must start nothing before all of it has ended. Work in a control group is
    /// listed even when its file is free, because a process of the work may have closed the file.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn started(&self, election: &str) -> Result<Vec<StartedWork>, StoreError> {
        started::find(&self.root, &self.watchers, &self.boot, election)
            .map_err(|errno| failed("looking for work of an earlier leader", errno))
    }

    #[cfg(test)]
    fn root_and_life(&self) -> Result<(Arc<Root>, Life), StoreError> {
        Ok((Arc::clone(&self.root), self.life(&mut self.own())?.0.clone()))
    }

    fn life<'o>(&self, own: &'o mut Own) -> Result<&'o (Life, OwnedFd), StoreError> {
        const DOING: &str = "making a presence file";
        self.check_process(DOING)?;
        let made = match own.life.take() {
            Some(made) => made,
            None => {
                let (locked, descriptor) =
                    create(&self.root).map_err(|errno| failed(DOING, errno))?;
                let life = Life::of_this_process(self.boot.clone(), locked).map_err(|error| {
                    StoreError::new(Fault::Unavailable, crate::file::error::BACKEND, DOING, error)
                })?;
                (life, descriptor)
            }
        };
        Ok(own.life.insert(made))
    }

    fn check_process(&self, doing: &str) -> Result<(), StoreError> {
        if std::process::id() == self.process {
            return Ok(());
        }
        let says = "this process was forked from the one that opened the store; open it again";
        Err(refused(Fault::Permanent, doing, says))
    }

    /// The proof of one process's death, shared by all waiters for it.
    fn proof(&self, claim: &Claim) -> Shared<BoxFuture<'static, ()>> {
        let mut proofs = self.proofs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = proofs.get(claim).and_then(WeakShared::upgrade) {
            return running;
        }
        proofs.retain(|_, proof| proof.upgrade().is_some());
        let prover = Prover {
            root: Arc::clone(&self.root),
            watchers: Arc::clone(&self.watchers),
            boot: self.boot.clone(),
            claim: claim.clone(),
        };
        let proof = prover.proven().boxed().shared();
        if let Some(weak) = proof.downgrade() {
            proofs.insert(claim.clone(), weak);
        }
        proof
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        // No code below panics half-way through a change.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Presence for FilePresence {
    fn mark(&self) -> Result<Mark, StoreError> {
        let mut own = self.own();
        let life = self.life(&mut own)?.0.clone();
        Ok(Claim { life, work: own.work.clone() }.mark())
    }

    async fn gone(&self, mark: &Mark) {
        match Claim::read(mark) {
            Some(claim) => self.proof(&claim).await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for FilePresence {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        let mut own = self.own();
        let life = own.life.as_ref().map(|(life, _)| life.locked.file.clone());
        let work = own.work.take();
        // The record of work that escaped is for the next leader.
        let ended = work.clone().filter(|work| is_free(&self.root, work));
        let work = work.map(|work| work.file);
        let mut files = std::mem::take(&mut own.earlier);
        files.extend(life.into_iter().chain(work));
        drop(own);
        let Ok(Some(directory)) = self.root.find(&presence_directory()) else { return };
        if let Some(work) = ended {
            started::forget(&directory, &work.file);
        }
        for file in files {
            // The file is not unlinked. If a document still names this process, its followers prove
            // its death by this file; without it they would wait for the ttl. A sweep removes the
            // file in an hour.
            let _ = self::sweep::mark_as_dead(&directory, &file);
        }
    }
}

/// Makes a file and locks it before its name is known to others.
fn create(root: &Root) -> Result<(Locked, OwnedFd), Errno> {
    let directory = root.make(&presence_directory())?;
    let file = path::random();
    // Open for writing: only the close of a writer notifies.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let descriptor = openat(&directory, &file, flags, FILE_MODE)?;
    let locked = flock(&descriptor, FlockOperation::NonBlockingLockExclusive)
        .and_then(|()| fstat(&descriptor));
    match locked {
        Ok(found) => Ok((Locked { file, identity: Identity::of(&found) }, descriptor)),
        Err(errno) => {
            let _ = unlinkat(&directory, &file, AtFlags::empty());
            Err(errno)
        }
    }
}

/// The directory of the files that prove processes alive.
fn presence_directory() -> Vec<String> {
    vec!["presence".to_owned()]
}
