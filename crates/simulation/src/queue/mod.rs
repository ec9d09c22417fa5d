//! A deterministic simulator of queues.
//!
//! It runs over the machine and the window calculators that ship.
//!
//! One seed is one world: processes with clocks of their own, each with a session; three servers
//! with a leader that counts sessions by *its* clock; streams between them in which pings, writes
//! and commits keep their order; and a swarm of faults. The seed chooses between the rules of
//! ZooKeeper and of etcd. Nothing in here reads a clock, starts a thread or depends on the order of
//! a hash map, so a seed replays byte for byte.
//!
//! The model includes these details, because leaving them out would hide two leaders:
//! - a session expires only by messages that reached the *leader*;
//! - another server reports its sessions with its replies to pings;
//! - a server that is cut off still answers reads, and an old leader answers keep-alives and
//!   handshakes, too;
//! - a new leader gives every session its whole time again;
//! - a server that lags shows an old line;
//! - a server that is cut off refuses writes by itself;
//! - requests of a connection that was given up may still arrive.

mod client;
mod companion;
mod ensemble;
mod healing;
mod injection;
mod judge;
mod moving;
mod node;
mod rare;
mod refusals;
mod registry;
mod servers;
mod swarm;
mod world;

use tenure::queue::mutant::Mutant;

use crate::kernel::{self, Run, Simulator};

pub use rare::Rare;
pub use swarm::Profile;

/// The options of a simulation.
pub type Options = kernel::Options<Queues>;

/// The simulator of elections on queues.
#[derive(Clone, Copy, Debug)]
pub struct Queues;

impl Simulator for Queues {
    const PROGRAM: &'static str = "simulate-queue";
    const MUTANTS: &'static [Mutant] = &Mutant::ALL;
    type Mutant = Mutant;
    type Profile = Profile;
    type Rare = Rare;

    fn hunting(mutant: Mutant) -> Profile {
        Profile::hunting(mutant)
    }

    fn simulate(seed: u64, options: Options) -> Run<Rare> {
        kernel::run(world::World::new(seed, options))
    }
}
