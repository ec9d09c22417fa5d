//! `elect`: the leader hands over to a named feed.

// The names of the cases are their documentation.
#![allow(missing_docs)]

use tenure::feed::FeedError;

use super::case::{soon, until};
use super::{Case, Times};

/// Three feeds, of which `a` leads under token 1.
async fn three(case: &Case) -> [super::Member; 3] {
    let a = case.leading("a").await;
    let (b, c) = (case.started("b").await, case.started("c").await);
    for follower in [&b, &c] {
        follower.follows("a", 1).await;
    }
    [a, b, c]
}

/// Waits until a feed with this id is registered.
async fn registered(case: &Case, id: &str) {
    let store = case.open().await;
    let id = [format!("feeds/{id}")];
    until("it is registered", async || {
        store.read(case.table(), &id).await.expect("the database answers")[0].is_some()
    })
    .await;
}

pub async fn the_leader_hands_over_to_the_feed_that_is_named(case: &Case) {
    let [a, b, c] = three(case).await;
    registered(case, "c").await;
    assert!(soon("the hand-over", a.feed.elect("c")).await.expect("the database answers"));
    c.leads().await;
    assert_eq!(c.token(), Some(2));
    for follower in [&a, &b] {
        follower.follows("c", 2).await;
    }
}

pub async fn a_follower_may_ask_the_leader_to_hand_over(case: &Case) {
    let [a, b, c] = three(case).await;
    registered(case, "b").await;
    assert!(c.feed.elect("b").await.expect("the database answers"));
    b.leads().await;
    assert_eq!(b.token(), Some(2));
    a.follows("b", 2).await;
}

pub async fn an_id_that_is_not_registered_is_not_elected(case: &Case) {
    let [a, b, _c] = three(case).await;
    for asked in [&a, &b] {
        assert!(!asked.feed.elect("nobody").await.expect("the database answers"));
    }
    assert_eq!(a.token(), Some(1));
}

pub async fn a_feed_that_left_is_not_registered_any_more(case: &Case) {
    let [a, b, _c] = three(case).await;
    registered(case, "b").await;
    b.feed.stop().await;
    assert!(!a.feed.elect("b").await.expect("the database answers"));
    assert_eq!(a.token(), Some(1));
}

pub async fn electing_the_leader_changes_nothing(case: &Case) {
    let [a, b, _c] = three(case).await;
    registered(case, "a").await;
    for asked in [&a, &b] {
        assert!(asked.feed.elect("a").await.expect("the database answers"));
    }
    let beats = a.store.beats();
    until("another heartbeat", async || a.store.beats() > beats).await;
    assert_eq!(a.token(), Some(1));
}

pub async fn the_leader_stops_its_work_before_it_frees_the_record(case: &Case) {
    let [a, b, _c] = three(case).await;
    registered(case, "b").await;
    let working = a.feed.working().expect("it leads");
    let handing_over = a.feed.elect("b");
    let mut handing_over = std::pin::pin!(handing_over);
    let mandate = working.mandate().clone();
    tokio::select! {
        done = &mut handing_over => panic!("handed over before the work ended: {done:?}"),
        _ = soon("the work to be told to stop", mandate.lost()) => {}
    }
    assert!(a.feed.working().is_none(), "no new work begins");
    let beats = a.store.beats();
    tokio::select! {
        done = &mut handing_over => panic!("handed over before the work ended: {done:?}"),
        () = until("another heartbeat", async || a.store.beats() > beats) => {}
    }
    assert!(!b.feed.is_leader());
    assert_eq!(case.record().await.fields.get("value"), Some(&"a".into()));
    drop(working);
    assert!(soon("the hand-over", handing_over).await.expect("the database answers"));
    b.leads().await;
}

pub async fn others_hold_back_while_the_preferred_feed_is_away_and_then_lead(case: &Case) {
    let times = Times { heartbeat: std::time::Duration::from_secs(1), ..case.subject().times() };
    let times = Times { min: times.min * 2, max: times.max * 2, ..times };
    let a = case.leading_with("a", times).await;
    let b = case.started_with("b", times).await;
    let c = case.started_with("c", times).await;
    b.follows("a", 1).await;
    registered(case, "c").await;
    // The feed dies without leaving, and is still registered.
    c.store.cut();
    let asked = std::time::Instant::now();
    assert!(a.feed.elect("c").await.expect("the database answers"));
    until("somebody leads", async || a.feed.is_leader() || b.feed.is_leader()).await;
    let took = asked.elapsed();
    assert!(took >= times.min / 2, "they did not hold back: {took:?}");
    assert!(!c.feed.is_leader());
}

pub async fn a_feed_that_is_not_started_elects_nobody(case: &Case) {
    let a = case.member("a", Times::calm()).await;
    assert!(matches!(a.feed.elect("a").await, Err(FeedError::NotStarted)));
}
