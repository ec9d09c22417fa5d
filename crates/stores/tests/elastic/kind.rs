//! How Elasticsearch and OpenSearch are started for these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::OnceLock;

use tenure_harness::elastic::{Options, Product};
use tenure_harness::{Cluster, Elastic, Failure, Framing, Skipped, Version};

use crate::faults::Servers;
use crate::support::{Shared, keep};

pub(crate) struct Elasticsearch(pub(crate) Elastic);
pub(crate) struct Opensearch(pub(crate) Elastic);

impl Deref for Elasticsearch {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Deref for Opensearch {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Elasticsearch {
    const FRAMING: Framing = Framing::Raw;

    async fn start(count: usize, _: Version) -> Result<Elasticsearch, Failure> {
        let options = Options::new(Product::Elasticsearch);
        Ok(Elasticsearch(Elastic::cluster(count, options).await?))
    }

    fn url(addresses: &[SocketAddr], index: &str) -> String {
        url("elasticsearch+http", addresses, index)
    }
}

impl Servers for Opensearch {
    const FRAMING: Framing = Framing::Raw;

    async fn start(count: usize, _: Version) -> Result<Opensearch, Failure> {
        Ok(Opensearch(Elastic::cluster(count, Options::new(Product::Opensearch)).await?))
    }

    fn url(addresses: &[SocketAddr], index: &str) -> String {
        url("opensearch+http", addresses, index)
    }
}

fn url(scheme: &str, addresses: &[SocketAddr], index: &str) -> String {
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("{scheme}://{}/{index}", hosts.join(","))
}

pub(crate) fn elasticsearch() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Elasticsearch>("Elasticsearch", 1))
}

pub(crate) fn opensearch() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Opensearch>("OpenSearch", 1))
}
