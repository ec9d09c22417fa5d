//! The visible behaviour of an election that is a queue, without failures.

use super::*;
use tenure::{ElectionState, Error, Resignation};
use tenure_harness::require;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_come_is_first_led_and_tokens_rise() {
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let mut queue = Vec::new();
    for name in ["a", "b", "c", "d"] {
        queue.push((name, stand(&addresses, LONG, name).await));
    }
    assert_eq!(names(&queue[0].1.1).await, ["a", "b", "c", "d"]);
    let mut token = 0;
    for (name, (_backend, election, mut candidacy)) in queue {
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
    let (mut first, mut second) = (stand_in(&election, "a").await, stand_in(&election, "b").await);
    let entries = keys_under(&servers, &format!("{PREFIX}/{NAME}/"));
    assert_eq!(entries.len(), 2, "{entries:?}");
    let first = soon("elected", first.elected()).await.expect("elected");
    assert_eq!(
        second.status().follows.as_ref().map(|leader| leader.name.to_string()),
        Some("a".into())
    );
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
    let (_two, _, mut waiting) = stand(&addresses, LONG, "b").await;
    let token = leader.mandate().token();
    let other = process(&addresses, LONG).await;
    let outsider = enter(&other).await;
    soon("ended", outsider.end()).await.expect("it ends");
    soon("the leader is told", leader.mandate().lost()).await;
    drop(leader);
    assert!(matches!(
        soon("the waiter is told", waiting.elected()).await,
        Err(Error::Ended { .. })
    ));
    soon("everybody has left", async {
        while !keys_under(&servers, &format!("{PREFIX}/{NAME}/")).is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(matches!(
        soon("refused", election.campaign(candidate("c"))).await,
        Err(Error::Ended { .. })
    ));
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
    let (_c, _, mut last) = stand(&addresses, LONG, "c").await;
    soon("withdrawn", middle.withdraw()).await;
    assert_eq!(names(&election).await, ["a", "c"]);
    assert!(leader.mandate().is_leader());
    assert!(!matches!(last.status().role, Role::Leading { .. }), "one is still before it");
    leader.resign().await;
    let last = soon("elected", last.elected()).await.expect("elected");
    assert!(last.mandate().is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_that_is_missing_is_told_and_not_made() {
    let servers = require!(servers(1).await);
    let backend = process(&servers.addresses(), LONG).await;
    let opened = Election::builder(&backend, NAME).create_if_missing(false).open().await;
    assert!(matches!(opened, Err(Error::Missing { .. })), "{opened:?}");
    assert!(keys_under(&servers, &format!("{PREFIX}//lines/")).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_may_choose_documents_and_the_other_protocol_is_refused_then() {
    let servers = require!(servers(1).await);
    let address = servers[0].address();
    let url = format!("etcd://{address}/{PREFIX}?protocol=lease");
    let leases = crate::support::open(&url, Duration::from_secs(5)).await;
    assert_eq!(leases.protocol(), tenure::Protocol::Lease);
    let election = Election::open(&leases, NAME).await.expect("it opens");
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    assert_eq!(leader.mandate().token(), 1);
    let queues = process(&servers.addresses(), LONG).await;
    let refused = Election::open(&queues, NAME).await;
    assert!(matches!(refused, Err(Error::Protocol { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_nested_deeper_are_no_candidates() {
    let servers = require!(servers(1).await);
    ask(&servers, &["put", &format!("{PREFIX}/{NAME}/deeper/1"), "x"]);
    let (_a, election, leader) = lead(&servers.addresses(), LONG, "a").await;
    let (_b, _, mut waiting) = stand(&servers.addresses(), LONG, "b").await;
    assert_eq!(names(&election).await, ["a", "b"]);
    leader.resign().await;
    let next = soon("elected", waiting.elected()).await.expect("elected");
    assert!(next.mandate().is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_left_cleanly_is_waited_for_under_a_lock_delay() {
    const DELAY: Duration = Duration::from_secs(3);
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let opened = async |backend: &Backend| {
        let builder = Election::builder(backend, NAME).lock_delay(DELAY);
        builder.open().await.expect("it opens")
    };
    let one = process(&addresses, LONG).await;
    let earlier = opened(&one).await;
    let first = soon("elected", earlier.campaign(candidate("a"))).await.expect("elected");
    assert_eq!(keys_under(&servers, &format!("{PREFIX}//tenures/")).len(), 1);
    let two = process(&addresses, LONG).await;
    let election = opened(&two).await;
    let mut waiting = stand_in(&election, "b").await;
    let began = std::time::Instant::now();
    first.resign().await;
    let second = soon("elected", waiting.elected()).await.expect("elected");
    println!("after a clean release: {:?}", began.elapsed());
    assert!(began.elapsed() < DELAY, "{:?}", began.elapsed());
    let third = opened(&one).await;
    let mut third = stand_in(&third, "c").await;
    // An operator deletes the leader's entry: the leader had no chance to end its work first.
    let entries = ask(&servers, &["get", "--prefix", "--keys-only", &format!("{PREFIX}/{NAME}/")]);
    let mandate = second.mandate();
    let leading = format!("{PREFIX}/{NAME}/");
    let led = entries
        .lines()
        .filter(|line| line.starts_with(&leading))
        .find(|key| ask(&servers, &["get", "--print-value-only", key]).trim() == "b");
    let began = std::time::Instant::now();
    ask(&servers, &["del", led.expect("its entry")]);
    let third = soon("elected", third.elected()).await.expect("elected");
    println!("after an unclean end: {:?}", began.elapsed());
    assert!(began.elapsed() >= DELAY, "{:?}", began.elapsed());
    assert!(third.mandate().token() > mandate.token());
    assert!(!mandate.is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_of_the_callers_serves_documents_and_lines() {
    use std::sync::Arc;
    let servers = require!(servers(1).await);
    let endpoint =
        tonic::transport::Endpoint::from_shared(format!("http://{}", servers[0].address()));
    let channel = endpoint.expect("an address").connect().await.expect("it is there");
    let store =
        tenure_stores::etcd::EtcdStore::from_channel(channel, PREFIX, Duration::from_secs(5));
    let queue = Arc::new(store.queue(LONG));
    let backend = Backend::new(Arc::new(store)).with_queue(queue);
    let election = enter(&backend).await;
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    let seen = enter(&process(&servers.addresses(), LONG).await).await;
    assert_eq!(names(&seen).await, ["a"]);
    leader.resign().await;
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

/// A key made by hand belongs to no session, and would block the queue for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_a_lease_in_the_line_blocks_nobody() {
    let servers = require!(servers(1).await);
    let backend = process(&servers.addresses(), LONG).await;
    let election = enter(&backend).await;
    for number in 0..2 {
        ask(&servers, &["put", &format!("{PREFIX}/{NAME}/by-hand-{number}"), "somebody"]);
    }
    let (_a, _, first) = lead(&servers.addresses(), LONG, "a").await;
    let (_b, _, mut second) = stand(&servers.addresses(), LONG, "b").await;
    ask(&servers, &["put", &format!("{PREFIX}/{NAME}/by-hand-2"), "somebody"]);
    let (_c, _, mut third) = stand(&servers.addresses(), LONG, "c").await;
    let all = election.candidates().await.expect("a list");
    let (by_hand, standing): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.stale);
    let standing: Vec<_> = standing.iter().map(|one| (one.position, &*one.name)).collect();
    assert_eq!(standing, [(Some(1), "a"), (Some(2), "b"), (Some(3), "c")]);
    let by_hand: Vec<_> = by_hand.iter().map(|one| (one.position, &*one.name)).collect();
    assert_eq!(by_hand, [(None, "by-hand-0"), (None, "by-hand-1"), (None, "by-hand-2")]);
    first.resign().await;
    let second = soon("b", second.elected()).await.expect("elected");
    second.resign().await;
    let third = soon("c", third.elected()).await.expect("elected");
    third.resign().await;
    soon("the election is deleted", election.delete()).await.expect("deleted");
}
