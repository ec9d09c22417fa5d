//! Tests of waiting in the queue, and of becoming the leader.

use super::*;
use crate::protocol::Loss;
use crate::queue::{Freshness, Gone, Pace};

#[test]
fn the_first_in_queue_leads_for_as_long_as_its_session_is_proven() {
    let machine = leader();
    assert!(machine.lease(at(7_999)).is_some());
    assert_eq!(machine.lease(at(8_000)), None);
    assert_eq!(machine.wake(at(10)), Some(Duration::from_millis(6_990)), "a stop budget before");
}

#[test]
fn nobody_leads_without_a_proof() {
    let mut machine = machine();
    let life = Life::Live { proof: None };
    let unproven = Session { number: 1, connection: 1, ttl: TTL, life };
    let join = machine.step(at(0), Input::Session(unproven));
    let answer = Joined { session: 1, entry: Some(entry(5)), queue: open(&[5]) };
    assert_eq!(machine.step(at(1), Input::Joined(ask(&join), Ok(answer))), []);
    let out = machine.step(at(2), Input::Session(session(1, 1, 0)));
    assert!(matches!(out[..], [Output::Elected(_)]), "{out:?}");
}

#[test]
fn only_the_own_entry_and_the_one_before_are_watched() {
    let (machine, out) = joined(&[2, 3, 4]);
    assert_eq!(out, []);
    assert_eq!(machine.watching(), [Some(&entry(5)), Some(&entry(4))]);
    assert_eq!(machine.pace(), Pace::Waiting);
    assert_eq!(joined(&[4]).0.pace(), Pace::Leading, "the next in the queue must be ready");
}

#[test]
fn the_deletion_of_a_predecessor_that_was_first_makes_a_leader_at_once() {
    let (mut machine, _) = joined(&[4]);
    let out = machine.step(at(20), Input::Gone(entry(4), Gone::Deleted));
    assert!(matches!(out[..], [Output::Elected(_)]), "{out:?}");
}

/// Holds even if the entry was another one of this process (issue 13, point 13).
#[test]
fn a_deletion_that_may_follow_the_end_asks_for_a_look_and_loses_only_the_own_entry() {
    let (mut machine, _) = joined(&[4]);
    let look = machine.step(at(20), Input::Gone(entry(4), Gone::DeletedMaybeEnded));
    assert!(matches!(look[..], [Output::Read { .. }]), "{look:?}");
    let out = machine.step(at(30), Input::Read(ask(&look), Ok(open(&[5]))));
    assert!(matches!(out[..], [Output::Elected(_)]), "{out:?}");
    let out = machine.step(at(40), Input::Gone(entry(5), Gone::DeletedMaybeEnded));
    assert!(matches!(out[..], [Output::Lost { loss: Loss::Vanished, .. }, ..]), "{out:?}");
}

#[test]
fn the_deletion_of_one_that_was_not_first_asks_for_another_look() {
    let (mut machine, _) = joined(&[2, 4]);
    let look = machine.step(at(20), Input::Gone(entry(4), Gone::Deleted));
    assert!(matches!(look[..], [Output::Read { .. }]), "{look:?}");
    assert_eq!(machine.step(at(30), Input::Read(ask(&look), Ok(open(&[2, 5])))), []);
    assert_eq!(machine.watching(), [Some(&entry(5)), Some(&entry(2))]);
    let out = machine.step(at(40), Input::Gone(entry(2), Gone::Deleted));
    assert!(matches!(out[..], [Output::Elected(_)]), "{out:?}");
}

#[test]
fn a_hint_heard_while_a_look_is_under_way_asks_for_another() {
    let (mut machine, _) = joined(&[2, 4]);
    let look = machine.step(at(20), Input::Gone(entry(4), Gone::Deleted));
    assert_eq!(machine.step(at(25), Input::Hint), []);
    let again = machine.step(at(30), Input::Read(ask(&look), Ok(open(&[2, 5]))));
    assert!(matches!(again[..], [Output::Read { .. }]), "{again:?}");
}

#[test]
fn a_lost_notification_is_made_good_by_a_second_look() {
    let (mut machine, _) = joined(&[4]);
    assert_eq!(machine.wake(at(10)), Some(TTL * 2));
    let look = machine.step(at(20_010), Input::Tick);
    assert!(matches!(look[..], [Output::Read { freshness: Freshness::Session, .. }]), "{look:?}");
}
