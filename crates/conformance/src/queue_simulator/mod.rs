//! A deterministic simulator of queues.
//!
//! It runs over the machine and the window calculators that ship.
//!
//! One seed is one world: processes with clocks of their own, each with a session; three servers
//! with a leader that counts sessions by *its* clock; streams between them in which pings, writes
//! and commits keep their order; and a swarm of faults. The seed chooses between the rules of
//! ZooKeeper and of etcd. Nothing in here reads a clock, starts a thread or depends on the order of
//! a hash map, so a seed replays byte for byte.
//!
//! The model includes these details, because leaving them out would hide two leaders:
//! - a session expires only by messages that reached the *leader*;
//! - another server reports its sessions with its replies to pings;
//! - a server that is cut off still answers reads, and an old leader answers keep-alives and
//!   handshakes, too;
//! - a new leader gives every session its whole time again;
//! - a server that lags shows an old line;
//! - a server that is cut off refuses writes by itself;
//! - requests of a connection that was given up may still arrive.

mod client;
mod companion;
mod ensemble;
mod healing;
mod injection;
mod judge;
mod moving;
mod node;
mod refusals;
mod registry;
mod servers;
mod sometimes;
mod swarm;
mod world;

use tenure::queue::mutant::Mutant;

use crate::checkers::Breach;

pub use sometimes::{Rare, Sometimes};
pub use swarm::{Dialect, Profile};

/// The options of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// The rule that is broken, if any.
    pub mutant: Option<Mutant>,
    /// The rules that the servers follow; the seed chooses if not given.
    pub dialect: Option<Dialect>,
    /// The part of the swarm that the worlds are drawn from.
    pub profile: Profile,
    /// Whether servers' clocks run faster than the tolerance allows. Then nothing is promised.
    pub beyond: bool,
    /// Whether to record a trace.
    pub trace: bool,
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
    let last = run.trace.len().saturating_sub(60);
    let dialect = match options.dialect {
        None => "",
        Some(Dialect::Zookeeper) => " --dialect zookeeper",
        Some(Dialect::Etcd) => " --dialect etcd",
    };
    let profile = match options.profile {
        Profile::Any => "",
        Profile::Pings => " --profile pings",
        Profile::Deposed => " --profile deposed",
        Profile::Hiccups => " --profile hiccups",
        Profile::Operated => " --profile operated",
        Profile::Delayed => " --profile delayed",
        Profile::Rebuilt => " --profile rebuilt",
        Profile::Refusing => " --profile refusing",
        Profile::Whims => " --profile whims",
        Profile::Companions => " --profile companions",
        Profile::Overtaken => " --profile overtaken",
        Profile::Doubtful => " --profile doubtful",
    };
    let beyond = if options.beyond { " --beyond" } else { "" };
    format!(
        "seed {seed} at commit {}, {options:?}\nbroken: {breach}\n{}\nreplay: cargo run --profile sim -p \
         tenure-conformance --bin simulate-queue -- --seed {seed} --trace{}{dialect}{profile}{beyond}\n",
        crate::simulator::commit(),
        run.trace[last..].join("\n"),
        options.mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant:?}")),
    )
}
