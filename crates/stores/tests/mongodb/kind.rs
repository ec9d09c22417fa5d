//! How MongoDB is started for these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::OnceLock;

use tenure_harness::{Cluster, Failure, Framing, Mongodb, Skipped, Version, mongodb};

use crate::faults::Servers;
use crate::support::{Shared, keep};

pub(crate) struct Kind(pub(crate) Mongodb);

impl Deref for Kind {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Kind {
    const FRAMING: Framing = Framing::Mongodb;

    /// There is one version of it.
    async fn start(count: usize, _: Version) -> Result<Kind, Failure> {
        Ok(Kind(Mongodb::set(count, mongodb::Options::default()).await?))
    }

    /// One server is spoken to directly: it may be a proxy's address, which the servers know nothing of.
    fn url(addresses: &[SocketAddr], database: &str) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let direct = if hosts.len() == 1 { "?directConnection=true" } else { "" };
        format!("mongodb://{}/{database}{direct}", hosts.join(","))
    }
}

pub(crate) fn single() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Kind>("mongodb, one server", 1))
}

pub(crate) fn three() -> &'static Result<Shared, Skipped> {
    static SERVERS: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVERS.get_or_init(|| keep::<Kind>("mongodb, three servers", 3))
}
