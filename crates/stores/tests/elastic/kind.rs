//! Starts Elasticsearch and OpenSearch for these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use tenure_harness::elastic::{Options, Product};
use tenure_harness::{Cluster, Elastic, Failure, Framing, Skipped, Version};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::chaos::Apart;
use crate::faults::Servers;
use crate::support::{Shared, keep};

/// Waits for room for a test's own servers.
///
/// They take half a gigabyte each, and all cores while they start.
pub(crate) async fn room(servers: u32) -> SemaphorePermit<'static> {
    static ROOM: Semaphore = Semaphore::const_new(3);
    ROOM.acquire_many(servers).await.expect("it is never closed")
}

macro_rules! kind {
    ($name:ident, $scheme:literal) => {
        pub(crate) struct $name(Elastic);

        impl Deref for $name {
            type Target = Cluster;

            fn deref(&self) -> &Cluster {
                &self.0
            }
        }

        impl Servers for $name {
            const FRAMING: Framing = Framing::Raw;
            // A busy machine stops these servers for seconds.
            const TTL: Duration = Duration::from_secs(10);

            async fn start(count: usize, _: Version) -> Result<$name, Failure> {
                Ok($name(Elastic::cluster(count, Options::new(Product::$name)).await?))
            }

            fn url(addresses: &[SocketAddr], index: &str) -> String {
                let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                format!("{}://{}/{index}", $scheme, hosts.join(","))
            }
        }

        impl Apart for $name {
            // Three of these servers have more work among themselves than a busy machine does in a
            // second.
            const CHAOS_TTL: Duration = Duration::from_secs(12);

            async fn start_apart(count: usize, _: Version) -> Result<$name, Failure> {
                let options = Options { partitions: true, ..Options::new(Product::$name) };
                Ok($name(Elastic::cluster(count, options).await?))
            }
        }
    };
}
kind!(Elasticsearch, "elasticsearch+http");
kind!(Opensearch, "opensearch+http");

pub(crate) fn elasticsearch() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Elasticsearch>("Elasticsearch", 1))
}

pub(crate) fn opensearch() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Opensearch>("OpenSearch", 1))
}

/// A shared server for tests that only read; none if it cannot be started.
pub(crate) fn shared(server: &'static Result<Shared, Skipped>) -> Option<&'static Shared> {
    tenure_harness::available(server.as_ref().map_err(|skipped| skipped.clone().into()))
}
