//! The proof that a process is dead. In doubt there is none, and its lease must run out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};

use super::mark::{Claim, Life, Locked, Process, look_at, namespace};
use super::presence_directory;
use crate::file::directory::{Identity, Root};
use crate::file::notify::{FileWatcher, FileWatchers, Ring};

/// How long to probe often after a notification.
///
/// It can ring a few milliseconds before the lock is free.
const AFTER_A_CHANGE: Duration = Duration::from_millis(50);
const BETWEEN_PROBES: Duration = Duration::from_millis(1);
/// How long to probe without sleeping. Mostly the lock is free within half a millisecond, and the
/// shortest sleep takes two.
const WITHOUT_SLEEP: Duration = Duration::from_millis(1);
/// How long to wait for a dying process: it frees its lock a little before it is a zombie.
const WHILE_DYING: Duration = Duration::from_secs(5);
const BETWEEN_LATER_PROBES: Duration = Duration::from_millis(20);
/// How often a lock that is not free is probed after that.
///
/// Each pause is twice as long as the one before: five seconds in all.
const LATER_PROBES: u32 = 7;

/// Waits for one process to be proven dead.
#[derive(Debug)]
pub(super) struct Prover {
    pub root: Arc<Root>,
    pub watchers: Arc<FileWatchers>,
    pub boot: String,
    pub claim: Claim,
}

impl Prover {
    /// Resolves once the death is proven, else never.
    pub(super) async fn proven(self) {
        if self.claim.life.boot != self.boot {
            // Its files may be gone, or have the same names by chance. Nothing can be proven.
            return std::future::pending().await;
        }
        loop {
            let files = [Some(&self.claim.life.locked), self.claim.work.as_ref()];
            // Listen, then probe: a death in between notifies.
            let mut watchers = Vec::with_capacity(files.len());
            for locked in files.into_iter().flatten() {
                let heard = self.watchers.listen_for_close(&presence_directory(), &locked.file);
                watchers.extend(heard);
            }
            if self.watch(&mut watchers).await == Evidence::Gone {
                return;
            }
        }
    }

    /// Probes at once, after each ring, and for a while after both.
    ///
    /// Returns without proof when the watchers watch the wrong place.
    ///
    /// The notification of a dying process may come a little before its lock is free, and it may
    /// have come before we listened. On a busy machine the process may not run for a while in
    /// between, and no notification comes again.
    async fn watch(&self, watchers: &mut [FileWatcher]) -> Evidence {
        let (mut began, mut rang, mut later) = (Instant::now(), false, 0);
        loop {
            let evidence = self.probe();
            // Not the runtime's clock: if a test pauses that clock, the kernel still needs real
            // time.
            let passed = began.elapsed();
            let pause = match evidence {
                Evidence::Gone => return evidence,
                Evidence::Dying | Evidence::None if rang && passed < WITHOUT_SLEEP => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Evidence::Dying | Evidence::None if rang && passed < AFTER_A_CHANGE => {
                    Some(BETWEEN_PROBES)
                }
                Evidence::Dying if passed < WHILE_DYING => Some(BETWEEN_LATER_PROBES),
                Evidence::None if later < LATER_PROBES => {
                    later += 1;
                    Some(BETWEEN_LATER_PROBES * 2_u32.pow(later))
                }
                Evidence::Dying | Evidence::None => None,
            };
            let pause = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ring = any(watchers) => match ring {
                    Ring::Rang => (began, rang, later) = (Instant::now(), true, 0),
                    Ring::Moved => return evidence,
                },
                () = pause => {}
            }
        }
    }

    fn probe(&self) -> Evidence {
        let work_ended = self.claim.work.as_ref().is_none_or(|work| is_free(&self.root, work));
        if !work_ended || !is_free(&self.root, &self.claim.life.locked) {
            return Evidence::None;
        }
        if has_ended(&self.claim.life) { Evidence::Gone } else { Evidence::Dying }
    }
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    Gone,
    /// The locks are free, but the process still exists. It may also live on without them.
    Dying,
    None,
}

/// The next notification of any of these watchers.
async fn any(watchers: &mut [FileWatcher]) -> Ring {
    match watchers {
        [] => std::future::pending().await,
        [one] => one.rung().await,
        [one, rest @ ..] => {
            let rest = Box::pin(any(rest));
            tokio::select! {
                ring = one.rung() => ring,
                ring = rest => ring,
            }
        }
    }
}

/// Returns true if this very file exists and is not locked.
///
/// Read-only and shared: closing a descriptor for writing would notify again, and an
/// exclusive lock would make two probers see each other.
pub(super) fn is_free(root: &Root, locked: &Locked) -> bool {
    let Ok(Some(directory)) = root.find(&presence_directory()) else { return false };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(&directory, &locked.file, flags, Mode::empty()) else { return false };
    fstat(&file).is_ok_and(|found| Identity::of(&found) == locked.identity)
        && flock(&file, FlockOperation::NonBlockingLockShared).is_ok()
}

/// Returns true if the process is gone, as far as this pid namespace can tell.
pub(super) fn has_ended(life: &Life) -> bool {
    match namespace() {
        // Its process id means nothing here; the lock alone decides.
        Ok(ours) if ours != life.namespace => true,
        Ok(_) => match look_at(life.process) {
            Ok(Process::Gone) => true,
            // Another process may have got the same id.
            Ok(Process::Alive { start }) => start != life.start,
            // A zombie runs nothing any more, and its lock is free.
            Ok(Process::Zombie { .. }) => true,
            Err(_) => false,
        },
        Err(_) => false,
    }
}
