//! Behind `etcd grpc-proxy`, which passes KeepAlives on when it likes.

use super::*;
use tenure_harness::require;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_behind_a_grpc_proxy_is_told_why_it_never_leads() {
    let servers = require!(servers(1).await);
    let proxy = servers.grpc_proxy().await.expect("the proxy starts");
    let backend = process(&[proxy.address()], TTL).await;
    let candidacy = enter(&backend).await.stand(candidate("a")).expect("it stands");
    let said = || match candidacy.status().error {
        Some(error) => crate::support::chain(&error),
        None => String::new(),
    };
    soon("told of the KeepAlives", async {
        while !said().contains("KeepAlives") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    println!("{}", said());
    assert!(said().contains("grpc-proxy") && said().contains("?protocol=lease"), "{}", said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_grpc_proxy_elections_by_lease_work() {
    let servers = require!(servers(1).await);
    let proxy = servers.grpc_proxy().await.expect("the proxy starts");
    let url = format!("etcd://{}/{PREFIX}?protocol=lease", proxy.address());
    let opened = tenure_stores::open(&url, &OpenOptions::default()).await.expect("it opens");
    let election = enter(&opened.backend).await;
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    assert!(leader.mandate().is_leader());
}
