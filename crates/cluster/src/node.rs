//! The loop of one node: runs the claims machine on a store, and the tasks that it takes.
//!
//! Nothing here decides which node works on which task: [`claims`](super::claims) does. Claims,
//! renewals and completions that are due together leave in one batch, together with the member's
//! own lock.

mod member;
mod requests;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure::protocol::Loss;
use tenure::store::{Mark, Version};
use tenure::{Clock, Key, Moment, Timer, Timing};
use tokio::sync::{broadcast, mpsc, watch};

use self::requests::{Answer, Request};
use self::work::{Running, Stop};
use super::claims::{self, Claim, Claims, Ending, Input, Output};
use super::client::ClusterClient;
use super::documents::{LEAST_SLOTS, MemberId};
use super::event::Event;
use super::local_writes::LocalWrites;
use super::shared::Shared;
use super::task::Tasks;

pub(super) use member::Membership;

/// When tasks are short, a node claims ahead the work of this much time.
const AHEAD: Duration = Duration::from_millis(100);
/// The most tasks that are claimed ahead, however short they are.
const MOST_AHEAD: usize = 192;

/// A command to a node.
pub(super) enum Order {
    /// Finish the running tasks, take no more, leave.
    Drain,
    /// Stop the running tasks, and leave.
    Leave,
}

/// The parts of a node.
pub(super) struct Settings {
    pub(super) client: ClusterClient,
    pub(super) me: MemberId,
    pub(super) name: String,
    pub(super) workers: usize,
    pub(super) timing: Timing,
    pub(super) tasks: Tasks,
    /// Exchanges facts with the planner of this process.
    pub(super) local_writes: Arc<LocalWrites>,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    /// Becomes true when the node has left the cluster.
    pub(super) over: watch::Sender<bool>,
}

pub(super) struct Node {
    set: Settings,
    clock: Arc<dyn Clock>,
    timer: Box<dyn Timer>,
    claims: Claims,
    membership: Membership,
    keys: Vec<Key>,
    wake_up: WakeUp,
    /// Granted claims that wait for a worker.
    waiting: VecDeque<Claim>,
    running: BTreeMap<Claim, Running>,
    works: FuturesUnordered<BoxFuture<'static, (Claim, Ending)>>,
    reporting: mpsc::UnboundedSender<(Claim, String)>,
    reports: mpsc::UnboundedReceiver<(Claim, String)>,
    requests: FuturesUnordered<Request>,
    watched: Vec<Mark>,
    /// The values that its tasks share.
    shared: Shared,
    busy: usize,
    /// The average time that recent tasks took.
    usual: Option<Duration>,
    service: Service,
}

/// How far the node is on its way out. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Service {
    /// It takes tasks.
    Working,
    /// It was declared dead. It takes no more tasks, and stays.
    Retired,
    /// It finishes the running tasks, and leaves.
    Draining,
    /// It stops the running tasks, and leaves.
    Leaving,
    /// The same, and no more orders can come.
    Abandoned,
}

/// The version of the wake-up document, as it was last read.
#[derive(Debug)]
enum WakeUp {
    /// Its changes are waited for.
    Watched(Option<Version>),
    /// It has changed, and is being read.
    Read(Option<Version>),
}

impl WakeUp {
    fn version(&self) -> &Option<Version> {
        match self {
            WakeUp::Watched(version) | WakeUp::Read(version) => version,
        }
    }
}

impl Node {
    pub(super) fn new(set: Settings, membership: Membership) -> Node {
        let backend = &set.client.backend;
        let clock = backend.clock().clone();
        let presence = membership.presence();
        let claims = Claims::new(claims::Settings {
            member: set.me.clone(),
            presence,
            timing: set.timing,
            reads: set.client.store().reads(),
            kinds: set.tasks.kinds(),
            seed: backend.random(),
        });
        let (reporting, reports) = mpsc::unbounded_channel();
        Node {
            timer: clock.timer(),
            clock,
            claims,
            membership,
            keys: Vec::new(),
            wake_up: WakeUp::Watched(None),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            works: FuturesUnordered::new(),
            reporting,
            reports,
            requests: FuturesUnordered::new(),
            watched: Vec::new(),
            shared: Shared::default(),
            busy: 0,
            usual: None,
            service: Service::Working,
            set,
        }
    }

    /// Works until the node is told to leave and everything is settled.
    pub(super) async fn run(mut self) {
        self.place();
        self.set_keys(LEAST_SLOTS);
        loop {
            let now = self.clock.now();
            self.claims.take(now, Input::Notified(self.set.client.store().notifies()));
            let (most, workers) = (self.hands(), self.set.workers);
            self.claims.take(now, Input::Hands { most, workers });
            self.claims.take(now, Input::Fed(self.set.local_writes.has_planner()));
            self.take_local_writes(now);
            for output in self.claims.act(now, self.clock.wall()) {
                self.carry_out(output);
            }
            self.start_waiting();
            self.beat(now);
            if self.is_going() && self.claims.unsettled(now) == 0 {
                break;
            }
            self.wait(now).await;
        }
        self.membership.leave(&self.set.client).await;
        self.set.over.send_replace(true);
    }

