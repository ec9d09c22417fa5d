//! Simulation of whole clusters: a hundred seeds, and rules broken on purpose.

use tenure_conformance::driven::{Rates, clusters::simulate};

#[test]
fn no_seed_breaks_a_promise_of_a_cluster() {
    // TENURE_CLUSTER_SEEDS sets the number of seeds, and TENURE_CLUSTER_FROM the first one.
    let number = |name: &str, usual| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let (from, seeds): (u64, u64) =
        (number("TENURE_CLUSTER_FROM", 0), number("TENURE_CLUSTER_SEEDS", 100));
    let (mut begun, mut again, mut refused) = (0, 0, 0);
    for seed in from..from + seeds {
        let run = simulate(seed, Rates::Tolerated);
        if let Some(breach) = run.breach {
            panic!("seed {seed}: {breach}\n{}", run.trace.join("\n"));
        }
        (begun, again, refused) = (begun + run.begun, again + run.again, refused + run.refused);
    }
    println!("{seeds} seeds, {begun} attempts, {again} of them not the first, {refused} refused");
    assert!(
        begun > seeds * 10 && again > seeds && refused > 0,
        "{begun}, {again}, {refused}: too calm"
    );
}

#[test]
fn clocks_beyond_the_tolerance_are_caught() {
    let caught = (0..400).any(|seed| simulate(seed, Rates::Beyond).breach.is_some());
    assert!(caught, "the ledger sees nothing");
}

#[test]
fn every_broken_rule_of_the_claims_is_noticed() {
    use tenure_cluster::mutant::{ClusterMutant, break_rule};

    for mutant in [
        ClusterMutant::ClaimWithoutVersion,
        ClusterMutant::ClaimEarly,
        ClusterMutant::LateCompletionWins,
        ClusterMutant::WindowFromAnswer,
    ] {
        break_rule(Some(mutant));
        let noticed = (0..1500)
            .find_map(|seed| simulate(seed, Rates::Tolerated).breach.map(|breach| (seed, breach)));
        break_rule(None);
        let (seed, breach) = noticed.unwrap_or_else(|| panic!("nobody noticed {mutant:?}"));
        println!("{mutant:?}: seed {seed}: {breach}");
    }
}
