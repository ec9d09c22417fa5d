//! Removes outcomes that no submitter has read.

use std::time::Duration;

use tenure::store::{Durability, Expect, Write};
use tenure::{Key, Moment};

use crate::client::ClusterClient;
use crate::documents::{Format as _, Outcome};
use crate::error::ClusterError;

/// How long an outcome is kept for its submitter.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// How often the outcomes are swept.
const EVERY: Duration = Duration::from_secs(10 * 60);
/// How many outcomes one request lists, and how many requests one turn may take.
const LISTED: usize = 64;
const MOST_PAGES: usize = 16;

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
    pub(super) async fn turn(&mut self, client: &ClusterClient) -> Result<(), ClusterError> {
        let now = client.backend.clock().now();
        if now.boot < self.next.boot {
            return Ok(());
        }
        self.next = now + EVERY;
        for _ in 0..MOST_PAGES {
            let outcomes = client.keys.outcomes();
            let page = client.store().list(&outcomes, self.after.as_ref(), LISTED).await?;
            let wall = client.wall();
            let old = page.documents.into_iter().filter(|(_, document)| {
                Outcome::decode(&document.body).is_ok_and(|outcome| is_old(&outcome, wall))
            });
            let writes = old.map(|(key, document)| Write {
                key,
                expect: Expect::At(document.version),
                body: None,
                durability: Durability::UntilPowerCut,
            });
            let writes: Vec<Write> = writes.collect();
            if !writes.is_empty() {
                // The next turn finds the outcomes that are left.
                drop(client.store().put_many(writes).await);
            }
            self.after = page.next;
            if self.after.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// Returns true if the outcome has been kept long enough. Only the tidiness of the store depends on
/// the wall clock here.
pub(super) fn is_old(outcome: &Outcome, wall: u64) -> bool {
    Duration::from_millis(wall.saturating_sub(outcome.at)) > KEPT
}
