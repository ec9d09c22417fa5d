//! Runs many seeds, searches for mutants, and reports a broken promise.

use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::simulator::{Options, Run, Simulator};
use super::sometimes::Sometimes;

/// After so many seeds a line tells how far a search has come.
const SEEDS_PER_LINE: u64 = 20_000;
/// The last lines of a trace that a report shows.
const LINES_SHOWN: usize = 60;

/// The result of many seeds.
#[derive(Debug)]
pub struct Found<S: Simulator> {
    /// The rare paths that they took.
    pub sometimes: Sometimes<S::Rare>,
    /// The runs that broke a promise, in the order of their seeds.
    pub broken: Vec<Run<S::Rare>>,
    /// The number of events.
    pub events: u64,
}

/// Simulates these seeds on some threads.
///
/// # Panics
/// When a simulation panics.
#[must_use]
pub fn search<S: Simulator>(seeds: Range<u64>, threads: u64, options: Options<S>) -> Found<S> {
    let options = Options { trace: false, ..options };
    let next = AtomicU64::new(seeds.start);
    let nothing = Found { sometimes: Sometimes::default(), broken: Vec::new(), events: 0 };
    let found = Mutex::new(nothing);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut sometimes, mut broken, mut events) = (Sometimes::default(), Vec::new(), 0);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    if seed % SEEDS_PER_LINE == SEEDS_PER_LINE - 1 {
                        eprintln!("{}: seed {seed}", S::PROGRAM);
                    }
                    let run = S::simulate(seed, options);
                    events += run.events;
                    sometimes.add(&run.sometimes);
                    if run.breach.is_some() {
                        broken.push(run);
                    }
                }
                let mut found = found.lock().expect("no thread panics while it holds this");
                found.sometimes.add(&sometimes);
                found.broken.extend(broken);
                found.events += events;
            });
        }
    });
    let mut found = found.into_inner().expect("every thread has ended");
    found.broken.sort_by_key(|run| run.seed);
    found
}

/// The run of the first of these seeds that notices a broken rule.
#[must_use]
pub fn hunt<S: Simulator>(mutant: S::Mutant, seeds: Range<u64>) -> Option<Run<S::Rare>> {
    let options = Options::<S>::hunting(mutant);
    seeds.map(|seed| S::simulate(seed, options)).find(|run| run.breach.is_some())
}

/// The report of a broken promise, with everything needed to replay it.
#[must_use]
pub fn report<S: Simulator>(run: &Run<S::Rare>, options: Options<S>) -> String {
    let (seed, verdict) = (run.seed, run.verdict());
    let traced = || S::simulate(seed, Options { trace: true, ..options }).trace;
    let trace = if run.trace.is_empty() { traced() } else { run.trace.clone() };
    let last = trace.len().saturating_sub(LINES_SHOWN);
    format!(
        "seed {seed} at commit {}, {options:?}\nbroken: {verdict}\n{}\nreplay: cargo run --profile sim -p \
         tenure-simulation --bin {} -- --seed {seed} --trace{}\n",
        commit(),
        trace[last..].join("\n"),
        S::PROGRAM,
        options.arguments(),
    )
}

/// The commit this was built from, as far as git knows.
pub(super) fn commit() -> String {
    let asked = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match asked {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        Ok(_) | Err(_) => "unknown".to_owned(),
    }
}
