//! Simulation of leader feeds: a few hundred seeds.

use tenure_conformance::driven::{Rates, feeds::simulate};

#[test]
fn no_seed_breaks_a_promise_of_a_feed() {
    let (mut tenures, mut losses) = (0, 0);
    // TENURE_FEED_SEEDS sets the number of seeds, and TENURE_FEED_FROM the first one.
    let number = |name: &str, usual| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let (from, seeds): (u64, u64) =
        (number("TENURE_FEED_FROM", 0), number("TENURE_FEED_SEEDS", 200));
    for seed in from..from + seeds {
        let run = simulate(seed, Rates::Tolerated);
        if let Some(breach) = run.breach {
            panic!("seed {seed}: {breach}\n{}", run.trace.join("\n"));
        }
        tenures += run.tenures;
        losses += run.losses;
    }
    println!("{seeds} seeds, {tenures} tenures, {losses} of them told to stop");
    assert!(tenures > seeds * 4 && losses > seeds, "{tenures}, {losses} lost: too calm");
}

#[test]
fn clocks_beyond_the_tolerance_are_caught() {
    let caught = (0..300).any(|seed| simulate(seed, Rates::Beyond).breach.is_some());
    assert!(caught, "the referee sees nothing");
}
