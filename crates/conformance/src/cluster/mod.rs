//! The cluster's suite: the same named cases on any store.
//!
//! [`cluster_conformance!`](crate::cluster_conformance!) makes every case a test, on the same
//! [`Subject`](crate::suite::Subject) that the store's own suite runs on.

pub mod dying;
pub mod giving_out;
pub mod handling;
mod list;
mod recorder;
pub mod sharing;

pub use recorder::{Run, TaskRecorder};
