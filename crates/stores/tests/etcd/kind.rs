//! Starts etcd for these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::OnceLock;

use tenure_harness::{Cluster, Etcd, Failure, Framing, Skipped, Version, etcd};

use crate::chaos::Apart;
use crate::faults::Servers;
use crate::support::{Shared, keep};

pub(crate) struct Kind(Etcd);

impl Deref for Kind {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Kind {
    const FRAMING: Framing = Framing::Http2;

    async fn start(count: usize, version: Version) -> Result<Kind, Failure> {
        let options = etcd::Options { version, ..etcd::Options::default() };
        Ok(Kind(Etcd::cluster(count, options).await?))
    }

    fn url(addresses: &[SocketAddr], prefix: &str) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        // The suite and its failures are about documents. The lines have their own tests.
        format!("etcd://{}/{prefix}?protocol=lease", hosts.join(","))
    }
}

impl Apart for Kind {
    async fn start_apart(count: usize, version: Version) -> Result<Kind, Failure> {
        let options = etcd::Options { version, partitions: true, ..etcd::Options::default() };
        Ok(Kind(Etcd::cluster(count, options).await?))
    }
}

/// The same, for elections that are lines.
pub(crate) struct Lines(Etcd);

impl Deref for Lines {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Lines {
    const FRAMING: Framing = Framing::Http2;

    async fn start(count: usize, version: Version) -> Result<Lines, Failure> {
        let options = etcd::Options { version, ..etcd::Options::default() };
        Ok(Lines(Etcd::cluster(count, options).await?))
    }

    fn url(addresses: &[SocketAddr], prefix: &str) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        // A case may wait until such a session ends, and a busy machine keeps it.
        format!("etcd://{}/{prefix}?ttl=4s", hosts.join(","))
    }
}

impl Apart for Lines {
    async fn start_apart(count: usize, version: Version) -> Result<Lines, Failure> {
        let options = etcd::Options { version, partitions: true, ..etcd::Options::default() };
        Ok(Lines(Etcd::cluster(count, options).await?))
    }
}

pub(crate) fn lines() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Lines>("etcd, one server, lines", 1))
}

pub(crate) fn three_lines() -> &'static Result<Shared, Skipped> {
    static SERVERS: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVERS.get_or_init(|| keep::<Lines>("etcd, three servers, lines", 3))
}

pub(crate) fn single() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Kind>("etcd, one server", 1))
}

pub(crate) fn three() -> &'static Result<Shared, Skipped> {
    static SERVERS: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVERS.get_or_init(|| keep::<Kind>("etcd, three servers", 3))
}