    /// Waits until something happens, and handles everything that has happened.
    async fn wait(&mut self, now: Moment) {
        let wake = [self.claims.wake(now), self.membership.wake(now)].into_iter().flatten().min();
        // Clocks that disagree, or a mistake of ours, cost at most one heartbeat.
        let latest = now + self.set.timing.heartbeat();
        let wake = wake.map_or(latest, |wake| wake.min(latest));
        let (client, wake_up) = (self.set.client.clone(), self.wake_up.version().clone());
        let key = client.keys.wake_up();
        let hears = self.service < Service::Abandoned;
        let watches = matches!(self.wake_up, WakeUp::Watched(_));
        tokio::select! {
            biased;
            Some(answer) = self.requests.next() => self.answered(answer),
            Some((claim, ending)) = self.works.next() => self.ended(claim, ending),
            Some((claim, status)) = self.reports.recv() => self.reported(claim, status),
            order = self.set.orders.recv(), if hears => self.ordered(order),
            () = self.set.local_writes.node_called() => {}
            () = client.store().changed(&key, wake_up.as_ref()), if watches => self.rung(),
            () = self.timer.until(wake) => {}
        }
        while let Some(Some(answer)) = self.requests.next().now_or_never() {
            self.answered(answer);
        }
        while let Some(Some((claim, ending))) = self.works.next().now_or_never() {
            self.ended(claim, ending);
        }
        while let Ok((claim, status)) = self.reports.try_recv() {
            self.reported(claim, status);
        }
    }

    /// Takes the node list and the slots with work from the planner of this process.
    fn take_local_writes(&mut self, now: Moment) {
        if let Some(nodes) = self.set.local_writes.take_nodes()
            && self.membership.saw(&nodes)
        {
            self.place();
        }
        let acknowledged = self.set.local_writes.take_filled();
        if let Some(last) = acknowledged.iter().map(|write_seen| write_seen.slot).max() {
            self.set_keys(last + 1);
            self.claims.take(now, Input::Told(acknowledged));
        }
    }

    /// Returns true if the node takes no more tasks and leaves once nothing of its own is open.
    fn is_going(&self) -> bool {
        self.service >= Service::Draining
    }

    fn hands(&self) -> usize {
        if self.is_going() || self.membership.is_retired() {
            return 0;
        }
        let workers = self.set.workers;
        let ahead = self.usual.map_or(0, |usual| {
            let fit = AHEAD.as_nanos() / usual.as_nanos().max(1);
            usize::try_from(fit).unwrap_or(MOST_AHEAD).saturating_mul(workers)
        });
        workers + ahead.min(MOST_AHEAD).min(self.claims.pace())
    }

    fn place(&mut self) {
        let place = self.membership.place(&self.set.me, self.set.workers);
        self.claims.take(self.clock.now(), Input::Place(place));
        if self.membership.is_retired() && self.service == Service::Working {
            self.service = Service::Retired;
            self.tell(Event::Retired);
            if self.membership.is_draining() {
                self.ordered(Some(Order::Drain));
            }
        }
    }

    fn set_keys(&mut self, slots: usize) {
        let keys = &self.set.client.keys;
        if self.keys.is_empty() {
            self.keys = vec![keys.cluster_config(), keys.nodes(), keys.wake_up()];
        }
        for slot in self.keys.len() - 3..slots {
            self.keys.push(keys.slot(slot));
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Look(ask) => self.request(|node| node.look(ask)),
            Output::Write(ask, writes) => self.request(|node| node.write(ask, writes)),
            Output::Begin { claim, lease, task, attempt } => {
                let is_last = attempt >= task.attempts;
                let running = Running::new(lease, self.clock.clone(), task, attempt);
                self.running.insert(claim, running);
                // A last attempt goes first: a worker was idle for it when it was claimed.
                match is_last {
                    true => self.waiting.push_front(claim),
                    false => self.waiting.push_back(claim),
                }
                // The claim was on its way when the node was told to go.
                if self.is_going() {
                    self.return_waiting(claim);
                }
            }
            Output::Extended(claim, lease) => {
                if let Some(running) = self.running.get(&claim) {
                    running.extend(lease);
                }
            }
            Output::MustStop(claim) => self.stop(claim, Stop::Expiring),
            Output::Cancel(claim) => self.stop(claim, Stop::Cancelled),
            Output::Lost(claim) => {
                if let Some(running) = self.running.get(&claim) {
                    running.close(Loss::Expired);
                }
                self.return_waiting(claim);
            }
            Output::Settled(claim, verdict) => self.settled(claim, verdict),
            Output::Garbled(slot, error) => {
                let key = self.set.client.keys.slot(slot);
                tracing::warn!(%key, %error, "skipping a slot that makes no sense");
                self.tell(Event::Garbled { key, error });
            }
            Output::RanDry => {
                self.set.local_writes.call_planner();
                if self.set.local_writes.has_planner() {
                    return;
                }
                self.request(|node| {
                    let client = node.set.client.clone();
                    Box::pin(async move {
                        Answer::Rang(client.ring(&client.keys.leader_wake_up()).await)
                    })
                });
            }
        }
    }

    fn tell(&self, event: Event) {
        // An error means that there is no listener, which is fine.
        let _ = self.set.events.send(event);
    }

    fn ordered(&mut self, order: Option<Order>) {
        match order {
            Some(Order::Drain) => self.service = self.service.max(Service::Draining),
            Some(Order::Leave) => {
                self.service = self.service.max(Service::Leaving);
                let claims: Vec<Claim> = self.running.keys().copied().collect();
                for claim in claims {
                    self.stop(claim, Stop::Leaving);
                }
            }
            None => {
                self.service = Service::Abandoned;
                self.ordered(Some(Order::Leave));
            }
        }
        // Tasks that wait for a worker go back at once.
        if self.is_going() {
            let waiting: Vec<Claim> = self.waiting.iter().copied().collect();
            for claim in waiting {
                self.return_waiting(claim);
            }
        }
    }
}
