//! Joining, leaving, restarting, and the changes that every feed shows.

// The names of the cases are their documentation.
#![allow(missing_docs)]

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::join_all;
use tenure::feed::{Event, FeedError, State};
use tenure::{Backend, Error};

use super::case::{soon, until};
use super::{Case, FaultyFeed, Member, Times};

pub async fn feeds_join_and_leave_and_somebody_always_leads(case: &Case) {
    let mut fleet = vec![case.leading("f0").await];
    for number in 1..4 {
        fleet.push(case.started(&format!("f{number}")).await);
    }
    let mut token = 1;
    while fleet.len() > 1 {
        let at = fleet.iter().position(|member| member.feed.is_leader()).expect("somebody leads");
        let leader = fleet.remove(at);
        let asked = std::time::Instant::now();
        leader.feed.stop().await;
        until("somebody leads", async || fleet.iter().any(|member| member.feed.is_leader())).await;
        // No feed waits for the lease of 30 s: leaving frees it.
        assert!(asked.elapsed() < Times::calm().min, "{:?}", asked.elapsed());
        let next = fleet.iter().find_map(super::Member::token).expect("somebody leads");
        assert!(next > token);
        token = next;
        let late = case.started(&format!("late-{token}")).await;
        until("it is told", async || late.leaders().last().is_some_and(|told| told.1 == token))
            .await;
        late.feed.stop().await;
    }
}

pub async fn a_feed_can_be_stopped_and_started_again(case: &Case) {
    let a = case.leading("a").await;
    a.feed.stop().await;
    a.feed.stop().await;
    assert!(!a.feed.is_leader());
    a.feed.start().await.expect("the feed starts");
    a.feed.start().await.expect("a started feed stays so");
    a.leads().await;
    assert_eq!(a.token(), Some(2));
    a.feed.restart().await.expect("the feed starts");
    a.leads().await;
    assert_eq!(a.token(), Some(3));
}

pub async fn a_feed_can_be_started_on_a_connection_of_the_callers(case: &Case) {
    let a = case.leading("a").await;
    let other = FaultyFeed::new(case.subject().open().await);
    a.feed.start_on(&Backend::memory().with_feed(other.clone())).await.expect("it starts");
    a.leads().await;
    assert_eq!(a.token(), Some(2));
    assert!(other.beats() > 0, "it writes through the other connection");
}

pub async fn every_feed_is_told_of_every_change(case: &Case) {
    let (a, b) = (case.leading("a").await, case.started("b").await);
    let mut stream = b.feed.events();
    for n in 1..=5 {
        case.write(&format!("order-{n}"), n).await;
    }
    for member in [&a, &b] {
        until("all changes are told", async || member.changes().len() >= 5).await;
        let expected: Vec<_> = (1..=5).map(|n| (format!("order-{n}"), Some(n))).collect();
        let mut told = case.understood(&member.changes());
        told.sort();
        assert_eq!(told, expected);
    }
    let mut streamed = 0;
    while streamed < 5 {
        if let Event::Change(_) = soon("a change", stream.next()).await.expect("it goes on") {
            streamed += 1;
        }
    }
}

pub async fn nothing_of_history_is_told_unless_it_is_asked_for(case: &Case) {
    case.open().await;
    case.write("old", 1).await;
    let a = case.started("a").await;
    case.write("new", 2).await;
    until("the change is told", async || !a.changes().is_empty()).await;
    assert_eq!(case.understood(&a.changes()), [("new".into(), Some(2))]);
    if !case.subject().shows_the_past() {
        return case.skip("the database cannot show what a table already holds");
    }
    let b = case.member_with("b", Times::calm(), |builder| builder.from_start(true)).await;
    b.feed.start().await.expect("the feed starts");
    until("both are told", async || b.changes().len() >= 2).await;
    let mut told = case.understood(&b.changes());
    told.sort();
    assert_eq!(told, [("new".into(), Some(2)), ("old".into(), Some(1))]);
}

