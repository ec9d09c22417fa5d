//! The simulator's quick suite. `scripts/test` runs the binary over many more seeds.

use tenure::lease::mutant::Mutant;
use tenure_conformance::checkers::Promise;
use tenure_conformance::simulator::{Options, Rare, Rates, Sometimes, report, simulate};

const SEEDS: u64 = 3000;
/// About twenty times the seeds that the most elusive mutant needs.
const MOST_SEEDS_PER_MUTANT: u64 = 10_000;

#[test]
fn the_sound_machine_keeps_every_promise_and_goes_down_every_path() {
    let mut sometimes = Sometimes::default();
    for seed in 0..SEEDS {
        let run = simulate(seed, Options::default());
        assert!(run.breach.is_none(), "{}", report(seed, Options::default()));
        sometimes.add(&run.sometimes);
    }
    let never: Vec<Rare> = sometimes.never().collect();
    assert!(never.is_empty(), "no world of {SEEDS} ever did: {never:?}");
}

#[test]
fn every_mutant_is_caught() {
    let escaped: Vec<Mutant> = Mutant::ALL.into_iter().filter(|mutant| !caught(*mutant)).collect();
    assert!(escaped.is_empty(), "nobody noticed {escaped:?} in {MOST_SEEDS_PER_MUTANT} seeds each");
}

fn caught(mutant: Mutant) -> bool {
    let options = Options::hunting(mutant);
    (0..MOST_SEEDS_PER_MUTANT).any(|seed| simulate(seed, options).breach.is_some())
}

#[test]
fn clocks_beyond_the_tolerance_give_two_leaders_and_the_checker_sees_them() {
    let options = Options { rates: Rates::Beyond, ..Options::default() };
    let two_leaders = |seed: &u64| {
        let breach = simulate(*seed, options).breach;
        breach.is_some_and(|breach| breach.promise == Promise::OneLeader)
    };
    assert!((0..SEEDS).filter(two_leaders).count() > 10);
}

#[test]
fn a_seed_replays_byte_for_byte() {
    let options = Options { trace: true, ..Options::default() };
    for seed in 0..50 {
        let (first, second) = (simulate(seed, options), simulate(seed, options));
        assert!(!first.trace.is_empty());
        assert_eq!(first.trace, second.trace, "seed {seed}");
        let silent = simulate(seed, Options::default());
        assert_eq!((silent.events, &silent.sometimes), (first.events, &first.sometimes));
    }
}

#[test]
fn a_failure_says_how_to_see_it_again() {
    let options = Options::hunting(Mutant::WallClock);
    let seed = (0..SEEDS).find(|seed| simulate(*seed, options).breach.is_some());
    let told = report(seed.expect("this mutant is easily caught"), options);
    for part in ["seed ", "commit ", "broken: OneLeader", "replay: cargo run", "--mutant WallClock"]
    {
        assert!(told.contains(part), "{part} is missing in: {told}");
    }
}
