//! Tests of stores whose numbers have fallen.

use super::*;
use crate::protocol::Outcome;
use crate::queue::Left;

fn recorded(tokens: &[u64], highest: u64) -> Queue {
    let places = tokens.iter().copied().map(place).collect();
    Queue::Open { generation: 1, places, unclean: None, highest }
}

#[test]
fn an_entry_at_or_below_a_recorded_token_leaves_and_says_so_after_a_second_look() {
    for highest in [5, 6] {
        let mut machine = machine();
        let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
        let answer = Joined { session: 1, entry: Some(entry(5)), queue: recorded(&[5], highest) };
        let look = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
        assert!(matches!(look[..], [Output::Read { .. }]), "its entry may have gone: {look:?}");
        let leave = machine.step(at(20), Input::Read(ask(&look), Ok(recorded(&[5], highest))));
        assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
        let out = machine.step(at(30), Input::Left(ask(&leave), Ok(Left::Deleted)));
        assert_eq!(out, [Output::Over(Outcome::Regressed { found: 5, known: highest })]);
    }
}

#[test]
fn a_record_that_a_successor_wrote_between_the_list_and_its_reading_is_no_regression() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    let answer = Joined { session: 1, entry: Some(entry(5)), queue: recorded(&[5], 6) };
    let look = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
    let again = machine.step(at(20), Input::Read(ask(&look), Ok(recorded(&[6], 6))));
    assert!(matches!(again[..], [Output::Join { .. }]), "somebody deleted its entry: {again:?}");
}

#[test]
fn a_token_that_this_process_led_with_is_never_led_with_again() {
    let candidate = machine().candidate().clone();
    let settings = Settings {
        candidate: (*candidate).clone(),
        grace: None,
        generation: None,
        delay: Duration::ZERO,
        highest: 7,
    };
    let mut machine = Machine::new(settings);
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    let answer = Joined { session: 1, entry: Some(entry(5)), queue: open(&[5]) };
    let leave = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
    assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
    let out = machine.step(at(20), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert_eq!(out, [Output::Over(Outcome::Regressed { found: 5, known: 7 })]);
}

#[test]
fn an_earlier_generation_after_a_join_of_ours_is_a_regression_and_no_old_read() {
    let (mut machine, _) = joined(&[4]);
    let join = machine.step(at(100), Input::Session(session(2, 2, 90)));
    assert!(matches!(join[..], [Output::Join { .. }]), "{join:?}");
    let queue = Queue::Open { generation: 0, places: vec![place(6)], unclean: None, highest: 0 };
    let answer = Joined { session: 2, entry: Some(entry(6)), queue };
    let leave = machine.step(at(110), Input::Joined(ask(&join), Ok(answer)));
    assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
    let out = machine.step(at(120), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert_eq!(out, [Output::Over(Outcome::Regressed { found: 0, known: 1 })]);
}

#[test]
fn a_tenure_is_recorded_once_some_time_after_it_began_and_does_not_wait_for_it() {
    let mut machine = fresh_leader();
    assert!(machine.wake(at(11)).is_some_and(|span| span <= TTL / 8));
    let note = machine.step(at(1_300), Input::Tick);
    assert!(matches!(&note[..], [Output::Note { entry, .. }] if entry.token == 5), "{note:?}");
    assert_eq!(machine.step(at(1_310), Input::Noted(ask(&note), Ok(()))), []);
    assert_eq!(machine.step(at(3_000), Input::Tick), []);
    let look = machine.step(at(3_100), Input::Hint);
    let out = machine.step(at(3_110), Input::Read(ask(&look), Ok(recorded(&[5], 5))));
    assert_eq!(out, [], "its own record is none against it");
}
