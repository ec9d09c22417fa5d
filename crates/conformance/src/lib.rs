//! How tenure is tested.
//!
//! - [`suite`]: the cases every store passes; [`conformance!`] makes them tests of yours.

pub mod suite;
