//! Tests of the planner: its decisions by themselves, its rounds on a sound store, and whole histories on a rough one.

mod decisions;
mod history;
mod parts;
mod rough;
mod rounds;
