//! A deterministic discrete-event simulator over the machine that ships.
//!
//! One seed is one world: candidates with clocks of their own, a store, a network and a swarm of
//! faults. Nothing in here reads a clock, starts a thread or depends on the order of a hash map, so
//! a seed replays byte for byte. After a phase of faults all faults stop, and a candidate must
//! lead soon.

pub(crate) mod clock;
mod healing;
mod injection;
mod network;
mod node;
mod sometimes;
mod store;
mod swarm;
mod world;

use tenure::lease::mutant::Mutant;

use crate::checkers::Breach;

pub use sometimes::{Rare, Sometimes};
pub use swarm::{Profile, Rates};

/// The options of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The rule that is broken, if any.
    pub mutant: Option<Mutant>,
    /// How far the clocks may differ.
    pub rates: Rates,
    /// The part of the swarm that the worlds are drawn from.
    pub profile: Profile,
    /// Whether to record a trace.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { mutant: None, rates: Rates::WithinTolerance, profile: Profile::Any, trace: false }
    }
}

impl Options {
    /// Options for a broken machine, in the worlds where its fault shows soonest.
    #[must_use]
    pub fn hunting(mutant: Mutant) -> Options {
        let profile = Profile::hunting(mutant);
        Options { mutant: Some(mutant), profile, ..Options::default() }
    }
}

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// The promise that was broken, if one was.
    pub breach: Option<Breach>,
    /// The rare paths that it took.
    pub sometimes: Sometimes,
    /// The number of events.
    pub events: u64,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
}

/// Simulates one seed.
#[must_use]
pub fn simulate(seed: u64, options: Options) -> Run {
    world::World::new(seed, options).run()
}

/// The report of a broken promise, with everything needed to replay it.
#[must_use]
pub fn report(seed: u64, options: Options) -> String {
    let run = simulate(seed, Options { trace: true, ..options });
    let breach = run.breach.map_or_else(|| "none".to_owned(), |breach| breach.to_string());
    let last = run.trace.len().saturating_sub(40);
    format!(
        "seed {seed} at commit {}, {options:?}\nbroken: {breach}\n{}\nreplay: cargo run --profile sim -p \
         tenure-conformance --bin simulate -- --seed {seed} --trace{}{}{}\n",
        commit(),
        run.trace[last..].join("\n"),
        options.mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant:?}")),
        match options.profile {
            Profile::Any => "",
            Profile::Tight => " --profile tight",
            Profile::Recreated => " --profile recreated",
            Profile::Deleted => " --profile deleted",
        },
        match options.rates {
            Rates::WithinTolerance => "",
            Rates::Beyond => " --beyond",
        },
    )
}

/// The commit this was built from, as far as git knows.
#[must_use]
pub fn commit() -> String {
    let asked = std::process::Command::new("git")
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
