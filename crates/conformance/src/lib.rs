//! The suites that a store of yours must pass.
//!
//! - [`suite`]: the cases every store passes; [`conformance!`] makes them tests of yours.
//! - [`feed`]: the cases every leader feed passes; [`feed_conformance!`] makes them tests of yours.
//! - [`cluster`]: the cases of a cluster on every store; [`cluster_conformance!`] makes them tests
//!   of yours.

pub mod cluster;
pub mod feed;
pub mod suite;
