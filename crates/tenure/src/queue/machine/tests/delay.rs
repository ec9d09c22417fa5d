//! Tests of the lock delay.

use super::*;
use crate::protocol::{Farewell, Outcome};
use crate::queue::{Gone, Left};
use crate::store::Fault;

const DELAY: Duration = Duration::from_secs(3);

fn marked(tokens: &[u64], unclean: Option<u64>) -> Queue {
    let places = tokens.iter().copied().map(place).collect();
    Queue::Open { generation: 1, places, unclean, highest: 0 }
}

/// Entry 5 has become first, and its read of the queue has shown this mark at 30 ms.
fn next_after(unclean: Option<u64>) -> (Machine, Vec<Output>) {
    let (mut machine, _) = joined_with(DELAY, &[4]);
    let look = machine.step(at(20), Input::Gone(entry(4), Gone::Deleted));
    assert!(matches!(look[1..], [] if matches!(look[0], Output::Read { .. })), "{look:?}");
    let out = machine.step(at(30), Input::Read(ask(&look), Ok(marked(&[5], unclean))));
    (machine, out)
}

#[test]
fn after_a_clean_tenure_the_next_records_its_own_and_leads_when_that_is_answered() {
    let (mut machine, begin) = next_after(None);
    assert!(matches!(&begin[..], [Output::Begin { entry, .. }] if entry.token == 5), "{begin:?}");
    assert_eq!(machine.lease(at(31)), None);
    let out = machine.step(at(40), Input::Begun(ask(&begin), Ok(())));
    assert!(matches!(out[..], [Output::Elected(Lease { token: 5, .. })]), "{out:?}");
}

#[test]
fn after_an_unclean_tenure_the_next_waits_by_its_slower_clock() {
    let (mut machine, out) = next_after(Some(4));
    assert_eq!(out, []);
    assert_eq!(machine.wake(at(30)), Some(DELAY));
    let slept = Moment { boot: Duration::from_secs(4), monotonic: Duration::from_secs(2) };
    assert_eq!(machine.step(slept, Input::Tick), [], "one of the clocks says less");
    assert_eq!(machine.step(at(3_029), Input::Tick), []);
    let begin = machine.step(at(3_030), Input::Tick);
    assert!(matches!(begin[..], [Output::Begin { .. }]), "{begin:?}");
}

#[test]
fn the_queue_of_a_join_does_not_tell_how_the_last_tenure_ended() {
    let (mut machine, look) = joined_with(DELAY, &[]);
    assert!(matches!(look[..], [Output::Read { .. }]), "{look:?}");
    let out = machine.step(at(20), Input::Read(ask(&look), Ok(marked(&[5], Some(4)))));
    assert_eq!(out, []);
    assert_eq!(machine.wake(at(20)), Some(DELAY));
}

#[test]
fn a_lost_connection_neither_cuts_the_delay_short_nor_begins_it_anew() {
    let (mut machine, _) = next_after(Some(4));
    assert_eq!(machine.step(at(1_000), Input::Session(suspended(0))), []);
    let read = machine.step(at(2_000), Input::Session(session(1, 2, 1_900)));
    let out = machine.step(at(2_010), Input::Read(ask(&read), Ok(marked(&[5], Some(4)))));
    assert_eq!(out, []);
    assert_eq!(machine.wake(at(2_010)), Some(Duration::from_millis(1_020)));
}

#[test]
fn a_beginning_whose_answer_was_lost_is_found_by_its_mark_or_recorded_again() {
    for (mark, found) in [(Some(5), true), (None, false)] {
        let (mut machine, begin) = next_after(None);
        let _ = machine.step(at(40), Input::Begun(ask(&begin), Err(Fault::Indeterminate)));
        let look = machine.step(at(1_000), Input::Tick);
        let out = machine.step(at(1_010), Input::Read(ask(&look), Ok(marked(&[5], mark))));
        assert_eq!(matches!(out[..], [Output::Elected(_)]), found, "{out:?}");
        assert_eq!(matches!(out[..], [Output::Begin { .. }]), !found, "{out:?}");
    }
}

#[test]
fn whoever_may_not_begin_leaves_the_queue() {
    let (mut machine, begin) = next_after(None);
    let leave = machine.step(at(40), Input::Begun(ask(&begin), Err(Fault::Denied)));
    assert!(matches!(leave[..], [Output::Leave { clean: true, .. }]), "{leave:?}");
    let out = machine.step(at(50), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert_eq!(out, [Output::Over(Outcome::Refused(Fault::Denied))]);
}

#[test]
fn an_entry_is_left_cleanly_only_if_its_work_ended_while_its_session_was_proven() {
    let leaves = |out: &[Output]| match out {
        [.., Output::Leave { clean, .. }] => *clean,
        _ => panic!("{out:?}"),
    };
    assert!(leaves(&leader().step(at(100), Input::Release(Farewell::Free))));
    for (ended, clean) in [(7_999, true), (8_000, false)] {
        let mut machine = leader();
        let _ = machine.step(at(100), Input::ForceLoss);
        assert_eq!(leaves(&machine.step(at(ended), Input::WorkEnded)), clean, "{ended}");
    }
    let mut machine = leader();
    let _ = machine.step(at(100), Input::Abandon);
    assert!(!leaves(&machine.step(at(12_500), Input::Tick)), "its work may go on");
}

#[test]
fn a_candidacy_waits_after_its_own_tenure_too_or_its_next_mark_would_hide_that_one() {
    let (mut machine, begin) = next_after(None);
    let _ = machine.step(at(40), Input::Begun(ask(&begin), Ok(())));
    let _ = machine.step(at(100), Input::Gone(entry(5), Gone::Deleted));
    let join = machine.step(at(200), Input::WorkEnded);
    let answer = Joined { session: 1, entry: Some(entry(9)), queue: marked(&[9], Some(5)) };
    let look = machine.step(at(210), Input::Joined(ask(&join), Ok(answer)));
    let out = machine.step(at(220), Input::Read(ask(&look), Ok(marked(&[9], Some(5)))));
    assert_eq!(out, []);
    let begin = machine.step(at(3_220), Input::Tick);
    assert!(matches!(&begin[..], [Output::Begin { entry, .. }] if entry.token == 9), "{begin:?}");
}
