//! The rules, one claim a test.

use super::*;
use crate::candidate::CandidateId;
use crate::queue::Proof;

const TTL: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(8);

fn at(millis: u64) -> Moment {
    Moment::default() + Duration::from_millis(millis)
}

fn entry(token: u64) -> Entry {
    Entry { name: format!("entry-{token}").into(), token }
}

fn place(token: u64) -> Place {
    Place { entry: entry(token), ticket: None, holder: None }
}

fn open(tokens: &[u64]) -> Line {
    Line::Open {
        generation: 1,
        places: tokens.iter().copied().map(place).collect(),
        unclean: None,
        highest: 0,
    }
}

fn session(number: u64, connection: u64, proven: u64) -> Session {
    let proof = Some(Proof { from: at(proven), window: WINDOW });
    Session { number, connection, ttl: TTL, life: Life::Live { proof } }
}

fn suspended(proven: u64) -> Session {
    let Session { number, connection, ttl, .. } = session(1, 1, proven);
    let proof = Some(Proof { from: at(proven), window: WINDOW });
    Session { number, connection, ttl, life: Life::Suspended { proof } }
}

fn machine() -> Machine {
    machine_with(Duration::ZERO)
}

fn machine_with(delay: Duration) -> Machine {
    let id = CandidateId::from_bits(7);
    let candidate = Holder { id, name: "a".into(), value: Bytes::new(), presence: None };
    Machine::new(Settings { candidate, grace: None, generation: None, delay, highest: 0 })
}

fn ask(outputs: &[Output]) -> Ask {
    let mut asks = outputs.iter().filter_map(|output| match output {
        Output::Join { ask, .. }
        | Output::Line { ask, .. }
        | Output::Begin { ask, .. }
        | Output::Note { ask, .. }
        | Output::Leave { ask, .. }
        | Output::End { ask, .. }
        | Output::Publish { ask, .. } => Some(*ask),
        Output::Elected(_)
        | Output::Extended(_)
        | Output::MustStop
        | Output::Lost { .. }
        | Output::Suspended
        | Output::Resumed
        | Output::Following(_)
        | Output::Over(_) => None,
    });
    asks.next().unwrap_or_else(|| panic!("no request in {outputs:?}"))
}

/// A candidate with entry 5 behind these.
fn joined(before: &[u64]) -> (Machine, Vec<Output>) {
    joined_with(Duration::ZERO, before)
}

fn joined_with(delay: Duration, before: &[u64]) -> (Machine, Vec<Output>) {
    let mut machine = machine_with(delay);
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    assert!(matches!(join[..], [Output::Join { .. }]), "{join:?}");
    let mut tokens = before.to_vec();
    tokens.push(5);
    let answer = Joined { session: 1, entry: Some(entry(5)), line: open(&tokens) };
    let out = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
    (machine, out)
}

/// A leader with a recorded token.
fn leader() -> Machine {
    let mut machine = fresh_leader();
    if let Some(mine) = &mut machine.mine {
        mine.note = Note::Done;
    }
    machine
}

fn fresh_leader() -> Machine {
    let (machine, out) = joined(&[]);
    assert!(matches!(out[..], [Output::Elected(Lease { token: 5, .. })]), "{out:?}");
    machine
}

#[test]
fn the_first_in_line_leads_for_as_long_as_its_session_is_proven() {
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
    let answer = Joined { session: 1, entry: Some(entry(5)), line: open(&[5]) };
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
    assert_eq!(joined(&[4]).0.pace(), Pace::Leading, "the next in line must be ready");
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
    assert!(matches!(look[..], [Output::Line { .. }]), "{look:?}");
    let out = machine.step(at(30), Input::Line(ask(&look), Ok(open(&[5]))));
    assert!(matches!(out[..], [Output::Elected(_)]), "{out:?}");
    let out = machine.step(at(40), Input::Gone(entry(5), Gone::DeletedMaybeEnded));
    assert!(matches!(out[..], [Output::Lost { loss: Loss::Vanished, .. }, ..]), "{out:?}");
}

