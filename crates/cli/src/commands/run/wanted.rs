//! The options of `run`, after all sources of settings have been combined.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;
use tenure::Timing;

use crate::args::RunOptions;
use crate::config::{Origin, Origins};
use crate::exit::{Failure, USAGE};
use crate::supervise::Privileges;

/// The options for running CMD or the handlers.
#[derive(Debug)]
pub(super) struct Wanted {
    /// How long to wait to be elected.
    pub(super) patience: Patience,
    pub(super) conflict_exit_code: u8,
    pub(super) keep: bool,
    pub(super) hold: Option<Duration>,
    pub(super) signal: Signal,
    pub(super) orphan_grace: Duration,
    pub(super) privileges: Privileges,
    pub(super) command: Vec<OsString>,
}

/// How long to wait to be elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Endless,
    AtMost(Duration),
    /// Do not wait at all.
    None,
}

/// The work to do while leading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Child,
    Handlers,
}

/// The settings that apply to CMD only, and those that apply to handlers only.
const OF_CMD: [&str; 6] = ["once", "keep", "hold", "signal", "orphan-grace", "no-new-privs"];
const OF_HANDLERS: [&str; 9] = [
    "leader-begin-command",
    "leader-end-command",
    "error-command",
    "error-timeout",
    "begin-timeout",
    "end-timeout",
    "end-retry",
    "end-attempts",
    "on-stuck",
];

impl Wanted {
    /// Decides between CMD and handlers.
    ///
    /// CMD always comes from the command line, and wins over handlers that only a file or the
    /// environment names.
    ///
    /// # Errors
    /// When the command line names both, or there is neither CMD nor a handler.
    pub(super) fn doing(&self, options: &RunOptions, origins: &Origins) -> Result<Doing, Failure> {
        let refuse = |text: String| Failure::new(USAGE, anyhow::anyhow!(text));
        let flagged = |names: &[&'static str]| {
            names.iter().find(|name| origins.of(name) == Origin::Flag).copied()
        };
        let handlers = &options.handlers;
        if !self.command.is_empty() {
            return match flagged(&OF_HANDLERS) {
                Some(name) => Err(refuse(format!("--{name} cannot be used with CMD"))),
                None => Ok(Doing::Child),
            };
        }
        if handlers.leader_begin_command.is_none() && handlers.leader_end_command.is_none() {
            let text = "there is nothing to run: write `-- CMD`, or --leader-begin-command and \
                        --leader-end-command";
            return Err(refuse(text.to_owned()));
        }
        match flagged(&OF_CMD) {
            Some(name) => Err(refuse(format!("--{name} is about CMD, and there is none"))),
            None => Ok(Doing::Handlers),
        }
    }

    /// Resolves contradicting settings: the one with the stronger origin counts.
    ///
    /// # Errors
    /// When the command line contradicts itself.
    pub(super) fn of(
        options: &RunOptions,
        command: Vec<OsString>,
        origins: &Origins,
    ) -> Result<Wanted, Failure> {
        let (waiting, child) = (&options.waiting, &options.child);
        let nonblock =
            waiting.nonblock && wins(origins, "nonblock", "wait", waiting.wait.is_some())?;
        let patience = match waiting.wait {
            _ if nonblock => Patience::None,
            Some(wait) => Patience::AtMost(wait),
            None => Patience::Endless,
        };
        Ok(Wanted {
            patience,
            conflict_exit_code: waiting.conflict_exit_code,
            keep: child.keep && wins(origins, "keep", "once", child.once)?,
            hold: child.hold,
            signal: child.signal,
            orphan_grace: child.orphan_grace,
            privileges: Privileges::of(child.no_new_privs),
            command,
        })
    }
}

impl Patience {
    /// The longest wait, if there is a limit.
    pub(super) fn span(self, timing: Timing) -> Option<Duration> {
        match self {
            // The election was not led a moment ago. This leaves time to claim it, and to lose
            // against other candidates.
            Patience::None => Some(timing.request() * 3),
            Patience::AtMost(patience) => Some(patience),
            Patience::Endless => None,
        }
    }
}

/// How long a candidate that stepped down stays away.
///
/// Waiting candidates claim within a tenth of that.
pub(super) fn last_in_line(timing: Timing) -> Duration {
    timing.ttl() / 10
}

/// Returns true if the setting `one` counts, and not `other`. `both` says that both are set.
///
/// # Errors
/// When the command line has both.
pub(super) fn wins(origins: &Origins, one: &str, other: &str, both: bool) -> Result<bool, Failure> {
    if !both {
        return Ok(true);
    }
    let (first, second) = (origins.of(one), origins.of(other));
    if (&first, &second) == (&Origin::Flag, &Origin::Flag) {
        let text = anyhow::anyhow!("--{one} cannot be used with --{other}");
        return Err(Failure::new(USAGE, text));
    }
    Ok(first.beats(&second))
}
