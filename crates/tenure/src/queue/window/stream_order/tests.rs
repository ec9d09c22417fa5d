use super::*;

const TTL: Duration = Duration::from_secs(8);

fn at(millis: u64) -> Moment {
    Moment::default() + Duration::from_millis(millis)
}

fn from(window: &StreamOrderWindow) -> Option<Moment> {
    window.proof().map(|proof| proof.from)
}

/// A connection with one request a second, each answered 10 ms after it was sent.
fn steady(kind: Kind, seconds: u64) -> StreamOrderWindow {
    let mut window = StreamOrderWindow::new(TTL);
    window.connecting(at(0));
    for second in 1..=seconds {
        exchange(&mut window, second * 1000, kind);
    }
    window
}

fn exchange(window: &mut StreamOrderWindow, millis: u64, kind: Kind) {
    window.sent(at(millis), kind);
    window.answered(at(millis + 10), Voice::Ensemble);
}

#[test]
fn a_handshake_counts_from_before_it_once_a_write_was_answered() {
    let mut window = steady(Kind::Read, 1);
    assert_eq!(from(&window), None, "reads prove nothing");
    window.sent(at(2000), Kind::Write);
    assert_eq!(from(&window), None, "nor does a write that is not answered");
    window.answered(at(2010), Voice::Ensemble);
    assert_eq!(from(&window), Some(at(0)));
    let proof = window.proof().expect("just proven");
    assert_eq!(proof.window, TTL * 4 / 5);
}

#[test]
fn a_request_counts_once_a_ping_has_passed_and_the_leader_answered_twice() {
    // R·T/4 is 2.5 s: the write of 7 s shows the requests answered by 4.5 s, and the next proves
    // them.
    let mut window = steady(Kind::Write, 7);
    assert_eq!(from(&window), Some(at(3000)), "shown by the write of 6 s");
    exchange(&mut window, 7020, Kind::Sync);
    assert_eq!(from(&window), Some(at(4000)), "a sync is enough, if a write was sent since");
}

#[test]
fn syncs_without_a_write_prove_nothing() {
    let mut window = steady(Kind::Sync, 9);
    assert_eq!(from(&window), None, "it may have been an old leader that answered");
    exchange(&mut window, 10_000, Kind::Write);
    assert_eq!(from(&window), Some(at(6000)));
}

#[test]
fn two_writes_prove_the_reads_of_a_waiter() {
    let mut window = steady(Kind::Read, 20);
    assert_eq!(from(&window), None);
    exchange(&mut window, 20_600, Kind::Write);
    assert_eq!(from(&window), Some(at(0)), "the handshake, which is long ago");
    exchange(&mut window, 20_620, Kind::Sync);
    assert_eq!(from(&window), Some(at(18_000)));
}

#[test]
fn a_sync_that_was_under_way_with_the_write_proves_nothing() {
    let mut window = steady(Kind::Read, 20);
    window.sent(at(20_600), Kind::Write);
    window.sent(at(20_600), Kind::Sync);
    window.answered(at(20_610), Voice::Ensemble);
    window.answered(at(20_610), Voice::Ensemble);
    assert_eq!(from(&window), Some(at(0)));
}

#[test]
fn a_clock_that_stood_still_in_a_suspend_does_not_shorten_the_wait_for_a_ping() {
    let slept = Moment { boot: Duration::from_secs(6), monotonic: Duration::from_secs(2) };
    let mut window = steady(Kind::Write, 1);
    window.sent(slept, Kind::Write);
    window.answered(slept, Voice::Ensemble);
    window.sent(slept, Kind::Write);
    window.answered(slept, Voice::Ensemble);
    assert_eq!(from(&window), Some(at(0)), "by one of the clocks no ping need have passed");
}

#[test]
fn a_leading_session_writes_every_eighth_and_syncs_in_between() {
    let mut window = steady(Kind::Write, 3);
    assert_eq!(window.until_heartbeat(at(3100), Pace::Leading), Duration::from_millis(400));
    assert_eq!(window.beat(at(3500), Pace::Leading), Kind::Sync);
    exchange(&mut window, 3500, Kind::Sync);
    assert_eq!(window.beat(at(4000), Pace::Leading), Kind::Write);
    assert_eq!(window.beat(at(4000), Pace::Waiting), Kind::Read);
}

#[test]
fn a_request_that_is_not_answered_ends_the_connection() {
    let mut window = steady(Kind::Write, 7);
    window.sent(at(8000), Kind::Write);
    assert!(!window.is_overdue(at(8800)));
    assert!(window.is_overdue(at(8801)));
}

#[test]
fn answers_of_an_earlier_connection_prove_nothing_on_this_one() {
    let mut window = steady(Kind::Write, 7);
    window.sent(at(7500), Kind::Write);
    window.connecting(at(7600));
    window.answered(at(7610), Voice::Ensemble);
    assert_eq!(from(&window), Some(at(3000)));
    window.sent(at(7700), Kind::Write);
    window.answered(at(7710), Voice::Ensemble);
    assert_eq!(from(&window), Some(at(7600)), "the new handshake does");
}

