//! The conformance suite on ZooKeeper's lines, one server and three.
//!
//! Needs the servers that `scripts/servers` installs. Without them every test prints that it was
//! skipped.
#![cfg(feature = "zookeeper")]

#[path = "zookeeper/queue/world.rs"]
#[allow(dead_code)]
mod world;

#[path = "zookeeper/queue/suite.rs"]
mod suite;
