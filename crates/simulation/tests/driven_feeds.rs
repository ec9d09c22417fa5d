//! Simulation of leader feeds: a few hundred seeds here, any number in `simulate-feeds`.

use tenure_simulation::driven::Rare;
use tenure_simulation::driven::feeds::Feeds;
use tenure_simulation::kernel::{Options, Rates, Simulator, report, search};

#[test]
fn no_seed_breaks_a_promise_of_a_feed() {
    let seeds = 200;
    let found = search::<Feeds>(0..seeds, 1, Options::default());
    if let Some(run) = found.broken.first() {
        panic!("{}", report::<Feeds>(run, Options::default()));
    }
    let (tenures, losses) =
        (found.sometimes.count(Rare::Tenure), found.sometimes.count(Rare::Loss));
    assert!(tenures > seeds * 4 && losses > seeds, "{tenures}, {losses} lost: too calm");
}

#[test]
fn clocks_beyond_the_tolerance_are_caught() {
    let options = Options { rates: Rates::Beyond, ..Options::default() };
    let caught = (0..300).any(|seed| Feeds::simulate(seed, options).breach.is_some());
    assert!(caught, "the referee sees nothing");
}
