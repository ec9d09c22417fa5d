//! Runs the command of `--from cmd:…`, which finds items.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::process::Signal;

use super::pool::GuardianPool;
use crate::supervise::{BootTime, Event, Guardian, RunOfMany, Status, Work};

/// A command that prints items.
#[derive(Debug)]
pub(super) struct Finder {
    guardian: Guardian,
    grace: Duration,
    status: Option<Status>,
}

impl Finder {
    /// Starts the command by `sh -c`. The pipe gives its output.
    ///
    /// # Errors
    /// When there is no process or pipe to be had.
    pub(super) fn start(pool: &GuardianPool, text: &str) -> io::Result<(Finder, io::PipeReader)> {
        let command: Vec<OsString> = vec!["sh".into(), "-c".into(), text.into()];
        let mut guardian = pool.post(&command)?;
        let (output, end) = io::pipe()?;
        let nothing = std::fs::File::open("/dev/null")?;
        let stderr = io::stderr();
        guardian.start(Work {
            environment: Vec::new(),
            // The command has no lease: it may run for as long as this process does.
            until: BootTime::now().after(Duration::MAX),
            grace: pool.grace,
            signal: Signal::TERM,
            orphan_grace: Duration::ZERO,
            runtime: None,
            cgroup: None,
            file: None,
            privileges: pool.privileges,
            run: Some(RunOfMany {
                item: None,
                streams: [nothing.as_fd(), end.as_fd(), stderr.as_fd()],
            }),
        })?;
        Ok((Finder { guardian, grace: pool.grace, status: None }, output))
    }

    /// Tells the command to stop; its guardian kills it if it does not.
    pub(super) fn stop(&self) {
        // If the guardian is gone, the next event says more.
        let _ = self.guardian.stop(Signal::TERM, BootTime::now().after(self.grace));
    }

    /// Waits for the end. The error says how the command failed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn ended(&mut self) -> Result<(), String> {
        loop {
            match self.guardian.event().await {
                Event::Started { .. } => {}
                Event::Failed(_, why) => return Err(format!("running sh: {why}")),
                Event::Exited(status) => self.status = Some(status),
                Event::GuardianDied => return Err("its guardian died".to_owned()),
                Event::TreeDead { .. } => {
                    return match self.status {
                        Some(Status::Code(0)) => Ok(()),
                        Some(Status::Code(code)) => Err(format!("exit code {code}")),
                        Some(Status::Signal(number)) => Err(format!("killed by signal {number}")),
                        None => Err("it was stopped".to_owned()),
                    };
                }
            }
        }
    }

    /// The guardian, for the caller to dismiss.
    pub(super) fn into_guardian(self) -> Guardian {
        self.guardian
    }
}