pub async fn changes_go_on_after_an_error_of_the_feed(case: &Case) {
    let a = case.leading("a").await;
    a.store.deafen();
    a.tells("the error", |event| matches!(event, Event::SubscribeError(_))).await;
    a.forget();
    a.store.hear();
    a.tells("a new start", |event| matches!(event, Event::SubscribeStarted)).await;
    case.write("order-1", 1).await;
    until("the change is told", async || !a.changes().is_empty()).await;
    assert_eq!(case.understood(&a.changes()), [("order-1".into(), Some(1))]);
}

pub async fn a_missing_table_is_an_error_when_it_is_not_to_be_created(case: &Case) {
    let a = case.member_with("a", Times::calm(), |builder| builder.create_if_missing(false)).await;
    let error = a.feed.start().await.expect_err("there is no such table");
    assert!(matches!(error, FeedError::Election(Error::Store(_))), "{error:?}");
    case.open().await;
    a.feed.start().await.expect("now there is");
}

pub async fn a_deleted_record_ends_the_feed_with_an_error(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    case.subject().delete(case.table(), "leader").await;
    let error = soon("the feed to fail", a.feed.failed()).await;
    assert!(matches!(error, Error::Vanished), "{error:?}");
    until("a is a follower", async || a.states().last() == Some(&State::Follower)).await;
    a.tells("the error", |event| matches!(event, Event::HeartbeatError(Error::Vanished))).await;
}

/// The record is deleted while a follower is deaf. No candidacy of it sees that.
pub async fn a_feed_never_leads_with_a_token_that_it_has_seen(case: &Case) {
    let times = case.subject().times();
    case.leading_with("a", times).await.feed.stop().await;
    let (a, b) = leader_and_deaf_follower(case, 2).await;
    a.feed.stop().await;
    case.subject().delete(case.table(), "leader").await;
    b.store.hear();
    let error = soon("the feed to fail", b.feed.failed()).await;
    assert!(matches!(error, Error::Regressed { found: 1, known: 2 }), "{error:?}");
    assert_eq!(b.leaders(), [("a".into(), 2)], "it never led");
}

pub async fn another_leader_with_a_token_that_was_seen_ends_the_feed(case: &Case) {
    let (a, b) = leader_and_deaf_follower(case, 1).await;
    a.feed.stop().await;
    case.subject().delete(case.table(), "leader").await;
    let _c = case.leading_with("c", case.subject().times()).await;
    b.store.hear();
    let error = soon("the feed to fail", b.feed.failed()).await;
    assert!(matches!(error, Error::Regressed { found: 1, known: 1 }), "{error:?}");
}

async fn leader_and_deaf_follower(case: &Case, token: u64) -> (Member, Member) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    let b = case.started_with("b", times).await;
    b.follows("a", token).await;
    b.store.deafen();
    b.tells("the error", |event| matches!(event, Event::SubscribeError(_))).await;
    (a, b)
}

pub async fn a_record_that_makes_no_sense_is_told_and_left_alone(case: &Case) {
    case.open().await;
    case.write("leader", 1).await;
    let a = case.started("a").await;
    a.tells("the record", |event| matches!(event, Event::HeartbeatError(Error::Record { .. })))
        .await;
    assert!(!a.feed.is_leader());
    case.subject().delete(case.table(), "leader").await;
    a.leads().await;
    assert_eq!((a.token(), a.changes()), (Some(1), Vec::new()));
}

pub async fn a_dropped_feed_leaves(case: &Case) {
    let a = case.leading("a").await;
    let b = case.started("b").await;
    b.follows("a", 1).await;
    let mandate = a.feed.mandate().expect("it leads");
    drop(Arc::into_inner(a.feed).expect("nobody else has it"));
    assert!(!mandate.is_leader(), "its mandates end at once");
    b.leads().await;
    assert_eq!(b.token(), Some(2));
}

pub async fn twenty_feeds_agree_on_their_leaders(case: &Case) {
    let fleet =
        join_all((0..20).map(|n| async move { case.started(&format!("f{n}")).await })).await;
    until("all follow", async || fleet.iter().all(|member| !member.leaders().is_empty())).await;
    let first = fleet[0].leaders();
    assert!(fleet.iter().all(|member| member.leaders() == first), "{first:?}");
    assert_eq!(fleet.iter().filter(|member| member.feed.is_leader()).count(), 1);
}
