//! One run of CMD, from its start to the death of everything it started.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::Signal;
use tenure::file::WorkFile;
use tenure::{Loss, Mandate};
use tokio::sync::oneshot;

use super::pool::{Errand, GuardianPool};
use super::tail::Tail;
use crate::supervise::{BootTime, Event, Guardian, LeaseDeadline, RunOfMany, Status, Work};

/// The result of a run.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) how: How,
    pub(super) out: Tail,
    pub(super) err: Tail,
}

/// How a run ended. None of its processes is left.
#[derive(Debug)]
pub(super) enum How {
    /// CMD ended by itself.
    Ended(Status),
    /// CMD could not be run.
    Refused(String),
    /// No process could be started.
    Unstarted(String),
    /// The lease was lost, and the run was stopped.
    Lost(Loss),
    /// The run was not wanted any more, and was stopped.
    Stopped,
    /// The guardian died or hung, and the run was killed.
    GuardianFailed,
}

/// A run in progress.
pub(super) struct Course<'a> {
    pool: &'a GuardianPool,
    mandate: Mandate,
    lease_deadline: LeaseDeadline,
    told_to_stop: BoxFuture<'static, ()>,
    /// Dropped together with this.
    _copy: Option<Box<dyn Send>>,
    out: Tail,
    err: Tail,
    /// Why the run was told to stop.
    stopped: Option<How>,
    lost: bool,
    refused: Option<String>,
    status: Option<Status>,
}

impl<'a> Course<'a> {
    /// Starts CMD.
    ///
    /// # Errors
    /// When there is no pipe, or the guardian is dead or hangs: then the caller must dismiss it.
    pub(super) fn begin(
        pool: &'a GuardianPool,
        guardian: &mut Guardian,
        errand: Errand,
    ) -> io::Result<Course<'a>> {
        let Errand { item, stdin, copy, environment, mandate, told_to_stop } = errand;
        let (out, out_end) = io::pipe()?;
        let (err, err_end) = io::pipe()?;
        let (out, err) = (Tail::of(OwnedFd::from(out))?, Tail::of(OwnedFd::from(err))?);
        let lease_deadline = LeaseDeadline::new(mandate.clone(), pool.grace);
        let work = Work {
            environment,
            until: lease_deadline.until(),
            grace: pool.grace,
            signal: Signal::TERM,
            orphan_grace: std::time::Duration::ZERO,
            runtime: None,
            cgroup: None,
            file: pool.work.as_ref().map(WorkFile::descriptor),
            privileges: pool.privileges,
            run: Some(RunOfMany {
                item: item.as_deref(),
                streams: [stdin.as_fd(), out_end.as_fd(), err_end.as_fd()],
            }),
        };
        guardian.start(work)?;
        let (stopped, lost, refused, status) = (None, false, None, None);
        Ok(Course {
            pool,
            mandate,
            lease_deadline,
            told_to_stop,
            _copy: copy,
            out,
            err,
            stopped,
            lost,
            refused,
            status,
        })
    }

    /// Waits for the end. Returns true if the guardian did its duty, and the result.
    ///
    /// # Cancel safety
    /// Not cancel safe: some processes of the run may be left.
    pub(super) async fn run(
        mut self,
        guardian: &mut Guardian,
        answer: &mut oneshot::Sender<Returned>,
    ) -> (bool, Returned) {
        let healthy = self.oversee(guardian, answer).await;
        self.out.close();
        self.err.close();
        let must_stop = if healthy { None } else { self.mandate.must_stop() };
        let how = how_it_ended(healthy, self.stopped, self.refused, self.status, must_stop);
        (healthy, Returned { how, out: self.out, err: self.err })
    }

    async fn oversee(
        &mut self,
        guardian: &mut Guardian,
        answer: &mut oneshot::Sender<Returned>,
    ) -> bool {
        let mandate = self.mandate.clone();
        // A little less than the caller waits, so that the caller still learns how the run ended.
        let patience = self.pool.grace / 2;
        let (mut wanted, mut going) = (true, true);
        loop {
            let hung = tokio::time::sleep(self.lease_deadline.latest().remaining());
            let ordered = tokio::select! {
                // Handle events before deadlines: this process may have slept.
                biased;
                event = guardian.event() => match self.learn(event) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(healthy) => return healthy,
                },
                loss = mandate.lost(), if !self.lost => {
                    self.lost = true;
                    let kill_at = self.lease_deadline.killed_after(&loss);
                    self.stop(guardian, How::Lost(loss), kill_at)
                }
                () = mandate.renewed(), if !self.lost => Ok(()),
                () = answer.closed(), if wanted => {
                    wanted = false;
                    self.stop(guardian, How::Stopped, BootTime::now().after(patience))
                }
                () = &mut self.told_to_stop, if going => {
                    going = false;
                    self.stop(guardian, How::Stopped, BootTime::now().after(patience))
                }
                () = hung => match self.is_hung(guardian) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(healthy) => return healthy,
                },
                () = self.out.read(), if self.out.is_open() => Ok(()),
                () = self.err.read(), if self.err.is_open() => Ok(()),
            };
            if let Err(error) =
                ordered.and_then(|()| self.lease_deadline.pass_on(guardian).map(drop))
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                // The guardian does not read. If it is gone, the next event says more.
                return false;
            }
        }
    }

    /// Stops the run. The first reason is reported; the earliest deadline counts.
    fn stop(&mut self, guardian: &Guardian, why: How, kill_at: BootTime) -> io::Result<()> {
        if self.status.is_none() {
            self.stopped.get_or_insert(why);
        }
        self.lease_deadline.stop(guardian, Signal::TERM, kill_at)
    }

    /// Records an event. Breaks when no process is left: with false if the guardian failed.
    fn learn(&mut self, event: Event) -> ControlFlow<bool> {
        match event {
            Event::Started { .. } => {}
            Event::Failed(_, why) => self.refused = Some(why),
            Event::Exited(status) => self.status = Some(status),
            Event::TreeDead { overdue } => {
                if overdue {
                    self.stopped.get_or_insert(How::Lost(Loss::Expired));
                }
                return ControlFlow::Break(true);
            }
            Event::GuardianDied => return ControlFlow::Break(false),
        }
        ControlFlow::Continue(())
    }

    /// Looks twice before it gives up on the guardian.
    ///
    /// tokio's clock stands still while the machine sleeps, and a process that was stopped sees
    /// timers before sockets.
    fn is_hung(&mut self, guardian: &mut Guardian) -> ControlFlow<bool> {
        match guardian.event().now_or_never() {
            Some(event) => self.learn(event),
            None if self.lease_deadline.latest().has_passed() => ControlFlow::Break(false),
            None => ControlFlow::Continue(()),
        }
    }
}

