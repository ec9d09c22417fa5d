//! Leader election with fencing tokens on the store you already run.

mod clock;
#[cfg(target_os = "linux")]
mod descriptor;
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file;
pub mod memory;
mod name;
mod store;
mod timing;

#[cfg(feature = "test-util")]
pub use clock::TestClock;
pub use clock::{Clock, Moment, SystemClock, Timer, system as system_clock};
#[cfg(all(feature = "file", target_os = "linux"))]
pub use file::FileStore;
pub use memory::MemoryStore;
pub use name::{Key, MAX_KEY_SEGMENTS, MAX_SEGMENT_BYTES, MAX_SEGMENTS, Name, NameError};
pub use store::{
    Document, Durability, Expect, Fault, MAX_DOCUMENT_BYTES, Mark, Page, Presence, Put, Reads,
    Store, StoreError, StoreExt, Version, Write,
};
pub use timing::{MAX_TTL, Timing, TimingError};
