//! Runs the machine of the [`leader`](super::leader) on a store, for as long as its node leads.
//!
//! Nothing here decides: this carries out the machine's outputs, and feeds the answers back.

#[cfg(test)]
pub(crate) mod tests;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tenure::protocol::Ask;
use tenure::store::Version;
use tenure::{CandidateId, Mandate, Timer, Timing};

use super::client::ClusterClient;
use super::documents::{Assignment, LEAST_SLOTS, MemberId, Nodes};
use super::event::Events;
use super::input::{End, InputError, Window, Windowed};
use super::leader::{Answer, Input, Leader, Output, Over, Request, Settings, Shown, Wait, without};
use super::local_writes::{LocalWrites, LocalWritesReader};
use crate::error::ClusterError;

/// Plans the work of a cluster, for as long as its node leads.
pub(super) struct Planner {
    pub(super) client: ClusterClient,
    pub(super) timing: Timing,
    pub(super) source: Option<Arc<dyn Windowed>>,
    /// Exchanges facts with the node of this process.
    pub(super) local_writes: Arc<LocalWrites>,
    pub(super) events: Events,
    pub(super) me: MemberId,
}

/// A later leader has taken the cursor over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deposed {
    /// The token of that leader's mandate.
    pub(super) by: u64,
}

impl Planner {
    /// Plans until a later leader does.
    ///
    /// Run it in [`Mandate::scope`]: it stops when it is dropped.
    ///
    /// If the store does not serve, or the cursor makes no sense, that is reported and tried again.
    ///
    /// # Errors
    /// [`ClusterError::Exhausted`] when there are no serial numbers left.
    ///
    /// # Cancel safety
    /// Cancel safe: the next leader finds the recorded state, and goes on from there.
    pub(super) async fn run(&mut self, mandate: &Mandate) -> Result<Deposed, ClusterError> {
        let backend = &self.client.backend;
        let bits = (u128::from(backend.random()) << 64) | u128::from(backend.random());
        let settings = Settings {
            keys: self.client.keys.clone(),
            me: self.me.clone(),
            token: mandate.token(),
            timing: self.timing,
            reads: self.client.store().reads(),
            lists: self.source.is_some(),
            least_slots: LEAST_SLOTS,
            ops: CandidateId::from_bits(bits),
        };
        let clock = backend.clock();
        let mut leader = Leader::new(settings, clock.now());
        let mut calls = Calls::new(self);
        let mut input = Input::Time;
        loop {
            let (now, wall) = (clock.now(), clock.wall());
            let mut outputs =
                leader.step(now, wall, Input::Notified(self.client.store().notifies()));
            if let Some(reader) = calls.reader.as_ref().filter(|reader| !reader.is_silent()) {
                outputs.extend(leader.step(now, wall, Input::Heard(reader.take())));
            }
            outputs.extend(leader.step(now, wall, input));
            for output in outputs {
                if let Output::Over(over) = output {
                    return match over {
                        Over::Deposed(by) => Ok(Deposed { by }),
                        Over::Exhausted => Err(ClusterError::Exhausted),
                    };
                }
                calls.carry_out(output);
            }
            input = calls.next(leader.wait(), leader.wake_up()).await;
        }
    }
}

/// The calls of the machine that are under way.
struct Calls<'a> {
    planner: &'a Planner,
    timer: Box<dyn Timer>,
    request: Option<BoxFuture<'a, (Ask, Answer)>>,
    ring: Option<BoxFuture<'a, (Ask, Answer)>>,
    offer: Option<BoxFuture<'static, Result<Window, InputError>>>,
    commits: FuturesUnordered<BoxFuture<'static, (u64, Result<(), InputError>)>>,
    watches: FuturesUnordered<BoxFuture<'static, MemberId>>,
    /// Facts from the node of this process, since the cursor was taken over.
    reader: Option<LocalWritesReader>,
}

