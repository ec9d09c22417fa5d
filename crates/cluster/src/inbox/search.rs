//! Finds the first page that is not taken, without reading all pages before it.
//!
//! Pages are filled in order, so the taken pages come first. The search probes at doubling
//! distances until it finds a page that is not taken. Then it narrows down to the first one.

use super::sight::{Sight, look};
use crate::client::Found;
use crate::documents::Page;

/// How many pages are read at a time between a taken page and one that is not.
const PROBES: u64 = 8;

/// A search among the pages from one number up to another.
#[derive(Debug)]
pub(super) struct Search {
    /// All pages before this one are taken.
    low: u64,
    /// The first page known not to be taken; without one, the end of the search.
    high: u64,
    edge: Option<Option<Found<Page>>>,
}

impl Search {
    pub(super) fn new(from: u64, limit: u64) -> Search {
        Search { low: from, high: limit, edge: None }
    }

    /// The pages to read next, in order; `None` when the search is over.
    pub(super) fn probes(&self) -> Option<Vec<u64>> {
        if self.low >= self.high {
            return None;
        }
        let span = self.high - self.low;
        Some(match self.edge {
            None => {
                doubling().take_while(|step| *step < span).map(|step| self.low + step).collect()
            }
            Some(_) => {
                let step = span.div_ceil(PROBES);
                (0..span).step_by(step as usize).map(|step| self.low + step).collect()
            }
        })
    }

    /// Takes in the pages found at the probes.
    pub(super) fn learn(&mut self, found: impl Iterator<Item = (u64, Option<Found<Page>>)>) {
        for (number, found) in found {
            if look(found.as_ref(), number, &[]) != Sight::Taken {
                (self.high, self.edge) = (number, Some(found));
                return;
            }
            self.low = number + 1;
        }
    }

    /// The first page that is not taken and its content, once the search is over. If all pages were
    /// taken, the page after them.
    pub(super) fn into_edge(self) -> (u64, Option<Option<Found<Page>>>) {
        (self.high, self.edge)
    }
}

/// 0, 1, 3, 7, and so on.
fn doubling() -> impl Iterator<Item = u64> {
    (0..u64::BITS).map(|bits| (1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{Entry, INBOX_PAGES};
    use tenure::CandidateId;
    use tenure::lease::record::Op;
    use tenure::store::Version;

    fn taken(number: u64) -> Option<Found<Page>> {
        let op = Op::new(&CandidateId::from_bits(1), number);
        let page = Page::filling(number, None, vec![Entry::NOTHING], op);
        Some(Found { version: Version::new("1"), content: Ok(page) })
    }

    /// Searches while all pages before `first` are taken. Returns the page found, whether it was
    /// read, and the number of reads and of pages read.
    fn search(from: u64, first: u64) -> (u64, bool, usize, usize) {
        let mut search = Search::new(from, from + INBOX_PAGES);
        let (mut rounds, mut read) = (0, 0);
        while let Some(numbers) = search.probes() {
            (rounds, read) = (rounds + 1, read + numbers.len());
            let found = numbers
                .into_iter()
                .map(|number| (number, if number < first { taken(number) } else { None }));
            search.learn(found);
        }
        let (edge, found) = search.into_edge();
        (edge, found.is_some(), rounds, read)
    }

    #[test]
    fn the_first_page_that_is_not_taken_is_found_in_a_few_reads() {
        for first in 0..INBOX_PAGES {
            let (edge, is_there, rounds, read) = search(1000, 1000 + first);
            assert_eq!((edge, is_there), (1000 + first, true));
            assert!(rounds <= 4 && read <= 32, "{first}: {read} pages in {rounds} reads");
        }
    }

    #[test]
    fn a_ring_without_an_empty_page_is_seen_to_be_full() {
        assert_eq!(search(1000, 1000 + INBOX_PAGES).0, 1000 + INBOX_PAGES);
        assert!(!search(1000, 1000 + INBOX_PAGES).1);
    }
}
