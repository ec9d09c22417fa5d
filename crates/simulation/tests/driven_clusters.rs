//! Simulation of whole clusters: a hundred seeds, and rules broken on purpose. `simulate-clusters`
//! takes any number.

use tenure_simulation::driven::clusters::{Clusters, Rare};
use tenure_simulation::kernel::{Options, Rates, Simulator, hunt, report, search};

#[test]
fn no_seed_breaks_a_promise_of_a_cluster() {
    let seeds = 100;
    let found = search::<Clusters>(0..seeds, 1, Options::default());
    if let Some(run) = found.broken.first() {
        panic!("{}", report::<Clusters>(run, Options::default()));
    }
    let count = |rare| found.sometimes.count(rare);
    let (begun, again, refused) =
        (count(Rare::Begun), count(Rare::BegunAgain), count(Rare::Refused));
    assert!(
        begun > seeds * 10 && again > seeds && refused > 0,
        "{begun}, {again}, {refused}: too calm"
    );
}

#[test]
fn clocks_beyond_the_tolerance_are_caught() {
    let options = Options { rates: Rates::Beyond, ..Options::default() };
    let caught = (0..400).any(|seed| Clusters::simulate(seed, options).breach.is_some());
    assert!(caught, "the ledger sees nothing");
}

#[test]
fn every_broken_rule_of_the_claims_is_noticed() {
    for mutant in Clusters::MUTANTS {
        let noticed = hunt::<Clusters>(*mutant, 0..1500);
        let run = noticed.unwrap_or_else(|| panic!("no seed notices {mutant:?}"));
        println!("{mutant:?}: seed {}: {}", run.seed, run.verdict());
    }
}
