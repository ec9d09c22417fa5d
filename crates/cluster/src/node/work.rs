//! The tasks that run on a node.

use std::sync::Arc;
use std::time::Duration;

use tenure::protocol::{Lease, Loss};
use tenure::{Clock, Moment, Tenure};
use tokio::sync::watch;
use tracing::Instrument as _;

use super::Node;
use crate::claims::{Claim, Ending, Input, Verdict};
use crate::context::{Context, StatusReporter, Stopped};
use crate::documents::{Assignment, MAX_NOTE_BYTES};
use crate::event::Event;

/// Why a task is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The lease is about to end.
    Expiring,
    Cancelled,
    Leaving,
}

/// A task that was begun, or waits for a worker.
pub(super) struct Running {
    tenure: Arc<Tenure>,
    task: Arc<Assignment>,
    attempt: u32,
    started: Option<Moment>,
    ending: Option<Ending>,
    stop: watch::Sender<Option<Stopped>>,
}

impl Running {
    pub(super) fn new(
        lease: Lease,
        clock: Arc<dyn Clock>,
        task: Arc<Assignment>,
        attempt: u32,
    ) -> Running {
        let (id, serial, token) = (&*task.id, task.serial, lease.token);
        let span = tracing::info_span!("task", id, serial, attempt, token);
        let tenure = Tenure::new(lease, clock, span);
        let stop = watch::Sender::new(None);
        Running { tenure, task, attempt, started: None, ending: None, stop }
    }

    pub(super) fn extend(&self, lease: Lease) {
        self.tenure.extend(lease);
    }

    pub(super) fn close(&self, loss: Loss) {
        self.tenure.close(loss);
        self.stop.send_if_modified(|stop| stop.replace(Stopped::Lost).is_none());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The lease is not renewed any more.
        self.tenure.close(Loss::Stopped);
    }
}

/// A spawned task that is aborted when this is dropped.
struct Spawned(tokio::task::JoinHandle<Ending>);

impl Drop for Spawned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Node {
    /// Starts waiting tasks, as long as there are free workers.
    pub(super) fn start_waiting(&mut self) {
        while self.busy < self.set.workers {
            let Some(claim) = self.waiting.pop_front() else { return };
            if self.running.contains_key(&claim) {
                self.start(claim);
            }
        }
    }

    fn start(&mut self, claim: Claim) {
        let Some(running) = self.running.get_mut(&claim) else { return };
        running.started = Some(self.clock.now());
        let context = Context {
            task: running.task.clone(),
            attempt: running.attempt,
            member: self.set.me.clone(),
            mandate: running.tenure.mandate(),
            reporter: StatusReporter { claim, reports: self.reporting.clone() },
            stop: running.stop.subscribe(),
            client: self.set.client.clone(),
            shared: self.shared.clone(),
        };
        let (serial, id) = (running.task.serial, running.task.id.clone());
        let attempt = running.attempt;
        let handler = self.set.tasks.handler(&running.task.kind);
        let stop = running.stop.clone();
        let span = running.tenure.span().clone();
        let grace = self.set.timing.grace();
        self.busy += 1;
        self.tell(Event::Began { serial, id, attempt });
        let work = async move {
            let Some(handler) = handler else {
                return Ending::Failed("this node has no such kind of task".into());
            };
            attend(handler, context, stop, grace).await
        };
        let mut spawned = Spawned(tokio::spawn(work.instrument(span)));
        self.works.push(Box::pin(async move {
            let ending = (&mut spawned.0).await.unwrap_or_else(|error| {
                if error.is_panic() {
                    Ending::Failed("the task panicked".into())
                } else {
                    Ending::Returned
                }
            });
            (claim, ending)
        }));
    }

    pub(super) fn stop(&mut self, claim: Claim, why: Stop) {
        let Some(running) = self.running.get(&claim) else { return };
        let says = match why {
            Stop::Expiring => {
                running.tenure.stop();
                Stopped::Lost
            }
            Stop::Cancelled => Stopped::Cancelled,
            Stop::Leaving => Stopped::Leaving,
        };
        running.stop.send_if_modified(|stop| {
            let first = stop.is_none();
            if first {
                *stop = Some(says);
            }
            first
        });
        if running.started.is_none() {
            self.waiting.retain(|waiting| *waiting != claim);
            let ending = match why {
                Stop::Cancelled => Ending::Cancelled,
                Stop::Expiring | Stop::Leaving => Ending::Returned,
            };
            self.note_end(claim, ending);
        }
    }

