//! Simulation through the driver: a few seeds here, many in `simulate-driver`.

use tenure_simulation::driven::{Elections, Rare};
use tenure_simulation::kernel::{Options, Rates, Simulator, report, search};

#[test]
fn no_seed_breaks_a_promise_through_the_driver() {
    let found = search::<Elections>(0..200, 1, Options::default());
    if let Some(run) = found.broken.first() {
        panic!("{}", report::<Elections>(run, Options::default()));
    }
    let (tenures, losses) =
        (found.sometimes.count(Rare::Tenure), found.sometimes.count(Rare::Loss));
    assert!(tenures > 1000 && losses > 200, "{tenures} tenures, {losses} lost: too calm");
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_letter() {
    for seed in [3, 1007] {
        let options = Options::default();
        let (first, second) =
            (Elections::simulate(seed, options), Elections::simulate(seed, options));
        assert_eq!(first.trace, second.trace);
    }
}

#[test]
fn clocks_beyond_the_tolerance_are_caught() {
    let options = Options { rates: Rates::Beyond, ..Options::default() };
    let caught = (0..300).any(|seed| Elections::simulate(seed, options).breach.is_some());
    assert!(caught, "the referee sees nothing");
}
