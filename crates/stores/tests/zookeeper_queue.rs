//! Elections as lines of ZooKeeper's nodes, on real servers.
//!
//! Needs the servers that `scripts/servers` installs. Without them every test prints that it was
//! skipped.
#![cfg(feature = "zookeeper")]

#[path = "zookeeper/queue/world.rs"]
mod world;

#[path = "zookeeper/queue/basics.rs"]
mod basics;

#[path = "zookeeper/queue/connection.rs"]
mod connection;

#[path = "zookeeper/queue/ensemble.rs"]
mod ensemble;

#[path = "zookeeper/queue/ending.rs"]
mod ending;

#[path = "zookeeper/queue/crowd.rs"]
mod crowd;

#[path = "zookeeper/queue/process.rs"]
mod process;

#[path = "zookeeper/queue/records.rs"]
mod records;

#[path = "zookeeper/queue/fleet.rs"]
mod fleet;

#[path = "zookeeper/queue/secured.rs"]
mod secured;

#[path = "zookeeper/queue/permissions.rs"]
mod permissions;
