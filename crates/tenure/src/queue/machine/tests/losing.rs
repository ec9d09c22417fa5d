//! Tests of losing leadership, and of connections that are lost and made again.

use super::*;
use crate::protocol::Loss;
use crate::queue::{Freshness, Gone, Left, Ticket};

#[test]
fn the_own_entrys_deletion_is_a_loss_at_once_and_the_work_ends_before_the_next_join() {
    let mut machine = leader();
    let out = machine.step(at(20), Input::Gone(entry(5), Gone::Deleted));
    assert_eq!(out, [Output::Lost { token: 5, loss: Loss::Vanished }]);
    let join = machine.step(at(30), Input::WorkEnded);
    assert!(matches!(join[..], [Output::Join { .. }]), "{join:?}");
}

/// Seed 18815 of the simulation: the notice of the deletion overtook a queue that was read before
/// it.
#[test]
fn a_queue_that_is_older_than_the_own_entrys_deletion_deletes_nothing_while_work_goes_on() {
    let mut machine = leader();
    let look = machine.step(at(100), Input::Session(session(1, 2, 90)));
    let _ = machine.step(at(110), Input::Gone(entry(5), Gone::Deleted));
    let ticket = Ticket { candidate: machine.candidate().id.clone(), attempt: 1 };
    let places = vec![Place { ticket: Some(ticket), ..place(5) }];
    let queue = Queue::Open { generation: 1, places, unclean: None, highest: 0 };
    let out = machine.step(at(120), Input::Read(ask(&look), Ok(queue)));
    assert!(!out.iter().any(|output| matches!(output, Output::Leave { .. })), "{out:?}");
    let join = machine.step(at(130), Input::WorkEnded);
    assert!(matches!(join[..], [Output::Join { .. }]), "{join:?}");
}

#[test]
fn a_proof_that_comes_after_the_window_ended_revives_nothing() {
    let mut machine = leader();
    let out = machine.step(at(8_000), Input::Session(session(1, 1, 7_900)));
    assert_eq!(out, [Output::Lost { token: 5, loss: Loss::Expired }]);
    let leave = machine.step(at(8_100), Input::WorkEnded);
    assert!(matches!(&leave[..], [Output::Leave { entry, .. }] if entry.token == 5), "{leave:?}");
    let join = machine.step(at(8_200), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert!(matches!(&join[..], [Output::Join { .. }]), "{join:?}");
}

#[test]
fn must_stop_is_latched_and_stopped_work_gives_the_place_up() {
    let mut machine = leader();
    assert_eq!(machine.step(at(7_000), Input::Tick), [Output::MustStop]);
    let out = machine.step(at(7_100), Input::Session(session(1, 1, 6_000)));
    assert!(matches!(out[..], [Output::Extended(_)]), "{out:?}");
    let out = machine.step(at(7_200), Input::WorkEnded);
    assert_eq!(out[0], Output::Lost { token: 5, loss: Loss::Resigned });
    assert!(matches!(out[1], Output::Leave { .. }), "{out:?}");
}

#[test]
fn work_that_does_not_end_loses_its_entry_when_the_session_would_have_ended() {
    let mut machine = leader();
    assert_eq!(machine.step(at(7_000), Input::Tick).len(), 1);
    let out = machine.step(at(8_000), Input::Session(session(1, 1, 7_900)));
    assert_eq!(out, [Output::Lost { token: 5, loss: Loss::Expired }]);
    assert_eq!(machine.wake(at(8_000)), Some(Duration::from_millis(4_500)));
    let out = machine.step(at(12_500), Input::Tick);
    assert!(matches!(out[..], [Output::Leave { .. }]), "{out:?}");
    assert_eq!(machine.step(at(12_600), Input::Left(ask(&out), Ok(Left::Deleted))), []);
    let join = machine.step(at(20_000), Input::WorkEnded);
    assert!(matches!(join[..], [Output::Join { .. }]), "{join:?}");
}

#[test]
fn a_lost_connection_suspends_at_once_and_resumes_after_a_barrier_read_shows_the_entry() {
    let mut machine = leader();
    assert_eq!(machine.step(at(100), Input::Session(suspended(0))), [Output::Suspended]);
    let read = machine.step(at(3_000), Input::Session(session(1, 2, 2_900)));
    assert!(
        matches!(read[..], [Output::Read { freshness: Freshness::Barrier, .. }]),
        "nothing is extended yet: {read:?}"
    );
    let out = machine.step(at(3_100), Input::Read(ask(&read), Ok(open(&[5, 6]))));
    assert!(matches!(out[..], [Output::Resumed, Output::Extended(_)]), "{out:?}");
}

#[test]
fn a_connection_lost_and_made_again_between_two_looks_is_noticed() {
    let mut machine = leader();
    let out = machine.step(at(3_000), Input::Session(session(1, 2, 2_900)));
    assert!(matches!(out[..], [Output::Suspended, Output::Read { .. }]), "{out:?}");
    let lost = machine.step(at(3_100), Input::Read(ask(&out), Ok(open(&[6]))));
    assert_eq!(lost, [Output::Lost { token: 5, loss: Loss::Vanished }]);
}

#[test]
fn another_session_is_a_loss_and_a_fresh_join() {
    let mut machine = leader();
    let out = machine.step(at(100), Input::Session(session(2, 2, 50)));
    assert_eq!(out, [Output::Lost { token: 5, loss: Loss::Expired }]);
    let join = machine.step(at(200), Input::WorkEnded);
    assert!(matches!(join[..], [Output::Join { .. }]), "{join:?}");
}

#[test]
fn a_value_whose_publication_was_lost_with_the_connection_is_published_again() {
    let mut machine = leader();
    let value = Bytes::from_static(b"new");
    let publish = machine.step(at(100), Input::Publish(value.clone()));
    assert!(matches!(publish[..], [Output::Publish { .. }]), "{publish:?}");
    let _ = machine.step(at(200), Input::Session(suspended(0)));
    let read = machine.step(at(300), Input::Session(session(1, 2, 250)));
    let out = machine.step(at(310), Input::Read(ask(&read), Ok(open(&[5]))));
    let [.., Output::Publish { value: shown, .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(*shown, value);
}
