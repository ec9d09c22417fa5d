//! Nodes that never talk to each other share work through documents in a store they already have.

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
mod member;
pub mod mutant;
mod node;
mod patience;
mod planner;
mod retry;
mod semaphore;
mod settings;
mod shared;
mod task;
mod views;

pub use books::Books;
pub use cancel::Cancellation;
pub use context::{Context, StatusReporter};
pub use documents::{MemberId, Order};
pub use event::Event;
pub use execution::{Ended, Execution};
pub use lock::{Guard, Lock};
pub use member::{Builder, Cluster, Member, Worker};
pub use node::Stopped;
pub use semaphore::{MOST_PERMITS, Semaphore, SemaphoreError};
pub use settings::SettingsPut;
pub use shared::Shared;
pub use task::{Handler, Task, TaskError, Tasks};
pub use views::{
    Garbled, Letters, Life, MemberView, Members, Results, Stage, TaskView, Totals, Work,
};
