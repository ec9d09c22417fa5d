//! How tenure itself is tested, beside its unit tests.
//!
//! - [`kernel`]: the part that all simulators share, and how to write a new one.
//! - [`lease`]: worlds full of faults, one per seed, around the machine of leases that ships.
//! - [`queue`]: the same for the queue: sessions, servers and the line they keep.
//! - [`leader`]: the same for the machine that leads a cluster.
//! - [`driven`]: the same through the driver, from `campaign` down to the store's trait: elections,
//!   feeds and clusters.
//! - `model` (with the feature of that name): all short histories of the machine of leases.
//! - [`history`]: the events of an election, seen from outside.
//! - [`checkers`]: one promise each, watching a history.
//! - [`fuzz`]: input that the decoders must withstand.
//!
//! The suites that a store must pass are in `tenure-conformance`.

pub mod checkers;
pub mod driven;
pub mod fuzz;
pub mod history;
pub mod kernel;
pub mod leader;
pub mod lease;
#[cfg(feature = "model")]
pub mod model;
pub mod queue;
