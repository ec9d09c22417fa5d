//! Simulation of leader feeds on one table, under the same kinds of trouble.
//!
//! In addition to the faults of a store, subscriptions have faults: they lag, each node's by
//! itself; they fall silent; they fail; and they show heartbeats that are never committed. Nodes
//! are paused, cut off and killed; they work, hand over, stop and start again.
//!
//! A seed gives the same trouble each time, but not exactly the same run: feeds communicate through
//! channels that wake their readers in no fixed order.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use tenure::feed::{
    Beat, Event, Feed, FeedStore, Found, Handle, Intervals, Item, LEADER, MemoryFeed, Origin,
    State, Subscription,
};
use tenure::{Backend, Fault, Put, Reads, StoreError, Version};
use tokio::sync::{Notify, broadcast};

use super::clock::SimulatedClock;
use super::referee::Referee;
use super::setting::{self, Troubled, part_of};
use super::{Rates, Run};
use crate::checkers::{Breach, Promise};
use crate::rng::Rng;

/// Runs one seed.
///
/// # Panics
/// When no runtime can be built.
#[must_use]
pub fn simulate(seed: u64, rates: Rates) -> Run {
    setting::in_simulated_time(world(seed, rates))
}

async fn world(seed: u64, rates: Rates) -> Run {
    let mut world = World::new(seed, rates);
    let span = world.ttl * 25;
    setting::trouble(&mut world, span, 700).await;
    world.heal();
    // Spread up to the ttl, a re-subscription after up to 5 s, work that winds down, a late answer.
    let bound = world.ttl * 12 + Duration::from_secs(10);
    if tokio::time::timeout(bound, world.referee.somebody_leads()).await.is_err() {
        let how = format!("nobody led within {bound:?}");
        world.referee.breach(Breach::new(Promise::Recovery, how));
    }
    world.referee.finish()
}

struct World {
    rng: Rng,
    rates: Rates,
    ttl: Duration,
    sky: Arc<Sky>,
    referee: Arc<Referee>,
    nodes: Vec<SimulatedClock>,
}

impl World {
    fn new(seed: u64, rates: Rates) -> World {
        let mut rng = Rng::new(seed);
        let ttl = Duration::from_millis(rng.between(800, 3000));
        let sky = Sky::new(Weather::draw(&mut rng, ttl), rng.next());
        let referee = Arc::new(Referee::default());
        referee.note(format!("seed {seed}: ttl {ttl:?}, {:?}", sky.lock().weather));
        let mut world = World { rng, rates, ttl, sky, referee, nodes: Vec::new() };
        (0..world.rng.between(2, 4)).for_each(|_| world.start_node());
        world
    }

    fn start_node(&mut self) {
        let number = self.nodes.len() as u64;
        let clock = self.rates.clock_of(number, &mut self.rng);
        // Feeds of a table may have different settings.
        let ttl = self.ttl * u32::try_from(self.rng.between(100, 150)).unwrap_or(100) / 100;
        let program = Program {
            number,
            clock: clock.clone(),
            sky: self.sky.clone(),
            referee: self.referee.clone(),
            intervals: Intervals {
                heartbeat: Some(ttl / u32::try_from(self.rng.between(2, 6)).unwrap_or(2)),
                election_timeout_min: Some(ttl),
                election_timeout_max: None,
            },
            rng: Rng::new(self.rng.next()),
        };
        tokio::spawn(program.run());
        self.nodes.push(clock);
    }

    fn heal(&self) {
        let dead = {
            let mut state = self.sky.lock();
            state.weather = Weather::default();
            state.cut.clear();
            state.silent.clear();
            state.dead.clone()
        };
        for (number, clock) in self.nodes.iter().enumerate() {
            clock.set_running(!dead.contains(&(number as u64)));
        }
    }
}

impl Troubled for World {
    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn is_broken(&self) -> bool {
        self.referee.is_broken()
    }