#[test]
fn the_deletion_of_one_that_was_not_first_asks_for_another_look() {
    let (mut machine, _) = joined(&[2, 4]);
    let look = machine.step(at(20), Input::Gone(entry(4), Gone::Deleted));
    assert!(matches!(look[..], [Output::Line { .. }]), "{look:?}");
    assert_eq!(machine.step(at(30), Input::Line(ask(&look), Ok(open(&[2, 5])))), []);
    assert_eq!(machine.watching(), [Some(&entry(5)), Some(&entry(2))]);
    let out = machine.step(at(40), Input::Gone(entry(2), Gone::Deleted));
    assert!(matches!(out[..], [Output::Elected(_)]), "{out:?}");
}

#[test]
fn a_hint_heard_while_a_look_is_under_way_asks_for_another() {
    let (mut machine, _) = joined(&[2, 4]);
    let look = machine.step(at(20), Input::Gone(entry(4), Gone::Deleted));
    assert_eq!(machine.step(at(25), Input::Hint), []);
    let again = machine.step(at(30), Input::Line(ask(&look), Ok(open(&[2, 5]))));
    assert!(matches!(again[..], [Output::Line { .. }]), "{again:?}");
}

#[test]
fn the_own_entrys_deletion_is_a_loss_at_once_and_the_work_ends_before_the_next_join() {
    let mut machine = leader();
    let out = machine.step(at(20), Input::Gone(entry(5), Gone::Deleted));
    assert_eq!(out, [Output::Lost { token: 5, loss: Loss::Vanished }]);
    let join = machine.step(at(30), Input::WorkEnded);
    assert!(matches!(join[..], [Output::Join { .. }]), "{join:?}");
}

/// Seed 18815 of the simulation: the notice of the deletion overtook a line that was read before
/// it.
#[test]
fn a_line_that_is_older_than_the_own_entrys_deletion_deletes_nothing_while_work_goes_on() {
    let mut machine = leader();
    let look = machine.step(at(100), Input::Session(session(1, 2, 90)));
    let _ = machine.step(at(110), Input::Gone(entry(5), Gone::Deleted));
    let ticket = Ticket { candidate: machine.candidate().id.clone(), attempt: 1 };
    let places = vec![Place { ticket: Some(ticket), ..place(5) }];
    let line = Line::Open { generation: 1, places, unclean: None, highest: 0 };
    let out = machine.step(at(120), Input::Line(ask(&look), Ok(line)));
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
        matches!(read[..], [Output::Line { freshness: Freshness::Barrier, .. }]),
        "nothing is extended yet: {read:?}"
    );
    let out = machine.step(at(3_100), Input::Line(ask(&read), Ok(open(&[5, 6]))));
    assert!(matches!(out[..], [Output::Resumed, Output::Extended(_)]), "{out:?}");
}

#[test]
fn a_connection_lost_and_made_again_between_two_looks_is_noticed() {
    let mut machine = leader();
    let out = machine.step(at(3_000), Input::Session(session(1, 2, 2_900)));
    assert!(matches!(out[..], [Output::Suspended, Output::Line { .. }]), "{out:?}");
    let lost = machine.step(at(3_100), Input::Line(ask(&out), Ok(open(&[6]))));
    assert_eq!(lost, [Output::Lost { token: 5, loss: Loss::Vanished }]);
}

#[test]
fn a_join_whose_answer_was_lost_is_found_by_its_ticket_and_an_older_entry_is_deleted() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    let [Output::Join { ask: first, ticket, .. }] = &join[..] else { panic!("{join:?}") };
    let _ = machine.step(at(10), Input::Joined(*first, Err(Fault::Indeterminate)));
    let read = machine.step(at(2_000), Input::Tick);
    assert!(matches!(read[..], [Output::Line { freshness: Freshness::Barrier, .. }]), "{read:?}");
    let earlier = Ticket { attempt: 0, ..ticket.clone() };
    let places = vec![
        Place { ticket: Some(earlier), ..place(4) },
        Place { ticket: Some(ticket.clone()), ..place(5) },
    ];
    let line = Line::Open { generation: 1, places, unclean: None, highest: 0 };
    let out = machine.step(at(2_010), Input::Line(ask(&read), Ok(line)));
    assert!(matches!(&out[..], [Output::Leave { entry, .. }] if entry.token == 4), "{out:?}");
    assert_eq!(machine.watching(), [Some(&entry(5)), Some(&entry(4))]);
}

