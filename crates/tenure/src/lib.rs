//! Leader election with fencing tokens on the store you already run.

mod backend;
mod candidate;
mod clock;
#[cfg(target_os = "linux")]
mod descriptor;
mod driver;
mod election;
mod error;
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file;
mod leadership;
pub mod lease;
mod mandate;
mod memory;
mod name;
mod observer;
pub mod reconcile;
mod registry;
mod status;
mod store;
mod timing;

pub use backend::Backend;
pub use candidate::{Candidate, CandidateError, CandidateId, MAX_VALUE_BYTES};
#[cfg(feature = "test-util")]
pub use clock::TestClock;
pub use clock::{Clock, Moment, SystemClock, Timer, system as system_clock};
pub use election::{Builder, Election};
pub use error::Error;
#[cfg(all(feature = "file", target_os = "linux"))]
pub use file::FileStore;
pub use leadership::{Abandoned, Candidacy, Leadership, Resignation};
pub use lease::machine::{Loss, Outcome};
pub use mandate::Mandate;

pub use memory::MemoryStore;
pub use name::{Key, MAX_KEY_SEGMENTS, MAX_SEGMENT_BYTES, MAX_SEGMENTS, Name, NameError};
pub use observer::{ElectionState, Observer, Standing};
pub use registry::Registered;
pub use status::{Leader, Role, Status, StatusStream};
pub use store::{
    Document, Durability, Expect, Fault, MAX_DOCUMENT_BYTES, Mark, Page, Presence, Put, Reads,
    Store, StoreError, StoreExt, Version, Write,
};
pub use timing::{MAX_TTL, Timing, TimingError};
