//! Runs CMD for the time of one leadership.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::FutureExt;
use rustix::process::Signal;
use tenure::file::WorkFile;
use tenure::{Loss, Mandate};

use crate::mandate_file::MandateFile;
use crate::signals::{Asked, Signals};
use crate::supervise::{
    BootTime, Cgroup, Event, Guardian, LeaseDeadline, Privileges, Status, Work,
};
use crate::systemd::Systemd;

/// Everything that is needed to run CMD while leading.
pub(super) struct Lead<'a> {
    pub(super) mandate: Mandate,
    pub(super) grace: Duration,
    pub(super) environment: Vec<(String, String)>,
    /// The signal that tells CMD to stop.
    pub(super) signal: Signal,
    /// How long CMD may go on after the death of this process.
    pub(super) orphan_grace: Duration,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) privileges: Privileges,
    /// The file where CMD reads how long it may go on.
    pub(super) mandate_file: Option<&'a MandateFile>,
    pub(super) systemd: &'a Systemd,
    pub(super) signals: &'a mut Signals,
}

/// How a leadership went. No process of CMD is left.
#[derive(Debug)]
pub(super) struct Led {
    pub(super) cause: Cause,
    /// How CMD ended, if it ever ran.
    pub(super) status: Option<Status>,
    /// Why CMD could not be run, and the exit code that says so.
    pub(super) refused: Option<(u8, String)>,
    /// Whether the user has asked this process to stop. That may be before or after CMD ended for
    /// another cause.
    pub(super) interrupted: bool,
}

/// Why CMD ended.
#[derive(Debug)]
pub(super) enum Cause {
    /// CMD ended by itself.
    Itself,
    /// The user asked for it.
    Interrupted,
    /// The user asked this process to step down.
    SteppedDown,
    /// The leadership was lost.
    Lost(Loss),
    /// The guardian died or hung.
    GuardianFailed,
}

/// The state of a leadership while CMD runs.
#[derive(Debug)]
struct Course {
    led: Led,
    lease_deadline: LeaseDeadline,
    /// Why the leadership is over, if it is.
    lost: Option<Loss>,
}

impl Lead<'_> {
    /// Runs CMD until it ends or must end. Afterwards no process of it is left.
    ///
    /// # Cancel safety
    /// Not cancel safe: processes of CMD may live on.
    pub(super) async fn run(mut self, mut guardian: Guardian, work: Option<WorkFile>) -> Led {
        let mut led = Led { cause: Cause::Itself, status: None, refused: None, interrupted: false };
        if let Some(loss) = self.mandate.must_stop() {
            // This process has slept since it was elected, and must not start CMD any more.
            led.cause = Cause::Lost(loss);
            guardian.dismiss().await;
            return led;
        }
        let lease_deadline = LeaseDeadline::new(self.mandate.clone(), self.grace);
        let until = lease_deadline.until();
        let mut course = Course { led, lease_deadline, lost: None };
        let environment = std::mem::take(&mut self.environment);
        let start = Work {
            environment,
            until,
            grace: self.grace,
            signal: self.signal,
            orphan_grace: self.orphan_grace,
            runtime: self.mandate_file.map(|file| file.directory().to_owned()),
            cgroup: self.cgroup.take(),
            file: work.as_ref().map(WorkFile::descriptor),
            privileges: self.privileges,
            run: None,
        };
        let started = guardian.start(start).is_ok();
        // From here on the file is locked only while CMD, or a process that CMD started, lives. If
        // this process hangs, the next leader must not mistake it for work.
        drop(work);
        let healthy = started && self.oversee(&mut guardian, &mut course).await;
        if !healthy {
            // This process may have slept: the lease may have ended without a notice.
            let loss = course.lost.take().or_else(|| self.mandate.must_stop());
            course.led.cause = when_the_guardian_failed(course.led.cause, loss);
        }
        // Reaps the guardian. If it failed, kills it and the remaining processes.
        guardian.dismiss().await;
        course.led
    }

    /// Watches CMD until its end. Returns true if the guardian did its duty.
    async fn oversee(&mut self, guardian: &mut Guardian, course: &mut Course) -> bool {
        let mandate = self.mandate.clone();
        loop {
            let hung = tokio::time::sleep(course.lease_deadline.latest().remaining());
            let ordered = tokio::select! {
                // Handle events before deadlines: this process may have slept.
                biased;
                event = guardian.event() => match course.learn(event) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(healthy) => return healthy,
                },
                loss = mandate.lost(), if course.lost.is_none() => self.lose(guardian, course, loss),
                () = mandate.renewed(), if course.lost.is_none() => Ok(()),
                asked = self.signals.next() => self.obey(guardian, course, asked),
                () = hung => match is_hung(guardian, course) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(healthy) => return healthy,
                },
            };
            if let Err(error) = ordered.and_then(|()| self.pass_on_renewal(guardian, course))
                && error.kind() != ErrorKind::BrokenPipe
            {
                // The guardian does not read. If it is gone, the next event says more.
                return false;
            }
        }
    }

    fn pass_on_renewal(&self, guardian: &Guardian, course: &mut Course) -> std::io::Result<()> {
        if course.lease_deadline.pass_on(guardian)? {
            self.write_mandate();
        }
        Ok(())
    }

    fn write_mandate(&self) {
        if let Some(Err(error)) = self.mandate_file.map(|file| file.write(&self.mandate)) {
            // CMD reads the older file, which promises less.
            tracing::warn!(%error, "writing the mandate's file");
        }
    }

    fn lose(&self, guardian: &Guardian, course: &mut Course, loss: Loss) -> std::io::Result<()> {
        course.lost = Some(loss.clone());
        let kill_at = course.lease_deadline.killed_after(&loss);
        if matches!(course.led.cause, Cause::Itself) && course.led.status.is_none() {
            course.led.cause = Cause::Lost(loss);
        }
        self.write_mandate();
        self.systemd.status("leadership is lost; stopping");
        course.lease_deadline.stop(guardian, self.signal, kill_at)
    }

    fn obey(&self, guardian: &Guardian, course: &mut Course, asked: Asked) -> std::io::Result<()> {
        let gracefully = BootTime::now().after(self.grace);
        match asked {
            Asked::Stop(signal) => {
                let again = std::mem::replace(&mut course.led.interrupted, true);
                if matches!(course.led.cause, Cause::Itself | Cause::SteppedDown) {
                    course.led.cause = Cause::Interrupted;
                }
                if again && signal == Signal::INT {
                    return course.lease_deadline.stop(guardian, Signal::KILL, BootTime::PAST);
                }
                self.systemd.stopping();
                // A service manager sends TERM to all its services; CMD may expect another signal.
                let signal = if signal == Signal::TERM { self.signal } else { signal };
                course.lease_deadline.stop(guardian, signal, gracefully)
            }
            Asked::StepDown => {
                if matches!(course.led.cause, Cause::Itself) {
                    course.led.cause = Cause::SteppedDown;
                }
                course.lease_deadline.stop(guardian, self.signal, gracefully)
            }
            // The loop checks the mandate before it checks signals.
            Asked::Resume => Ok(()),
            Asked::PassOn(signal) | Asked::Mention(signal) => guardian.signal(signal),
        }
    }
}

