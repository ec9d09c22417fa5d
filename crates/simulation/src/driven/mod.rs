//! Simulation through the driver, from `campaign` down to the store's trait.
//!
//! It runs the code that ships.
//!
//! tokio's clock stands still until nothing is left to do and then jumps to the next timer. So a
//! minute of trouble takes milliseconds, and a seed always gives the same run. Each node has a
//! clock of its own rate, a store that loses, delays and refuses requests, and may be paused or
//! killed. A node does the same as a program would: campaign, work, resign, regain, end.
//!
//! [`crate::lease`] simulates the machines far more thoroughly. This simulation looks for
//! faults of the driver around them: a mandate published too late or revoked too late, an answer
//! given to the wrong machine, a wake-up forgotten.

mod clock;
pub mod clusters;
pub mod feeds;
mod network;
mod node;
mod referee;
mod setting;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::{Breach, Options, Promise, Rates, Rng, Run, Simulator, Whole};
use network::{Network, Weather};
use node::Node;
use referee::Referee;
use setting::Troubled;

crate::listed! {
    /// Counted events of elections and feeds.
    pub enum Rare {
        /// A tenure began.
        Tenure,
        /// A tenure was lost rather than given up.
        Loss,
    }
}

/// The simulator of elections through the driver.
#[derive(Clone, Copy, Debug)]
pub struct Elections;

impl Simulator for Elections {
    const PROGRAM: &'static str = "simulate-driver";
    const MUTANTS: &'static [Infallible] = &[];
    type Mutant = Infallible;
    type Profile = Whole;
    type Rare = Rare;

    /// # Panics
    /// When no runtime can be built.
    fn simulate(seed: u64, options: Options<Elections>) -> Run<Rare> {
        setting::in_simulated_time(world(seed, options.rates))
    }
}

async fn world(seed: u64, rates: Rates) -> Run<Rare> {
    let mut world = World::new(seed, rates);
    let span = world.ttl * 25;
    setting::trouble(&mut world, span, 700).await;
    world.network.heal();
    world.nodes.iter().for_each(Node::resume);
    world.expect_recovery().await;
    world.referee.finish()
}

struct World {
    rng: Rng,
    rates: Rates,
    ttl: Duration,
    network: Arc<Network>,
    referee: Arc<Referee>,
    nodes: Vec<Node>,
}

impl World {
    fn new(seed: u64, rates: Rates) -> World {
        let mut rng = Rng::new(seed);
        let ttl = Duration::from_millis(rng.between(500, 3000));
        let weather = Weather::draw(&mut rng, ttl);
        let network = Network::new(weather, rng.next());
        let referee = Arc::new(Referee::new(seed));
        referee.note(format!("seed {seed}: ttl {ttl:?}, {weather:?}"));
        let mut world = World { rng, rates, ttl, network, referee, nodes: Vec::new() };
        (0..world.rng.between(2, 4)).for_each(|_| world.start_node());
        world
    }

    fn start_node(&mut self) {
        let number = self.nodes.len() as u64;
        let (clock, seed) = (setting::clock_of(number, self.rates, &mut self.rng), self.rng.next());
        let node = Node::start(number, clock, &self.network, &self.referee, self.ttl, seed);
        self.nodes.push(node);
    }

    /// With every fault gone, a candidate must lead within the bound of the protocol.
    async fn expect_recovery(&self) {
        // R(T + J) for the wait, a poll, a lapse's jitter of up to T, an answer that may still be
        // in flight for up to 3T, and work that winds down. Ended elections are created again
        // within a ttl.
        let bound = self.ttl * 12;
        let led = tokio::time::timeout(bound, self.referee.somebody_leads()).await;
        if led.is_err() {
            let how = format!("nobody led within {bound:?}");
            self.referee.breach(Breach::new(Promise::Recovery, how));
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
        let choice = self.rng.below(24);
        let Some(node) = self.nodes.get(usize::try_from(number).unwrap_or(0)) else { return };
        match choice {
            0..=3 => {
                let span = setting::pause_within(&mut self.rng, self.ttl);
                self.referee.note(format!("node {number} is paused for {span:?}"));
                node.pause(span);
            }
            4..=6 => self.network.cut(number),
            7..=12 => self.network.heal_cuts(),
            13 => {
                self.referee.note("the store is away".into());
                self.network.outage(true);
            }
            14..=17 => self.network.outage(false),
            18 if !node.is_dead() => {
                node.kill();
                self.referee.buried(number);
                self.start_node();
            }
            19 => node.end_election(self.rng.permille(300)),
            20 => self.network.gossip(self.rng.permille(700)),
            _ => {}
        }
    }
}
