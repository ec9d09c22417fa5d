//! Simulation of the machine that leads a cluster: some seeds, and rules broken on purpose.
//! `simulate-leader` takes any number.

use tenure_simulation::kernel::{Options, Simulator as _, hunt, report, search};
use tenure_simulation::leader::Leaders;

#[test]
fn no_seed_breaks_a_promise_of_the_leader() {
    let found = search::<Leaders>(0..1000, 2, Options::default());
    if let Some(run) = found.broken.first() {
        panic!("{}", report::<Leaders>(run, Options::default()));
    }
}

#[test]
fn every_broken_rule_of_the_leader_is_noticed() {
    for mutant in Leaders::MUTANTS {
        let noticed = hunt::<Leaders>(*mutant, 0..2000);
        let run = noticed.unwrap_or_else(|| panic!("no seed notices {mutant:?}"));
        println!("{mutant:?}: seed {}: {}", run.seed, run.verdict());
    }
}
