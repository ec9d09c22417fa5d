//! Simulation of the machine that leads a cluster: worlds full of faults, one per seed.
//!
//! Leaders are cut off anywhere, race each other and lose answers, while workers work and users
//! submit, retry and cancel. In the end every task must be counted once, as it ended. The machines
//! are stepped directly: there is no runtime and no future in here.

mod audit;
mod plot;
mod rare;
mod seat;
mod store;
mod users;
mod world;

pub use plot::Profile;
pub use rare::Rare;

use tenure_cluster::mutant::{ClusterMutant, break_rule};

use self::plot::Plot;
use self::world::Cluster;
use crate::kernel::{Kernel, Options, Run, Simulator, run};

/// The simulator of the leader's machine.
#[derive(Clone, Copy, Debug)]
pub struct Leaders;

impl Simulator for Leaders {
    const PROGRAM: &'static str = "simulate-leader";
    const MUTANTS: &'static [ClusterMutant] = &[
        ClusterMutant::CursorFirst,
        ClusterMutant::SlotsFirst,
        ClusterMutant::CountsTwice,
        ClusterMutant::WeakCounts,
        ClusterMutant::WeakFills,
        ClusterMutant::ForgetsRecordedIntents,
        ClusterMutant::PageFreedEarly,
        ClusterMutant::OldWritesCount,
        ClusterMutant::WritesGoBack,
        ClusterMutant::RetryKeepsLetter,
        ClusterMutant::BacklogMakesSlots,
    ];
    type Mutant = ClusterMutant;
    type Profile = Profile;
    type Rare = Rare;

    fn simulate(seed: u64, options: Options<Leaders>) -> Run<Rare> {
        break_rule(options.mutant);
        let mut kernel = Kernel::new(seed, options.trace);
        let plot = Plot::draw(&mut kernel.rng, options.profile);
        kernel.note(|| format!("{plot:?}"));
        let run = run(Cluster::new(kernel, plot));
        break_rule(None);
        run
    }
}
