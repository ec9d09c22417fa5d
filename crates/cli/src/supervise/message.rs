//! What supervisor and guardian say to each other, one line of JSON a message.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

use super::{BootTime, Cgroup};

/// What the supervisor tells the guardian.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first message: comes with CMD's standard input and, if `presence`, the presence file.
    Watch { presence: bool },
    /// Start CMD; comes with the work file, if `work`.
    Start {
        /// What CMD's environment has beside the guardian's own.
        environment: Vec<(String, String)>,
        /// How long the lease is proven.
        until: BootTime,
        /// How long before that the tree must be told to stop.
        grace: Duration,
        /// What tells the tree to stop.
        signal: i32,
        /// How long the tree has to stop when the supervisor is dead.
        orphan_grace: Duration,
        /// The control group that CMD is to be put into.
        cgroup: Option<Cgroup>,
        /// A directory to remove at the end, should the supervisor be dead by then.
        runtime: Option<PathBuf>,
        /// Whether to wait for [`Order::Proceed`], because CMD gets the terminal first.
        terminal: bool,
        work: bool,
    },
    /// The terminal is CMD's.
    Proceed,
    /// The lease was renewed.
    Until(BootTime),
    /// Tell the whole tree to stop, and kill it then.
    Stop { signal: i32, kill_at: BootTime },
    /// Pass a signal on to CMD's process group.
    Signal(i32),
}

/// What the guardian tells the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// CMD's process exists and waits for the terminal.
    Staged { pid: i32 },
    /// CMD runs.
    Started { pid: i32, contained: bool },
    /// CMD could not be run.
    Failed { code: u8, why: String },
    /// CMD was stopped by the terminal (Ctrl-Z), or by somebody else.
    Suspended,
    /// CMD itself has ended; what it started may not have.
    Exited(Status),
    /// Nothing of the tree is left. The guardian's last word.
    TreeDead {
        /// Whether the guardian had to stop it by itself because the lease ran out.
        overdue: bool,
    },
}

/// What the last step before CMD tells the guardian when there is no CMD.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) code: u8,
    pub(crate) why: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Code(u8),
    Signal(u8),
}

impl Status {
    /// What a shell would give: the code, or 128 and the signal.
    pub(crate) fn shell_code(self) -> u8 {
        match self {
            Status::Code(code) => code,
            Status::Signal(number) => 128_u8.saturating_add(number),
        }
    }

    pub(super) fn of(status: WaitStatus) -> Option<Status> {
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        let code = status.exit_status().map(|code| Status::Code(byte(code)));
        code.or_else(|| status.terminating_signal().map(|number| Status::Signal(byte(number))))
    }
}
