//! Tests of sessions, and of the connections that they live on.

use super::*;

#[test]
fn a_handshake_names_the_newest_transaction_that_was_seen() {
    let mut state = connected();
    let _asked = state.ask(read("/a"), false);
    sent(&mut state, at(1));
    // The answer's head carries transaction 99.
    state.receive(at(2), &head(1, 0)).expect("an answer");
    state.ended();
    let mut greeting = Vec::new();
    state.greet(&mut greeting);
    let mut expected = Vec::new();
    wire::connect(&mut expected, 99, TTL, 7, &[1; 16]);
    assert_eq!(greeting, expected, "a server that lags behind must refuse us");
}

#[test]
fn a_session_is_given_up_a_quarter_of_its_time_after_every_server_has_let_go() {
    let mut state = State::new(TTL);
    assert!(!state.is_forgotten(at(1_000_000)), "there is none");
    // The moment before the handshake counts.
    state.accepted(7, vec![1; 16], TTL, at(1000));
    assert!(!state.is_forgotten(at(13_499)));
    assert!(state.is_forgotten(at(13_500)));
    let _asked = state.ask(read("/a"), false);
    sent(&mut state, at(1001));
    state.receive(at(3000), &head(1, 0)).expect("an answer");
    assert!(!state.is_forgotten(at(15_499)), "an answer restarts the clock");
    assert!(state.is_forgotten(at(15_500)));
    let slept = Moment { boot: Duration::from_secs(60), monotonic: Duration::from_secs(4) };
    assert!(!state.is_forgotten(slept), "one of the clocks says that it is early");
    state.ended();
    state.forget();
    assert!(!state.is_forgotten(at(1_000_000)), "once is enough");
    let (mut greeting, mut expected) = (Vec::new(), Vec::new());
    state.greet(&mut greeting);
    wire::connect(&mut expected, 0, TTL, 0, &[0; 16]);
    assert_eq!(greeting, expected, "servers that were rebuilt accept it");
}

#[test]
fn a_server_that_reads_nodes_one_by_one_only_is_asked_for_many_once() {
    let mut state = connected();
    let mut asked = [state.ask(read("/a"), false), state.ask(many(), false)];
    assert!(state.reads_many());
    assert_eq!(sent(&mut state, at(1)), [(1, 3), (2, 22)]);
    // 3.5 answers like this: before the answer to an earlier request.
    let ended = state.receive(at(2), &head(2, -6)).expect_err("the server closes it");
    assert!(matches!(ended, End::Lost(_)), "{ended:?}");
    state.ended();
    for asked in &mut asked {
        assert_eq!(asked.try_recv().expect("told").expect_err("lost"), Error::Lost);
    }
    for _ in 0..3 {
        state.accepted(7, vec![1; 16], TTL, at(3));
        assert!(!state.reads_many());
        state.ended();
    }
}

#[test]
fn a_connection_that_ended_over_its_first_reading_of_many_is_followed_by_one_without() {
    let mut state = connected();
    let _asked = state.ask(many(), false);
    sent(&mut state, at(1));
    state.ended();
    assert!(!state.reads_many());
    state.accepted(7, vec![1; 16], TTL, at(2));
    assert!(!state.reads_many(), "not the next one");
    state.ended();
    state.accepted(7, vec![1; 16], TTL, at(3));
    assert!(state.reads_many(), "but the one after that");
    // Once it was answered, a connection ends for other reasons.
    let _asked = [state.ask(many(), false), state.ask(many(), false)];
    sent(&mut state, at(4));
    state.receive(at(5), &head(1, 0)).expect("an answer");
    state.ended();
    state.accepted(7, vec![1; 16], TTL, at(6));
    assert!(state.reads_many());
}

#[test]
fn a_session_that_is_over_or_moved_is_no_answer() {
    for (code, end) in [(-112, End::Expired), (-118, End::Lost("the session moved".to_owned()))] {
        let mut state = connected();
        let mut asked = state.ask(Request::Delete { path: "/a".into(), version: -1 }, false);
        sent(&mut state, at(1));
        assert_eq!(state.receive(at(2), &head(1, code)), Err(end));
        assert!(asked.try_recv().is_err());
        assert_eq!(state.window.proof(), None, "and it proves nothing");
    }
}

#[test]
fn another_session_has_another_number_and_no_proof() {
    let mut state = connected();
    let _asked = state.ask(Request::Delete { path: "/a".into(), version: -1 }, false);
    sent(&mut state, at(1));
    state.receive(at(2), &head(1, 0)).expect("an answer");
    let first = state.session(|proof| Life::Live { proof });
    assert!(first.proof().is_some());
    state.ended();
    let suspended = state.session(|proof| Life::Suspended { proof });
    assert_eq!(suspended.proof(), first.proof(), "what was proven stays proven");
    state.accepted(7, vec![1; 16], TTL, at(3));
    let back = state.session(|proof| Life::Live { proof });
    assert_eq!((back.number, back.connection), (first.number, first.connection + 1));
    assert_eq!(back.proof(), first.proof());
    state.ended();
    state.expired();
    assert_eq!(state.session(|_| Life::Over).proof(), None);
    state.accepted(8, vec![2; 16], TTL, at(4));
    let other = state.session(|proof| Life::Live { proof });
    assert_eq!((other.number, other.proof()), (first.number + 1, None));
}
