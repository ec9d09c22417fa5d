//! Tests of the harness with real etcd servers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;
use tenure_harness::etcd::Options;
use tenure_harness::{Etcd, Failure, Framing, Proxy, Skipped, Version, http, require};

async fn put(server: SocketAddr, key: &str, value: &str) -> io::Result<http::Answer> {
    let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
    http::post(server, "/v3/kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#)).await
}

async fn get(server: SocketAddr, key: &str) -> Option<String> {
    let request = format!(r#"{{"key":"{}"}}"#, BASE64_STANDARD.encode(key));
    let answer = http::post(server, "/v3/kv/range", &request).await.expect("a server that is up");
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    let value = answer["kvs"][0]["value"].as_str()?;
    let value = BASE64_STANDARD.decode(value).expect("etcd encodes values");
    Some(String::from_utf8(value).expect("what was put"))
}

fn of(version: Version) -> Options {
    Options { version, ..Options::default() }
}

async fn keeps_its_data(version: Version) {
    let began = Instant::now();
    let etcd = require!(Etcd::single(of(version)).await);
    println!("{version:?}: ready after {:?}", began.elapsed());
    let server = &etcd[0];
    assert_eq!(put(server.address(), "key", "kept").await.expect("a write").status, 200);

    let address = server.address();
    server.kill().await.expect("it runs");
    assert!(http::get(address, "/health").await.is_err());
    server.restart().await.expect("it starts again");
    assert_eq!(server.address(), address);
    assert_eq!(get(address, "key").await.as_deref(), Some("kept"));

    server.terminate().await.expect("it ends when asked");
    assert!(matches!(server.kill().await, Err(Failure::Down { .. })));
}

#[tokio::test]
async fn the_current_etcd_keeps_its_data_and_port_when_killed() {
    keeps_its_data(Version::Current).await;
}

#[tokio::test]
async fn debians_etcd_keeps_its_data_and_port_when_killed() {
    keeps_its_data(Version::Debian).await;
}

#[tokio::test]
async fn a_stopped_etcd_answers_when_it_goes_on() {
    let etcd = require!(Etcd::single(Options::default()).await);
    etcd[0].stop().await.expect("it runs");
    let unanswered = put(etcd[0].address(), "key", "value").await.expect_err("it is stopped");
    assert_eq!(unanswered.kind(), io::ErrorKind::TimedOut);
    etcd[0].cont().await.expect("it runs");
    etcd[0].ready().await.expect("it goes on");
    assert!(put(etcd[0].address(), "key", "value").await.is_ok());
}

#[tokio::test]
async fn a_write_is_applied_though_its_answer_is_lost() {
    let etcd = require!(Etcd::single(Options::default()).await);
    let proxy = Proxy::start(etcd[0].address(), Framing::Http2).expect("a proxy");
    proxy.lose_answer_of(|request| request.starts_with(b"POST /v3/kv/put"));
    put(proxy.address(), "key", "applied").await.expect_err("its answer is lost");
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!(get(proxy.address(), "key").await.as_deref(), Some("applied"));
}

#[tokio::test]
async fn a_grpc_write_is_applied_though_its_answer_is_lost() {
    let etcd = require!(Etcd::single(Options::default()).await);
    let proxy = Proxy::start(etcd[0].address(), Framing::Http2).expect("a proxy");
    proxy.lose_answer_of(|frame| frame.windows(8).any(|window| window == b"some/key"));
    let endpoint = format!("--endpoints={}", proxy.address());
    let etcdctl = tokio::task::spawn_blocking(move || {
        Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args([&endpoint, "--command-timeout=3s", "put", "some/key", "applied"])
            .output()
    });
    let Ok(output) = etcdctl.await.expect("no panic") else {
        let reason = "not installed; scripts/servers etcd does it".to_owned();
        require!(Err(Skipped { server: "etcdctl".to_owned(), reason }.into()));
        return;
    };
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!(get(etcd[0].address(), "some/key").await.as_deref(), Some("applied"));
}

#[tokio::test]
async fn another_etcd_leads_when_the_leader_is_killed() {
    let began = Instant::now();
    let etcd = require!(Etcd::cluster(3, Options::default()).await);
    println!("three ready after {:?}", began.elapsed());
    let leader = etcd.settled(None).await.expect("it is ready");
    put(etcd[leader].address(), "key", "kept").await.expect("a write");

    let killed = Instant::now();
    etcd[leader].kill().await.expect("it runs");
    let next = etcd.settled(Some(leader)).await.expect("two of three are enough");
    println!("another leader after {:?}", killed.elapsed());
    assert_eq!(get(etcd[next].address(), "key").await.as_deref(), Some("kept"));

    etcd[leader].restart().await.expect("it joins again");
    assert_eq!(get(etcd[leader].address(), "key").await.as_deref(), Some("kept"));
}

#[tokio::test]
async fn an_isolated_leader_is_replaced_and_comes_back_as_a_follower() {
    let options = Options { partitions: true, ..Options::default() };
    let etcd = require!(Etcd::cluster(3, options).await);
    let leader = etcd.settled(None).await.expect("it is ready");
    etcd.isolate(leader).expect("permitted");
    let next = etcd.settled(Some(leader)).await.expect("two of three are enough");
    put(etcd[next].address(), "key", "new").await.expect("a write");

    // Clients still reach the former leader, which does not know of the write.
    let health = http::get(etcd[leader].address(), "/version").await.expect("it answers");
    assert_eq!(health.status, 200);
    let stale = put(etcd[leader].address(), "key", "stale").await;
    assert!(stale.is_err() || stale.is_ok_and(|answer| answer.status != 200));

    etcd.rejoin(leader).expect("permitted");
    etcd[leader].ready().await.expect("it joins again");
    assert_eq!(get(etcd[leader].address(), "key").await.as_deref(), Some("new"));
}

#[tokio::test]
async fn another_etcd_leads_when_the_leader_is_stopped() {
    let etcd = require!(Etcd::cluster(3, Options::default()).await);
    let leader = etcd.settled(None).await.expect("it is ready");
    let stopped = Instant::now();
    etcd[leader].stop().await.expect("it runs");
    etcd.settled(Some(leader)).await.expect("two of three are enough");
    println!("another leader after {:?}", stopped.elapsed());
    etcd[leader].cont().await.expect("it runs");
    etcd.settled(Some(leader)).await.expect("it steps down");
}
