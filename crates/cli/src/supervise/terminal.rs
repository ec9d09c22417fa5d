//! Lends the terminal to CMD while it runs.

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
    /// The terminal of this process, if it should be CMD's.
    ///
    /// That is so if this process reads from and writes to a terminal.
    ///
    /// In `tenure run … | less` the terminal belongs to less.
    pub(super) fn of_this_process() -> Option<Terminal> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let descriptor = io::stdin().as_fd().try_clone_to_owned().ok()?;
        let terminal = Terminal { descriptor, ours: getpgrp(), lent: false };
        // The kernel stops a background process that takes the terminal back, unless that process
        // blocks the signal.
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