#[test]
fn a_write_that_one_server_refuses_counts_as_a_read() {
    let mut window = steady(Kind::Read, 20);
    for second in 21..30 {
        window.sent(at(second * 1000), Kind::Write);
        window.answered(at(second * 1000 + 10), Voice::OneServer);
    }
    exchange(&mut window, 30_020, Kind::Sync);
    assert_eq!(from(&window), None, "the server may be cut off");
    exchange(&mut window, 30_040, Kind::Write);
    assert_eq!(from(&window), Some(at(27_000)), "it was heard of all the same");
}

/// A server also refuses writes because of overload.
#[test]
fn a_heartbeat_that_one_server_refuses_is_followed_by_another_after_a_pause() {
    let mut window = steady(Kind::Write, 3);
    for millis in [4000, 4500, 5000] {
        assert_eq!(window.until_write(at(millis)), Duration::ZERO);
        assert_eq!(window.beat(at(millis), Pace::Leading), Kind::Write);
        window.sent(at(millis), Kind::Write);
        window.answered(at(millis + 10), Voice::OneServer);
        assert_eq!(window.until_write(at(millis + 10)), TTL / 16 - Duration::from_millis(10));
        assert_eq!(
            window.until_heartbeat(at(millis + 10), Pace::Leading),
            window.until_write(at(millis + 10))
        );
        assert_eq!(window.beat(at(millis + 20), Pace::Leading), Kind::Sync, "before its time");
    }
    assert_eq!(window.beat(at(5500), Pace::Leading), Kind::Write);
    exchange(&mut window, 5500, Kind::Write);
    assert_eq!(window.until_write(at(5500)), TTL / 8, "a quorum took that one");
}

#[test]
fn writes_of_others_that_are_refused_do_not_put_off_a_leaders_own() {
    let mut window = steady(Kind::Write, 3);
    assert_eq!(window.beat(at(4000), Pace::Leading), Kind::Write);
    exchange(&mut window, 4000, Kind::Write);
    // One of these writes is always under way.
    window.sent(at(4050), Kind::Write);
    for millis in (4100..5000).step_by(50) {
        window.sent(at(millis), Kind::Write);
        window.answered(at(millis + 10), Voice::OneServer);
        assert_eq!(window.until_write(at(millis)), Duration::from_millis(5000 - millis));
    }
    window.overtaken(0);
    assert_eq!(window.beat(at(5000), Pace::Leading), Kind::Write);
}

#[test]
fn a_sync_that_one_server_refuses_is_no_answer_of_the_leader() {
    let mut window = steady(Kind::Read, 20);
    exchange(&mut window, 20_600, Kind::Write);
    window.sent(at(20_620), Kind::Sync);
    window.answered(at(20_630), Voice::OneServer);
    assert_eq!(from(&window), Some(at(0)), "the report may be stuck");
}

#[test]
fn a_refusal_before_its_turn_leaves_the_order_of_the_others() {
    let mut window = steady(Kind::Read, 20);
    for millis in [600, 601, 602] {
        window.sent(at(20_000 + millis), Kind::Write);
    }
    window.overtaken(1);
    window.answered(at(20_610), Voice::Ensemble);
    assert_eq!(from(&window), Some(at(0)));
    assert_eq!(window.waited(at(20_612)), Some(Duration::from_millis(10)), "the third");
    window.overtaken(0);
    window.overtaken(0);
    assert_eq!(window.waited(at(20_612)), None);
    window.answered(at(20_620), Voice::Ensemble);
    assert_eq!(from(&window), Some(at(0)), "nothing is left to be answered");
}

#[test]
fn nothing_of_a_connection_counts_after_its_end() {
    // Answered, reported, arrived and written: each request adds one of them.
    for requests in 1..=4 {
        let mut window = steady(Kind::Read, 20);
        for request in 0..requests {
            exchange(&mut window, 20_600 + request * 3000, Kind::Sync);
        }
        window.disconnected();
        // No handshake: a proof would come from the connection that has ended.
        for (millis, kind) in [(40_000, Kind::Write), (40_020, Kind::Sync), (40_040, Kind::Sync)] {
            exchange(&mut window, millis, kind);
        }
        assert_eq!(from(&window), None, "after {requests}");
    }
    let mut window = steady(Kind::Write, 20);
    window.disconnected();
    assert_eq!(window.until_write(at(20_100)), Duration::ZERO, "nor does its last write");
    assert_eq!(window.until_heartbeat(at(20_100), Pace::Leading), Duration::ZERO);
}

/// Regression: a stop budget of T/3 was accepted, and leaders were told to stop all the time.
#[test]
fn a_leader_that_beats_on_time_always_has_more_left_than_the_longest_grace() {
    // An answer takes T/80.
    let (beat, answer) = (500, 100);
    let mut window = StreamOrderWindow::new(TTL);
    window.connecting(at(0));
    let mut least = Duration::MAX;
    for millis in (beat..100 * beat).step_by(500) {
        let kind = window.beat(at(millis), Pace::Leading);
        window.sent(at(millis), kind);
        // The worst moment is just before an answer that proves more.
        if let Some(proof) = window.proof().filter(|_| millis > 20 * beat) {
            let elapsed = at(millis + answer).at_most_since(proof.from);
            least = least.min(proof.window.saturating_sub(elapsed));
        }
        window.answered(at(millis + answer), Voice::Ensemble);
    }
    assert!(least > crate::Timing::longest_session_grace(TTL), "{least:?} of {TTL:?}");
    assert!(least < TTL / 3, "{least:?}: a longer grace may be allowed");
}
