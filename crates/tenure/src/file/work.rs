//! The file that a leader's work inherits: while any process has it open, the work is not over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::directory::Root;
use super::mark::Locked;
use super::notify::{Bells, Ring};
use super::presence_directory;
use super::proof::is_free;

/// How often to look where nothing notifies us, and right after a notification.
const WITHOUT_BELLS: Duration = Duration::from_millis(20);
const AFTER_A_BELL: Duration = Duration::from_millis(50);
const BETWEEN_PROBES: Duration = Duration::from_millis(1);

/// A locked file for the work to inherit. Dropped, only this process's copy is closed.
#[derive(Debug)]
#[must_use]
pub struct WorkFile {
    descriptor: OwnedFd,
    probe: WorkProbe,
}

impl WorkFile {
    pub(super) fn new(
        descriptor: OwnedFd,
        locked: Locked,
        root: Arc<Root>,
        bells: Arc<Bells>,
    ) -> WorkFile {
        WorkFile { descriptor, probe: WorkProbe { locked, root, bells } }
    }

    /// The descriptor that the work is to inherit. It is closed at `exec` unless the caller clears
    /// that.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Closes this process's copy; the work's copies decide from now on.
    pub fn close(self) -> WorkProbe {
        self.probe
    }

    /// Tells whether the work has ended. It has not before this process's copy is closed.
    pub fn probe(&self) -> WorkProbe {
        self.probe.clone()
    }

    pub(super) fn locked(&self) -> &Locked {
        &self.probe.locked
    }
}

/// Tells whether work has ended.
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkProbe {
    locked: Locked,
    root: Arc<Root>,
    bells: Arc<Bells>,
}

impl WorkProbe {
    pub(super) fn new(locked: Locked, root: Arc<Root>, bells: Arc<Bells>) -> WorkProbe {
        WorkProbe { locked, root, bells }
    }

    /// Whether no process has the file open any more. In doubt, no.
    #[must_use]
    pub fn is_free(&self) -> bool {
        is_free(&self.root, &self.locked)
    }

    /// Resolves once no process has the file open any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn freed(&self) {
        loop {
            let bell = self.bells.listen_for_close(&presence_directory(), &self.locked.file);
            if self.is_free() {
                return;
            }
            let Some(mut bell) = bell else {
                tokio::time::sleep(WITHOUT_BELLS).await;
                continue;
            };
            while bell.rung().await == Ring::Rang {
                let until = Instant::now() + AFTER_A_BELL;
                while Instant::now() < until {
                    if self.is_free() {
                        return;
                    }
                    tokio::time::sleep(BETWEEN_PROBES).await;
                }
            }
        }
    }
}
