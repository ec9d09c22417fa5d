//! Simulation of leader feeds on one table, under the same kinds of trouble.
//!
//! In addition to the faults of a store, subscriptions have faults: they lag, each node's by
//! itself; they fall silent; they fail; and they show heartbeats that are never committed. Nodes
//! are paused, cut off and killed; they work, hand over, stop and start again.
//!
//! A seed gives the same trouble each time, but not exactly the same run: feeds communicate through
//! channels that wake their readers in no fixed order.

mod network;
mod program;
mod store;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tenure::feed::Intervals;

use self::network::{Sky, Weather};
use self::program::Program;
use super::Rare;
use super::clock::SimulatedClock;
use super::referee::Referee;
use super::setting::{self, Troubled};
use crate::kernel::{Breach, Options, Promise, Rates, Rng, Run, Simulator, Whole};

/// The simulator of leader feeds.
#[derive(Clone, Copy, Debug)]
pub struct Feeds;

impl Simulator for Feeds {
    const PROGRAM: &'static str = "simulate-feeds";
    const MUTANTS: &'static [Infallible] = &[];
    type Mutant = Infallible;
    type Profile = Whole;
    type Rare = Rare;

    /// # Panics
    /// When no runtime can be built.
    fn simulate(seed: u64, options: Options<Feeds>) -> Run<Rare> {
        setting::in_simulated_time(world(seed, options.rates))
    }
}

async fn world(seed: u64, rates: Rates) -> Run<Rare> {
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
        let referee = Arc::new(Referee::new(seed));
        referee.note(format!("seed {seed}: ttl {ttl:?}, {:?}", sky.lock().weather));
        let mut world = World { rng, rates, ttl, sky, referee, nodes: Vec::new() };
        (0..world.rng.between(2, 4)).for_each(|_| world.start_node());
        world
    }

    fn start_node(&mut self) {
        let number = self.nodes.len() as u64;
        let clock = setting::clock_of(number, self.rates, &mut self.rng);
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