    async fn injection(&mut self) {
        let number = self.rng.below(self.nodes.len() as u64);
        let Some(clock) = self.nodes.get(usize::try_from(number).unwrap_or(0)).cloned() else {
            return;
        };
        match self.rng.below(24) {
            0..=3 => {
                let span = setting::pause_within(&mut self.rng, self.ttl);
                self.referee.note(format!("node {number} is paused for {span:?}"));
                let sky = self.sky.clone();
                setting::pause(clock, span, move || sky.lock().dead.contains(&number));
            }
            4..=6 => drop(self.sky.lock().cut.insert(number)),
            7..=11 => self.sky.lock().cut.clear(),
            12..=13 => {
                self.referee.note(format!("node {number} hears nothing"));
                self.sky.lock().silent.insert(number);
            }
            14..=15 => self.sky.lock().silent.clear(),
            16..=17 => {
                self.referee.note("every subscription fails".into());
                self.sky.broken.notify_waiters();
            }
            18 if !self.sky.lock().dead.contains(&number) => {
                clock.set_running(false);
                self.sky.lock().dead.insert(number);
                self.referee.buried(number);
                self.start_node();
            }
            _ => {}
        }
    }
}

/// A process that runs a feed.
struct Program {
    number: u64,
    clock: SimulatedClock,
    sky: Arc<Sky>,
    referee: Arc<Referee>,
    intervals: Intervals,
    rng: Rng,
}

impl Program {
    async fn run(mut self) {
        let Ok(timing) = self.intervals.timing() else {
            let breach = Breach::new(Promise::Recovery, "times that do not fit");
            return self.referee.breach(breach);
        };
        let timeout = self.clock.real(timing.request() * 2);
        let (number, clock, sky) = (self.number, self.clock.clone(), self.sky.clone());
        let reached = Reached { number, sky, clock, timeout };
        let random = setting::randomness(self.rng.next());
        let backend = Backend::memory()
            .with_feed(Arc::new(reached))
            .with_clock(Arc::new(self.clock.clone()))
            .with_randomness(random);
        let own: Arc<OnceLock<Weak<Feed>>> = Arc::default();
        let (referee, me) = (self.referee.clone(), own.clone());
        let builder = Feed::builder(&backend)
            .id(format!("node-{number}"))
            .intervals(self.intervals)
            .on_new_state(move |state| {
                let mandate = me.get().and_then(Weak::upgrade).and_then(|feed| feed.mandate());
                match (state, mandate) {
                    (State::Leader, Some(mandate)) => referee.elected(number, &mandate),
                    (State::Leader, None) | (State::Follower, _) => {}
                }
            });
        let Ok(feed) = builder.build().map(Arc::new) else {
            let breach = Breach::new(Promise::Recovery, "a feed that cannot be built");
            return self.referee.breach(breach);
        };
        let _ = own.set(Arc::downgrade(&feed));
        let mut events = feed.events();
        loop {
            if let Err(error) = feed.start().await {
                self.referee.note(format!("node {number}: {error}"));
                self.rest(timing.ttl() / 4).await;
                continue;
            }
            let busy = self.part_of(timing.ttl() * 12);
            let lived = tokio::time::timeout(busy, async {
                while let Some(event) = events.next().await {
                    self.take(&feed, event, timing.ttl()).await;
                }
            });
            let _over = lived.await;
            self.clock.while_running().await;
            self.referee.note(format!("node {number} stops"));
            feed.stop().await;
            let pause = self.part_of(timing.ttl());
            self.rest(pause).await;
        }
    }

    /// Acts as a program would: works while it leads, and hands over now and then.
    async fn take(&mut self, feed: &Feed, event: Event, ttl: Duration) {
        let Event::NewState(State::Leader) = event else { return };
        let Some(working) = feed.working() else { return };
        let (mandate, work) = (working.mandate().clone(), self.part_of(ttl * 3));
        tokio::select! {
            biased;
            loss = mandate.lost() => self.referee.lost(self.number, &mandate, &loss),
            () = tokio::time::sleep(work) => {}
        }
        let winding = self.part_of(ttl / 8);
        self.rest(winding).await;
        drop(working);
        if self.rng.permille(400) {
            let to = format!("node-{}", self.rng.below(4));
            self.referee.note(format!("node {} hands over to {to}", self.number));
            if let Err(error) = feed.elect(&to).await {
                self.referee.note(format!("node {}: {error}", self.number));
            }
        }
    }

