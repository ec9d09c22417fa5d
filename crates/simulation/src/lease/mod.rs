//! A deterministic discrete-event simulator over the machine that ships.
//!
//! One seed is one world: candidates with clocks of their own, a store, a network and a swarm of
//! faults. Nothing in here reads a clock, starts a thread or depends on the order of a hash map, so
//! a seed replays byte for byte. After a phase of faults all faults stop, and a candidate must
//! lead soon.

mod healing;
mod injection;
mod network;
mod node;
mod rare;
mod store;
mod swarm;
mod world;

use tenure::lease::mutant::Mutant;

use crate::kernel::{self, Run, Simulator};

pub use rare::Rare;
pub use swarm::Profile;

/// The options of a simulation.
pub type Options = kernel::Options<Leases>;

/// The simulator of elections on leases.
#[derive(Clone, Copy, Debug)]
pub struct Leases;

impl Simulator for Leases {
    const PROGRAM: &'static str = "simulate";
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
