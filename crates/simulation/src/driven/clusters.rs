//! Simulation of clusters: whole nodes, under the same kinds of trouble.
//!
//! It covers everything from `Cluster::join` down to the store's trait.
//!
//! Nodes join, take tasks, run them for a while, fail some, and are paused, cut off and killed.
//! Leaders plan and are deposed. In the end, with every fault gone, each task must have ended,
//! counted once and begun at least once. Two nodes must never work on one task with valid mandates.
//!
//! A seed gives the same trouble each time, but not exactly the same run: nodes and their tasks
//! communicate through channels that wake their readers in no fixed order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::{Backend, Mandate, Timing};
use tenure_cluster::documents::{OutcomeState, Report};
use tenure_cluster::mutant::{ClusterMutant, break_rule};
use tenure_cluster::{
    Cluster, ClusterClient, Context, Ending, Event, Handler, Member, Order, TaskError, Tasks,
    Verdict,
};
use tokio::sync::broadcast;

use super::clock::SimulatedClock;
use super::network::{Network, Reached, Weather};
use super::setting::{self, Troubled};
use crate::kernel::{Breach, Log, Options, Promise, REAL_RATE, Rates, Rng, Run, Simulator, Whole};

/// The name of the cluster.
const NAME: &str = "work";

crate::listed! {
    /// Counted events of clusters.
    pub enum Rare {
        /// An attempt began.
        Begun,
        /// An attempt began that was not the first of its task.
        BegunAgain,
        /// An end came too late to count.
        Refused,
    }
}

/// The simulator of clusters.
#[derive(Clone, Copy, Debug)]
pub struct Clusters;

impl Simulator for Clusters {
    const PROGRAM: &'static str = "simulate-clusters";
    /// The rules of claims. Those of the leader have a simulation of their own.
    const MUTANTS: &'static [ClusterMutant] = &[
        ClusterMutant::ClaimWithoutVersion,
        ClusterMutant::ClaimEarly,
        ClusterMutant::LateCompletionWins,
        ClusterMutant::WindowFromAnswer,
    ];
    type Mutant = ClusterMutant;
    type Profile = Whole;
    type Rare = Rare;

    /// # Panics
    /// When no runtime can be built.
    fn simulate(seed: u64, options: Options<Clusters>) -> Run<Rare> {
        break_rule(options.mutant);
        let run = setting::in_simulated_time(world(seed, options.rates));
        break_rule(None);
        run
    }
}

async fn world(seed: u64, rates: Rates) -> Run<Rare> {
    let mut world = World::new(seed, rates);
    let span = world.ttl * 12;
    setting::trouble(&mut world, span, 500).await;
    world.heal();
    world.expect_the_end().await;
    world.ledger.finish()
}

struct World {
    rng: Rng,
    rates: Rates,
    ttl: Duration,
    network: Arc<Network>,
    ledger: Arc<Ledger>,
    nodes: Vec<SimulatedClock>,
    /// The cluster's records, read through a store that never fails.
    client: ClusterClient,
    submitted: u64,
}

impl World {
    fn new(seed: u64, rates: Rates) -> World {
        let mut rng = Rng::new(seed);
        let ttl = Duration::from_millis(rng.between(800, 3000));
        let weather = Weather::draw(&mut rng, ttl);
        let network = Network::new(weather, rng.next());
        let ledger = Arc::new(Ledger::new(seed));
        ledger.note(format!("seed {seed}: ttl {ttl:?}, {weather:?}"));
        let calm =
            Backend::new(network.calm_store()).with_clock(Arc::new(SimulatedClock::new(REAL_RATE)));
        let client = ClusterClient::open(&calm, NAME).expect("a good name");
        let (nodes, submitted) = (Vec::new(), 0);
        let mut world = World { rng, rates, ttl, network, ledger, nodes, client, submitted };
        (0..world.rng.between(2, 4)).for_each(|_| world.start_node());
        world
    }

