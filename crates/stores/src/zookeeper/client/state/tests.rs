//! Tests against a server that exists only as bytes.

use bytes::BufMut;
use proptest::prelude::*;

use super::super::super::wire::{Acl, Lifetime};
use super::*;

const TTL: Duration = Duration::from_secs(10);

fn at(millis: u64) -> Moment {
    Moment::default() + Duration::from_millis(millis)
}

fn connected() -> State {
    let mut state = State::new(TTL);
    state.accepted(7, vec![1; 16], TTL, at(0));
    state
}

fn read(path: &str) -> Request {
    Request::Exists { path: path.into(), watch: false }
}

fn entry(root: &str) -> Request {
    let (lifetime, acl) = (Lifetime::EphemeralSequential, Acl::open());
    Request::Create { path: format!("{root}/n-"), data: Bytes::new(), lifetime, acl }
}

fn join(state: &mut State, root: &str) -> oneshot::Receiver<Result<Made, Error>> {
    let (reply, made) = oneshot::channel();
    state.join(Join { root: root.into(), entry: entry(root), alone: false, reply });
    made
}

/// The numbers and codes of the requests that were sent.
fn sent(state: &mut State, now: Moment) -> Vec<(i32, i32)> {
    let mut out = Vec::new();
    state.send(now, &mut out);
    let mut requests = Vec::new();
    let mut rest = out.as_slice();
    while let Some((length, body)) = rest.split_first_chunk::<4>() {
        let (body, after) = body.split_at(u32::from_be_bytes(*length) as usize);
        let mut reader = Reader::new(body);
        requests.push((reader.int().expect("a number"), reader.int().expect("a code")));
        rest = after;
    }
    requests
}

fn head(number: i32, code: i32) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(number);
    frame.put_i64(99);
    frame.put_i32(code);
    frame
}

fn stat(out: &mut Vec<u8>, created: i64) {
    out.put_i64(created);
    out.put_slice(&[0; 60]);
}

/// The answer to a transaction that created this many nodes.
fn created(number: i32, count: usize) -> Vec<u8> {
    let mut frame = head(number, 0);
    for _ in 0..count {
        frame.put_i32(15);
        frame.put_u8(0);
        frame.put_i32(-1);
        frame.put_i32(2);
        frame.put_slice(b"/x");
        stat(&mut frame, 42);
    }
    frame.put_i32(-1);
    frame.put_u8(1);
    frame.put_i32(-1);
    frame
}

/// The answer to a transaction that was refused.
fn refused(number: i32, codes: &[i32]) -> Vec<u8> {
    let mut frame = head(number, 0);
    for code in codes {
        frame.put_i32(-1);
        frame.put_u8(0);
        frame.put_i32(*code);
        frame.put_i32(*code);
    }
    frame.put_i32(-1);
    frame.put_u8(1);
    frame.put_i32(-1);
    frame
}

#[test]
fn entries_of_many_elections_are_created_together_and_before_anything_else() {
    let mut state = connected();
    let _read = state.ask(read("/a"), false);
    let mut made: Vec<_> = (0..3).map(|number| join(&mut state, &format!("/e{number}"))).collect();
    // A second one in the same election would have the same token.
    let mut again = join(&mut state, "/e0");
    let requests = sent(&mut state, at(1));
    assert_eq!(requests, [(1, 14), (2, 15), (3, 3)]);
    state.receive(at(2), &created(1, 3)).expect("an answer");
    for made in &mut made {
        let made = made.try_recv().expect("answered").expect("created");
        assert_eq!((made.stat.created, made.session), (42, 1));
    }
    assert!(again.try_recv().is_err(), "not yet");
}

#[test]
fn entries_are_created_one_by_one_where_those_of_a_transaction_are_not_told_their_tokens() {
    let mut state = connected();
    let mut made: Vec<_> = (0..2).map(|number| join(&mut state, &format!("/e{number}"))).collect();
    assert_eq!(sent(&mut state, at(1)), [(1, 14)]);
    let mut answer = head(1, 0);
    for _ in 0..2 {
        answer.put_i32(1);
        answer.put_u8(0);
        answer.put_i32(0);
        answer.put_i32(2);
        answer.put_slice(b"/x");
    }
    answer.put_i32(-1);
    answer.put_u8(1);
    answer.put_i32(-1);
    state.receive(at(2), &answer).expect("an answer");
    for made in &mut made {
        let made = made.try_recv().expect("answered");
        assert_eq!(made.expect_err("in doubt"), Error::Malformed);
    }
    let _made: Vec<_> = (0..2).map(|number| join(&mut state, &format!("/e{number}"))).collect();
    assert_eq!(sent(&mut state, at(3)), [(2, 15), (3, 15)]);
}

