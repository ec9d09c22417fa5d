//! Removes outcomes that no submitter has read.

use std::time::Duration;

use tenure::store::{Durability, Expect, StoreError, Write};
use tenure::{Key, Moment};

use super::request::{Answer, Common, Request};
use crate::documents::{Format as _, Outcome};

/// How long an outcome is kept for its submitter.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// How often the outcomes are swept.
const EVERY: Duration = Duration::from_secs(10 * 60);
/// How many outcomes one request lists, and how many requests one turn may take.
const LISTED: usize = 64;
const MOST_PAGES: usize = 16;

/// The progress of a turn: how many pages were listed.
#[derive(Debug)]
pub(super) enum Sweeping {
    Listing { pages: usize },
    Deleting { pages: usize },
}

/// Sweeps the outcomes from time to time.
#[derive(Debug)]
pub(super) struct Sweep {
    next: Moment,
    after: Option<Key>,
}

impl Sweep {
    pub(super) fn new(now: Moment) -> Sweep {
        Sweep { next: now + EVERY, after: None }
    }

    pub(super) fn due(&self) -> Moment {
        self.next
    }

    /// Takes a turn, if it is time.
    pub(super) fn turn(&mut self, common: &Common) -> Option<(Sweeping, Request)> {
        if common.now.boot < self.next.boot {
            return None;
        }
        self.next = common.now + EVERY;
        Some(self.list(common, 1))
    }

    fn list(&self, common: &Common, pages: usize) -> (Sweeping, Request) {
        let (prefix, after) = (common.settings.keys.outcomes(), self.after.clone());
        (Sweeping::Listing { pages }, Request::List { prefix, after, limit: LISTED })
    }

    /// Takes in an answer. Returns the next request of this turn, if there is one.
    pub(super) fn answer(
        &mut self,
        common: &Common,
        sweeping: Sweeping,
        answer: Answer,
    ) -> Result<Option<(Sweeping, Request)>, StoreError> {
        let pages = match sweeping {
            Sweeping::Listing { pages } => {
                let page = answer.listed()?;
                let old = page.documents.into_iter().filter(|(_, document)| {
                    Outcome::decode(&document.body).is_ok_and(|it| is_old(&it, common.wall))
                });
                let writes = old.map(|(key, document)| Write {
                    key,
                    expect: Expect::At(document.version),
                    body: None,
                    durability: Durability::UntilPowerCut,
                });
                let writes: Vec<Write> = writes.collect();
                self.after = page.next;
                if !writes.is_empty() {
                    return Ok(Some((Sweeping::Deleting { pages }, Request::Write(writes))));
                }
                pages
            }
            // The next turn finds the outcomes that are left.
            Sweeping::Deleting { pages } => pages,
        };
        let goes_on = self.after.is_some() && pages < MOST_PAGES;
        Ok(goes_on.then(|| self.list(common, pages + 1)))
    }
}

/// Returns true if the outcome has been kept long enough. Only the tidiness of the store depends on
/// the wall clock here.
pub(super) fn is_old(outcome: &Outcome, wall: u64) -> bool {
    Duration::from_millis(wall.saturating_sub(outcome.at)) > KEPT
}
