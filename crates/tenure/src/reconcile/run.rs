//! Runs the machine: handlers, timers, and the source.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::handler::{Context, Handler};
use super::machine::{Input, Machine, Output, Run, State, Step, Verdict};
use super::reason::Reason;
use super::reconciler::{Finished, ReconcileError, Reconciler, Settings};
use super::source::{Event, Identity, Release, Source};
use crate::Mandate;

pub(super) async fn run(
    reconciler: &Reconciler,
    source: impl Source,
) -> Result<Finished, ReconcileError> {
    // Unbounded, so that the machine never waits. It makes at most a few orders for each event, and
    // the pump takes orders before it takes another event.
    let (orders, taken) = mpsc::unbounded_channel();
    let (notes, mut heard) = mpsc::channel(1);
    let mut shell = Shell {
        reconciler,
        identity: source.identity(),
        machine: Machine::new(reconciler.settings.patience),
        orders,
        mandates: BTreeMap::new(),
        running: None,
        alarm: None,
    };
    let mut pump = pin!(pump(source, taken, notes));
    let mut stop = reconciler.stop.subscribe();
    let mut stopping = false;
    loop {
        let running = shell.running.as_mut();
        let deadline = running.as_ref().and_then(|running| Some((running.run, running.deadline?)));
        let alarm = shell.alarm;
        let input = tokio::select! {
            biased;
            Some(note) = heard.recv() => shell.hear(note),
            (run, result) = finished(running) => {
                shell.running = None;
                Input::Finished(run, result)
            }
            // The sender lives in the reconciler, so this cannot fail.
            _ = stop.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                Input::StopRequested
            }
            run = passed(deadline) => {
                shell.running.iter_mut().for_each(|running| running.deadline = None);
                Input::DeadlinePassed(run)
            }
            () = at(alarm) => {
                shell.alarm = None;
                Input::Waited
            }
            never = &mut pump => match never {},
        };
        if let Some(verdict) = shell.step(input) {
            return match verdict {
                Verdict::Stopped => Ok(Finished::Stopped),
                Verdict::SourceEnded => Ok(Finished::SourceEnded),
                Verdict::Stuck { token, attempts, last } => {
                    Err(ReconcileError::Stuck { token, attempts, last })
                }
            };
        }
    }
}

/// A message from the pump: an event, or the end of a release.
enum Note {
    Said(Option<Event>),
    Released,
}

/// Asks the source for events and gives it orders, one at a time. Always finishes an order.
async fn pump(
    mut source: impl Source,
    mut orders: mpsc::UnboundedReceiver<Release>,
    notes: mpsc::Sender<Note>,
) -> Infallible {
    let mut ended = false;
    loop {
        let note = tokio::select! {
            biased;
            Some(how) = orders.recv() => {
                source.release(how).await;
                Note::Released
            }
            event = source.next(), if !ended => {
                ended = event.is_none();
                Note::Said(event)
            }
            else => std::future::pending().await,
        };
        if notes.send(note).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

struct Running {
    run: Run,
    step: Step,
    future: BoxFuture<'static, Result<(), String>>,
    deadline: Option<Instant>,
    mandate: Option<Mandate>,
    /// Taken when the handler is told to stop.
    stop: Option<oneshot::Sender<Duration>>,
}

async fn finished(running: Option<&mut Running>) -> (Run, Result<(), String>) {
    match running {
        Some(running) => {
            let result = (&mut running.future).await;
            if let Err(what) = &result {
                tracing::warn!(handler = running.step.word(), %what, "a handler failed");
            }
            (running.run, result)
        }
        None => std::future::pending().await,
    }
}

async fn passed(deadline: Option<(Run, Instant)>) -> Run {
    match deadline {
        Some((run, deadline)) => {
            tokio::time::sleep_until(deadline).await;
            run
        }
        None => std::future::pending().await,
    }
}

async fn at(alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => tokio::time::sleep_until(alarm).await,
        None => std::future::pending().await,
    }
}

struct Shell<'a> {
    reconciler: &'a Reconciler,
    identity: Identity,
    machine: Machine,
    orders: mpsc::UnboundedSender<Release>,
    /// The mandates of the local tenure and of the newest one: at most two.
    mandates: BTreeMap<u64, Mandate>,
    running: Option<Running>,
    alarm: Option<Instant>,
}

