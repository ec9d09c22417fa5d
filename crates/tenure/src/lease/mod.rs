//! Leadership as a lease: one versioned record per election, changed only by compare-and-set.
//!
//! # Why there is one leader
//! A holder believes in its lease for `ttl / R`, counted from *before* it sent the request. Every
//! other candidate waits `ttl`, counted from *after* it saw the record. It then claims by a
//! compare-and-set on the version that expired, so any renewal defeats the claim. A request is sent
//! before it is applied, and applied before it is seen. Therefore the holder's count ends first, as
//! long as no clock runs more than `R = 5/4` times as fast as another.
//!
//! # Why tokens never repeat
//! Every claim raises the record's token by one, and a release leaves it unchanged. The record is
//! never deleted, only freed. A candidate never believes in a lost token again, not even one it
//! held itself. If an operator deletes the record, its [`floor`] still remembers the highest token.
//!
//! `machine` is the protocol, pure: `step(now, input)` returns the actions to take. The same code
//! runs in the driver, in the simulator and under the model checker. [`record`] and [`floor`] are
//! the wire formats. `ruling` decides requests from outside the election, such as creating and
//! ending it. `mutant` breaks the rules on purpose.

pub mod floor;
#[cfg(not(feature = "unstable"))]
pub(crate) mod machine;
#[cfg(feature = "unstable")]
pub mod machine;
#[cfg(not(feature = "unstable"))]
pub(crate) mod mutant;
#[cfg(feature = "unstable")]
pub mod mutant;
pub mod record;
#[cfg(not(feature = "unstable"))]
pub(crate) mod ruling;
#[cfg(feature = "unstable")]
pub mod ruling;