    async fn rest(&self, span: Duration) {
        tokio::time::sleep(span).await;
        self.clock.while_running().await;
    }

    fn part_of(&mut self, most: Duration) -> Duration {
        part_of(&mut self.rng, most)
    }
}

/// The rates of faults in one seed, in chances out of 1,000.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    delay: Duration,
    straggling: Duration,
    stragglers: u32,
    lost_requests: u32,
    lost_answers: u32,
    refusals: u32,
    /// A heartbeat is shown that is never committed.
    forgeries: u32,
    /// Items are shown late.
    lags: u32,
}

impl Weather {
    fn draw(rng: &mut Rng, ttl: Duration) -> Weather {
        let mut sometimes = |most| setting::chance(rng, most);
        Weather {
            stragglers: sometimes(120),
            lost_requests: sometimes(150),
            lost_answers: sometimes(150),
            refusals: sometimes(150),
            forgeries: sometimes(300),
            lags: sometimes(500),
            delay: ttl * u32::try_from(rng.between(1, 30)).unwrap_or(1) / 1000,
            straggling: ttl * 3,
        }
    }
}

/// The table, and the network between it and the nodes.
struct Sky {
    table: MemoryFeed,
    state: Mutex<SkyState>,
    broken: Notify,
    /// Writes that every subscription shows, and that never commit.
    uncommitted: broadcast::Sender<Found>,
}

struct SkyState {
    weather: Weather,
    rng: Rng,
    cut: BTreeSet<u64>,
    silent: BTreeSet<u64>,
    dead: BTreeSet<u64>,
}

/// The fate of one call.
struct Fate {
    out: Duration,
    back: Duration,
    arrives: bool,
    refused: bool,
    answered: bool,
}

impl Sky {
    fn new(weather: Weather, seed: u64) -> Arc<Sky> {
        let state = SkyState {
            weather,
            rng: Rng::new(seed),
            cut: BTreeSet::new(),
            silent: BTreeSet::new(),
            dead: BTreeSet::new(),
        };
        Arc::new(Sky {
            table: MemoryFeed::new(),
            state: Mutex::new(state),
            broken: Notify::new(),
            uncommitted: broadcast::Sender::new(64),
        })
    }

    fn lock(&self) -> MutexGuard<'_, SkyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, node: u64) -> Fate {
        let mut state = self.lock();
        let (weather, cut) = (state.weather, state.cut.contains(&node));
        let mut way = || {
            let most = if state.rng.permille(weather.stragglers) {
                weather.straggling
            } else {
                weather.delay
            };
            part_of(&mut state.rng, most)
        };
        let (out, back) = (way(), way());
        Fate {
            out,
            back,
            arrives: !cut && !state.rng.permille(weather.lost_requests),
            refused: state.rng.permille(weather.refusals),
            answered: !state.rng.permille(weather.lost_answers),
        }
    }

    /// The delay of an item, and whether a forgery follows; `None` if it is not shown.
    fn showing(&self, node: u64) -> Option<(Duration, bool)> {
        let mut state = self.lock();
        if state.silent.contains(&node) || state.cut.contains(&node) {
            return None;
        }
        let weather = state.weather;
        let most =
            if state.rng.permille(weather.lags) { weather.straggling } else { weather.delay };
        let lag = part_of(&mut state.rng, most);
        Some((lag, state.rng.permille(weather.forgeries)))
    }
}

/// The table as one node reaches it.
struct Reached {
    number: u64,
    sky: Arc<Sky>,
    clock: SimulatedClock,
    timeout: Duration,
}

impl fmt::Debug for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reached({})", self.number)
    }
}

