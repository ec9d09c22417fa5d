//! The messages between supervisor and guardian, one line of JSON each.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

use super::{BootTime, Cgroup};

/// A message from the supervisor to the guardian.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first message. It comes with CMD's standard input and, if `presence`, the presence file.
    Watch { presence: bool },
    /// Start CMD. Comes with the streams of the `job`, if there is one, and the work file, if
    /// `work`.
    Start {
        /// Variables for CMD, in addition to the guardian's own environment.
        environment: Vec<(String, String)>,
        /// Until when the lease is proven.
        until: BootTime,
        /// How long before the end of the lease the tree must be told to stop.
        grace: Duration,
        /// The signal that tells the tree to stop.
        signal: i32,
        /// How long the tree has to stop after the supervisor's death.
        orphan_grace: Duration,
        /// The control group for CMD.
        cgroup: Option<Cgroup>,
        /// A directory to remove at the end, if the supervisor is dead by then.
        runtime: Option<PathBuf>,
        /// Whether to wait for [`Order::Proceed`], because CMD gets the terminal first.
        terminal: bool,
        work: bool,
        privileges: Privileges,
        /// Set if CMD runs many times. This run has streams of its own, and the guardian waits for
        /// the next run after it.
        job: Option<Job>,
    },
    /// CMD has the terminal now.
    Proceed,
    /// The lease was renewed.
    Until(BootTime),
    /// Tell the whole tree to stop, and kill it at `kill_at`.
    Stop { signal: i32, kill_at: BootTime },
    /// Pass a signal on to CMD's process group.
    Signal(i32),
}

/// Whether CMD, and everything it starts, may gain privileges by setuid programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Privileges {
    MayGrow,
    /// No. A setuid program could change the user of a process, and then it cannot be killed.
    Fixed,
}

impl Privileges {
    /// The privileges for `--no-new-privs`.
    pub(crate) fn of(no_new_privs: bool) -> Privileges {
        if no_new_privs { Privileges::Fixed } else { Privileges::MayGrow }
    }
}

/// The guardian's order to the last step: become CMD.
///
/// It comes with CMD's standard input and, if `work`, the work file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cue {
    pub(super) work: bool,
    pub(super) privileges: Privileges,
}

/// The part of a run of CMD that differs from other runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The text that replaces `{}` in CMD, in base64: it may be any bytes.
    item: Option<String>,
}

impl Job {
    pub(crate) fn new(item: Option<&OsStr>) -> Job {
        Job { item: item.map(|item| BASE64.encode(item.as_bytes())) }
    }

    /// The command for this run. Without an item it is unchanged.
    pub(super) fn command(&self, command: &[OsString]) -> Vec<OsString> {
        // The text comes from this very program, so it decodes.
        let item = self.item.as_ref().and_then(|item| BASE64.decode(item).ok());
        match item {
            Some(item) => command.iter().map(|word| filled(word, &item)).collect(),
            None => command.to_vec(),
        }
    }
}

/// The word with every `{}` in it replaced.
fn filled(word: &OsStr, item: &[u8]) -> OsString {
    let (mut rest, mut filled) = (word.as_bytes(), Vec::new());
    while let Some(at) = rest.windows(2).position(|pair| pair == b"{}") {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(item);
        rest = &rest[at + 2..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

/// A message from the guardian to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// CMD's process exists and waits for the terminal.
    Staged { pid: i32 },
    /// CMD runs.
    Started { pid: i32, contained: bool },
    /// CMD could not be run.
    Failed { code: u8, why: String },
    /// The terminal (Ctrl-Z) or another process stopped CMD.
    Suspended,
    /// CMD itself has ended; processes that it started may live.
    Exited(Status),
    /// No process of the tree is left. The guardian's last message, except after a job.
    TreeDead {
        /// Whether the guardian stopped the tree by itself because the lease ran out.
        overdue: bool,
    },
}

/// The message from the last step to the guardian if CMD cannot be run.
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
    /// The exit code that a shell would give: the code, or 128 plus the signal.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_braces_stands_for_the_item_and_the_item_for_itself() {
        let words = |words: &[&[u8]]| -> Vec<OsString> {
            words.iter().map(|word| OsString::from_vec(word.to_vec())).collect()
        };
        let command = words(&[b"cp", b"{}", b"to/{}-{}", b"{", b"}{", b""]);
        let item = OsStr::from_bytes(b"a {}\xff;$(x)");
        let filled = Job::new(Some(item)).command(&command);
        assert_eq!(
            filled,
            words(&[b"cp", b"a {}\xff;$(x)", b"to/a {}\xff;$(x)-a {}\xff;$(x)", b"{", b"}{", b""])
        );
        assert_eq!(Job::new(None).command(&command), command);
    }
}
