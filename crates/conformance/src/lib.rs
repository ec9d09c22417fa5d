//! How tenure is tested.
//!
//! - [`simulator`]: worlds full of faults, one per seed, around the machine that ships.
//! - [`history`]: what such a world looks like from outside.
//! - [`checkers`]: one promise each, watching a history.
//! - [`rng`]: the randomness of a seed.

pub mod checkers;
pub mod history;
pub mod rng;
pub mod simulator;
