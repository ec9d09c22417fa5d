//! All short histories of the lease machine, explored.
//!
//! `TENURE_MODEL_TICKS=7` looks one tick further, at four times the states.

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model};
use tenure::lease::mutant::Mutant;
use tenure_simulation::model::Candidates;

/// Long enough for a lease to run out and be taken over on the faster clock.
const TICKS: u32 = 6;
/// No machine of ours takes this long; a stuck one should fail rather than hang.
const PATIENCE: Duration = Duration::from_secs(300);

fn two(ticks: u32, mutant: Option<Mutant>) -> Candidates {
    Candidates { count: 2, ticks, messages: 2, mutant }
}

#[test]
fn no_short_history_of_two_candidates_has_two_leaders_or_a_token_twice() {
    let asked = std::env::var("TENURE_MODEL_TICKS").ok();
    let ticks = asked.map_or(TICKS, |ticks| ticks.parse().expect("a number of ticks"));
    let checker = two(ticks, None).checker().threads(2).spawn_bfs().join();
    eprintln!(
        "{} states, {} of them different, {} steps deep",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    // This also asserts that a candidate leads, and that another takes over.
    checker.assert_properties();
}

#[test]
fn broken_rules_show_in_short_histories() {
    for (mutant, ticks, property) in [
        (Mutant::WindowFromAnswer, 7, "one leader"),
        (Mutant::WallClock, 6, "one leader"),
        (Mutant::TimerSurvivesRenewal, 7, "one leader"),
        (Mutant::LateAnswerRevives, 7, "tokens rise"),
        (Mutant::TokenReusedAfterLapse, 7, "tokens rise"),
    ] {
        let checker = two(ticks, Some(mutant))
            .checker()
            .threads(2)
            .finish_when(HasDiscoveries::AnyOf([property].into()))
            .timeout(PATIENCE)
            .spawn_bfs()
            .join();
        eprintln!("{mutant:?}: {} states", checker.unique_state_count());
        assert!(checker.discovery(property).is_some(), "{mutant:?} does not break {property:?}");
    }
}
