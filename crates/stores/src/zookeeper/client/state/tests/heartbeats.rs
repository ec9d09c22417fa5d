//! Tests of heartbeats, and of what an answer proves.

use tenure::queue::window::Kind;

use super::super::requests::NOWHERE;
use super::*;

#[test]
fn a_write_that_one_server_refuses_proves_nothing() {
    for (code, proves) in [
        (0, true),
        (-101, true),
        (-103, true),
        (-110, true),
        (-111, true),
        (-102, false),
        (-127, false),
        (-5, false),
    ] {
        let mut state = connected();
        let _asked = state.ask(write(), false);
        sent(&mut state, at(1));
        state.receive(at(2), &head(1, code)).expect("an answer");
        assert_eq!(state.window.proof().is_some(), proves, "{code}");
    }
}

#[test]
fn a_heartbeat_asks_for_no_permission_and_is_refused_by_a_quorum() {
    let mut state = connected();
    state.leads(true);
    let mut out = Vec::new();
    state.beat(at(1), &mut out);
    let check = Request::Multi(vec![Request::Check { path: NOWHERE.to_owned(), version: -1 }]);
    let mut expected = Vec::new();
    check.write(&mut expected, 1);
    assert_eq!(out, expected);
    state.receive(at(2), &head(1, -127)).expect("an answer");
    assert_eq!(state.window.proof(), None, "one server refused to ask the others");
    state.beat(at(700), &mut out);
    state.receive(at(701), &refused(2, &[-101])).expect("an answer");
    assert!(state.window.proof().is_some());
}

#[test]
fn a_heartbeat_in_whose_answer_the_leader_disowns_the_session_ends_the_connection() {
    for (code, end) in [(-112, End::Expired), (-118, End::Lost("the session moved".to_owned()))] {
        let mut state = connected();
        state.leads(true);
        state.beat(at(1), &mut Vec::new());
        assert_eq!(state.receive(at(2), &refused(1, &[code])), Err(end));
        assert_eq!(state.window.proof(), None, "and it proves nothing");
    }
}

#[test]
fn a_leader_writes_every_eighth_whatever_else_is_sent() {
    let mut state = connected();
    state.leads(true);
    let mut out = Vec::new();
    state.beat(at(1), &mut out);
    assert_eq!(state.flying.len(), 1, "at once");
    state.receive(at(2), &refused(1, &[-101])).expect("an answer");
    assert!(state.window.proof().is_some());
    for millis in (100..1200).step_by(100) {
        let _asked = state.ask(read("/a"), false);
        sent(&mut state, at(millis));
    }
    assert_eq!(state.until_beat(at(1200)), Duration::from_millis(51));
    state.beat(at(1251), &mut out);
    let last = state.flying.back().map(|flying| flying.number);
    assert_eq!(state.window.until_write(at(1251)), TTL / 8);
    assert_eq!(last, Some(state.requests));
}

/// Regression: each answer was followed by the next write at once, which is a storm against a
/// server that has too much to do.
#[test]
fn a_leader_whose_server_throttles_writes_no_more_often_than_it_beats() {
    let mut state = connected();
    state.leads(true);
    let mut writes = Vec::new();
    for millis in 1..10_000 {
        let before = state.requests;
        state.beat(at(millis), &mut Vec::new());
        if state.requests > before {
            let kind = state.flying.back().map(|flying| flying.kind);
            writes.extend((kind == Some(Kind::Write)).then_some(millis));
            state.receive(at(millis), &head(state.requests, -127)).expect("an answer");
            assert!(!state.until_beat(at(millis)).is_zero(), "at {millis}");
        }
    }
    assert!(writes.len() >= 15, "it goes on: {writes:?}");
    assert!(writes.windows(2).all(|two| two[1] - two[0] >= 625), "{writes:?}");
}
