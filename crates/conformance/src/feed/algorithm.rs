//! Each rule of the algorithm: when a feed follows, leads, and changes.

// The names of the cases are their documentation.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use tenure::feed::{Event, State};

use super::case::until;
use super::{Case, Times};

pub async fn all_start_as_followers(case: &Case) {
    let a = case.started("a").await;
    a.leads().await;
    let told: Vec<String> = a.told().iter().map(Event::to_json).collect();
    assert_eq!(
        told,
        [
            r#"{"event":"subscribe started"}"#,
            r#"{"event":"new state","state":"follower"}"#,
            r#"{"event":"new state","state":"leader"}"#,
            r#"{"event":"new leader","leader":"a","token":1}"#,
        ]
    );
}

pub async fn the_leaders_document_is_what_people_read(case: &Case) {
    let a = case.leading("host-a").await;
    let record = case.record().await.fields;
    let text = |name: &str| record.get(name).and_then(|value| value.as_str().map(str::to_owned));
    assert_eq!(text("id").as_deref(), Some("leader"));
    assert_eq!(text("value").as_deref(), Some("host-a"));
    assert_eq!(text("state").as_deref(), Some("held"));
    assert!(text("op").is_some() && text("holder").is_some());
    for number in ["timestamp", "token", "ttl", "generation", "revision"] {
        assert!(record.get(number).is_some_and(serde_json::Value::is_u64), "{number}: {record:?}");
    }
    assert_eq!(record.get("token").and_then(serde_json::Value::as_u64), a.token());
    assert_eq!(record.get("ttl"), Some(&30_000.into()));
}

pub async fn a_follower_elects_itself_under_a_higher_token_when_heartbeats_stop(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    let b = case.started_with("b", times).await;
    b.follows("a", 1).await;
    a.store.cut();
    let cut = Instant::now();
    b.leads().await;
    let (took, token) = (cut.elapsed(), b.token());
    assert_eq!(token, Some(2));
    assert!(!a.feed.is_leader());
    // The last heartbeat may have been sent up to an interval before. The rest is for a busy
    // machine.
    let least = times.min - times.heartbeat * 2;
    let most = times.max * 5 / 4 + Duration::from_secs(10);
    assert!(took > least && took < most, "{took:?}");
}

pub async fn a_heartbeat_of_another_leader_makes_a_follower(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    let b = case.started_with("b", times).await;
    b.follows("a", 1).await;
    a.store.cut();
    b.leads().await;
    a.store.heal();
    a.follows("b", 2).await;
    assert_eq!(a.states().last(), Some(&State::Follower));
    assert!(b.feed.is_leader());
}

pub async fn a_leader_whose_heartbeats_fail_tells_so_and_stops_in_time(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    let mandate = a.feed.mandate().expect("it leads");
    a.store.cut();
    a.tells("a heartbeat error", |event| matches!(event, Event::HeartbeatError(_))).await;
    until("a is a follower", async || a.states().last() == Some(&State::Follower)).await;
    assert!(mandate.must_stop().is_some());
}

pub async fn an_error_of_the_feed_makes_a_follower_until_the_feed_is_back(case: &Case) {
    let a = case.leading("a").await;
    let token = a.token().expect("it leads");
    a.forget();
    a.store.deafen();
    a.tells("the error", |event| matches!(event, Event::SubscribeError(_))).await;
    until("a is a follower", async || a.states().last() == Some(&State::Follower)).await;
    until("the record is free", async || {
        case.record().await.fields.get("state") == Some(&"free".into())
    })
    .await;
    assert!(!a.feed.is_leader());
    a.store.hear();
    a.tells("a new start", |event| matches!(event, Event::SubscribeStarted)).await;
    a.leads().await;
    assert!(a.token() > Some(token), "{:?}", a.token());
}

pub async fn a_claim_whose_answer_is_lost_is_found_by_reading(case: &Case) {
    let a = case.member("a", Times::calm()).await;
    a.store.lose_next_answer();
    a.feed.start().await.expect("the feed starts");
    a.leads().await;
    assert_eq!(a.token(), Some(1));
    a.tells("the error", |event| matches!(event, Event::HeartbeatError(_))).await;
}

pub async fn heartbeats_whose_answers_are_lost_keep_the_leader(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    for _ in 0..3 {
        let beats = a.store.beats();
        a.store.lose_next_answer();
        until("the next heartbeat", async || a.store.beats() > beats).await;
    }
    let beats = a.store.beats();
    until("two more heartbeats", async || a.store.beats() > beats + 1).await;
    assert_eq!(a.token(), Some(1));
    assert_eq!(a.states(), [State::Follower, State::Leader]);
}

pub async fn followers_read_nothing_while_heartbeats_are_shown(case: &Case) {
    let times = case.subject().times();
    let a = case.leading_with("a", times).await;
    let b = case.started_with("b", times).await;
    b.follows("a", 1).await;
    let beats = a.store.beats();
    until("a heartbeat", async || a.store.beats() > beats).await;
    let (beats, reads) = (a.store.beats(), b.store.reads());
    // Longer than a follower without heartbeats takes to elect itself.
    let many = u64::try_from(times.max.as_millis() / times.heartbeat.as_millis()).expect("small");
    until("many heartbeats", async || a.store.beats() > beats + many).await;
    let reads = b.store.reads() - reads;
    assert!(reads <= 1, "{reads} reads during {many} heartbeats");
    assert_eq!((a.token(), b.store.beats()), (Some(1), 0));
}

pub async fn time_outs_of_other_feeds_do_not_shorten_a_leaders_lease(case: &Case) {
    let times = case.subject().times();
    let patient = Times { min: times.min * 3, max: times.max * 3, ..times };
    let a = case.leading_with("a", patient).await;
    let b = case.started_with("b", times).await;
    b.follows("a", 1).await;
    a.store.cut();
    let cut = Instant::now();
    b.leads().await;
    let took = cut.elapsed();
    assert!(took > patient.min - times.heartbeat * 2, "{took:?}");
}