    /// Returns a task that still waits for a worker.
    pub(super) fn return_waiting(&mut self, claim: Claim) {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != claim);
        if self.waiting.len() < before {
            self.note_end(claim, Ending::Returned);
        }
    }

    pub(super) fn ended(&mut self, claim: Claim, ending: Ending) {
        self.busy -= 1;
        if let Some(started) = self.running.get(&claim).and_then(|running| running.started) {
            let took = self.clock.now().at_most_since(started);
            self.usual = Some(self.usual.map_or(took, |usual| (usual * 7 + took) / 8));
        }
        self.note_end(claim, ending);
    }

    fn note_end(&mut self, claim: Claim, ending: Ending) {
        if let Some(running) = self.running.get_mut(&claim) {
            running.ending = Some(ending.clone());
            // The work has ended: nothing may act under its mandate any more.
            running.tenure.close(Loss::Resigned);
        }
        self.claims.take(self.clock.now(), Input::Ended(claim, ending));
    }

    pub(super) fn reported(&mut self, claim: Claim, status: String) {
        self.claims.take(self.clock.now(), Input::Report(claim, status));
    }

    pub(super) fn settled(&mut self, claim: Claim, verdict: Verdict) {
        let Some(running) = self.running.remove(&claim) else { return };
        let Some(ending) = running.ending.clone() else { return };
        if running.started.is_some() && verdict == Verdict::Accepted {
            self.membership.finished += 1;
        }
        let task = &running.task;
        let failed = matches!(ending, Ending::Failed(_));
        let again = matches!(ending, Ending::Returned)
            || failed && running.attempt < task.attempts
            || verdict == Verdict::Refused;
        let took = running
            .started
            .map_or(Duration::ZERO, |started| self.clock.now().at_most_since(started));
        if running.started.is_some() {
            self.tell(Event::Ended {
                serial: task.serial,
                id: task.id.clone(),
                attempt: running.attempt,
                ending,
                again,
                verdict,
                took,
            });
        }
    }
}

/// Runs a task, tells it when it must stop, and drops it when it may no longer run.
async fn attend(
    handler: Arc<dyn crate::task::Handler>,
    context: Context,
    stop: watch::Sender<Option<Stopped>>,
    grace: Duration,
) -> Ending {
    let timeout = context.task.timeout;
    let payload = context.task.payload.clone();
    let client = context.client.clone();
    let mandate = context.mandate.clone();
    let stopped = context.stop.clone();
    let work = handler.handle(payload, &context);
    let time_out = async {
        match timeout {
            Some(timeout) => client.sleep(timeout).await,
            None => std::future::pending().await,
        }
        stop.send_if_modified(|stop| {
            let first = stop.is_none();
            if first {
                *stop = Some(Stopped::TimedOut);
            }
            first
        });
        // After the grace period, the select below drops the work.
        client.sleep(grace).await;
    };
    let told_to_go = async {
        let mut stopped = stopped.clone();
        // The sender lives as long as this future.
        let _ = stopped.wait_for(Option::is_some).await;
        let lost = matches!(*stopped.borrow(), Some(Stopped::Lost));
        if lost {
            over(&mandate).await;
        } else {
            client.sleep(grace).await;
        }
    };
    let outcome = tokio::select! {
        biased;
        outcome = work => Some(outcome),
        () = time_out => None,
        () = told_to_go => None,
    };
    let why = *stop.borrow();
    match (outcome, why) {
        (Some(Ok(result)), _) => Ending::Done(result.map(shortened)),
        (Some(Err(_)) | None, Some(Stopped::Cancelled)) => Ending::Cancelled,
        (Some(Err(_)) | None, Some(Stopped::TimedOut)) => {
            let timeout = timeout.unwrap_or_default();
            Ending::Failed(format!("it took longer than {timeout:?}"))
        }
        (Some(Err(_)) | None, Some(Stopped::Lost | Stopped::Leaving)) => Ending::Returned,
        (Some(Err(error)), None) => Ending::Failed(shortened(error.as_str().to_owned())),
        (None, None) => Ending::Returned,
    }
}

/// Resolves when the mandate has ended, not already when it is about to end.
async fn over(mandate: &tenure::Mandate) {
    while mandate.is_leader() {
        mandate.renewed().await;
    }
}

/// The last 4 KiB of a note: most errors give the cause at the end.
fn shortened(note: String) -> String {
    if note.len() <= MAX_NOTE_BYTES {
        return note;
    }
    let start = note.ceil_char_boundary(note.len() - MAX_NOTE_BYTES);
    note[start..].to_owned()
}
