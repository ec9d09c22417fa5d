//! Leadership as a lease: one versioned record per election, changed only by compare-and-set.
//!
//! # Why there is one leader
//! A holder believes in its lease for `ttl / R`, counted from *before* it sent the request.
//! Everybody else waits `ttl`, counted from *after* they saw the record, and then claims by a
//! compare-and-set on the very version whose time ran out, so that any renewal defeats the claim.
//! Sent comes before applied, applied before seen; the holder's count therefore ends first as long
//! as no clock runs more than `R = 5/4` times as fast as another.
//!
//! # Why tokens never repeat
//! Every claim raises the record's token by one, a release leaves it, and the record is never
//! deleted, only freed. A token that was lost is never believed again, not even by the process that
//! had it. If an operator deletes the record, its [`floor`] still knows how far tokens had come.
//!
//! [`machine`] is the protocol, pure: `step(now, input)` gives what is to be done. The same code
//! runs in the driver, in the simulator and under the model checker. [`record`] and [`floor`] are
//! the wire formats, [`ruling`] what outsiders may do, [`mutant`] the rules broken on purpose.

pub mod floor;
pub mod machine;
pub mod mutant;
pub mod record;
pub mod ruling;
