//! Nodes that never talk to each other share work through documents in a store they already have.
//!
//! A leader plans, everyone works, anyone may die.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use serde::{Deserialize, Serialize};
//! use tenure::Backend;
//! use tenure::cluster::{Cluster, Context, Ended, Member, Order, Task, TaskError, Tasks};
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
//! Tasks stand in numbered *slots*, a document each, so that all of them are read by one request
//! however long the backlog is ([`documents`] has every format). A slot is a lease of its own: a
//! node claims it by compare-and-set, at a token that only rises, renews all that it holds in one
//! batch, and writes the end under the claim's own token. [`claims`] says why no two work on a task
//! with valid mandates, and why it is done once in the books.
//!
//! Whoever leads (an election by lease among the nodes) fills slots from the inbox, where anybody
//! may submit ([`Books`]), and from an input that it lists ([`input`]); it counts what is at its
//! end, keeps results and dead letters, and takes nodes off the list that let their locks run out.
//! When it dies the next one goes on where the store says it was.
//!
//! # What is promised
//! A task that was accepted is begun at least once (or given up after a node died in the moment
//! between its last claim and its start, which nobody can tell from dying just after), and counted
//! exactly once: as done, dead or cancelled. Never do two attempts hold valid mandates at once. An
//! attempt may be begun again when its node dies or is cut off, so that what it changes elsewhere
//! should be fenced by its token.

mod administration;
mod books;
mod cancel;
pub mod claims;
mod context;
pub mod documents;
mod event;
mod execution;
mod inbox;
pub mod input;
pub mod inputs;
mod leading;
mod listers;
mod lock;
mod lost;
mod member;
pub mod mutant;
mod news;
mod node;
mod patience;
mod planner;
mod retry;
mod semaphore;
mod settings;
mod shared;
mod succession;
mod task;
mod views;

pub use books::Books;
pub use cancel::Cancellation;
pub use context::{Context, StatusReporter};
pub use documents::{MemberId, Order};
pub use event::Event;
pub use execution::{Ended, Execution};
pub use lock::{Guard, Lock};
pub use lost::GivenUp;
pub use member::{Builder, Cluster, Member, Worker};
pub use node::Stopped;
pub use semaphore::{MOST_PERMITS, Semaphore, SemaphoreError};
pub use settings::SettingsPut;
pub use shared::Shared;
pub use task::{Handler, Task, TaskError, Tasks};
pub use views::{
    Garbled, Letters, Life, MemberView, Members, Results, Stage, TaskView, Totals, Work,
};
