//! Elections as lines of ZooKeeper's nodes, on real servers.
//!
//! Needs the servers that `scripts/servers` installs; without them every test says what it skipped.
#![cfg(feature = "zookeeper")]

#[path = "zookeeper/queue/world.rs"]
mod world;

#[path = "zookeeper/queue/basics.rs"]
mod basics;
