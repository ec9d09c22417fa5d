//! Leader election with fencing tokens on the store you already run.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! use tenure::{Backend, Election};
//!
//! let backend = Backend::memory(); // or a directory, or `tenure_stores::open(url)`
//! let election = Election::open(&backend, "billing/primary").await?;
//! let leadership = election.campaign("host-a".try_into()?).await?;
//! let token = leadership.mandate().token();
//! let billed = leadership.scope(async { format!("billed under token {token}") }).await?;
//! assert_eq!(billed, "billed under token 1");
//! leadership.resign().await;
//! # Ok(()) }
//! ```
//!
//! # Promises
//! At most one process leads an election at a time, as long as clock *rates* stay within 5/4 of
//! each other and an acknowledged write of the store is linearizable; wall clocks do not matter.
//! Every tenure has a token greater than all earlier ones, even if the clocks fail. Work is told to
//! stop before its lease can end. One case is not covered: a process that is paused between a check
//! and a side effect may overrun its lease. The token protects against that. [`lease`] explains why
//! all this holds.
//!
//! # How it is made
//! A [`Store`](store::Store) holds versioned documents with compare-and-set. A [`Backend`] is a
//! store with a clock and perhaps a [`Presence`](store::Presence) or a [`queue::SessionQueue`].
//! Each protocol is a pure machine (`lease::machine`, `queue::machine`), and one task per backend
//! runs all its machines, with their requests in batches. Bring your own store by implementing
//! [`Store`](store::Store). The crate `tenure-cluster` shares work among nodes on any store.
//!
//! # Features
//! - `file` (default): the directory store, on Linux.
//! - `test-util`: a clock that stands still, queues in memory with sessions that can be cut off,
//!   and a way to force a loss, for programs under test.
//! - `unstable`: the pure machines and their parts, for our own simulators. They may change in any
//!   release.
//! - `mutants`: the protocol's rules broken on purpose, for our own suite. Not for you.

// Without the feature, the simulators' way into the machines is not used.
#![cfg_attr(not(feature = "unstable"), allow(dead_code, unreachable_pub))]

mod backend;
mod candidate;
mod clock;
#[cfg(target_os = "linux")]
mod descriptor;
mod driver;
mod election;
mod error;
pub mod feed;
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file;
pub mod lease;
mod mandate;
mod memory;
mod name;
mod observer;
mod parts;
pub mod protocol;
pub mod queue;
pub mod reconcile;
mod registry;
mod status;
pub mod store;
mod timing;
mod value;

// Elections.
pub use candidate::{Candidate, CandidateError, CandidateId, MAX_VALUE_BYTES};
pub use election::leadership::{Abandoned, Candidacy, Leadership, Resignation};
pub use election::{Builder, Election};
pub use error::Error;
pub use mandate::Mandate;
pub use name::{Key, MAX_KEY_SEGMENTS, MAX_SEGMENT_BYTES, MAX_SEGMENTS, Name, NameError};
pub use observer::{ElectionState, Observer, Standing};
pub use protocol::{Loss, Outcome, Protocol};
pub use registry::Registered;
pub use status::{Leader, Role, Status, StatusStream};
pub use timing::{MAX_TTL, Timing, TimingError};

// Where they are held.
pub use backend::Backend;
#[cfg(all(feature = "file", target_os = "linux"))]
pub use file::FileStore;
pub use memory::MemoryStore;
#[cfg(feature = "test-util")]
pub use memory::{Counts, MemoryQueue, MemoryQueues};

// Clocks.
#[cfg(feature = "test-util")]
pub use clock::TestClock;
pub use clock::{Clock, Moment, SystemClock, Timer, system as system_clock};

// For crates that grant mandates of their own, as `tenure-cluster` does.
pub use mandate::Tenure;
pub use name::check_segment;
