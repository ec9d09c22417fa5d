//! Tests of requests, and of the answers that their callers get.

use super::*;

#[test]
fn what_was_not_sent_is_refused_and_what_was_not_answered_is_lost() {
    let mut state = connected();
    let mut first = state.ask(read("/a"), false);
    sent(&mut state, at(1));
    let mut second = state.ask(read("/b"), false);
    let mut joined = join(&mut state, "/e");
    let [mut queue, _own] = state.list("/e".into(), true);
    state.ended();
    assert_eq!(first.try_recv().expect("told").expect_err("lost"), Error::Lost);
    assert_eq!(second.try_recv().expect("told").expect_err("unsent"), Error::Unsent);
    assert_eq!(joined.try_recv().expect("told").expect_err("unsent"), Error::Unsent);
    assert_eq!(queue.try_recv().expect("told").expect_err("unsent"), Error::Unsent);
    let mut later = state.ask(read("/c"), false);
    assert_eq!(later.try_recv().expect("told").expect_err("unsent"), Error::Unsent);
    state.accepted(7, vec![1; 16], TTL, at(9));
    assert_eq!(sent(&mut state, at(10)), [], "nothing of the old connection is left");
}

#[test]
fn what_nobody_waits_for_any_more_is_not_sent() {
    let mut state = connected();
    drop(state.ask(read("/a"), false));
    drop(join(&mut state, "/e"));
    assert_eq!(sent(&mut state, at(1)), []);
}

#[test]
fn one_reading_serves_all_who_asked_before_it_was_sent_behind_their_barrier() {
    let mut state = connected();
    let mut asked: Vec<_> = (0..3).map(|_| state.list("/e".into(), true)).collect();
    asked.push(state.list("/e".into(), false));
    // A barrier with the queue and its own node for those that asked for one. Then both again,
    // without.
    let codes =
        |requests: Vec<(i32, i32)>| requests.into_iter().map(|(_, code)| code).collect::<Vec<_>>();
    assert_eq!(codes(sent(&mut state, at(1))), [14, 12, 4, 12, 4]);
    // A caller that asks now wants a newer queue.
    asked.push(state.list("/e".into(), true));
    assert_eq!(codes(sent(&mut state, at(2))), [14, 12, 4]);
    state.receive(at(3), &refused(1, &[-101])).expect("the barrier's answer");
    state.receive(at(3), &head(2, -101)).expect("an answer");
    for [queue, _] in &mut asked[..3] {
        assert_eq!(queue.try_recv().expect("told").expect_err("refused"), Error::NoNode);
    }
    assert!(asked[3][0].try_recv().is_err() && asked[4][0].try_recv().is_err());
}

#[test]
fn answers_out_of_order_end_the_connection() {
    let mut state = connected();
    let _asked = [state.ask(read("/a"), false), state.ask(read("/b"), false)];
    sent(&mut state, at(1));
    assert_eq!(state.receive(at(2), &head(2, 0)), Err(End::Malformed));
}

#[test]
fn a_queue_behind_a_barrier_that_no_quorum_took_fails() {
    let mut state = connected();
    let [mut queue, mut own] = state.list("/e".into(), true);
    let [mut plain, _] = state.list("/e".into(), false);
    sent(&mut state, at(1));
    state.receive(at(2), &head(1, -127)).expect("the barrier is throttled");
    for number in 2..=5 {
        state.receive(at(2), &head(number, 0)).expect("the reads are not");
    }
    for answer in [&mut queue, &mut own] {
        assert_eq!(answer.try_recv().expect("told").expect_err("cut off?"), Error::Unproven);
    }
    assert!(plain.try_recv().expect("told").is_ok(), "it asked for no barrier");
    let [mut queue, _] = state.list("/e".into(), true);
    sent(&mut state, at(3));
    state.receive(at(4), &refused(6, &[-101])).expect("a quorum took the next one");
    state.receive(at(4), &head(7, 0)).expect("an answer");
    assert!(queue.try_recv().expect("told").is_ok());
}

#[test]
fn readings_behind_a_barrier_share_it_and_fail_with_it() {
    let mut state = connected();
    let mut asked: Vec<_> = (0..3).map(|_| state.ask(read("/a"), true)).collect();
    let codes: Vec<i32> = sent(&mut state, at(1)).into_iter().map(|(_, code)| code).collect();
    assert_eq!(codes, [14, 3, 3, 3], "one write for all of them");
    state.receive(at(2), &head(1, -127)).expect("it is throttled");
    for (number, asked) in (2..).zip(&mut asked) {
        state.receive(at(2), &head(number, 0)).expect("an answer");
        assert_eq!(asked.try_recv().expect("told").expect_err("unproven"), Error::Unproven);
    }
    let mut next = state.ask(read("/a"), true);
    sent(&mut state, at(3));
    state.receive(at(4), &refused(5, &[-101])).expect("a quorum took it");
    state.receive(at(4), &head(6, 0)).expect("an answer");
    assert!(next.try_recv().expect("told").is_ok());
}

#[test]
fn a_write_that_is_not_permitted_may_be_refused_before_its_turn() {
    let mut state = connected();
    let mut asked =
        [state.ask(read("/a"), false), state.ask(write(), false), state.ask(read("/b"), false)];
    sent(&mut state, at(1));
    // Servers with `enableEagerACLCheck` answer like this.
    state.receive(at(2), &head(2, -102)).expect("an answer");
    assert_eq!(asked[1].try_recv().expect("told").expect_err("refused"), Error::Denied);
    assert_eq!(state.flying.len(), 2);
    state.receive(at(3), &head(1, 0)).expect("an answer");
    state.receive(at(3), &head(3, 0)).expect("an answer");
    assert!(asked[0].try_recv().expect("told").is_ok());
    assert!(asked[2].try_recv().expect("told").is_ok());
    assert_eq!((state.weight, state.window.waited(at(9))), (0, None), "nothing is left");
}

#[test]
fn slow_answers_let_less_fly() {
    let mut state = connected();
    let asked: Vec<_> = (0..200).map(|_| state.ask(read("/a"), false)).collect();
    assert_eq!(sent(&mut state, at(0)).len(), FIRST_FLYING);
    // All answers are late. That counts as one sign, not as one for each answer.
    for number in 1..=FIRST_FLYING {
        state.receive(at(600), &head(i32::try_from(number).expect("few"), 0)).expect("an answer");
    }
    assert_eq!(sent(&mut state, at(600)).len(), FIRST_FLYING / 2);
    drop(asked);
}
