//! Standing, leading, leaving.

use std::time::Duration;

use tenure::queue::Queue;
use tenure::{Candidate, Election, Error, Loss, Resignation, Role};
use tenure_harness::require;

use crate::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_first_leads_first() {
    let server = require!(single().await);
    let mut referee = Referee::default();
    let mut programs = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..3 {
        let program = Program::at(&server.addresses(), CALM).await;
        waiting.push(program.stand(&format!("c{number}"), number).await);
        programs.push(program);
    }
    for (number, mut candidacy) in waiting.into_iter().enumerate() {
        let leader = soon("elected", candidacy.elected()).await.expect("elected");
        referee.saw(&leader);
        assert_eq!(programs[0].standing().await[0], format!("c{number}"));
        assert_eq!(leader.resign().await, Resignation::Released);
    }
    assert_eq!(programs[0].standing().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_election_is_not_made_unless_asked_for() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let refused = Election::open(&program.backend, NAME).await.expect_err("there is none");
    assert!(matches!(refused, Error::Missing { .. }), "{refused:?}");
    let deep = "a/b/c/d/e/f/g/h";
    let made = Election::builder(&program.backend, deep).create_if_missing(true).open().await;
    made.expect("any depth");
    Election::open(&program.backend, deep).await.expect("now it is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_leaves_in_the_middle_lets_nobody_lead_early() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let first = program.lead("first").await;
    let middle = program.stand("middle", 1).await;
    let mut last = program.stand("last", 2).await;
    middle.withdraw().await;
    assert_eq!(program.standing().await, ["first", "last"]);
    // The candidate behind the one that left looks again, and is behind the first now.
    let mut statuses = last.statuses();
    sees("it still waits", &mut statuses, |role| matches!(role, Role::Waiting)).await;
    assert!(first.mandate().is_leader());
    first.resign().await;
    let last = soon("elected", last.elected()).await.expect("elected");
    assert!(last.mandate().token() > first.mandate().token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fourth_leads_when_the_first_three_are_gone_at_once() {
    let server = require!(single().await);
    let before = Program::at(&server.addresses(), CALM).await;
    let first = before.lead("1").await;
    let second = before.stand("2", 1).await;
    let third = before.stand("3", 2).await;
    let program = Program::at(&server.addresses(), CALM).await;
    let mut fourth = program.stand("4", 3).await;
    let token = first.mandate().token();
    tokio::join!(first.resign(), second.withdraw(), third.withdraw());
    let fourth = soon("elected", fourth.elected()).await.expect("elected");
    assert!(fourth.mandate().token() > token);
    assert_eq!(program.standing().await, ["4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_knows_whom_it_follows_and_followed() {
    let server = require!(single().await);
    let leading = Program::at(&server.addresses(), CALM).await;
    let election = leading.election().await;
    let a = Candidate::new("a").and_then(|a| a.with_value("10.0.0.1:80")).expect("a candidate");
    let a = soon("elected", election.campaign(a)).await.expect("elected");
    let program = Program::at(&server.addresses(), CALM).await;
    let mut b = program.stand("b", 1).await;
    let c = program.stand("c", 2).await;
    until("b follows a", || async {
        b.status().follows.is_some_and(|leader| {
            &*leader.name == "a" && leader.value == "10.0.0.1:80" && leader.id == a.id()
        })
    })
    .await;
    // Other clients see the published value, in plain text.
    let operator = operator(server[0].address()).await;
    let (data, _) = operator.data(&nodes(&operator).await[0]).await.expect("it stands");
    assert!(data.starts_with(b"10.0.0.1:80\n"), "{}", String::from_utf8_lossy(&data));
    a.publish("10.0.0.2:80").expect("a short value");
    until("the next in the queue sees it", || async {
        b.status().follows.is_some_and(|leader| leader.value == "10.0.0.2:80")
    })
    .await;
    a.resign().await;
    let b = soon("elected", b.elected()).await.expect("elected");
    // Only the next in the queue hears of it at once. The other looks from time to time.
    until("c follows b", || async {
        let status = c.status();
        let names = |leader: Option<tenure::Leader>| leader.map(|leader| leader.name.to_string());
        names(status.follows).as_deref() == Some("b")
            && names(status.followed).as_deref() == Some("a")
    })
    .await;
    drop(b);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_an_operator_deletes_is_lost_and_may_stand_again() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let leader = program.lead("a").await;
    let other = Program::at(&server.addresses(), CALM).await;
    let mut waiting = other.stand("b", 1).await;
    let operator = operator(server[0].address()).await;
    operator.delete(&nodes(&operator).await[0], None).await.expect("deleted");
    assert_eq!(soon("it is told", leader.lost()).await, Loss::Vanished);
    assert!(!leader.mandate().is_leader());
    let second = soon("elected", waiting.elected()).await.expect("elected");
    let lost = leader.mandate();
    let mut regaining = tokio::spawn(leader.regain());
    let early = tokio::time::timeout(Duration::from_millis(300), &mut regaining).await;
    assert!(early.is_err(), "it stands behind the other");
    second.resign().await;
    let again = soon("elected again", regaining).await.expect("no panic").expect("elected");
    assert!(again.mandate().token() > lost.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_of_a_waiting_candidate_may_be_deleted_too() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let leader = program.lead("a").await;
    let mut waiting = program.stand("b", 1).await;
    let operator = operator(server[0].address()).await;
    let former = nodes(&operator).await[1].clone();
    operator.delete(&former, None).await.expect("deleted");
    until("it stands again", || async {
        let nodes = nodes(&operator).await;
        nodes.len() == 2 && nodes[1] != former
    })
    .await;
    leader.resign().await;
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_delay_passes_after_a_tenure_that_did_not_end_cleanly() {
    let delay = Duration::from_secs(3);
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let builder = Election::builder(&program.backend, NAME).lock_delay(delay);
    let election = builder.create_if_missing(true).open().await.expect("it opens");
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    let Queue::Open { unclean, .. } = program.look().await else { panic!("it is open") };
    assert_eq!(unclean, Some(leader.mandate().token()));
    let other = Program::at(&server.addresses(), CALM).await;
    let mut waiting = other.stand("b", 1).await;
    let operator = operator(server[0].address()).await;
    operator.delete(&nodes(&operator).await[0], None).await.expect("deleted");
    let began = std::time::Instant::now();
    let second = soon("elected", waiting.elected()).await.expect("elected");
    assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
    // A clean release costs the next leader nothing, and leaves nothing behind.
    second.resign().await;
    drop(leader);
    until("everybody has left", || async { program.standing().await.is_empty() }).await;
    let Queue::Open { unclean, .. } = program.look().await else { panic!("it is open") };
    assert_eq!(unclean, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_a_tenure_that_did_not_end_cleanly_outlives_its_generation() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let builder = || Election::builder(&program.backend, NAME).lock_delay(Duration::from_secs(3));
    let election = builder().create_if_missing(true).open().await.expect("it opens");
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    let token = leader.mandate().token();
    let operator = operator(server[0].address()).await;
    operator.delete(&nodes(&operator).await[0], None).await.expect("deleted");
    soon("told", leader.mandate().lost()).await;
    drop(leader);
    election.end().await.expect("it ends");
    until("nobody is left", || async { program.standing().await.is_empty() }).await;
    builder().create().await.expect("it is made anew");
    let Queue::Open { unclean, .. } = program.look().await else { panic!("it is open") };
    assert_eq!(unclean, Some(token));
}

/// A smoke test of the version in a long-lived Debian.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_follow_each_other_on_debians_server() {
    let options = tenure_harness::zookeeper::Options {
        version: tenure_harness::Version::Debian,
        ..options()
    };
    let server = require!(tenure_harness::Zookeeper::single(options).await);
    let program = Program::at(&server.addresses(), CALM).await;
    let first = program.lead("a").await;
    let other = Program::at(&server.addresses(), CALM).await;
    let mut waiting = other.stand("b", 1).await;
    soon("extended", first.mandate().renewed()).await;
    first.resign().await;
    let second = soon("elected", waiting.elected()).await.expect("elected");
    assert!(second.mandate().token() > first.mandate().token());
    second.end().await.expect("ended");
}
