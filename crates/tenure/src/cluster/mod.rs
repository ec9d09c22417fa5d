//! Nodes that never talk to each other share work through documents in a store they already have.

mod books;
pub mod claims;
mod context;
pub mod documents;
mod event;
mod inbox;
pub mod input;
pub mod mutant;
mod node;
mod planner;
mod task;

pub use books::Books;
pub use context::{Context, StatusReporter};
pub use event::Event;
pub use node::Stopped;
pub use task::{Handler, Task, TaskError, Tasks};
