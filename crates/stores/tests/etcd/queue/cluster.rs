//! Three servers, of which one fails, and one that does not know that it is deposed.

use super::referee::Referee;
use super::*;
use tenure_harness::require;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_of_three_may_be_lost() {
    let servers = require!(servers(3).await);
    let addresses = servers.addresses();
    let referee = Referee::start();
    let (_a, election, leader) = lead(&addresses, CALM, "a").await;
    referee.elected("a", &leader);
    let (_b, _, waiting) = stand(&addresses, CALM, "b").await;
    let former = servers.settled(None).await.expect("somebody leads");
    servers[former].kill().await.expect("it runs");
    servers.settled(Some(former)).await.expect("two are enough");
    for _ in 0..2 {
        soon("proven again", leader.mandate().renewed()).await;
    }
    assert!(leader.mandate().is_leader(), "leaders keep");
    assert_eq!(names(&election).await, ["a", "b"], "followers follow");
    leader.resign().await;
    let next = soon("elected", waiting.elected()).await.expect("elected");
    referee.elected("b", &next);
    let (_c, _, other) = {
        let backend = process(&addresses, CALM).await;
        let election = Election::open(&backend, "jobs/next").await.expect("the next one works");
        let leader = soon("elected", election.campaign(candidate("c"))).await.expect("elected");
        (backend, election, leader)
    };
    assert!(other.mandate().is_leader());
    servers[former].restart().await.expect("it comes back");
    referee.done();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_etcds_own_leader_costs_nothing() {
    let servers = require!(servers(3).await);
    let referee = Referee::start();
    let (_a, _, leader) = lead(&servers.addresses(), CALM, "a").await;
    referee.elected("a", &leader);
    let (_b, _, waiting) = stand(&servers.addresses(), CALM, "b").await;
    let token = leader.mandate().token();
    for _ in 0..2 {
        let former = servers.settled(None).await.expect("somebody leads");
        servers[former].stop().await.expect("it runs");
        servers.settled(Some(former)).await.expect("two are enough");
        servers[former].cont().await.expect("it is there");
        for _ in 0..2 {
            soon("proven again", leader.mandate().renewed()).await;
        }
    }
    assert!(leader.mandate().is_leader());
    assert_eq!(leader.mandate().token(), token);
    leader.resign().await;
    let next = soon("elected", waiting.elected()).await.expect("elected");
    referee.elected("b", &next);
    referee.done();
}

async fn with_partitions() -> Result<Etcd, Failure> {
    Etcd::cluster(3, etcd::Options { partitions: true, ..etcd::Options::default() }).await
}

/// The deposed leader answers KeepAlives for a while, as if it still counted; nothing of that proves anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keep_alives_of_a_deposed_server_prove_nothing() {
    let servers = require!(with_partitions().await);
    let referee = Referee::start();
    let deposed = servers.settled(None).await.expect("somebody leads");
    let addresses = servers.addresses();
    let majority: Vec<SocketAddr> =
        (0..3).filter(|member| *member != deposed).map(|member| addresses[member]).collect();
    let (_a, _, leader) = lead(&addresses[deposed..=deposed], TTL, "a").await;
    referee.elected("a", &leader);
    let (_b, _, waiting) = stand(&majority, TTL, "b").await;
    servers.isolate(deposed).expect("it can be cut off");
    let next = soon("elected", waiting.elected()).await.expect("elected");
    referee.elected("b", &next);
    assert!(!leader.mandate().is_leader(), "its window ended before its lease did");
    servers.rejoin(deposed).expect("it can come back");
    let again = tokio::spawn(leader.regain());
    tokio::time::sleep(Duration::from_millis(500)).await;
    next.resign().await;
    let again = soon("elected again", again).await.expect("no panic").expect("elected");
    referee.elected("a again", &again);
    referee.done();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_cut_off_is_left_for_another() {
    let servers = require!(with_partitions().await);
    let referee = Referee::start();
    let (_a, _, leader) = lead(&servers.addresses(), CALM, "a").await;
    referee.elected("a", &leader);
    let token = leader.mandate().token();
    for member in 0..3 {
        servers.isolate(member).expect("it can be cut off");
        for _ in 0..2 {
            soon("proven again", leader.mandate().renewed()).await;
        }
        servers.rejoin(member).expect("it can come back");
    }
    assert!(leader.mandate().is_leader());
    assert_eq!(leader.mandate().token(), token);
    referee.done();
}
