//! Three candidates in one election, and the leader is killed, hung, deposed and cut off over and
//! over.
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
