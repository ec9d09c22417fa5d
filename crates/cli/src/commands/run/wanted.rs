//! What `run` is asked for, once all layers have been heard.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;

use crate::args::{HandlerOptions, RunOptions};
use crate::config::{Origin, Origins};
use crate::exit::{Failure, USAGE};

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

impl Wanted {
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
            command,
        })
    }
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
    Ok(first > second)
}

/// Whether there are handlers.
pub(super) fn has_handlers(options: &HandlerOptions) -> bool {
    options.leader_begin_command.is_some() || options.leader_end_command.is_some()
}
