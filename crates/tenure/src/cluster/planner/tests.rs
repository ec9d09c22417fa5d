//! Tests of the planner: its decisions by themselves, its rounds on a sound store and beside a
//! node, and whole histories on a rough one.

mod decisions;
mod history;
mod news;
mod parts;
mod rough;
mod rounds;
