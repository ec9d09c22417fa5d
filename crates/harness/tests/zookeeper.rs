//! Tests of the harness with real ZooKeeper servers.

mod raw;

use raw::{Session, creates};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure_harness::zookeeper::{Options, ask, number};
use tenure_harness::{Direction, Failure, Framing, Proxy, Version, Zookeeper, require};

fn of(version: Version) -> Options {
    Options { version, ..Options::default() }
}

async fn keeps_its_data(version: Version) {
    let began = Instant::now();
    let zookeeper = require!(Zookeeper::single(of(version)).await);
    println!("{version:?}: ready after {:?}", began.elapsed());
    assert_eq!(zookeeper.leader().await, Some(0));
    let server = &zookeeper[0];
    let address = server.address();
    let mut session = Session::open(address).await.expect("a session");
    assert_eq!(session.create("/kept").await.expect("an answer").error, 0);

    server.kill().await.expect("it runs");
    assert!(ask(address, "srvr").await.is_err());
    assert_eq!(zookeeper.leader().await, None);
    server.restart().await.expect("it starts again");
    assert_eq!(server.address(), address);
    let mut session = Session::open(address).await.expect("a session");
    assert_eq!(session.exists("/kept", false).await.expect("an answer").error, 0);

    server.terminate().await.expect("it ends when asked");
    assert!(matches!(server.stop().await, Err(Failure::Down { .. })));
}

#[tokio::test]
async fn the_current_zookeeper_keeps_its_data_and_port_when_killed() {
    keeps_its_data(Version::Current).await;
}

#[tokio::test]
async fn debians_zookeeper_keeps_its_data_and_port_when_killed() {
    keeps_its_data(Version::Debian).await;
}

#[tokio::test]
async fn a_stopped_zookeeper_answers_when_it_goes_on() {
    let zookeeper = require!(Zookeeper::single(Options::default()).await);
    zookeeper[0].stop().await.expect("it runs");
    assert_eq!(zookeeper.leader().await, None);
    ask(zookeeper[0].address(), "srvr").await.expect_err("it is stopped");
    zookeeper[0].cont().await.expect("it runs");
    zookeeper[0].ready().await.expect("it goes on");
}

#[tokio::test]
async fn a_cut_zookeeper_is_out_of_reach_until_it_heals() {
    let zookeeper = require!(Zookeeper::single(Options::default()).await);
    let proxy = Proxy::start(zookeeper[0].address(), Framing::Zookeeper).expect("a proxy");
    assert!(ask(proxy.address(), "srvr").await.expect("an answer").contains("Mode: standalone"));
    proxy.cut().await;
    ask(proxy.address(), "srvr").await.expect_err("it is cut");
    ask(zookeeper[0].address(), "srvr").await.expect("the server itself is well");
    proxy.heal().await;
    ask(proxy.address(), "srvr").await.expect("an answer");
}

#[tokio::test]
async fn a_node_is_created_though_the_answer_is_lost() {
    let zookeeper = require!(Zookeeper::single(Options::default()).await);
    let proxy = Proxy::start(zookeeper[0].address(), Framing::Zookeeper).expect("a proxy");
    proxy.lose_answer_of(creates);
    let mut session = Session::open(proxy.address()).await.expect("a session");
    session.exists("/node", false).await.expect("other requests are answered");
    session.create("/node").await.expect_err("its answer is lost");
    assert_eq!(proxy.answers_lost(), 1);
    let mut session = Session::open(proxy.address()).await.expect("a session");
    assert_eq!(session.exists("/node", false).await.expect("an answer").error, 0);
}

#[tokio::test]
async fn notifications_are_counted_at_the_proxy() {
    let zookeeper = require!(Zookeeper::single(Options::default()).await);
    let proxy = Proxy::start(zookeeper[0].address(), Framing::Zookeeper).expect("a proxy");
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    proxy.observe(move |message| {
        if message.direction == Direction::ToClient && number(message.bytes) == Some(-1) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut watcher = Session::open(proxy.address()).await.expect("a session");
    let mut other = Session::open(proxy.address()).await.expect("a session");
    other.create("/node").await.expect("an answer");
    watcher.exists("/node", true).await.expect("an answer");
    other.delete("/node").await.expect("an answer");
    assert_eq!(watcher.next().await.expect("a notification").number, -1);
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    // The connection's start, then one message for each request each way, and the notification.
    let counts: Vec<_> = proxy
        .connections()
        .iter()
        .map(|one| (one.to_server.messages, one.to_client.messages))
        .collect();
    assert_eq!(counts, [(2, 3), (3, 3)]);
}

#[tokio::test]
async fn another_zookeeper_leads_when_the_leader_is_killed() {
    let began = Instant::now();
    let ensemble = require!(Zookeeper::ensemble(3, Options::default()).await);
    println!("three ready after {:?}", began.elapsed());
    let leader = ensemble.settled(None).await.expect("it is ready");
    let killed = Instant::now();
    ensemble[leader].kill().await.expect("it runs");
    ensemble.settled(Some(leader)).await.expect("two of three are enough");
    println!("another leader after {:?}", killed.elapsed());
    ensemble[leader].restart().await.expect("it joins again");
}

#[tokio::test]
async fn another_zookeeper_leads_when_the_leader_is_stopped() {
    let ensemble = require!(Zookeeper::ensemble(3, of(Version::Debian)).await);
    let leader = ensemble.settled(None).await.expect("it is ready");
    let stopped = Instant::now();
    ensemble[leader].stop().await.expect("it runs");
    ensemble.settled(Some(leader)).await.expect("two of three are enough");
    println!("another leader after {:?}", stopped.elapsed());
    ensemble[leader].cont().await.expect("it runs");
    ensemble.settled(Some(leader)).await.expect("it steps down");
}

#[tokio::test]
async fn an_isolated_leader_is_replaced_and_stops_serving_until_it_rejoins() {
    let options = Options { partitions: true, ..Options::default() };
    let ensemble = require!(Zookeeper::ensemble(3, options).await);
    let leader = ensemble.settled(None).await.expect("it is ready");
    let isolated = Instant::now();
    ensemble.isolate(leader).expect("permitted");
    ensemble.settled(Some(leader)).await.expect("two of three are enough");
    println!("another leader alone after {:?}", isolated.elapsed());
    let answer = ask(ensemble[leader].address(), "srvr").await.expect("clients reach it");
    assert!(!answer.contains("Mode:"), "{answer}");
    ensemble.rejoin(leader).expect("permitted");
    ensemble[leader].ready().await.expect("it joins again");
    ensemble.settled(Some(leader)).await.expect("it follows");
}

#[tokio::test]
async fn a_server_that_cannot_start_is_named_with_its_log() {
    let options = Options {
        settings: vec![("tickTime".to_owned(), "nonsense".to_owned())],
        ready_within: Duration::from_secs(30),
        ..Options::default()
    };
    let started = Zookeeper::single(options).await;
    if let Err(Failure::Skipped(_)) = started {
        let _ = require!(started);
        return;
    }
    let failure = started.expect_err("its configuration is nonsense").to_string();
    assert!(failure.contains("ZooKeeper") && failure.contains("nonsense"), "{failure}");
}
