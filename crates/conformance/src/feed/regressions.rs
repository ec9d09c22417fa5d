//! Known faults of leaderfeed, one case each. Feeds keep the table format of that library.

// The names of the cases are their documentation.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tenure::feed::{Event, Feed, FeedError, Item, State};
use tenure::{Backend, Error};

use super::case::{soon, until};
use super::{Case, FaultyFeed, Times};

/// In leaderfeed, two feeds that started together both elected themselves.
pub async fn feeds_that_start_together_have_one_leader(case: &Case) {
    let fleet =
        join_all((0..8).map(|n| async move { case.member(&format!("f{n}"), Times::calm()).await }))
            .await;
    let starts = join_all(fleet.iter().map(|member| member.feed.start())).await;
    assert!(starts.iter().all(Result::is_ok), "{starts:?}");
    until("all are told who leads", async || fleet.iter().all(|m| !m.leaders().is_empty())).await;
    let leaders: Vec<&str> =
        fleet.iter().filter(|m| m.feed.is_leader()).map(|m| m.feed.id()).collect();
    assert_eq!(leaders.len(), 1, "{leaders:?}");
    for member in &fleet {
        assert_eq!(member.leaders(), [(leaders[0].to_owned(), 1)], "{}", member.feed.id());
    }
}

/// In leaderfeed, leadership was announced when the write was sent.
pub async fn leadership_is_announced_only_after_the_write_is_committed(case: &Case) {
    let a = case.member("a", Times::calm()).await;
    let mut held = a.store.hold_next_answer();
    a.feed.start().await.expect("the feed starts");
    soon("the claim", held.arrived()).await;
    // The write is applied, but its answer is held back.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!a.feed.is_leader() && a.feed.working().is_none());
    assert_eq!((a.states(), a.leaders()), (vec![State::Follower], Vec::new()));
    held.release();
    a.leads().await;
    assert_eq!(a.leaders(), [("a".into(), 1)]);
}

/// In leaderfeed, a late heartbeat of an earlier leader demoted the present one. Then no feed led.
pub async fn a_late_heartbeat_of_an_earlier_leader_demotes_nobody(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    let old = case.record().await;
    a.feed.stop().await;
    let b = case.leading_with("b", times).await;
    let c = case.started_with("c", times).await;
    c.follows("b", 2).await;
    for member in [&b, &c] {
        member.forget();
        member.store.inject(Item::Leader(Some(old.clone())));
    }
    let beats = b.store.beats();
    until("some heartbeats", async || b.store.beats() > beats + 2).await;
    assert_eq!(b.token(), Some(2));
    for member in [&b, &c] {
        assert_eq!((member.states(), member.leaders()), (Vec::new(), Vec::new()));
    }
}

/// In leaderfeed, a follower with a failed feed elected itself. It saw no heartbeats.
pub async fn a_deaf_follower_does_not_elect_itself(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    let b = case.started_with("b", times).await;
    b.follows("a", 1).await;
    b.store.deafen();
    b.tells("the error", |event| matches!(event, Event::SubscribeError(_))).await;
    a.feed.stop().await;
    // Longer than it waits for heartbeats, and longer than it goes without reading the record.
    let (beats, deaf) = (b.store.beats(), Instant::now());
    until("its time-outs have passed", async || deaf.elapsed() > times.max * 3 / 2).await;
    assert!(!b.feed.is_leader());
    assert_eq!(b.store.beats(), beats, "it does not even try");
    assert_eq!(case.record().await.fields.get("state"), Some(&"free".into()));
    b.store.hear();
    b.leads().await;
    assert_eq!(b.token(), Some(2));
}

/// The same for a feed that fell silent without an error.
pub async fn a_follower_whose_feed_is_silent_deposes_nobody(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    let b = case.started_with("b", times).await;
    b.follows("a", 1).await;
    b.store.mute();
    let muted = Instant::now();
    until("its time-outs have passed", async || muted.elapsed() > times.max * 3 / 2).await;
    assert_eq!((a.token(), b.token()), (Some(1), None));
    assert_eq!(a.states(), [State::Follower, State::Leader]);
}