#[test]
fn when_one_of_them_is_refused_each_has_its_own_outcome() {
    let mut state = connected();
    let mut made: Vec<_> = (0..2).map(|number| join(&mut state, &format!("/e{number}"))).collect();
    assert_eq!(sent(&mut state, at(1)), [(1, 14)]);
    state.receive(at(2), &refused(1, &[0, -101])).expect("an answer");
    assert!(made[0].try_recv().is_err() && made[1].try_recv().is_err());
    assert_eq!(sent(&mut state, at(3)), [(2, 15), (3, 15)]);
    state.receive(at(4), &head(2, -101)).expect("an answer");
    assert_eq!(made[0].try_recv().expect("answered").expect_err("refused"), Error::NoNode);
}

#[test]
fn what_was_not_sent_is_refused_and_what_was_not_answered_is_lost() {
    let mut state = connected();
    let mut first = state.ask(read("/a"), false);
    sent(&mut state, at(1));
    let mut second = state.ask(read("/b"), false);
    let mut joined = join(&mut state, "/e");
    let [mut line, _own] = state.list("/e".into(), true);
    state.ended();
    assert_eq!(first.try_recv().expect("told").expect_err("lost"), Error::Lost);
    assert_eq!(second.try_recv().expect("told").expect_err("unsent"), Error::Unsent);
    assert_eq!(joined.try_recv().expect("told").expect_err("unsent"), Error::Unsent);
    assert_eq!(line.try_recv().expect("told").expect_err("unsent"), Error::Unsent);
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
    // A barrier with the line and its own node for those that asked for one. Then both again,
    // without.
    let codes =
        |requests: Vec<(i32, i32)>| requests.into_iter().map(|(_, code)| code).collect::<Vec<_>>();
    assert_eq!(codes(sent(&mut state, at(1))), [14, 12, 4, 12, 4]);
    // A caller that asks now wants a newer line.
    asked.push(state.list("/e".into(), true));
    assert_eq!(codes(sent(&mut state, at(2))), [14, 12, 4]);
    state.receive(at(3), &refused(1, &[-101])).expect("the barrier's answer");
    state.receive(at(3), &head(2, -101)).expect("an answer");
    for [line, _] in &mut asked[..3] {
        assert_eq!(line.try_recv().expect("told").expect_err("refused"), Error::NoNode);
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

fn write() -> Request {
    Request::Delete { path: "/a".into(), version: -1 }
}

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
fn a_line_behind_a_barrier_that_no_quorum_took_fails() {
    let mut state = connected();
    let [mut line, mut own] = state.list("/e".into(), true);
    let [mut plain, _] = state.list("/e".into(), false);
    sent(&mut state, at(1));
    state.receive(at(2), &head(1, -127)).expect("the barrier is throttled");
    for number in 2..=5 {
        state.receive(at(2), &head(number, 0)).expect("the reads are not");
    }
    for answer in [&mut line, &mut own] {
        assert_eq!(answer.try_recv().expect("told").expect_err("cut off?"), Error::Unproven);
    }
    assert!(plain.try_recv().expect("told").is_ok(), "it asked for no barrier");
    let [mut line, _] = state.list("/e".into(), true);
    sent(&mut state, at(3));
    state.receive(at(4), &refused(6, &[-101])).expect("a quorum took the next one");
    state.receive(at(4), &head(7, 0)).expect("an answer");
    assert!(line.try_recv().expect("told").is_ok());
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

fn many() -> Request {
    Request::ManyData(vec!["/a".to_owned(), "/b".to_owned()])
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

proptest! {
    #[test]
    fn no_bytes_of_a_server_panic(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
        numbered in any::<bool>(),
    ) {
        let mut state = connected();
        let _asked = [
            state.ask(read("/a"), false),
            state.ask(Request::Multi(vec![entry("/a")]), false),
            state.ask(many(), false),
        ];
        let _joined = [join(&mut state, "/a"), join(&mut state, "/b")];
        let _listed = state.list("/a".into(), true);
        let _watching = state.watches.begin(&read("/a"));
        sent(&mut state, at(1));
        for (number, frame) in (1..).zip(frames) {
            let frame = if numbered { [head(number, 0), frame].concat() } else { frame };
            if state.receive(at(2), &frame).is_err() {
                state.ended();
                state.accepted(7, vec![1; 16], TTL, at(3));
            }
        }
    }
}
