//! Rare paths that a run of many seeds must have taken at least once.

use std::marker::PhantomData;

use super::listed::Listed;

/// How often each rare path was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sometimes<R> {
    /// In the order of the list of paths.
    counts: Vec<u64>,
    paths: PhantomData<R>,
}

impl<R: Listed> Default for Sometimes<R> {
    fn default() -> Sometimes<R> {
        Sometimes { counts: vec![0; R::ALL.len()], paths: PhantomData }
    }
}

impl<R: Listed> Sometimes<R> {
    /// Counts one path.
    pub fn saw(&mut self, rare: R) {
        self.counts[Self::place(rare)] += 1;
    }

    /// How often this path was taken.
    #[must_use]
    pub fn count(&self, rare: R) -> u64 {
        self.counts[Self::place(rare)]
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Sometimes<R>) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// The paths never taken.
    #[must_use]
    pub fn never(&self) -> Vec<R> {
        R::ALL.iter().copied().filter(|rare| self.count(*rare) == 0).collect()
    }

    fn place(rare: R) -> usize {
        R::ALL.iter().position(|listed| *listed == rare).expect("every path is listed")
    }
}
