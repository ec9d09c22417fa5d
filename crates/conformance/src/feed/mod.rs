//! The suite for leader feeds: the same named cases for any [`FeedStore`].
//!
//! Implement [`FeedSubject`], which says how your database is opened and how its users write to a
//! table, and [`feed_conformance!`](crate::feed_conformance!) makes every case a test. Each case
//! has a table of its own.
//!
//! Cases of the seam: [`documents`], [`subscriptions`]. Cases of a [`Feed`](tenure::feed::Feed) on
//! it: [`algorithm`], [`handing_over`], [`living`]. Known faults of an earlier library, one each:
//! [`regressions`].

pub mod algorithm;
mod case;
pub mod documents;
mod faulty;
pub mod handing_over;
mod list;
pub mod living;
pub mod regressions;
pub mod subscriptions;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tenure::feed::FeedStore;

pub use case::{Case, Member, check};
pub use faulty::{FaultyFeed, HeldAnswer};

/// The times of a feed.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The heartbeat interval.
    pub heartbeat: Duration,
    /// The least election time-out.
    pub min: Duration,
    /// The greatest election time-out.
    pub max: Duration,
}

impl Times {
    /// Times that suit a database on the same machine.
    #[must_use]
    pub fn brisk() -> Times {
        let second = Duration::from_secs(1);
        Times { heartbeat: second / 2, min: second * 2, max: second * 4 }
    }

    /// Times under which no lease expires while a case runs.
    #[must_use]
    pub fn calm() -> Times {
        let second = Duration::from_secs(1);
        Times { heartbeat: second, min: second * 30, max: second * 60 }
    }
}

/// A database under test.
#[async_trait]
pub trait FeedSubject: Send + Sync {
    /// The database's name in messages.
    fn name(&self) -> &str;

    /// A new handle on the same database, as another process would have it.
    ///
    /// Panics if the database cannot be opened: then there is nothing to test.
    async fn open(&self) -> Arc<dyn FeedStore>;

    /// The times for cases in which a leader must be replaced.
    ///
    /// They should be as short as the database allows.
    fn times(&self) -> Times;

    /// Returns true if a table's existing content can be shown as changes.
    ///
    /// See [`Origin::Start`](tenure::feed::Origin).
    fn shows_the_past(&self) -> bool;

    /// Writes a document to the table as one of its users: its id, and a field `n`.
    async fn write(&self, table: &str, id: &str, n: u64);

    /// Deletes any document of the table, as one of its users.
    async fn delete(&self, table: &str, id: &str);

    /// The document of a change object, and its new `n`; `None` after its deletion.
    ///
    /// Panics if this is no change object of this database.
    fn understand(&self, change: &Value) -> (String, Option<u64>);
}
