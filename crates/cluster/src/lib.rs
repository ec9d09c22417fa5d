//! Nodes share work through documents in a store they already have.
//!
//! The nodes never talk to each other. One node leads and plans. Every node works, and any node may
//! die.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use serde::{Deserialize, Serialize};
//! use tenure::Backend;
//! use tenure_cluster::{Cluster, Context, Ended, Member, Order, Task, TaskError, Tasks};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Double(u64);
//!
//! #[async_trait::async_trait]
//! impl Task for Double {
//!     const KIND: &'static str = "double";
//!     async fn run(self, context: &Context) -> Result<Option<String>, TaskError> {
//!         // Whatever this writes elsewhere should carry the token.
//!         let _token = context.mandate().token();
//!         Ok(Some((2 * self.0).to_string()))
//!     }
//! }
//!
//! let backend = Backend::memory(); // or a directory, or `tenure_stores::open(url)`
//! let cluster = Cluster::builder(&backend, "sums")
//!     .member(Member::new(4).named("host-a"))
//!     .tasks(Tasks::new().with::<Double>())
//!     .join()
//!     .await?;
//! let execution = cluster.submit(Order::of("twenty-one", &Double(21))?).await?;
//! assert_eq!(execution.outcome().await?, Ended::Done(Some("42".into())));
//! cluster.leave().await;
//! # Ok(()) }
//! ```
//!
//! # How it is made
//! Tasks stand in numbered *slots*, one document each. One request reads all slots, however long
//! the backlog is ([`documents`] has every format). Each slot is its own lease: a node claims it by
//! compare-and-set, at a token that only rises. The node renews all of its slots in one batch, and
//! writes a task's end under the claim's own token. `claims` explains why no two nodes work on a
//! task with valid mandates, and why the cluster's records count a task as done only once.
//!
//! The nodes elect a leader by lease. The leader fills slots from the inbox, where any process may
//! submit ([`ClusterClient`]), and from an input that it lists ([`input`]). It counts ended tasks,
//! keeps results and dead letters, and removes nodes with expired locks from the node list. When it
//! dies, the next leader continues from the state in the store.
//!
//! # Guarantees
//! An accepted task is begun at least once, and counted exactly once: as done, dead or cancelled.
//! There is one exception: if a node dies between its last claim of a task and the start, the task
//! may be given up without having begun. Other nodes cannot tell that from a death just after the
//! start.
//!
//! Two attempts never hold valid mandates at once. A task may be begun again when its node dies or
//! is cut off, so its changes elsewhere should be fenced by its token.

// Without the feature, the simulators' way into the machine is not used.
#![cfg_attr(not(feature = "unstable"), allow(dead_code, unreachable_pub))]

mod administration;
mod cancel;
#[cfg(not(feature = "unstable"))]
pub(crate) mod claims;
#[cfg(feature = "unstable")]
pub mod claims;
mod client;
mod context;
pub mod documents;
mod error;
mod event;
mod execution;
mod inbox;
pub mod input;
pub mod inputs;
#[cfg(not(feature = "unstable"))]
pub(crate) mod leader;
#[cfg(feature = "unstable")]
pub mod leader;
mod leading;
#[cfg(not(feature = "unstable"))]
pub(crate) mod local_writes;
#[cfg(feature = "unstable")]
pub mod local_writes;
mod lock;
mod lost;
mod member;
#[cfg(not(feature = "unstable"))]
pub(crate) mod mutant;
#[cfg(feature = "unstable")]
pub mod mutant;
mod node;
mod patience;
mod planner;
mod retry;
mod semaphore;
mod settings;
mod shared;
mod source_owners;
mod succession;
mod task;
mod views;

pub use cancel::Cancellation;
pub use claims::{Ending, Verdict};
pub use client::ClusterClient;
pub use context::{Context, StatusReporter, Stopped};
pub use documents::{MemberId, Order};
pub use error::ClusterError;
pub use event::Event;
pub use execution::{Ended, Execution};
pub use lock::{Guard, Lock};
pub use lost::GivenUp;
pub use member::{Builder, Cluster, Member, Worker};
pub use semaphore::{MOST_PERMITS, Semaphore, SemaphoreError};
pub use settings::SettingsPut;
pub use shared::Shared;
pub use task::{Handler, Task, TaskError, Tasks};
pub use views::{
    Garbled, Letters, Life, MemberView, Members, Results, Stage, TaskView, Totals, Work,
};
