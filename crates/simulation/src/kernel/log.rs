//! The record of a run: its breach, its rare paths and its trace.

use super::breach::{Breach, Promise};
use super::listed::Listed;
use super::simulator::Run;
use super::sometimes::Sometimes;

/// The record of a run that is not over yet.
#[derive(Debug)]
pub struct Log<R> {
    seed: u64,
    events: u64,
    sometimes: Sometimes<R>,
    breach: Option<Breach>,
    trace: Option<Vec<String>>,
}

impl<R: Listed> Log<R> {
    /// The log of this seed, perhaps with a trace.
    #[must_use]
    pub fn new(seed: u64, trace: bool) -> Log<R> {
        let sometimes = Sometimes::default();
        Log { seed, events: 0, sometimes, breach: None, trace: trace.then(Vec::new) }
    }

    /// Counts an event, and returns how many there were.
    pub fn count(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// Counts a rare path.
    pub fn saw(&mut self, rare: R) {
        self.sometimes.saw(rare);
    }

    /// Records that a promise is broken. Only the first breach counts.
    pub fn breaks(&mut self, promise: Promise, how: impl Into<String>) {
        self.check(Err(Breach::new(promise, how)));
    }

    /// Records the verdict of a checker.
    pub fn check(&mut self, verdict: Result<(), Breach>) {
        if let Err(breach) = verdict {
            self.breach.get_or_insert(breach);
        }
    }

    /// Returns true if a promise was broken.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.breach.is_some()
    }

    /// Writes a line of the trace, if there is one.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    /// The result of the run. The log is empty afterwards.
    pub fn finish(&mut self) -> Run<R> {
        Run {
            seed: self.seed,
            breach: self.breach.take(),
            sometimes: std::mem::take(&mut self.sometimes),
            events: self.events,
            trace: self.trace.take().unwrap_or_default(),
        }
    }
}
