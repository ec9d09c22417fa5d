//! Tests of the leader as the planner runs it: rounds, and whole histories.
//!
//! The rounds run on a reliable store and next to a node, the histories on an unreliable store.

mod history;
mod local_writes;
pub(crate) mod parts;
mod rough;
mod rounds;
