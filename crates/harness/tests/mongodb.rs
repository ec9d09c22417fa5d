//! Tests of the harness with real MongoDB servers.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tenure_harness::mongodb::Value::{Array, Int, Map, Text};
use tenure_harness::mongodb::{Answer, Options, command};
use tenure_harness::{Failure, Framing, Mongodb, Proxy, require};

const WITHIN: Duration = Duration::from_secs(10);

async fn inserts(server: SocketAddr, id: &str) {
    let answer = insert(server, id, WITHIN).await.expect("an answer");
    assert!(answer.is_ok(), "{}", answer.words());
}

async fn insert(server: SocketAddr, id: &str, within: Duration) -> io::Result<Answer> {
    let concern = Map(vec![("w", Text("majority".to_owned())), ("wtimeout", Int(3000))]);
    let documents = Array(vec![Map(vec![("_id", Text(id.to_owned()))])]);
    let asked =
        [("insert", Text("c".to_owned())), ("documents", documents), ("writeConcern", concern)];
    command(server, "test", &asked, within).await
}

/// Returns true if the server has the document.
async fn finds(server: SocketAddr, id: &str) -> bool {
    let filter = Map(vec![("_id", Text(id.to_owned()))]);
    let asked = [("find", Text("c".to_owned())), ("filter", filter)];
    let answer = command(server, "test", &asked, WITHIN).await.expect("a server that is up");
    answer.is_ok() && answer.words().contains(id)
}

#[tokio::test]
async fn a_mongodb_keeps_its_data_and_port_when_killed() {
    let began = Instant::now();
    let mongodb = require!(Mongodb::single(Options::default()).await);
    println!("ready after {:?}", began.elapsed());
    let server = &mongodb[0];
    inserts(server.address(), "kept").await;

    let address = server.address();
    server.kill().await.expect("it runs");
    insert(address, "refused", WITHIN).await.expect_err("it is down");
    server.restart().await.expect("it starts again");
    assert_eq!(server.address(), address);
    assert!(finds(address, "kept").await);

    server.terminate().await.expect("it ends when asked");
    assert!(matches!(server.kill().await, Err(Failure::Down { .. })));
}

#[tokio::test]
async fn a_mongodb_may_be_in_no_replica_set() {
    let options = Options { standalone: true, ..Options::default() };
    let mongodb = require!(Mongodb::single(options).await);
    let asked = [("hello", Int(1))];
    let hello = command(mongodb[0].address(), "admin", &asked, WITHIN).await.expect("an answer");
    assert!(hello.yes("isWritablePrimary") && !hello.has("setName"), "{}", hello.words());
}

#[tokio::test]
async fn a_stopped_mongodb_answers_when_it_goes_on() {
    let mongodb = require!(Mongodb::single(Options::default()).await);
    mongodb[0].stop().await.expect("it runs");
    let unanswered = insert(mongodb[0].address(), "late", Duration::from_millis(500)).await;
    assert_eq!(unanswered.expect_err("it is stopped").kind(), io::ErrorKind::TimedOut);
    mongodb[0].cont().await.expect("it runs");
    mongodb[0].ready().await.expect("it goes on");
    inserts(mongodb[0].address(), "in time").await;
}

#[tokio::test]
async fn a_write_is_applied_though_its_answer_is_lost() {
    let mongodb = require!(Mongodb::single(Options::default()).await);
    let proxy = Proxy::start(mongodb[0].address(), Framing::Mongodb).expect("a proxy");
    proxy.lose_answer_of(|request| request.windows(7).any(|window| window == b"applied"));
    insert(proxy.address(), "applied", WITHIN).await.expect_err("its answer is lost");
    assert_eq!(proxy.answers_lost(), 1);
    assert!(finds(proxy.address(), "applied").await);
}

#[tokio::test]
async fn another_mongodb_leads_when_the_primary_is_killed_stopped_or_steps_down() {
    let began = Instant::now();
    let mongodb = require!(Mongodb::set(3, Options::default()).await);
    println!("three ready after {:?}", began.elapsed());
    let first = mongodb.settled(None).await.expect("it is ready");
    inserts(mongodb[first].address(), "kept").await;

    let began = Instant::now();
    mongodb[first].kill().await.expect("it runs");
    let second = mongodb.settled(Some(first)).await.expect("two of three are enough");
    println!("killed: another primary after {:?}", began.elapsed());
    assert!(finds(mongodb[second].address(), "kept").await);
    mongodb[first].restart().await.expect("it joins again");

    let began = Instant::now();
    mongodb[second].stop().await.expect("it runs");
    let third = mongodb.settled(Some(second)).await.expect("two of three are enough");
    println!("stopped: another primary after {:?}", began.elapsed());
    mongodb[second].cont().await.expect("it is there");
    let leads = mongodb.settled(Some(second)).await.expect("one primary");
    assert_eq!(leads, third);

    let began = Instant::now();
    mongodb.step_down(third, Duration::from_secs(10)).await.expect("it is the primary");
    mongodb.settled(Some(third)).await.expect("another one");
    println!("stepped down: another primary after {:?}", began.elapsed());
}

#[tokio::test]
async fn an_isolated_primary_is_replaced_and_comes_back_as_a_secondary() {
    let options = Options { partitions: true, ..Options::default() };
    let mongodb = require!(Mongodb::set(3, options).await);
    let former = mongodb.settled(None).await.expect("it is ready");
    let isolated = Instant::now();
    mongodb.isolate(former).expect("permitted");
    // Clients still reach the former primary, but a majority cannot keep their writes.
    let answer = insert(mongodb[former].address(), "stale", WITHIN).await.expect("an answer");
    assert!(!answer.is_ok() || answer.words().contains("writeConcernError"), "{}", answer.words());
    let next = mongodb.settled(Some(former)).await.expect("two of three are enough");
    println!("another primary alone after {:?}", isolated.elapsed());
    inserts(mongodb[next].address(), "new").await;
    mongodb.rejoin(former).expect("permitted");
    mongodb[former].ready().await.expect("it joins again");
    let leads = mongodb.settled(Some(former)).await.expect("one primary");
    assert!(finds(mongodb[leads].address(), "new").await);
}
