//! The terminal, lent to CMD while it runs.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// A terminal that this process may lend.
#[derive(Debug)]
pub(super) struct Terminal {
    descriptor: OwnedFd,
    ours: Pid,
    lent: bool,
}

impl Terminal {
    /// The terminal, if CMD should have it: it reads from and writes to one, in the foreground.
    ///
    /// In `tenure run … | less` the terminal is less's business.
    pub(super) fn of_this_process() -> Option<Terminal> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let descriptor = io::stdin().as_fd().try_clone_to_owned().ok()?;
        let terminal = Terminal { descriptor, ours: getpgrp(), lent: false };
        // Whoever is in the background is stopped when it takes the terminal back, unless it blocks
        // the signal.
        let mut blocked = SigSet::empty();
        blocked.add(Blocked::SIGTTOU);
        blocked.thread_block().ok()?;
        Some(terminal)
    }

    /// Makes that process group the foreground one, if ours is.
    pub(super) fn lend(&mut self, group: Pid) {
        if tcgetpgrp(&self.descriptor) == Ok(self.ours) {
            self.lent = tcsetpgrp(&self.descriptor, group).is_ok();
        }
    }

    /// Makes our own group the foreground one again.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            let _ = tcsetpgrp(&self.descriptor, self.ours);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
