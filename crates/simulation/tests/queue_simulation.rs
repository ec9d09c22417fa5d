//! The quick suite of the simulator of queues. `scripts/test` runs its program over many more seeds.

mod common;

use tenure::queue::mutant::Mutant;
use tenure_simulation::kernel::{Options, Promise, Rates, search};
use tenure_simulation::queue::{Profile, Queues};

#[test]
fn the_sound_machine_keeps_every_promise_and_goes_down_every_path() {
    common::keeps_every_promise_and_goes_down_every_path::<Queues>(3000);
}

#[test]
fn every_mutant_is_caught() {
    // Many times the seeds that the most elusive mutant needs.
    common::every_mutant_is_caught::<Queues>(10_000);
}

#[test]
fn servers_that_count_faster_than_the_tolerance_let_a_believed_session_expire_and_that_is_seen() {
    for profile in [Profile::Zookeeper, Profile::Etcd] {
        let options = Options { rates: Rates::Beyond, profile, ..Options::default() };
        let broken = search::<Queues>(0..1000, 1, options).broken.into_iter();
        let mut promises = broken.filter_map(|run| run.breach).map(|breach| breach.promise);
        let expired = promises.any(|promise| promise == Promise::Window);
        assert!(expired, "{profile:?}: the margin would not be needed");
    }
}

#[test]
fn a_seed_replays_byte_for_byte() {
    common::a_seed_replays_byte_for_byte::<Queues>(30);
}

#[test]
fn a_failure_says_how_to_see_it_again() {
    let parts = ["broken: Fencing", "--bin simulate-queue", "--mutant LostToken"];
    common::a_failure_says_how_to_see_it_again::<Queues>(Mutant::LostTokenReturns, &parts);
}
