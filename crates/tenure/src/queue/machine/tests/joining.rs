//! Tests of joins whose outcome is unknown.

use super::*;
use crate::protocol::Outcome;
use crate::queue::{Freshness, Ticket};
use crate::store::Fault;

#[test]
fn a_join_whose_answer_was_lost_is_found_by_its_ticket_and_an_older_entry_is_deleted() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    let [Output::Join { ask: first, ticket, .. }] = &join[..] else { panic!("{join:?}") };
    let _ = machine.step(at(10), Input::Joined(*first, Err(Fault::Indeterminate)));
    let read = machine.step(at(2_000), Input::Tick);
    assert!(matches!(read[..], [Output::Read { freshness: Freshness::Barrier, .. }]), "{read:?}");
    let earlier = Ticket { attempt: 0, ..ticket.clone() };
    let places = vec![
        Place { ticket: Some(earlier), ..place(4) },
        Place { ticket: Some(ticket.clone()), ..place(5) },
    ];
    let queue = Queue::Open { generation: 1, places, unclean: None, highest: 0 };
    let out = machine.step(at(2_010), Input::Read(ask(&read), Ok(queue)));
    assert!(matches!(&out[..], [Output::Leave { entry, .. }] if entry.token == 4), "{out:?}");
    assert_eq!(machine.watching(), [Some(&entry(5)), Some(&entry(4))]);
}

#[test]
fn a_join_that_never_arrived_is_made_again_under_another_ticket() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    assert_eq!(machine.step(at(10), Input::Session(suspended(0))), []);
    let read = machine.step(at(100), Input::Session(session(1, 2, 90)));
    assert!(matches!(read[..], [Output::Read { .. }]), "{read:?}");
    let late = Joined { session: 1, entry: Some(entry(5)), queue: open(&[5]) };
    assert_eq!(machine.step(at(110), Input::Joined(ask(&join), Ok(late))), [], "given up");
    let again = machine.step(at(120), Input::Read(ask(&read), Ok(open(&[]))));
    assert!(matches!(&again[..], [Output::Join { ticket, .. }] if ticket.attempt == 2));
}

/// It asked for that queue for ever, and its caller was told after a session's time.
#[test]
fn a_join_in_doubt_is_over_when_its_queue_is_refused_for_good() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    let _ = machine.step(at(10), Input::Joined(ask(&join), Err(Fault::Indeterminate)));
    let read = machine.step(at(2_000), Input::Tick);
    assert!(matches!(read[..], [Output::Read { freshness: Freshness::Barrier, .. }]), "{read:?}");
    let out = machine.step(at(2_010), Input::Read(ask(&read), Err(Fault::Permanent)));
    let refused = Output::Over(Outcome::Refused(Fault::Permanent));
    assert!(out.contains(&refused) || machine.step(at(4_000), Input::Tick).contains(&refused));
}

#[test]
fn a_value_given_while_a_join_is_in_doubt_is_published_at_the_entry_that_is_found() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    let [Output::Join { ask: first, ticket, .. }] = &join[..] else { panic!("{join:?}") };
    let _ = machine.step(at(10), Input::Joined(*first, Err(Fault::Indeterminate)));
    assert_eq!(machine.step(at(20), Input::Publish(Bytes::from_static(b"new"))), []);
    let read = machine.step(at(2_000), Input::Tick);
    let places = vec![place(4), Place { ticket: Some(ticket.clone()), ..place(5) }];
    let queue = Queue::Open { generation: 1, places, unclean: None, highest: 0 };
    let out = machine.step(at(2_010), Input::Read(ask(&read), Ok(queue)));
    assert!(matches!(out[..], [Output::Publish { .. }]), "{out:?}");
}