impl Shell<'_> {
    fn hear(&mut self, note: Note) -> Input {
        match note {
            Note::Released => Input::Released,
            Note::Said(None) => Input::SourceEnded,
            Note::Said(Some(Event::Leader { token, mandate })) => {
                let here = self.machine.tenure();
                self.mandates.retain(|token, _| Some(*token) == here);
                if let Some(mandate) = mandate {
                    self.mandates.insert(token, mandate);
                }
                Input::Leader { token }
            }
            Note::Said(Some(Event::NotLeader { reason })) => Input::NotLeader { reason },
            Note::Said(Some(Event::Error { reason })) => {
                tracing::warn!(%reason, "the election reports an error");
                Input::Error { reason }
            }
        }
    }

    fn step(&mut self, input: Input) -> Option<Verdict> {
        let mut verdict = None;
        for output in self.machine.step(input) {
            match output {
                Output::Entered(state) => self.enter(state),
                Output::Run { run, step, token, reason } => self.start(run, step, token, reason),
                Output::Stop(run) => self.stop(run),
                Output::Wait(span) => self.alarm = Some(Instant::now() + span),
                Output::Release(how) => {
                    // The pump lives as long as this shell, so the send cannot fail.
                    let _ = self.orders.send(how);
                }
                Output::Over(how) => verdict = Some(how),
            }
        }
        verdict
    }

    fn enter(&mut self, state: State) {
        match state {
            State::Stuck { token } => tracing::error!(
                election = %self.identity.election,
                token,
                "STUCK: the end handler failed for good, and the local system may still act as leader"
            ),
            State::NotLeading
            | State::Beginning { .. }
            | State::Leading { .. }
            | State::Ending { .. }
            | State::Failing
            | State::Stopped => {
                tracing::info!(election = %self.identity.election, ?state, "entered a state");
            }
        }
        self.reconciler.state.send_replace(state);
    }

    fn start(&mut self, run: Run, step: Step, token: Option<u64>, reason: Reason) {
        debug_assert!(self.running.is_none(), "one handler at a time");
        let settings = &self.reconciler.settings;
        let mandate = token.and_then(|token| self.mandates.get(&token)).cloned();
        let allowed = allowance(step, mandate.as_ref(), settings, &self.identity);
        let context = Context {
            token,
            deadline: allowed,
            mandate: mandate.clone(),
            variables: settings.variables.clone(),
            ..Context::new(&self.identity, step, reason)
        };
        let (stop, stopped) = oneshot::channel();
        let future = match settings.handler(step).cloned() {
            Some(handler) => run_handler(handler, context, settings.kill_after, stopped).boxed(),
            None => std::future::ready(Ok(())).boxed(),
        };
        let deadline = allowed.map(|span| Instant::now() + span);
        self.running = Some(Running { run, step, future, deadline, mandate, stop: Some(stop) });
    }

    fn stop(&mut self, run: Run) {
        let Some(running) = self.running.as_mut().filter(|running| running.run == run) else {
            return;
        };
        let most = self.reconciler.settings.kill_after;
        // The next handler, usually an end, needs its share of the remaining lease.
        let left = running.mandate.as_ref().map(Mandate::remaining).filter(|left| !left.is_zero());
        let patience = left.map_or(most, |left| most.min(left / 2));
        if let Some(stop) = running.stop.take() {
            // The handler may have finished at this very moment.
            let _ = stop.send(patience);
        }
    }
}

async fn run_handler(
    handler: Handler,
    context: Context,
    kill_after: Duration,
    stop: oneshot::Receiver<Duration>,
) -> Result<(), String> {
    let begins = context.state == Step::Begin;
    let lost = context.mandate.as_ref().and_then(Mandate::must_stop);
    if begins && let Some(loss) = lost {
        // This process may have been asleep since it won the election. The source is about to
        // report the loss, and it is too late to start any work.
        let _ = stop.await;
        return Err(loss.to_string());
    }
    handler.run(context, kill_after, stop).await
}

/// The time a handler has; `None` is no limit.
fn allowance(
    step: Step,
    mandate: Option<&Mandate>,
    settings: &Settings,
    identity: &Identity,
) -> Option<Duration> {
    match step {
        Step::Begin => settings.begin_timeout,
        Step::Error => Some(settings.patience.error_timeout),
        Step::Stuck => Some(settings.stuck_timeout),
        Step::End => {
            let left = mandate.map(Mandate::remaining).filter(|left| !left.is_zero());
            let renewed = mandate.is_some_and(|mandate| mandate.must_stop().is_none());
            let left = left.unwrap_or(identity.stop_budget);
            Some(match settings.end_timeout {
                Some(most) if renewed => most,
                Some(most) => most.min(left),
                None => left,
            })
        }
    }
}
