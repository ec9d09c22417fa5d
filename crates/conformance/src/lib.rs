//! The tests of tenure, and of a store of yours.
//!
//! - [`suite`]: the cases every store passes; [`conformance!`] makes them tests of yours.
//! - [`feed`]: the cases every leader feed passes; [`feed_conformance!`] makes them tests of yours.
//! - [`cluster`]: the cases of a cluster on every store; [`cluster_conformance!`] makes them tests
//!   of yours.
//! - [`simulator`]: worlds full of faults, one per seed, around the machine that ships.
//! - [`driven`]: the same through the driver, from `campaign` down to the store's trait.
//! - [`queue_simulator`]: the same for the queue: sessions, servers and the line they keep.
//! - `model` (with the feature of that name): all short histories of the same machine, one by one.
//! - [`history`]: the events of such a world, seen from outside.
//! - [`checkers`]: one promise each, watching a history.
//! - [`fuzz`]: input that the decoders must withstand.
//! - [`rng`]: the randomness of a seed.

pub mod checkers;
pub mod cluster;
pub mod driven;
pub mod feed;
pub mod fuzz;
pub mod history;
#[cfg(feature = "model")]
pub mod model;
pub mod queue_simulator;
pub mod rng;
pub mod simulator;
pub mod suite;
