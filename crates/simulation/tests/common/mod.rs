//! Claims that hold for the simulators of machines.

use tenure_simulation::kernel::{Options, Simulator, hunt, report, search};

pub(crate) fn keeps_every_promise_and_goes_down_every_path<S: Simulator>(seeds: u64) {
    let found = search::<S>(0..seeds, 1, Options::default());
    if let Some(run) = found.broken.first() {
        panic!("{}", report::<S>(run, Options::default()));
    }
    let never = found.sometimes.never();
    assert!(never.is_empty(), "no world of {seeds} ever did: {never:?}");
}

pub(crate) fn every_mutant_is_caught<S: Simulator>(seeds: u64) {
    let escapes = |mutant: &&S::Mutant| hunt::<S>(**mutant, 0..seeds).is_none();
    let escaped: Vec<&S::Mutant> = S::MUTANTS.iter().filter(escapes).collect();
    assert!(escaped.is_empty(), "no world of {seeds} notices {escaped:?}");
}

pub(crate) fn a_seed_replays_byte_for_byte<S: Simulator>(seeds: u64) {
    let options = Options { trace: true, ..Options::default() };
    for seed in 0..seeds {
        let (first, second) = (S::simulate(seed, options), S::simulate(seed, options));
        assert!(!first.trace.is_empty());
        assert_eq!(first.trace, second.trace, "seed {seed}");
        let silent = S::simulate(seed, Options::default());
        assert_eq!((silent.events, silent.sometimes), (first.events, first.sometimes));
    }
}

pub(crate) fn a_failure_says_how_to_see_it_again<S: Simulator>(mutant: S::Mutant, parts: &[&str]) {
    let run = hunt::<S>(mutant, 0..3000).expect("this mutant is easily caught");
    let told = report::<S>(&run, Options::hunting(mutant));
    for part in ["seed ", "commit ", "replay: cargo run"].iter().chain(parts) {
        assert!(told.contains(part), "{part} is missing in: {told}");
    }
}
