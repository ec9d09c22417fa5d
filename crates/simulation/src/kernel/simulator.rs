//! The view of a simulator that the runner needs: its options, and the result of a seed.

use std::fmt::Debug;

use super::breach::Breach;
use super::clock::Rates;
use super::listed::Listed;
use super::sometimes::Sometimes;

/// A simulator: worlds of one kind, one for each seed.
pub trait Simulator: Copy + Debug + Sized {
    /// The name of its program.
    const PROGRAM: &'static str;
    /// The mutants that it catches.
    const MUTANTS: &'static [Self::Mutant];
    /// The rules that can be broken on purpose.
    type Mutant: Copy + Debug + Send + Sync + 'static;
    /// The parts of the swarm that worlds can be drawn from. The first is the whole swarm.
    type Profile: Listed;
    /// The paths that many seeds must have taken.
    type Rare: Listed;

    /// The profile where a broken rule shows soonest.
    #[must_use]
    fn hunting(_mutant: Self::Mutant) -> Self::Profile {
        Self::Profile::ALL[0]
    }

    /// Simulates one seed.
    #[must_use]
    fn simulate(seed: u64, options: Options<Self>) -> Run<Self::Rare>;
}

/// The options of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Options<S: Simulator> {
    /// The rule that is broken, if any.
    pub mutant: Option<S::Mutant>,
    /// How far the clocks may differ.
    pub rates: Rates,
    /// The part of the swarm that the worlds are drawn from.
    pub profile: S::Profile,
    /// Whether to record a trace.
    pub trace: bool,
}

impl<S: Simulator> Default for Options<S> {
    fn default() -> Options<S> {
        let profile = S::Profile::ALL[0];
        Options { mutant: None, rates: Rates::Tolerated, profile, trace: false }
    }
}

impl<S: Simulator> Options<S> {
    /// Options for a broken machine, in the worlds where its fault shows soonest.
    #[must_use]
    pub fn hunting(mutant: S::Mutant) -> Options<S> {
        Options { mutant: Some(mutant), profile: S::hunting(mutant), ..Options::default() }
    }

    /// The arguments of the program that give these options.
    pub(super) fn arguments(&self) -> String {
        let mutant = self.mutant.map(|mutant| format!(" --mutant {mutant:?}"));
        let is_usual = self.profile == S::Profile::ALL[0];
        let profile = format!(" --profile {:?}", self.profile).to_lowercase();
        let beyond = match self.rates {
            Rates::Tolerated => "",
            Rates::Beyond => " --beyond",
        };
        let profile = if is_usual { String::new() } else { profile };
        format!("{}{profile}{beyond}", mutant.unwrap_or_default())
    }
}

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct Run<R> {
    /// The seed.
    pub seed: u64,
    /// The promise that was broken, if one was.
    pub breach: Option<Breach>,
    /// The rare paths that it took.
    pub sometimes: Sometimes<R>,
    /// The number of events.
    pub events: u64,
    /// The trace, if it was asked for, or if the seed may not replay exactly.
    pub trace: Vec<String>,
}

impl<R> Run<R> {
    /// The breach in words.
    #[must_use]
    pub fn verdict(&self) -> String {
        self.breach.as_ref().map_or_else(|| "every promise kept".to_owned(), ToString::to_string)
    }
}