impl Reached {
    async fn carry<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.carry_to(self.sky.fate(self.number), call).await
    }

    async fn carry_to<T>(
        &self,
        fate: Fate,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if fate.refused {
            tokio::time::sleep(fate.back).await;
            self.clock.while_running().await;
            return Err(failed(Fault::Unavailable));
        }
        let arrived = async {
            tokio::time::sleep(fate.out).await;
            let answer = call.await;
            tokio::time::sleep(fate.back).await;
            answer
        };
        let answer = if fate.arrives { Some(arrived.await) } else { None };
        // A call without an answer is given up at its time-out. The write may have been applied.
        let answer = match answer.filter(|_| fate.answered) {
            Some(answer) => answer,
            None => {
                tokio::time::sleep(self.timeout).await;
                Err(failed(Fault::Indeterminate))
            }
        };
        self.clock.while_running().await;
        answer
    }
}

fn failed(fault: Fault) -> StoreError {
    StoreError::new(fault, "simulated", "asking the table", "the seed wanted this to fail")
}

/// A renewal of this record that no node ever wrote.
fn forged(found: &Found, nonce: u64) -> Item {
    let mut fields = found.fields.clone();
    let revision = fields.get("revision").and_then(Value::as_u64).unwrap_or(0);
    let op = format!("forged-{nonce}");
    fields.insert("revision".into(), (revision + 1 + nonce % 3).into());
    fields.insert("op".into(), op.clone().into());
    Item::Leader(Some(Found { version: Version::new(op), fields }))
}

#[async_trait]
impl FeedStore for Reached {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn table(&self) -> &str {
        "simulated"
    }

    async fn create(&self, table: &str) -> Result<(), StoreError> {
        self.carry(self.sky.table.create(table)).await
    }

    async fn start(&self, table: &str) -> Result<(), StoreError> {
        self.carry(self.sky.table.start(table)).await
    }

    async fn read(&self, table: &str, ids: &[String]) -> Result<Vec<Option<Found>>, StoreError> {
        self.carry(self.sky.table.read(table, ids)).await
    }

    async fn heartbeat(&self, table: &str, beat: Beat) -> Result<Put, StoreError> {
        let fate = self.sky.fate(self.number);
        if let Some(fields) = beat.fields.clone().filter(|_| beat.id == LEADER && !fate.arrives) {
            let chance = self.sky.lock().weather.forgeries;
            if self.sky.lock().rng.permille(chance) {
                let op = fields.get("op").and_then(Value::as_str).unwrap_or_default().to_owned();
                // An isolated server takes it, shows it, and loses it. Without subscribers it is
                // not seen.
                let _ = self.sky.uncommitted.send(Found { version: Version::new(op), fields });
            }
        }
        self.carry_to(fate, self.sky.table.heartbeat(table, beat)).await
    }

    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError> {
        let committed = self.carry(self.sky.table.subscribe(table, from)).await?;
        let receiver = (self.sky.uncommitted.subscribe(), self.sky.clone());
        let uncommitted = stream::unfold(receiver, async |(mut shown, sky)| {
            loop {
                let found = shown.recv().await.ok()?;
                // Only subscribers of the same isolated server see it.
                if sky.lock().rng.permille(500) {
                    return Some((Ok(Item::Leader(Some(found))), (shown, sky)));
                }
            }
        });
        let shown = stream::select(committed, uncommitted);
        let (sky, number, clock) = (self.sky.clone(), self.number, self.clock.clone());
        let shown = shown.then(move |item| {
            let showing = sky.showing(number);
            let (clock, nonce) = (clock.clone(), sky.lock().rng.next());
            async move {
                let Some((lag, forgery)) = showing else { return Vec::new() };
                tokio::time::sleep(lag).await;
                clock.while_running().await;
                match &item {
                    Ok(Item::Leader(Some(found))) if forgery => {
                        let forged = forged(found, nonce);
                        vec![item, Ok(forged)]
                    }
                    _ => vec![item],
                }
            }
        });
        let sky = self.sky.clone();
        let broken = async move { sky.broken.notified().await };
        let end = stream::once(async { Err(failed(Fault::Unavailable)) });
        let shown = shown.flat_map(stream::iter).take_until(Box::pin(broken)).chain(end);
        Ok(shown.boxed())
    }

    async fn unsubscribe(&self, subscription: Subscription) {
        drop(subscription);
    }

    fn handle(&self, table: &str, handle: Handle) -> Option<Arc<dyn Any + Send + Sync>> {
        self.sky.table.handle(table, handle)
    }
}
