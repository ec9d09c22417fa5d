//! Starts ZooKeeper for these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::OnceLock;

use tenure_harness::{Cluster, Failure, Framing, Skipped, Version, Zookeeper, zookeeper};

use crate::chaos::Apart;
use crate::faults::Servers;
use crate::support::{Shared, keep};

pub(crate) struct Kind(Zookeeper);

impl Deref for Kind {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Kind {
    const FRAMING: Framing = Framing::Zookeeper;

    async fn start(count: usize, version: Version) -> Result<Kind, Failure> {
        let options = zookeeper::Options { version, ..zookeeper::Options::default() };
        Ok(Kind(match count {
            1 => Zookeeper::single(options).await?,
            more => Zookeeper::ensemble(more, options).await?,
        }))
    }

    fn url(addresses: &[SocketAddr], prefix: &str) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        // As leases: the queue has its own tests.
        format!("zookeeper://{}/{prefix}?protocol=lease", hosts.join(","))
    }
}

impl Apart for Kind {
    async fn start_apart(count: usize, version: Version) -> Result<Kind, Failure> {
        let options =
            zookeeper::Options { version, partitions: true, ..zookeeper::Options::default() };
        Ok(Kind(Zookeeper::ensemble(count, options).await?))
    }
}

/// The same, for elections that are lines.
pub(crate) struct Lines(Kind);

impl Deref for Lines {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Lines {
    const FRAMING: Framing = Framing::Zookeeper;

    async fn start(count: usize, version: Version) -> Result<Lines, Failure> {
        Ok(Lines(Kind::start(count, version).await?))
    }

    fn url(addresses: &[SocketAddr], prefix: &str) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        // The shortest session that the servers allow and a busy machine keeps.
        format!("zookeeper://{}/{prefix}?ttl=4s", hosts.join(","))
    }
}

impl Apart for Lines {
    async fn start_apart(count: usize, version: Version) -> Result<Lines, Failure> {
        Ok(Lines(Kind::start_apart(count, version).await?))
    }
}

pub(crate) fn single() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Kind>("zookeeper, one server", 1))
}

pub(crate) fn three() -> &'static Result<Shared, Skipped> {
    static SERVERS: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVERS.get_or_init(|| keep::<Kind>("zookeeper, three servers", 3))
}
