//! Simulation through the driver: a few seeds here, many in `simulate --driver`.

use tenure_conformance::driven::{Rates, simulate};

#[test]
fn no_seed_breaks_a_promise_through_the_driver() {
    let (mut tenures, mut losses) = (0, 0);
    for seed in 0..200 {
        let run = simulate(seed, Rates::Tolerated);
        if let Some(breach) = run.breach {
            panic!("seed {seed}: {breach}\n{}", run.trace.join("\n"));
        }
        tenures += run.tenures;
        losses += run.losses;
    }
    assert!(tenures > 1000 && losses > 200, "{tenures} tenures, {losses} lost: too calm");
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_letter() {
    for seed in [3, 1007] {
        let (first, second) = (simulate(seed, Rates::Tolerated), simulate(seed, Rates::Tolerated));
        assert_eq!(first.trace, second.trace);
    }
}

#[test]
fn clocks_beyond_the_tolerance_are_caught() {
    let caught = (0..300).any(|seed| simulate(seed, Rates::Beyond).breach.is_some());
    assert!(caught, "the referee sees nothing");
}
