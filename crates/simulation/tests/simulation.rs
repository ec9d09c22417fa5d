//! The quick suite of the simulator of leases. `scripts/test` runs its program over many more seeds.

mod common;

use tenure::lease::mutant::Mutant;
use tenure_simulation::kernel::{Options, Promise, Rates, search};
use tenure_simulation::lease::Leases;

#[test]
fn the_sound_machine_keeps_every_promise_and_goes_down_every_path() {
    common::keeps_every_promise_and_goes_down_every_path::<Leases>(3000);
}

#[test]
fn every_mutant_is_caught() {
    // About twenty times the seeds that the most elusive mutant needs.
    common::every_mutant_is_caught::<Leases>(10_000);
}

#[test]
fn clocks_beyond_the_tolerance_give_two_leaders_and_the_checker_sees_them() {
    let options = Options { rates: Rates::Beyond, ..Options::default() };
    let broken = search::<Leases>(0..3000, 1, options).broken.into_iter();
    let promises = broken.filter_map(|run| run.breach).map(|breach| breach.promise);
    assert!(promises.filter(|promise| *promise == Promise::OneLeader).count() > 10);
}

#[test]
fn a_seed_replays_byte_for_byte() {
    common::a_seed_replays_byte_for_byte::<Leases>(50);
}

#[test]
fn a_failure_says_how_to_see_it_again() {
    let parts = ["broken: OneLeader", "--bin simulate ", "--mutant WallClock"];
    common::a_failure_says_how_to_see_it_again::<Leases>(Mutant::WallClock, &parts);
}
