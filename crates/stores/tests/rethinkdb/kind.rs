//! How RethinkDB is started for these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::OnceLock;

use tenure_harness::{Cluster, Failure, Framing, Rethinkdb, Skipped, Version, rethinkdb};

use crate::faults::Servers;
use crate::support::{Shared, keep};

pub(crate) struct Kind(Rethinkdb);

impl Deref for Kind {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Kind {
    const FRAMING: Framing = Framing::Rethinkdb;

    async fn start(_: usize, _: Version) -> Result<Kind, Failure> {
        Ok(Kind(Rethinkdb::single().await?))
    }

    fn url(addresses: &[SocketAddr], prefix: &str) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("rethinkdb://{}/tests?table={prefix}", hosts.join(","))
    }
}

pub(crate) fn single() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var(rethinkdb::URL_VARIABLE) {
        Ok(url) => Ok(Shared::elsewhere("rethinkdb, the one that the environment names", url)),
        Err(_) => keep::<Kind>("rethinkdb, one server", 1),
    })
}
