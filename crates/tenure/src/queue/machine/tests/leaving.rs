//! Tests of releases, of cancelled candidacies and of the end of an election.

use super::*;
use crate::protocol::{Farewell, Loss, Outcome};
use crate::queue::Left;

#[test]
fn a_release_gives_the_lease_up_before_it_asks_and_says_what_the_store_said() {
    let mut machine = leader();
    let leave = machine.step(at(100), Input::Release(Farewell::Free));
    assert_eq!(machine.lease(at(100)), None);
    assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
    let out = machine.step(at(110), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert_eq!(out, [Output::Over(Outcome::Released)]);
    assert!(machine.is_settled());
}

#[test]
fn a_release_that_is_not_answered_is_told_in_time_and_finished_when_the_session_is_back() {
    let mut machine = leader();
    let _ = machine.step(at(100), Input::Release(Farewell::Free));
    assert_eq!(machine.step(at(200), Input::Session(suspended(0))), []);
    let told = machine.step(at(10_100), Input::Tick);
    assert!(matches!(told[..], [Output::Over(Outcome::Unknown { .. })]), "{told:?}");
    assert!(machine.is_over() && !machine.is_settled());
    let again = machine.step(at(10_200), Input::Session(session(1, 2, 10_150)));
    assert!(matches!(again[..], [Output::Leave { .. }]), "{again:?}");
    assert_eq!(machine.step(at(10_210), Input::Left(ask(&again), Ok(Left::Deleted))), []);
    assert!(machine.is_settled());
}

#[test]
fn a_candidacy_that_is_cancelled_while_it_joins_leaves_nothing_behind() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    assert_eq!(machine.step(at(5), Input::Release(Farewell::Free)), []);
    let answer = Joined { session: 1, entry: Some(entry(5)), queue: open(&[5]) };
    let leave = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
    assert!(matches!(leave[..], [Output::Leave { .. }]), "it never leads: {leave:?}");
    let out = machine.step(at(20), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert_eq!(out, [Output::Over(Outcome::Withdrawn)]);
}

#[test]
fn an_end_stops_the_leader_and_its_entry_goes_after_its_work() {
    let mut machine = leader();
    let look = machine.step(at(100), Input::Hint);
    let ended = Queue::Ended { generation: 1, places: Vec::new() };
    let out = machine.step(at(110), Input::Read(ask(&look), Ok(ended)));
    assert_eq!(out, [Output::Lost { token: 5, loss: Loss::Ended }]);
    let leave = machine.step(at(200), Input::WorkEnded);
    assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
    let out = machine.step(at(210), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert_eq!(out, [Output::Over(Outcome::Ended)]);
}

#[test]
fn another_generation_is_an_end_and_an_older_one_is_an_old_read() {
    let (mut machine, _) = joined(&[4]);
    let look = machine.step(at(20), Input::Hint);
    let older = Queue::Ended { generation: 0, places: Vec::new() };
    assert_eq!(machine.step(at(30), Input::Read(ask(&look), Ok(older))), []);
    let look = machine.step(at(2_000), Input::Tick);
    let newer =
        Queue::Open { generation: 2, places: vec![place(4), place(5)], unclean: None, highest: 0 };
    let leave = machine.step(at(2_010), Input::Read(ask(&look), Ok(newer)));
    assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
    let out = machine.step(at(2_020), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert_eq!(out, [Output::Over(Outcome::Ended)]);
}

#[test]
fn a_leader_that_ends_its_election_writes_the_end_before_its_entry_goes() {
    let mut machine = leader();
    let end = machine.step(at(100), Input::Release(Farewell::End));
    assert!(matches!(end[..], [Output::End { generation: 1, .. }]), "{end:?}");
    let leave = machine.step(at(110), Input::Ended(ask(&end), Ok(())));
    assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
}

#[test]
fn abandoned_work_keeps_its_entry_until_the_session_would_have_ended() {
    let mut machine = leader();
    let out = machine.step(at(100), Input::Abandon);
    assert_eq!(out[0], Output::Lost { token: 5, loss: Loss::Resigned });
    assert!(matches!(out[1..], [Output::Over(Outcome::Unknown { .. })]), "{out:?}");
    assert!(!machine.is_settled());
    let leave = machine.step(at(12_500), Input::Tick);
    assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
    assert_eq!(machine.step(at(12_510), Input::Left(ask(&leave), Ok(Left::Deleted))), []);
    assert!(machine.is_settled());
}

/// Seed 3810 of the simulation: servers may keep a session that its client has given up.
#[test]
fn a_release_that_was_not_answered_before_the_session_was_over_is_unknown() {
    let mut machine = leader();
    let leave = machine.step(at(100), Input::Release(Farewell::Free));
    assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
    let over = Session { life: Life::Over, ..session(1, 1, 90) };
    let out = machine.step(at(200), Input::Session(over));
    assert!(matches!(out[..], [Output::Over(Outcome::Unknown { .. })]), "{out:?}");
}