impl Course {
    /// Records an event. Breaks when no process is left to watch: with false if the guardian
    /// failed.
    fn learn(&mut self, event: Event) -> ControlFlow<bool> {
        match event {
            Event::Started { pid, contained } => {
                let found_by = if contained { "its control group" } else { "its parents" };
                tracing::info!(pid = pid.as_raw_nonzero().get(), found_by, "CMD runs");
            }
            Event::Failed(code, why) => self.led.refused = Some((code, why)),
            Event::Exited(status) => self.led.status = Some(status),
            Event::TreeDead { overdue } => {
                if overdue && matches!(self.led.cause, Cause::Itself) {
                    self.led.cause = Cause::Lost(Loss::Expired);
                }
                return ControlFlow::Break(true);
            }
            Event::GuardianDied => return ControlFlow::Break(false),
        }
        ControlFlow::Continue(())
    }
}

/// The cause when the guardian died or hung.
///
/// If the lease was lost before, that is the cause, even if the user asked for something else: the
/// guardian may just have been slow.
fn when_the_guardian_failed(cause: Cause, loss: Option<Loss>) -> Cause {
    match (cause, loss) {
        (_, Some(loss)) | (Cause::Lost(loss), None) => Cause::Lost(loss),
        (Cause::Itself | Cause::Interrupted | Cause::SteppedDown | Cause::GuardianFailed, None) => {
            Cause::GuardianFailed
        }
    }
}

/// Looks twice before it gives up on the guardian.
///
/// tokio's clock stands still while the machine sleeps, and a process that was stopped sees timers
/// before sockets.
fn is_hung(guardian: &mut Guardian, course: &mut Course) -> ControlFlow<bool> {
    match guardian.event().now_or_never() {
        Some(event) => course.learn(event),
        None if course.lease_deadline.latest().has_passed() => ControlFlow::Break(false),
        None => ControlFlow::Continue(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_was_asked_for_before_a_lost_lease_stays_lost_when_the_guardian_fails() {
        let causes =
            || [Cause::Itself, Cause::Interrupted, Cause::SteppedDown, Cause::GuardianFailed];
        for cause in causes() {
            let told = format!("{cause:?}");
            let cause = when_the_guardian_failed(cause, Some(Loss::Expired));
            assert!(matches!(cause, Cause::Lost(Loss::Expired)), "{told}: {cause:?}");
        }
        for cause in causes() {
            let cause = when_the_guardian_failed(cause, None);
            assert!(matches!(cause, Cause::GuardianFailed), "{cause:?}");
        }
        let lost = when_the_guardian_failed(Cause::Lost(Loss::Expired), None);
        assert!(matches!(lost, Cause::Lost(Loss::Expired)), "{lost:?}");
    }
}
