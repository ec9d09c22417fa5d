//! Leader election with fencing tokens on the store you already run.

mod candidate;
mod clock;
#[cfg(target_os = "linux")]
mod descriptor;
pub mod lease;
pub mod memory;
mod name;
mod store;
mod timing;

pub use candidate::{Candidate, CandidateError, CandidateId, MAX_VALUE_BYTES};
#[cfg(feature = "test-util")]
pub use clock::TestClock;
pub use clock::{Clock, Moment, SystemClock, Timer, system as system_clock};
pub use memory::MemoryStore;
pub use name::{Key, MAX_KEY_SEGMENTS, MAX_SEGMENT_BYTES, MAX_SEGMENTS, Name, NameError};
pub use store::{
    Document, Durability, Expect, Fault, MAX_DOCUMENT_BYTES, Mark, Page, Presence, Put, Reads,
    Store, StoreError, StoreExt, Version, Write,
};
pub use timing::{MAX_TTL, Timing, TimingError};