/// In leaderfeed, a leader that was stopped still believed that it led.
pub async fn a_stopped_leader_is_a_follower_and_has_said_so(case: &Case) {
    let a = case.leading("a").await;
    let mandate = a.feed.mandate().expect("it leads");
    a.feed.stop().await;
    assert!(!a.feed.is_leader() && !mandate.is_leader());
    assert_eq!(a.feed.state(), State::Follower);
    assert_eq!(a.states(), [State::Follower, State::Leader, State::Follower]);
    let record = case.record().await.fields;
    assert_eq!(record.get("state"), Some(&"free".into()));
    assert_eq!(record.get("value"), Some(&serde_json::Value::Null));
}

/// In leaderfeed, a start after an error never returned, and neither did the next.
pub async fn a_start_that_fails_says_so_and_the_next_one_works(case: &Case) {
    let a = case.member("a", Times::calm()).await;
    a.store.cut();
    for _ in 0..2 {
        let error = soon("an answer", a.feed.start()).await.expect_err("the database is away");
        assert!(matches!(error, FeedError::Election(Error::Store(_))), "{error:?}");
        soon("nothing to stop", a.feed.stop()).await;
    }
    a.store.heal();
    a.store.deafen();
    soon("an answer", a.feed.start()).await.expect_err("the table cannot be followed");
    a.store.hear();
    soon("the start", a.feed.start()).await.expect("the database is back");
    a.leads().await;
}

/// In leaderfeed, a feed wrote its defaults into its options. The next feed found them.
pub async fn feeds_from_the_same_options_do_not_share_them(case: &Case) {
    case.open().await;
    let open = async || FaultyFeed::new(case.subject().open().await);
    let (one, other) = (open().await, open().await);
    let options = Feed::builder(&Backend::memory().with_feed(one)).table(case.table());
    let slow = options.clone().heartbeat_interval(Duration::from_secs(5));
    let (first, second) = (options.clone().build(), options.build());
    let (first, second) = (first.expect("good settings"), second.expect("good settings"));
    assert_ne!(first.id(), second.id());
    assert_eq!(first.timing(), second.timing());
    let third = slow.build().expect("good settings");
    assert_eq!(third.timing().heartbeat(), Duration::from_secs(5));
    assert_eq!(first.timing().heartbeat(), Duration::from_secs(1));
    let elsewhere = Backend::memory().with_feed(other.clone());
    second.start_on(&elsewhere).await.expect("it starts");
    until("it leads", async || second.is_leader()).await;
    assert!(!first.is_leader());
    second.stop().await;
}

/// In leaderfeed, `new leader` was emitted for every leader but the first.
pub async fn the_first_leader_is_told_to_everybody_itself_included(case: &Case) {
    let (a, b) = (case.leading("a").await, case.started("b").await);
    b.follows("a", 1).await;
    for member in [&a, &b] {
        assert_eq!(member.leaders(), [("a".into(), 1)]);
    }
    let late = case.started("late").await;
    late.follows("a", 1).await;
    assert_eq!(late.leaders(), [("a".into(), 1)]);
}

/// In leaderfeed, the deletion of a document of its own was shown as a change.
pub async fn a_deletion_of_metadata_is_no_change(case: &Case) {
    let (a, b) = (case.leading("a").await, case.started("b").await);
    let ghost = case.started("ghost").await;
    for member in [&b, &ghost] {
        member.follows("a", 1).await;
    }
    let store = case.open().await;
    let id = ["feeds/ghost".to_owned()];
    let there = async || store.read(case.table(), &id).await.expect("an answer")[0].is_some();
    until("it is registered", &there).await;
    ghost.feed.stop().await;
    assert!(!there().await, "its document is deleted");
    case.write("order-1", 1).await;
    for member in [&a, &b] {
        until("the change is told", async || !member.changes().is_empty()).await;
        assert_eq!(case.understood(&member.changes()), [("order-1".into(), Some(1))]);
    }
}
