//! Tests of the planner: decisions in isolation, rounds, and whole histories.
//!
//! The rounds run on a reliable store and next to a node, the histories on an unreliable store.

mod decisions;
mod history;
mod local_writes;
mod parts;
mod rough;
mod rounds;
