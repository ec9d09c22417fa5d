//! Nodes that never talk to each other share work through documents in a store they already have.

mod books;
pub mod claims;
mod context;
pub mod documents;
mod inbox;
pub mod input;
pub mod inputs;
mod task;

pub use books::Books;
pub use context::{Context, StatusReporter};
pub use task::{Handler, Task, TaskError, Tasks};
