//! What supervisor and guardian say to each other, one line of JSON a message.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

use super::{BootTime, Cgroup};

/// What the supervisor tells the guardian.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first message: comes with CMD's standard input and, if `presence`, the presence file.
    Watch { presence: bool },
    /// Start CMD; comes with the streams of the `job`, if it is one, and the work file, if `work`.
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
        privileges: Privileges,
        /// CMD is one of many: it has streams of its own, and the guardian waits for the next one
        /// after it.
        job: Option<Job>,
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

/// Whether CMD, and everything it starts, may gain privileges by setuid programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Privileges {
    MayGrow,
    /// No: a process that a setuid program made another user's cannot be killed.
    Fixed,
}

impl Privileges {
    /// As `--no-new-privs` says.
    pub(crate) fn of(no_new_privs: bool) -> Privileges {
        if no_new_privs { Privileges::Fixed } else { Privileges::MayGrow }
    }
}

/// The guardian's word to the last step before CMD: become CMD. It comes with CMD's standard input
/// and, if `work`, the work file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cue {
    pub(super) work: bool,
    pub(super) privileges: Privileges,
}

/// What tells one run of CMD from another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// What stands for `{}` in CMD, in base64: it may be any bytes.
    item: Option<String>,
}

impl Job {
    pub(crate) fn new(item: Option<&OsStr>) -> Job {
        Job { item: item.map(|item| BASE64.encode(item.as_bytes())) }
    }

    /// The command for this run: without an item as it is.
    pub(super) fn command(&self, command: &[OsString]) -> Vec<OsString> {
        // Only what this very program wrote is read here.
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
    /// Nothing of the tree is left. The guardian's last word, but of a job.
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
