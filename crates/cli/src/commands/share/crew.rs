//! The hands that run CMD: one guardian each, which runs it for one item after another.

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
    /// What stands for `{}`.
    pub(super) item: Option<OsString>,
    pub(super) stdin: OwnedFd,
    /// What is dropped when it has ended.
    pub(super) copy: Option<Box<dyn Send>>,
    pub(super) environment: Vec<(String, String)>,
    /// It runs no longer than this.
    pub(super) mandate: Mandate,
    /// Resolves when it must stop earlier.
    pub(super) told_to_stop: BoxFuture<'static, ()>,
}

/// Everybody who can run CMD, and those who just do.
#[derive(Debug)]
pub(super) struct Crew {
    command: Vec<OsString>,
    unset: Vec<&'static str>,
    presence: Option<Arc<FilePresence>>,
    /// Held open by CMD and everything it starts: while it is, this process is not proven gone.
    pub(super) work: Option<WorkFile>,
    pub(super) grace: Duration,
    /// Of CMD and everything it starts.
    pub(super) privileges: Privileges,
    idle: Mutex<Vec<Guardian>>,
    /// The children that this process was born with.
    foreign: Vec<Process>,
    /// Those, and the guardians that live.
    spared: Mutex<Vec<Process>>,
    running: Mutex<JoinSet<()>>,
}

impl Crew {
    /// Nobody yet: guardians are posted when they are needed.
    ///
    /// Must be made before the presence is told to others: from here on it lasts as long as
    /// anything that CMD started.
    ///
    /// # Errors
    /// When the kernel or the store's directory refuses.
    pub(super) fn new(
        command: Vec<OsString>,
        unset: Vec<&'static str>,
        presence: Option<Arc<FilePresence>>,
        grace: Duration,
        privileges: Privileges,
    ) -> anyhow::Result<Crew> {
        let foreign = adopt_orphans()?;
        let work = presence.as_deref().map(FilePresence::work).transpose()?;
        Ok(Crew {
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

    /// Runs CMD once. Nothing of it is left when this returns.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped, CMD is told to stop, and killed when it does not.
    pub(super) async fn run(self: &Arc<Crew>, errand: Errand) -> Returned {
        let (answer, returned) = oneshot::channel();
        let crew = Arc::clone(self);
        {
            let mut running = lock(&self.running);
            // Those that have ended are forgotten here.
            while running.try_join_next().is_some() {}
            running.spawn(async move { crew.perform(errand, answer).await });
        }
        // Without an answer the runtime is being shut down.
        returned.await.unwrap_or_else(|_| Returned::without_output(How::Stopped))
    }

    /// Waits for what still runs to end, and sends the guardians home.
    ///
    /// # Cancel safety
    /// Not cancel safe: something may still run.
    pub(super) async fn disband(&self) {
        let mut running = std::mem::take(&mut *lock(&self.running));
        while running.join_next().await.is_some() {}
        let mut idle = std::mem::take(&mut *lock(&self.idle));
        let Some(last) = idle.pop() else { return };
        // They go by themselves, and the last one's dismissal waits for all of them.
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
        // Whoever asked may not want to know any more.
        let _ = answer.send(returned);
    }

    /// A guardian that has nothing to do, or a new one.
    fn hire(&self) -> io::Result<Guardian> {
        if let Some(guardian) = lock(&self.idle).pop() {
            return Ok(guardian);
        }
        self.post(&self.command)
    }

    /// A new guardian, for this command.
    ///
    /// # Errors
    /// When a process or a socket cannot be had.
    pub(super) fn post(&self, command: &[OsString]) -> io::Result<Guardian> {
        let share = self.presence.as_deref().map(FilePresence::share).transpose()?;
        let guardian = Guardian::post_for_many(command, &self.unset, share)?;
        lock(&self.spared).extend(guardian.process());
        Ok(guardian)
    }

    /// Kills a guardian and what is below it, and nobody else.
    ///
    /// # Cancel safety
    /// Not cancel safe: something of it may be left.
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
    // Every change is one step: a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
