//! The conformance suite: the same named cases for any store.
//!
//! Implement [`Subject`], which says how your storage is opened, and
//! [`conformance!`](crate::conformance!) makes every case a test:
//!
//! ```
//! use std::sync::Arc;
//! use tenure::{Backend, MemoryStore};
//! use tenure_conformance::suite::Subject;
//!
//! #[derive(Default)]
//! struct Memory(MemoryStore);
//!
//! #[async_trait::async_trait]
//! impl Subject for Memory {
//!     fn name(&self) -> &str {
//!         "memory"
//!     }
//!     async fn open(&self) -> Backend {
//!         Backend::new(Arc::new(self.0.clone()))
//!     }
//!     fn timing(&self) -> tenure::Timing {
//!         tenure::Timing::default()
//!     }
//! }
//!
//! tenure_conformance::conformance!(Memory::default());
//! # fn main() {}
//! ```
//!
//! Every case draws a prefix for its keys, so cases may share one server, and prints it when it
//! fails. A case that needs a feature that the store lacks (change hints, for example) is skipped,
//! and says so on stderr.
//!
//! Store cases: [`documents`], [`bodies`], [`batches`], [`races`], [`listing`], [`changes`],
//! [`names`]. Election cases: [`leading`], [`ending`], [`damage`], [`values`], [`watching`],
//! [`crowds`]. Both, through a [`Faulty`] store: [`faults`]. Only where elections are queues:
//! [`queues`]. On such a store, cases that look at or break the record of a lease run on the lease
//! protocol, and say so on stderr.

pub mod batches;
pub mod bodies;
mod case;
pub mod changes;
pub mod crowds;
pub mod damage;
pub mod documents;
pub mod ending;
pub mod faults;
mod faulty;
mod lag;
pub mod leading;
mod list;
pub mod listing;
pub mod names;
pub mod queues;
pub mod races;
pub mod values;
pub mod watching;

use async_trait::async_trait;
use tenure::{Backend, Timing};

pub(crate) use case::overwrite;
pub use case::{Case, check};
pub use faulty::{Faulty, Held};

/// A store under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The store's name in messages.
    fn name(&self) -> &str;

    /// A new handle on the same storage, as another process would have it.
    ///
    /// Panics if the storage cannot be opened: then there is nothing to test.
    async fn open(&self) -> Backend;

    /// The times for cases in which a lease must expire: as short as the store allows.
    ///
    /// A ttl of 2 s suits a store on the same machine. Such a case waits that long.
    fn timing(&self) -> Timing;
}
