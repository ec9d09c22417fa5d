//! The guardians that run CMD, each for one item after another.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tenure::Mandate;
use tenure::file::{FilePresence, WorkFile};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::errand::{Course, How, Returned};
use super::tail::Tail;
use crate::supervise::{Guardian, Privileges, Process, adopt_orphans};

/// One run of CMD.
pub(super) struct Errand {
    /// The text that replaces `{}`.
    pub(super) item: Option<OsString>,
    pub(super) stdin: OwnedFd,
    /// A copy of the object, dropped when the run has ended.
    pub(super) copy: Option<Box<dyn Send>>,
    pub(super) environment: Vec<(String, String)>,
    /// The run lasts no longer than this mandate.
    pub(super) mandate: Mandate,
    /// Resolves when the run must stop earlier.
    pub(super) told_to_stop: BoxFuture<'static, ()>,
}

/// All guardians of this process, idle and busy.
#[derive(Debug)]
pub(super) struct GuardianPool {
    command: Vec<OsString>,
    unset: Vec<&'static str>,
    presence: Option<Arc<FilePresence>>,
    /// CMD and everything it starts hold this file open. As long as they do, this process does not
    /// count as dead.
    pub(super) work: Option<WorkFile>,
    pub(super) grace: Duration,
    /// The privileges of CMD and everything it starts.
    pub(super) privileges: Privileges,
    idle: Mutex<Vec<Guardian>>,
    /// The children that this process was born with.
    foreign: Vec<Process>,
    /// Those children, and the guardians that live.
    spared: Mutex<Vec<Process>>,
    running: Mutex<JoinSet<()>>,
}

impl GuardianPool {
    /// An empty pool: guardians are started when they are needed.
    ///
    /// Make the pool before other members learn of the presence: from here on the presence lasts as
    /// long as any process that CMD started.
    ///
    /// # Errors
    /// When the kernel or the store's directory refuses.
    pub(super) fn new(
        command: Vec<OsString>,
        unset: Vec<&'static str>,
        presence: Option<Arc<FilePresence>>,
        grace: Duration,
        privileges: Privileges,
    ) -> anyhow::Result<GuardianPool> {
        let foreign = adopt_orphans()?;
        let work = presence.as_deref().map(FilePresence::work).transpose()?;
        Ok(GuardianPool {
            command,
            unset,
            presence,
            work,
            grace,
            privileges,
            idle: Mutex::default(),
            spared: Mutex::new(foreign.clone()),
            foreign,
            running: Mutex::default(),
        })
    }

    /// Runs CMD once. None of its processes is left when this returns.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, CMD is told to stop, and killed if it does not.
    pub(super) async fn run(self: &Arc<GuardianPool>, errand: Errand) -> Returned {
        let (answer, returned) = oneshot::channel();
        let pool = Arc::clone(self);
        {
            let mut running = lock(&self.running);
            // Remove runs that have ended.
            while running.try_join_next().is_some() {}
            running.spawn(async move { pool.perform(errand, answer).await });
        }
        // Without an answer the runtime is being shut down.
        returned.await.unwrap_or_else(|_| Returned::without_output(How::Stopped))
    }

    /// Waits until all runs have ended, and dismisses the guardians.
    ///
    /// # Cancel safety
    /// Not cancel safe: a run may go on.
    pub(super) async fn disband(&self) {
        let mut running = std::mem::take(&mut *lock(&self.running));
        while running.join_next().await.is_some() {}
        let mut idle = std::mem::take(&mut *lock(&self.idle));
        let Some(last) = idle.pop() else { return };
        // The other guardians exit by themselves. The dismissal of the last one waits for all of
        // them.
        drop(idle);
        lock(&self.spared).clone_from(&self.foreign);
        self.dismiss(last).await;
    }

    async fn perform(&self, errand: Errand, mut answer: oneshot::Sender<Returned>) {
        let returned = match self.hire() {
            Err(error) => Returned::without_output(How::Unstarted(error.to_string())),
            Ok(mut guardian) => match Course::begin(self, &mut guardian, errand) {
                Err(error) => {
                    self.dismiss(guardian).await;
                    Returned::without_output(How::Unstarted(error.to_string()))
                }
                Ok(course) => {
                    let (healthy, returned) = course.run(&mut guardian, &mut answer).await;
                    if healthy {
                        lock(&self.idle).push(guardian);
                    } else {
                        self.dismiss(guardian).await;
                    }
                    returned
                }
            },
        };
        // The caller may not wait any more.
        let _ = answer.send(returned);
    }

    /// An idle guardian, or a new one.
    fn hire(&self) -> io::Result<Guardian> {
        if let Some(guardian) = lock(&self.idle).pop() {
            return Ok(guardian);
        }
        self.post(&self.command)
    }

    /// Starts a new guardian for this command.
    ///
    /// # Errors
    /// When there is no process or socket to be had.
    pub(super) fn post(&self, command: &[OsString]) -> io::Result<Guardian> {
        let share = self.presence.as_deref().map(FilePresence::share).transpose()?;
        let guardian = Guardian::post_for_many(command, &self.unset, share)?;
        lock(&self.spared).extend(guardian.process());
        Ok(guardian)
    }

    /// Kills a guardian and its descendants, and no other process.
    ///
    /// # Cancel safety
    /// Not cancel safe: some of its processes may be left.
    pub(super) async fn dismiss(&self, guardian: Guardian) {
        let pid = guardian.pid();
        lock(&self.spared).retain(|process| process.pid != pid);
        guardian.dismiss_sparing(|| lock(&self.spared).clone()).await;
    }
}

impl Returned {
    fn without_output(how: How) -> Returned {
        Returned { how, out: Tail::empty(), err: Tail::empty() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one step, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