    fn start_node(&mut self) {
        let number = self.nodes.len() as u64;
        let clock = setting::clock_of(number, self.rates, &mut self.rng);
        let timing = Timing::new(self.ttl).expect("a usable ttl");
        let program = Program {
            number,
            clock: clock.clone(),
            network: self.network.clone(),
            ledger: self.ledger.clone(),
            timing,
            workers: usize::try_from(self.rng.between(1, 4)).unwrap_or(1),
            rng: Rng::new(self.rng.next()),
        };
        tokio::spawn(program.run());
        self.nodes.push(clock);
    }

    async fn submit(&mut self) {
        let count = self.rng.between(1, 12);
        let orders = (0..count).map(|_| {
            self.submitted += 1;
            // The behaviour of a task depends on its number.
            Order::new(format!("task-{}", self.submitted), "work", self.submitted.to_string())
        });
        let orders = orders.collect();
        if let Err(error) = self.client.submit(orders).await {
            self.ledger
                .breach(Breach::new(Promise::TruthfulOutcome, format!("submitting: {error}")));
        }
    }

    fn heal(&mut self) {
        self.ledger.note("every fault is gone".into());
        self.network.heal();
        for number in 0..self.nodes.len() as u64 {
            let dead = self.network.is_dead(number);
            if dead {
                self.network.cut(number);
            }
            self.nodes[usize::try_from(number).unwrap_or(0)].set_running(!dead);
        }
        // The remaining nodes may have been declared gone; this new one can always go on.
        self.start_node();
    }

    /// With every fault gone, all tasks must end, each counted once.
    async fn expect_the_end(&mut self) {
        if self.ledger.is_broken() {
            return;
        }
        let bound = self.ttl * 60 + Duration::from_secs(60);
        let ended = tokio::time::timeout(bound, async {
            loop {
                self.ledger.look();
                match self.client.totals().await {
                    Ok(totals) if totals.accepted == self.submitted && totals.open == 0 => {
                        return totals;
                    }
                    Ok(_) => {}
                    Err(error) => self.ledger.note(format!("the books: {error}")),
                }
                tokio::time::sleep(self.ttl / 4).await;
            }
        });
        let Ok(totals) = ended.await else {
            let totals = self.client.totals().await;
            let tasks = self.client.tasks(5).await.map(|work| work.live);
            let how = format!(
                "not all {} tasks ended within {bound:?}: {totals:?}, {tasks:?}",
                self.submitted
            );
            return self.ledger.breach(Breach::new(Promise::Recovery, how));
        };
        let counted = totals.done + totals.dead;
        if counted != self.submitted {
            let how = format!("{} tasks, but {totals:?}", self.submitted);
            self.ledger.breach(Breach::new(Promise::TruthfulOutcome, how));
        }
        self.audit().await;
    }

    /// Checks the results of each task.
    async fn audit(&self) {
        let mut reported: BTreeMap<String, Vec<Report>> = BTreeMap::new();
        let mut from = 0;
        loop {
            let results = match self.client.results(from).await {
                Ok(results) => results,
                Err(error) => {
                    let how = format!("the results: {error}");
                    return self.ledger.breach(Breach::new(Promise::TruthfulOutcome, how));
                }
            };
            for report in results.reports {
                reported.entry(report.id.clone()).or_default().push(report);
            }
            from = results.next;
            if !results.more {
                break;
            }
        }
        let mut unbegun = 0;
        for number in 1..=self.submitted {
            let id = format!("task-{number}");
            let reports = reported.remove(&id).unwrap_or_default();
            let runs = self.ledger.runs_of(&id);
            // A node that died before it began a task looks the same as one that died just after.
            unbegun += usize::from(runs == 0 && reports.iter().all(has_vanished));
            if reports.len() != 1 || runs == 0 && unbegun != 1 {
                let how = format!("{id} was begun {runs} times and counted as {reports:?}");
                return self.ledger.breach(Breach::new(Promise::TruthfulOutcome, how));
            }
        }
    }

