//! Three candidates in one election, with a leader that fails over and over.
//!
//! It is killed, hung, deposed and cut off.
//!
//! A few rounds of each kind run with the tests; `scripts/campaign` runs hundreds and prints the
//! figures of docs/evidence/embedded.md and docs/evidence/servers.md.
#![allow(clippy::unwrap_used)]

mod support;

#[path = "takeover/campaign.rs"]
mod campaign;

#[path = "takeover/directory.rs"]
mod directory;

#[path = "takeover/servers.rs"]
mod servers;
