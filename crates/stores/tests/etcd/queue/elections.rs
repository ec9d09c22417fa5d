//! What people see of an election that is a line, with nothing going wrong.

use super::*;
use tenure::{ElectionState, Error, Resignation};
use tenure_harness::require;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_come_is_first_led_and_tokens_rise() {
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let mut line = Vec::new();
    for name in ["a", "b", "c", "d"] {
        line.push((name, stand(&addresses, LONG, name).await));
    }
    assert_eq!(names(&line[0].1.1).await, ["a", "b", "c", "d"]);
    let mut token = 0;
    for (name, (_backend, election, candidacy)) in line {
        let leader = soon(name, candidacy.elected()).await.expect("elected");
        assert!(leader.mandate().token() > token);
        token = leader.mandate().token();
        assert_eq!(names(&election).await[0], name);
        assert!(matches!(leader.resign().await, Resignation::Released));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_candidates_of_one_process_stand_in_the_same_line() {
    let servers = require!(servers(1).await);
    let backend = process(&servers.addresses(), LONG).await;
    let election = enter(&backend).await;
    let (first, second) = (stand_in(&election, "a").await, stand_in(&election, "b").await);
    let entries = keys_under(&servers, &format!("{PREFIX}/{NAME}/"));
    assert_eq!(entries.len(), 2, "{entries:?}");
    let first = soon("elected", first.elected()).await.expect("elected");
    assert_eq!(second.status().follows.as_ref().map(|leader| leader.name.to_string()), Some("a".into()));
    let token = first.mandate().token();
    first.resign().await;
    let second = soon("elected", second.elected()).await.expect("elected");
    assert!(second.mandate().token() > token);
    backend.close().await;
    assert!(keys_under(&servers, &format!("{PREFIX}/{NAME}/")).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_ends_everybody_and_a_new_creation_starts_over() {
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let (_one, election, leader) = lead(&addresses, LONG, "a").await;
    let (_two, _, waiting) = stand(&addresses, LONG, "b").await;
    let token = leader.mandate().token();
    let other = process(&addresses, LONG).await;
    let outsider = enter(&other).await;
    soon("ended", outsider.end()).await.expect("it ends");
    soon("the leader is told", leader.mandate().lost()).await;
    drop(leader);
    assert!(matches!(soon("the waiter is told", waiting.elected()).await, Err(Error::Ended { .. })));
    soon("everybody has left", async {
        while !keys_under(&servers, &format!("{PREFIX}/{NAME}/")).is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(matches!(soon("refused", election.campaign(candidate("c"))).await, Err(Error::Ended { .. })));
    Election::builder(&other, NAME).create().await.expect("it is created anew");
    let again = soon("elected", election.campaign(candidate("c"))).await.expect("elected");
    assert!(again.mandate().token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_resigns_in_the_middle_disturbs_nobody() {
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let (_a, election, leader) = lead(&addresses, LONG, "a").await;
    let (_b, _, middle) = stand(&addresses, LONG, "b").await;
    let (_c, _, last) = stand(&addresses, LONG, "c").await;
    soon("withdrawn", middle.withdraw()).await;
    assert_eq!(names(&election).await, ["a", "c"]);
    assert!(leader.mandate().is_leader());
    assert!(!matches!(last.status().role, Role::Leading { .. }), "one is still before it");
    leader.resign().await;
    soon("elected", last.elected()).await.expect("elected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_sees_the_line_and_every_leader() {
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let (_a, election, leader) = lead(&addresses, LONG, "a").await;
    let standing = election.standing().await.expect("a look");
    assert_eq!(standing.state, ElectionState::Led);
    assert_eq!(standing.leader.as_ref().map(|leader| leader.name.to_string()), Some("a".into()));
    leader.publish("10.0.0.7:8080").expect("small enough");
    soon("published", async {
        loop {
            let standing = election.standing().await.expect("a look");
            if standing.leader.is_some_and(|leader| leader.value == "10.0.0.7:8080") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    leader.resign().await;
}