    /// Applies one fault, to a node or to all of them.
    async fn befall(&mut self) {
        let number = self.rng.below(self.nodes.len() as u64);
        let Some(clock) = self.nodes.get(usize::try_from(number).unwrap_or(0)).cloned() else {
            return;
        };
        match self.rng.below(26) {
            0..=3 => {
                let span = setting::pause_within(&mut self.rng, self.ttl);
                self.ledger.note(format!("node {number} is paused for {span:?}"));
                let network = self.network.clone();
                setting::pause(clock, span, move || network.is_dead(number));
            }
            4..=6 => self.network.cut(number),
            7..=11 => self.network.heal_cuts(),
            12 => self.network.outage(true),
            13..=16 => self.network.outage(false),
            17..=18 if !self.network.is_dead(number) => {
                self.ledger.note(format!("node {number} is killed"));
                clock.set_running(false);
                self.network.cut(number);
                self.network.bury(number);
                self.start_node();
            }
            19 => self.network.gossip(self.rng.permille(700)),
            20..=25 => self.submit().await,
            _ => {}
        }
    }
}

impl Troubled for World {
    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn is_broken(&self) -> bool {
        self.ledger.is_broken()
    }

    async fn injection(&mut self) {
        self.befall().await;
        self.ledger.look();
    }
}

/// Returns true if a task is dead because its node died after its last claim.
fn has_vanished(report: &Report) -> bool {
    let says = report.note.as_deref().unwrap_or_default();
    report.state == OutcomeState::Dead && says.contains("vanished in attempt")
}

/// A process that runs a node.
struct Program {
    number: u64,
    clock: SimulatedClock,
    network: Arc<Network>,
    ledger: Arc<Ledger>,
    timing: Timing,
    workers: usize,
    rng: Rng,
}

impl Program {
    async fn run(mut self) {
        let timeout = self.clock.real(self.timing.request() * 2);
        let (number, clock, network) = (self.number, self.clock.clone(), self.network.clone());
        let store = Arc::new(Reached { node: number, network, clock, timeout });
        let random = setting::randomness(self.rng.next());
        let backend =
            Backend::new(store).with_clock(Arc::new(self.clock.clone())).with_randomness(random);
        loop {
            let hands = Hands {
                number,
                clock: self.clock.clone(),
                ledger: self.ledger.clone(),
                ttl: self.timing.ttl(),
                draws: AtomicU64::new(self.rng.next()),
            };
            let joined = Cluster::builder(&backend, NAME)
                .member(Member::new(self.workers).named(format!("node-{number}")))
                .timing(self.timing)
                .tasks(Tasks::new().handling("work", Arc::new(hands)))
                .join()
                .await;
            let Ok(cluster) = joined else {
                tokio::time::sleep(self.timing.ttl() / 3).await;
                self.clock.while_running().await;
                continue;
            };
            let mut events = cluster.events();
            loop {
                match events.recv().await {
                    Ok(Event::Ended { serial, ending, verdict, .. }) => {
                        self.ledger.ended(number, serial, &ending, verdict);
                    }
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => break,
                }
            }
        }
    }
}

/// The handler of the tasks on a node.
struct Hands {
    number: u64,
    clock: SimulatedClock,
    ledger: Arc<Ledger>,
    ttl: Duration,
    draws: AtomicU64,
}

#[async_trait]
impl Handler for Hands {
    async fn handle(&self, payload: Bytes, context: &Context) -> Result<Option<String>, TaskError> {
        let _run = self.ledger.begin(self.number, context);
        let mut rng = Rng::new(self.draws.fetch_add(1, Ordering::Relaxed));
        let long = rng.permille(200);
        let most = if long { self.ttl * 2 } else { self.ttl / 8 };
        let work = async {
            tokio::time::sleep(setting::part_of(&mut rng, most)).await;
            self.clock.while_running().await;
        };
        if payload.ends_with(b"7") {
            // Work that does not listen.
            work.await;
        } else {
            tokio::select! {
                biased;
                why = context.stopped() => return Err(TaskError::new(format!("{why:?}"))),
                () = work => {}
            }
        }
        let poison = payload.ends_with(b"13");
        if poison || rng.permille(50) { Err(TaskError::new("it failed")) } else { Ok(None) }
    }
}