/// How a run ended.
///
/// `must_stop` is the reason why the leadership is over, if it is. It counts only when the guardian
/// failed.
fn how_it_ended(
    healthy: bool,
    stopped: Option<How>,
    refused: Option<String>,
    status: Option<Status>,
    must_stop: Option<Loss>,
) -> How {
    match (healthy, stopped, refused, status) {
        // A guardian that was too slow afterwards does not change the reason.
        (false, Some(How::Lost(loss)), ..) => How::Lost(loss),
        (false, ..) => must_stop.map_or(How::GuardianFailed, How::Lost),
        (true, _, Some(why), _) => How::Refused(why),
        (true, Some(why), None, _) => why,
        (true, None, None, Some(status)) => How::Ended(status),
        // The guardian stopped CMD in time, while this process slept.
        (true, None, None, None) => How::Lost(Loss::Expired),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_lease_stays_lost_when_the_guardian_of_a_shared_task_is_slow() {
        let failed = |stopped, must_stop| how_it_ended(false, stopped, None, None, must_stop);
        let lost = |how| matches!(how, How::Lost(Loss::Expired));
        assert!(lost(failed(Some(How::Lost(Loss::Expired)), None)), "it was told so");
        assert!(lost(failed(Some(How::Stopped), Some(Loss::Expired))), "it was not told any more");
        assert!(lost(failed(None, Some(Loss::Expired))), "this process slept");
        assert!(matches!(failed(None, None), How::GuardianFailed));
        assert!(matches!(failed(Some(How::Stopped), None), How::GuardianFailed));
    }
}
