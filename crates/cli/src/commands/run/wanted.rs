//! What `run` is asked for, once all layers have been heard.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;
use tenure::Timing;

use crate::args::RunOptions;
use crate::config::{Origin, Origins};
use crate::exit::{Failure, USAGE};
use crate::supervise::Privileges;

/// What CMD, or the handlers, are run with.
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
    /// Not at all.
    None,
}

/// What is done while leading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Child,
    Handlers,
}

/// Settings that say nothing about handlers, and nothing about CMD.
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
    /// Whether to run CMD or handlers. CMD is always on the command line; handlers that only a file
    /// or the environment names stand back.
    ///
    /// # Errors
    /// When the command line says both, or nothing says either.
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

    /// Settles what contradicts itself: what was said closer at hand counts.
    ///
    /// # Errors
    /// When the command line itself contradicts itself.
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
    /// How long that is, if there is an end to it.
    pub(super) fn span(self, timing: Timing) -> Option<Duration> {
        match self {
            // Nobody leads; what is left is to claim, and to lose against others who do.
            Patience::None => Some(timing.request() * 3),
            Patience::AtMost(patience) => Some(patience),
            Patience::Endless => None,
        }
    }
}

/// How long whoever stepped down keeps away: those who wait claim within a tenth of that.
pub(super) fn last_in_line(timing: Timing) -> Duration {
    timing.ttl() / 10
}

/// Whether the one setting counts and not the other, which is said too if `both`.
///
/// # Errors
/// When the command line says both.
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