/// Watches all runs, and reports when two nodes work on one task at once.
#[derive(Debug)]
struct Ledger {
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    log: Log<Rare>,
    attempts: Vec<Attempt>,
    /// For each serial, the node that was told that its end of the task counts.
    done: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Attempt {
    node: u64,
    id: String,
    mandate: Mandate,
    over: bool,
}

/// Marks an attempt as over when it is dropped.
struct Lasting(Arc<Ledger>, usize);

impl Drop for Lasting {
    fn drop(&mut self) {
        self.0.lock().attempts[self.1].over = true;
    }
}

impl Ledger {
    fn new(seed: u64) -> Ledger {
        // A seed does not give exactly the same run again, so every run has its trace.
        let log = Log::new(seed, true);
        Ledger { book: Mutex::new(Book { log, attempts: Vec::new(), done: BTreeMap::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, line: String) {
        let log = &mut self.lock().log;
        log.count();
        log.note(|| line);
    }

    fn breach(&self, breach: Breach) {
        self.note(breach.to_string());
        self.lock().log.check(Err(breach));
    }

    fn is_broken(&self) -> bool {
        self.lock().log.is_broken()
    }

    fn runs_of(&self, id: &str) -> usize {
        self.lock().attempts.iter().filter(|attempt| attempt.id == id).count()
    }

    fn begin(self: &Arc<Ledger>, node: u64, context: &Context) -> Lasting {
        let (id, token) = (context.id().to_owned(), context.mandate().token());
        self.note(format!("node {node} begins {id} with token {token}"));
        let mandate = context.mandate().clone();
        let index = {
            let mut book = self.lock();
            book.log.saw(Rare::Begun);
            if book.attempts.iter().any(|attempt| attempt.id == id) {
                book.log.saw(Rare::BegunAgain);
            }
            book.attempts.push(Attempt { node, id, mandate, over: false });
            book.attempts.len() - 1
        };
        self.look();
        Lasting(self.clone(), index)
    }

    /// Checks that no two nodes work on one task with valid mandates.
    fn look(&self) {
        let rivals = {
            let book = self.lock();
            let is_valid = |attempt: &&Attempt| !attempt.over && attempt.mandate.is_leader();
            let valid: Vec<&Attempt> = book.attempts.iter().filter(is_valid).collect();
            let mut seen: BTreeMap<&str, &Attempt> = BTreeMap::new();
            valid.into_iter().find_map(|attempt| {
                let other = seen.insert(&attempt.id, attempt)?;
                let (id, node) = (&attempt.id, attempt.node);
                Some(format!("{id} on node {} and on node {node}", other.node))
            })
        };
        if let Some(rivals) = rivals {
            self.breach(Breach::new(Promise::OneLeader, rivals));
        }
    }

    fn ended(&self, node: u64, serial: u64, ending: &Ending, verdict: Verdict) {
        self.note(format!("node {node}: serial {serial} ended as {ending:?}: {verdict:?}"));
        match (ending, verdict) {
            (Ending::Done(_), Verdict::Accepted) => {
                let before = self.lock().done.insert(serial, node);
                if let Some(other) = before {
                    let how = format!(
                        "the end of serial {serial} counted on node {other} and on node {node}"
                    );
                    self.breach(Breach::new(Promise::TruthfulOutcome, how));
                }
            }
            (_, Verdict::Refused | Verdict::Unknown) => self.lock().log.saw(Rare::Refused),
            (_, Verdict::Accepted) => {}
        }
    }

    fn finish(&self) -> Run<Rare> {
        self.lock().log.finish()
    }
}
