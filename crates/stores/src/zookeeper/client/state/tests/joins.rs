//! Tests of entries, created together or one by one.

use super::*;

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