impl<'a> Calls<'a> {
    fn new(planner: &'a Planner) -> Calls<'a> {
        Calls {
            planner,
            timer: planner.client.backend.clock().timer(),
            request: None,
            ring: None,
            offer: None,
            commits: FuturesUnordered::new(),
            watches: FuturesUnordered::new(),
            reader: None,
        }
    }

    fn carry_out(&mut self, output: Output) {
        let planner = self.planner;
        match output {
            Output::Request(ask, Request::Ring) => {
                self.ring = Some(Box::pin(answer(&planner.client, ask, Request::Ring)));
            }
            Output::Request(ask, request) => {
                self.request = Some(Box::pin(answer(&planner.client, ask, request)));
            }
            Output::Offer { position, max } => {
                self.offer = planner.source.clone().map(|source| offer(source, position, max));
            }
            Output::Commit(task, end) => {
                if let Some(source) = planner.source.clone() {
                    let (client, limit) = (planner.client.clone(), planner.timing.ttl());
                    self.commits.push(commit(client, source, task, end, limit));
                }
            }
            Output::HoldsCursor(holds) => {
                self.reader = None;
                self.reader = holds.then(|| planner.local_writes.hear());
            }
            Output::Filled(writes) => planner.local_writes.filled(writes),
            Output::SawNodes(nodes) => planner.local_writes.saw_nodes(Some(&nodes)),
            Output::Watch(id, mark) => {
                if let Some(presence) = planner.client.backend.presence().cloned() {
                    self.watches.push(Box::pin(async move {
                        presence.gone(&mark).await;
                        id
                    }));
                }
            }
            Output::Unwatch => self.watches.clear(),
            // An error means that there is no listener, which is fine.
            Output::Tell(event) => drop(planner.events.send(event)),
            Output::Warn(warning) => {
                let (about, error, cause) = (warning.about, warning.error, warning.cause);
                tracing::warn!(about, error, cause, "{}", warning.says);
            }
            Output::Removed(member) => {
                tracing::info!(%member, "a member is gone, and was taken from the list");
            }
            Output::Over(_) => {}
        }
    }

    /// Waits for the next input.
    async fn next(&mut self, wait: Wait, wake_up: Option<&Version>) -> Input {
        let planner = self.planner;
        match wait {
            Wait::Answers | Wait::Time(_) => {
                let until = match wait {
                    Wait::Time(until) => Some(until),
                    Wait::Answers | Wait::Offer(_) | Wait::Commits(_) | Wait::Any(_) => None,
                };
                tokio::select! {
                    biased;
                    answered = finished(&mut self.request) => answered,
                    () = self.timer.until(until.unwrap_or_default()), if until.is_some() => Input::Time,
                    answered = finished(&mut self.ring) => answered,
                }
            }
            Wait::Offer(until) => tokio::select! {
                biased;
                offered = offered(&mut self.offer) => offered,
                () = self.timer.until(until) => Input::Time,
            },
            Wait::Commits(until) => tokio::select! {
                biased;
                Some((serial, result)) = self.commits.next() => Input::Committed(serial, result),
                () = self.timer.until(until) => Input::Time,
            },
            Wait::Any(until) => {
                let (store, keys) = (planner.client.store(), &planner.client.keys);
                let leader_wake_up = keys.leader_wake_up();
                tokio::select! {
                    biased;
                    () = planner.local_writes.planner_called() => Input::Called,
                    () = store.changed(&leader_wake_up, wake_up) => Input::WakeUp,
                    offered = offered(&mut self.offer) => offered,
                    Some((serial, result)) = self.commits.next() => Input::Committed(serial, result),
                    Some(member) = self.watches.next() => Input::MemberGone(member),
                    () = self.timer.until(until) => Input::Time,
                }
            }
        }
    }
}

/// Resolves when this request is answered; never if there is none.
async fn finished(request: &mut Option<BoxFuture<'_, (Ask, Answer)>>) -> Input {
    let Some(future) = request else { return std::future::pending().await };
    let (ask, answer) = future.await;
    *request = None;
    Input::Answered(ask, answer)
}

/// Resolves when the source has answered; never while it is not asked.
async fn offered(offer: &mut Option<BoxFuture<'static, Result<Window, InputError>>>) -> Input {
    let Some(future) = offer else { return std::future::pending().await };
    let answer = future.await;
    *offer = None;
    Input::Offered(answer)
}

/// Carries out a request.
async fn answer(client: &ClusterClient, ask: Ask, request: Request) -> (Ask, Answer) {
    let answer = match request {
        Request::Read(keys) => {
            let found = client.store().get_many(&keys).await;
            Answer::Shown(found.map(|it| it.into_iter().map(Shown::Document).collect()))
        }
        Request::Look(keys) => Answer::Shown(client.look_at(&keys).await),
        Request::List { prefix, after, limit } => {
            Answer::Listed(client.store().list(&prefix, after.as_ref(), limit).await)
        }
        Request::Write(writes) => Answer::Wrote(client.store().put_many(writes).await),
        Request::Ring => Answer::Done(client.ring(&client.keys.wake_up()).await.map(|()| true)),
        Request::RemoveMembers(members) => {
            let change = |nodes: Option<&Nodes>, op| {
                Ok(nodes.and_then(|nodes| without(nodes, &members, op)))
            };
            let key = client.keys.nodes();
            let updated = client.update(&key, |nodes: &Nodes| &nodes.op, change).await;
            Answer::Done(updated.map(|_| true))
        }
        Request::MendInbox(page) => Answer::Done(client.mend_inbox(page).await),
    };
    (ask, answer)
}

fn offer(
    source: Arc<dyn Windowed>,
    position: Option<String>,
    max: usize,
) -> BoxFuture<'static, Result<Window, InputError>> {
    Box::pin(async move {
        let asked = AssertUnwindSafe(source.outstanding(position.as_deref(), max)).catch_unwind();
        asked.await.unwrap_or_else(|_| Err(InputError("it panicked".into())))
    })
}

fn commit(
    client: ClusterClient,
    source: Arc<dyn Windowed>,
    task: Arc<Assignment>,
    end: End,
    limit: Duration,
) -> BoxFuture<'static, (u64, Result<(), InputError>)> {
    Box::pin(async move {
        let told = AssertUnwindSafe(source.commit(&task.id, &task.payload, end)).catch_unwind();
        let result = tokio::select! {
            biased;
            told = told => told.unwrap_or_else(|_| Err(InputError("it panicked".into()))),
            () = client.sleep(limit) => Err(InputError("it took too long".into())),
        };
        (task.serial, result)
    })
}
