//! Behind `etcd grpc-proxy`, which passes KeepAlives on when it likes.

use std::process::{Child, Command, Stdio};

use super::*;
use tenure_harness::{Port, require};

/// A gRPC proxy of etcd's own.
struct GrpcProxy {
    port: Port,
    process: Child,
}

impl GrpcProxy {
    async fn start(servers: &Etcd) -> GrpcProxy {
        let port = Port::claim().expect("a free port");
        let mut command = Command::new("etcd");
        command.args(["grpc-proxy", "start"]);
        command.arg(format!("--endpoints={}", servers[0].address()));
        command.arg(format!("--listen-addr={}", port.address()));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let proxy = GrpcProxy { port, process: process.expect("etcd runs") };
        soon("the proxy listens", async {
            while tokio::net::TcpStream::connect(proxy.port.address()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        proxy
    }
}

impl Drop for GrpcProxy {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_behind_a_grpc_proxy_is_told_why_it_never_leads() {
    let servers = require!(servers(1).await);
    let proxy = GrpcProxy::start(&servers).await;
    let backend = process(&[proxy.port.address()], TTL).await;
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
    let proxy = GrpcProxy::start(&servers).await;
    let url = format!("etcd://{}/{PREFIX}?protocol=lease", proxy.port.address());
    let opened = tenure_stores::open(&url, &OpenOptions::default()).await.expect("it opens");
    let election = enter(&opened.backend).await;
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    assert!(leader.mandate().is_leader());
}
