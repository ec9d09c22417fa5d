//! The file that a leader's work inherits.
//!
//! While any process has it open, the work is not over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::mark::Locked;
use super::presence_directory;
use super::proof::is_free;
use crate::file::directory::Root;
use crate::file::notify::{FileWatchers, Ring};

/// How often to probe without notifications.
///
/// The next two: how long, and how often, to probe after a notification.
const WITHOUT_WATCHERS: Duration = Duration::from_millis(20);
const AFTER_A_CHANGE: Duration = Duration::from_millis(50);
const BETWEEN_PROBES: Duration = Duration::from_millis(1);

/// A locked file for the work to inherit. Dropping it closes only this process's copy.
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
        watchers: Arc<FileWatchers>,
    ) -> WorkFile {
        WorkFile { descriptor, probe: WorkProbe { locked, root, watchers } }
    }

    /// The descriptor for the work to inherit.
    ///
    /// It is closed at `exec` unless the caller clears that flag.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Closes this process's copy; from now on only the work's copies count.
    pub fn close(self) -> WorkProbe {
        self.probe
    }

    /// Makes a probe that tells whether the work has ended.
    ///
    /// The work counts as running until this process's copy is closed.
    pub fn probe(&self) -> WorkProbe {
        self.probe.clone()
    }

    pub(super) fn locked(&self) -> &Locked {
        &self.probe.locked
    }
}

/// A probe that tells whether work has ended.
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkProbe {
    locked: Locked,
    root: Arc<Root>,
    watchers: Arc<FileWatchers>,
}

impl WorkProbe {
    pub(super) fn new(locked: Locked, root: Arc<Root>, watchers: Arc<FileWatchers>) -> WorkProbe {
        WorkProbe { locked, root, watchers }
    }

    /// Returns true if no process has the file open any more. In doubt, false.
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
            let watcher = self.watchers.listen_for_close(&presence_directory(), &self.locked.file);
            if self.is_free() {
                return;
            }
            let Some(mut watcher) = watcher else {
                tokio::time::sleep(WITHOUT_WATCHERS).await;
                continue;
            };
            while watcher.rung().await == Ring::Rang {
                let until = Instant::now() + AFTER_A_CHANGE;
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