#[test]
fn a_join_that_never_arrived_is_made_again_under_another_ticket() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    assert_eq!(machine.step(at(10), Input::Session(suspended(0))), []);
    let read = machine.step(at(100), Input::Session(session(1, 2, 90)));
    assert!(matches!(read[..], [Output::Line { .. }]), "{read:?}");
    let late = Joined { session: 1, entry: Some(entry(5)), line: open(&[5]) };
    assert_eq!(machine.step(at(110), Input::Joined(ask(&join), Ok(late))), [], "given up");
    let again = machine.step(at(120), Input::Line(ask(&read), Ok(open(&[]))));
    assert!(matches!(&again[..], [Output::Join { ticket, .. }] if ticket.attempt == 2));
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
    let answer = Joined { session: 1, entry: Some(entry(5)), line: open(&[5]) };
    let leave = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
    assert!(matches!(leave[..], [Output::Leave { .. }]), "it never leads: {leave:?}");
    let out = machine.step(at(20), Input::Left(ask(&leave), Ok(Left::Deleted)));
    assert_eq!(out, [Output::Over(Outcome::Withdrawn)]);
}

#[test]
fn an_end_stops_the_leader_and_its_entry_goes_after_its_work() {
    let mut machine = leader();
    let look = machine.step(at(100), Input::Hint);
    let ended = Line::Ended { generation: 1, places: Vec::new() };
    let out = machine.step(at(110), Input::Line(ask(&look), Ok(ended)));
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
    let older = Line::Ended { generation: 0, places: Vec::new() };
    assert_eq!(machine.step(at(30), Input::Line(ask(&look), Ok(older))), []);
    let look = machine.step(at(2_000), Input::Tick);
    let newer =
        Line::Open { generation: 2, places: vec![place(4), place(5)], unclean: None, highest: 0 };
    let leave = machine.step(at(2_010), Input::Line(ask(&look), Ok(newer)));
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

#[test]
fn a_lost_notification_is_made_good_by_a_second_look() {
    let (mut machine, _) = joined(&[4]);
    assert_eq!(machine.wake(at(10)), Some(TTL * 2));
    let look = machine.step(at(20_010), Input::Tick);
    assert!(matches!(look[..], [Output::Line { freshness: Freshness::Session, .. }]), "{look:?}");
}

#[test]
fn a_value_whose_publication_was_lost_with_the_connection_is_published_again() {
    let mut machine = leader();
    let value = Bytes::from_static(b"new");
    let publish = machine.step(at(100), Input::Publish(value.clone()));
    assert!(matches!(publish[..], [Output::Publish { .. }]), "{publish:?}");
    let _ = machine.step(at(200), Input::Session(suspended(0)));
    let read = machine.step(at(300), Input::Session(session(1, 2, 250)));
    let out = machine.step(at(310), Input::Line(ask(&read), Ok(open(&[5]))));
    let [.., Output::Publish { value: shown, .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(*shown, value);
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

/// It asked for that line for ever, and its caller was told after a session's time.
#[test]
fn a_join_in_doubt_is_over_when_its_line_is_refused_for_good() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    let _ = machine.step(at(10), Input::Joined(ask(&join), Err(Fault::Indeterminate)));
    let read = machine.step(at(2_000), Input::Tick);
    assert!(matches!(read[..], [Output::Line { freshness: Freshness::Barrier, .. }]), "{read:?}");
    let out = machine.step(at(2_010), Input::Line(ask(&read), Err(Fault::Permanent)));
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
    let line = Line::Open { generation: 1, places, unclean: None, highest: 0 };
    let out = machine.step(at(2_010), Input::Line(ask(&read), Ok(line)));
    assert!(matches!(out[..], [Output::Publish { .. }]), "{out:?}");
}

const DELAY: Duration = Duration::from_secs(3);

fn marked(tokens: &[u64], unclean: Option<u64>) -> Line {
    let places = tokens.iter().copied().map(place).collect();
    Line::Open { generation: 1, places, unclean, highest: 0 }
}

/// Entry 5 has become first, and its read of the line has shown this mark at 30 ms.
fn next_after(unclean: Option<u64>) -> (Machine, Vec<Output>) {
    let (mut machine, _) = joined_with(DELAY, &[4]);
    let look = machine.step(at(20), Input::Gone(entry(4), Gone::Deleted));
    assert!(matches!(look[1..], [] if matches!(look[0], Output::Line { .. })), "{look:?}");
    let out = machine.step(at(30), Input::Line(ask(&look), Ok(marked(&[5], unclean))));
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
fn the_line_of_a_join_does_not_tell_how_the_last_tenure_ended() {
    let (mut machine, look) = joined_with(DELAY, &[]);
    assert!(matches!(look[..], [Output::Line { .. }]), "{look:?}");
    let out = machine.step(at(20), Input::Line(ask(&look), Ok(marked(&[5], Some(4)))));
    assert_eq!(out, []);
    assert_eq!(machine.wake(at(20)), Some(DELAY));
}

#[test]
fn a_lost_connection_neither_cuts_the_delay_short_nor_begins_it_anew() {
    let (mut machine, _) = next_after(Some(4));
    assert_eq!(machine.step(at(1_000), Input::Session(suspended(0))), []);
    let read = machine.step(at(2_000), Input::Session(session(1, 2, 1_900)));
    let out = machine.step(at(2_010), Input::Line(ask(&read), Ok(marked(&[5], Some(4)))));
    assert_eq!(out, []);
    assert_eq!(machine.wake(at(2_010)), Some(Duration::from_millis(1_020)));
}

#[test]
fn a_beginning_whose_answer_was_lost_is_found_by_its_mark_or_recorded_again() {
    for (mark, found) in [(Some(5), true), (None, false)] {
        let (mut machine, begin) = next_after(None);
        let _ = machine.step(at(40), Input::Begun(ask(&begin), Err(Fault::Indeterminate)));
        let look = machine.step(at(1_000), Input::Tick);
        let out = machine.step(at(1_010), Input::Line(ask(&look), Ok(marked(&[5], mark))));
        assert_eq!(matches!(out[..], [Output::Elected(_)]), found, "{out:?}");
        assert_eq!(matches!(out[..], [Output::Begin { .. }]), !found, "{out:?}");
    }
}

#[test]
fn whoever_may_not_begin_leaves_the_line() {
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
    let answer = Joined { session: 1, entry: Some(entry(9)), line: marked(&[9], Some(5)) };
    let look = machine.step(at(210), Input::Joined(ask(&join), Ok(answer)));
    let out = machine.step(at(220), Input::Line(ask(&look), Ok(marked(&[9], Some(5)))));
    assert_eq!(out, []);
    let begin = machine.step(at(3_220), Input::Tick);
    assert!(matches!(&begin[..], [Output::Begin { entry, .. }] if entry.token == 9), "{begin:?}");
}

fn recorded(tokens: &[u64], highest: u64) -> Line {
    let places = tokens.iter().copied().map(place).collect();
    Line::Open { generation: 1, places, unclean: None, highest }
}

#[test]
fn an_entry_at_or_below_a_recorded_token_leaves_and_says_so_after_a_second_look() {
    for highest in [5, 6] {
        let mut machine = machine();
        let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
        let answer = Joined { session: 1, entry: Some(entry(5)), line: recorded(&[5], highest) };
        let look = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
        assert!(matches!(look[..], [Output::Line { .. }]), "its entry may have gone: {look:?}");
        let leave = machine.step(at(20), Input::Line(ask(&look), Ok(recorded(&[5], highest))));
        assert!(matches!(leave[..], [Output::Leave { .. }]), "{leave:?}");
        let out = machine.step(at(30), Input::Left(ask(&leave), Ok(Left::Deleted)));
        assert_eq!(out, [Output::Over(Outcome::Regressed { found: 5, known: highest })]);
    }
}

#[test]
fn a_record_that_a_successor_wrote_between_the_list_and_its_reading_is_no_regression() {
    let mut machine = machine();
    let join = machine.step(at(0), Input::Session(session(1, 1, 0)));
    let answer = Joined { session: 1, entry: Some(entry(5)), line: recorded(&[5], 6) };
    let look = machine.step(at(10), Input::Joined(ask(&join), Ok(answer)));
    let again = machine.step(at(20), Input::Line(ask(&look), Ok(recorded(&[6], 6))));
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
    let answer = Joined { session: 1, entry: Some(entry(5)), line: open(&[5]) };
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
    let line = Line::Open { generation: 0, places: vec![place(6)], unclean: None, highest: 0 };
    let answer = Joined { session: 2, entry: Some(entry(6)), line };
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
    let out = machine.step(at(3_110), Input::Line(ask(&look), Ok(recorded(&[5], 5))));
    assert_eq!(out, [], "its own record is none against it");
}
