//! Tests of the harness with real Elasticsearch and OpenSearch servers.

use tenure_harness::elastic::{Options, Product};
use tenure_harness::{Elastic, http, require};

async fn serves(server: &Elastic) -> bool {
    let health = http::get(server[0].address(), "/_cluster/health").await;
    health.is_ok_and(|answer| answer.status == 200)
}

/// A server is stopped, continued, killed with its launcher and ended politely, on the same port.
async fn lives_and_dies(product: Product) {
    let server = require!(Elastic::single(Options::new(product)).await);
    assert!(serves(&server).await);
    assert_eq!(server.leader().await, None, "there is no shard to be the primary of");
    server[0].stop().await.expect("it runs");
    assert!(!serves(&server).await, "a stopped server answers nothing");
    server[0].cont().await.expect("it is there");
    assert!(serves(&server).await);
    server[0].restart().await.expect("it starts again");
    assert!(serves(&server).await);
    server[0].terminate().await.expect("it listens");
    assert!(!serves(&server).await);
}

#[tokio::test]
async fn an_elasticsearch_is_killed_stopped_and_started_again() {
    lives_and_dies(Product::Elasticsearch).await;
}

#[tokio::test]
async fn an_opensearch_is_killed_stopped_and_started_again() {
    lives_and_dies(Product::Opensearch).await;
}
