//! Tests each rule of the machine, one step at a time. `tests/reconcile*.rs` test the loop around
//! it.

use super::*;

fn machine() -> Machine {
    Machine::new(Patience::default())
}

fn leader(token: u64) -> Input {
    Input::Leader { token }
}

fn not_leader() -> Input {
    Input::NotLeader { reason: Reason::NotLeader("test".into()) }
}

fn error() -> Input {
    Input::Error { reason: Reason::Error("test".into()) }
}

fn failed() -> Result<(), String> {
    Err("it failed".into())
}

/// The handler a step starts, if it starts one.
fn started(outputs: &[Output]) -> Option<(Run, Step, Option<u64>)> {
    outputs.iter().find_map(|output| match output {
        Output::Run { run, step, token, .. } => Some((*run, *step, *token)),
        Output::Entered(_)
        | Output::Stop(_)
        | Output::Wait(_)
        | Output::Release(_)
        | Output::Over(_) => None,
    })
}

fn runs(outputs: &[Output], step: Step, token: Option<u64>) -> Run {
    let (run, actual, of) = started(outputs).unwrap_or_else(|| panic!("{step:?}: {outputs:?}"));
    assert_eq!((actual, of), (step, token), "{outputs:?}");
    run
}

fn leading(token: u64) -> Machine {
    let mut machine = machine();
    let begin = runs(&machine.step(leader(token)), Step::Begin, Some(token));
    let out = machine.step(Input::Finished(begin, Ok(())));
    assert_eq!(out, [Output::Entered(State::Leading { token })]);
    machine
}

#[test]
fn an_error_while_leading_releases_only_after_the_end_succeeded() {
    let mut machine = leading(1);
    let out = machine.step(error());
    let end = runs(&out, Step::End, Some(1));
    assert!(!out.iter().any(|output| matches!(output, Output::Release(_))), "{out:?}");
    let out = machine.step(Input::Finished(end, Ok(())));
    assert_eq!(out[0], Output::Release(Release::GiveUp));
    runs(&out, Step::Error, None);
    assert_eq!(out.last(), Some(&Output::Wait(Duration::from_secs(30))));
}

#[test]
fn a_begin_that_fails_by_itself_needs_no_end() {
    let mut machine = machine();
    let begin = runs(&machine.step(leader(1)), Step::Begin, Some(1));
    let out = machine.step(Input::Finished(begin, failed()));
    assert_eq!(out[0], Output::Release(Release::GiveUp));
    runs(&out, Step::Error, None);
}

#[test]
fn a_begin_cut_short_by_its_deadline_is_followed_by_an_end_then_by_the_error() {
    let mut machine = machine();
    let begin = runs(&machine.step(leader(1)), Step::Begin, Some(1));
    assert_eq!(machine.step(Input::DeadlinePassed(begin)), [Output::Stop(begin)]);
    assert_eq!(machine.step(Input::DeadlinePassed(begin)), [], "it is stopped once");
    let end = runs(&machine.step(Input::Finished(begin, Ok(()))), Step::End, Some(1));
    runs(&machine.step(Input::Finished(end, Ok(()))), Step::Error, None);
}

#[test]
fn flapping_during_a_begin_ends_the_lost_tenure_before_the_next_begins() {
    let mut machine = machine();
    let begin = runs(&machine.step(leader(1)), Step::Begin, Some(1));
    assert_eq!(machine.step(not_leader()), [Output::Stop(begin)]);
    assert_eq!(machine.step(leader(2)), []);
    let end = runs(&machine.step(Input::Finished(begin, Ok(()))), Step::End, Some(1));
    let out = machine.step(Input::Finished(end, Ok(())));
    runs(&out, Step::Begin, Some(2));
    assert!(!out.contains(&Output::Release(Release::StandAgain)), "it leads already: {out:?}");
}

#[test]
fn a_new_token_alone_ends_the_tenure_before() {
    let mut machine = leading(1);
    assert_eq!(machine.step(leader(1)), [], "the same tenure again is no news");
    let end = runs(&machine.step(leader(2)), Step::End, Some(1));
    runs(&machine.step(Input::Finished(end, Ok(()))), Step::Begin, Some(2));
}

#[test]
fn a_tenure_that_came_and_went_during_an_end_is_never_begun() {
    let mut machine = leading(1);
    let end = runs(&machine.step(not_leader()), Step::End, Some(1));
    assert_eq!(machine.step(leader(2)), []);
    assert_eq!(machine.step(not_leader()), []);
    let out = machine.step(Input::Finished(end, Ok(())));
    assert_eq!(out, [Output::Release(Release::StandAgain), Output::Entered(State::NotLeading)],);
}

#[test]
fn an_end_that_failed_once_is_an_error_even_if_it_then_succeeds() {
    let mut machine = leading(1);
    let end = runs(&machine.step(not_leader()), Step::End, Some(1));
    let out = machine.step(Input::Finished(end, failed()));
    assert_eq!(out, [Output::Wait(Duration::from_secs(5))]);
    let out = machine.step(Input::Waited);
    assert_eq!(out[0], Output::Entered(State::Ending { token: 1, attempt: 2 }));
    let end = runs(&out, Step::End, Some(1));
    runs(&machine.step(Input::Finished(end, Ok(()))), Step::Error, None);
}

#[test]
fn twelve_failed_ends_are_stuck_and_nothing_is_given_up() {
    let mut machine = leading(1);
    let mut out = machine.step(not_leader());
    for attempt in 1..=12 {
        let end = runs(&out, Step::End, Some(1));
        out = machine.step(Input::Finished(end, failed()));
        if attempt < 12 {
            assert_eq!(out, [Output::Wait(Duration::from_secs(5))]);
            out = machine.step(Input::Waited);
        }
    }
    assert_eq!(out[0], Output::Release(Release::Abandon));
    let last_resort = runs(&out, Step::Stuck, Some(1));
    assert_eq!(machine.step(Input::Finished(last_resort, Ok(()))), [], "the lease must run out");
    let stuck = Verdict::Stuck { token: 1, attempts: 12, last: "it failed".into() };
    assert_eq!(machine.step(Input::Released), [Output::Over(stuck)]);
    assert_eq!(machine.step(leader(2)), []);
}

#[test]
fn what_the_source_says_before_it_has_given_up_is_about_the_past() {
    let mut machine = machine();
    let handler = runs(&machine.step(error()), Step::Error, None);
    assert_eq!(machine.step(leader(1)), []);
    assert_eq!(machine.step(Input::Released), []);
    assert_eq!(machine.step(Input::Finished(handler, failed())), []);
    let out = machine.step(Input::Waited);
    assert_eq!(out, [Output::Release(Release::StandAgain), Output::Entered(State::NotLeading)]);
    runs(&machine.step(leader(2)), Step::Begin, Some(2));
}

#[test]
fn a_second_error_during_the_error_timeout_is_told_too() {
    let mut machine = machine();
    let handler = runs(&machine.step(error()), Step::Error, None);
    assert_eq!(machine.step(Input::Released), []);
    assert_eq!(machine.step(error()), []);
    assert_eq!(machine.step(Input::Finished(handler, Ok(()))), []);
    runs(&machine.step(Input::Waited), Step::Error, None);
}

#[test]
fn an_error_handler_that_hangs_is_stopped_when_the_error_timeout_is_over() {
    let mut machine = machine();
    let handler = runs(&machine.step(error()), Step::Error, None);
    assert_eq!(machine.step(Input::Released), []);
    assert_eq!(machine.step(Input::Waited), [Output::Stop(handler)]);
    let out = machine.step(Input::Finished(handler, failed()));
    assert_eq!(out[0], Output::Release(Release::StandAgain));
}

#[test]
fn a_stop_during_a_begin_stops_it_ends_it_and_gives_up() {
    let mut machine = machine();
    let begin = runs(&machine.step(leader(1)), Step::Begin, Some(1));
    assert_eq!(machine.step(Input::StopRequested), [Output::Stop(begin)]);
    let end = runs(&machine.step(Input::Finished(begin, failed())), Step::End, Some(1));
    let out = machine.step(Input::Finished(end, Ok(())));
    assert_eq!(out[0], Output::Release(Release::GiveUp));
    let out = machine.step(Input::Released);
    assert_eq!(out, [Output::Entered(State::Stopped), Output::Over(Verdict::Stopped)]);
}

#[test]
fn a_stop_does_not_make_an_end_give_up_earlier() {
    let mut machine = leading(1);
    let end = runs(&machine.step(Input::StopRequested), Step::End, Some(1));
    assert_eq!(machine.step(Input::Finished(end, failed())).len(), 1);
    let end = runs(&machine.step(Input::Waited), Step::End, Some(1));
    let out = machine.step(Input::Finished(end, Ok(())));
    assert_eq!(out[0], Output::Release(Release::GiveUp), "and no error timeout is waited for");
    assert_eq!(started(&out), None);
}

#[test]
fn a_stop_during_the_error_timeout_ends_the_waiting() {
    let mut machine = machine();
    let handler = runs(&machine.step(error()), Step::Error, None);
    assert_eq!(machine.step(Input::Released), []);
    assert_eq!(machine.step(Input::StopRequested), [Output::Stop(handler)]);
    let out = machine.step(Input::Finished(handler, failed()));
    assert_eq!(out[0], Output::Release(Release::GiveUp));
}

#[test]
fn when_the_source_ends_a_begin_may_finish_and_an_end_follows() {
    let mut machine = machine();
    let begin = runs(&machine.step(leader(1)), Step::Begin, Some(1));
    assert_eq!(machine.step(Input::SourceEnded), []);
    let end = runs(&machine.step(Input::Finished(begin, Ok(()))), Step::End, Some(1));
    assert_eq!(machine.step(Input::Finished(end, Ok(())))[0], Output::Release(Release::GiveUp));
    let out = machine.step(Input::Released);
    assert_eq!(out.last(), Some(&Output::Over(Verdict::SourceEnded)));
}

#[test]
fn a_late_word_of_an_earlier_run_changes_nothing() {
    let mut machine = machine();
    let begin = runs(&machine.step(leader(1)), Step::Begin, Some(1));
    assert_eq!(machine.step(Input::Finished(begin, Ok(()))).len(), 1);
    runs(&machine.step(not_leader()), Step::End, Some(1));
    assert_eq!(machine.step(Input::Finished(begin, Ok(()))), []);
    assert_eq!(machine.step(Input::DeadlinePassed(begin)), []);
    assert_eq!(machine.step(Input::Waited), []);
}

/// Simulates the loop: one handler at a time, late orders, events at any time.
#[derive(Default)]
struct World {
    running: Option<(Run, Step, Option<u64>)>,
    stopped: bool,
    orders: u32,
    /// The tenure that was begun and has not been ended successfully.
    open: Option<u64>,
    over: bool,
}

impl World {
    fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            assert!(!self.over, "{output:?} after the end");
            match output {
                Output::Run { run, step, token, .. } => {
                    assert_eq!(self.running, None, "handlers never overlap");
                    match step {
                        Step::Begin => {
                            assert_eq!(
                                self.open, None,
                                "a begin before the end of the last tenure"
                            );
                            self.open = token;
                        }
                        Step::End | Step::Stuck => {
                            assert_eq!(self.open, token, "of what was begun")
                        }
                        Step::Error => assert_eq!(self.open, None, "an error before the end"),
                    }
                    self.running = Some((run, step, token));
                    self.stopped = false;
                }
                Output::Stop(run) => {
                    assert_eq!(self.running.map(|(run, ..)| run), Some(run), "of what runs");
                    assert!(!self.stopped, "told twice");
                    self.stopped = true;
                }
                Output::Release(Release::GiveUp | Release::StandAgain) => {
                    assert_eq!(self.open, None, "released before the end");
                    self.orders += 1;
                }
                Output::Release(Release::Abandon) => self.orders += 1,
                Output::Over(Verdict::Stuck { .. }) => self.over = true,
                Output::Over(Verdict::Stopped | Verdict::SourceEnded) => {
                    assert_eq!(self.open, None, "over before the end");
                    self.over = true;
                }
                Output::Entered(_) | Output::Wait(_) => {}
            }
        }
    }

    /// Finishes the running handler, and closes the tenure if nothing is left to end.
    fn finish(&mut self, ok: bool) -> Option<Input> {
        let (run, step, _) = self.running.take()?;
        let closed = match step {
            // A begin that failed by itself leaves nothing to end.
            Step::Begin => !ok && !self.stopped,
            Step::End => ok,
            Step::Error | Step::Stuck => false,
        };
        if closed {
            self.open = None;
        }
        Some(Input::Finished(run, if ok { Ok(()) } else { failed() }))
    }
}

proptest::proptest! {
    /// In any order of events, the rules of the machine hold.
    ///
    /// A tenure is released only after its end, handlers never overlap, and a stop always gets
    /// through.
    #[test]
    fn nothing_is_released_before_its_end_and_a_stop_gets_through(
        moves in proptest::collection::vec((0_u8..10, 1_u64..5), 0..80),
    ) {
        let patience = Patience { end_attempts: 3, ..Patience::default() };
        let (mut machine, mut world) = (Machine::new(patience), World::default());
        for (kind, token) in moves {
            let input = match kind {
                0 | 1 => Some(leader(token)),
                2 => Some(not_leader()),
                3 => Some(error()),
                4 | 5 => world.finish(true),
                6 => world.finish(false),
                7 => Some(Input::Waited),
                8 => world.running.map(|(run, ..)| Input::DeadlinePassed(run)),
                _ => (world.orders > 0).then(|| {
                    world.orders -= 1;
                    Input::Released
                }),
            };
            if let Some(input) = input {
                world.take(machine.step(input));
            }
        }
        world.take(machine.step(Input::StopRequested));
        for _ in 0..20 {
            let mut inputs = vec![Input::Waited];
            inputs.extend(world.finish(true));
            while world.orders > 0 {
                world.orders -= 1;
                inputs.push(Input::Released);
            }
            inputs.into_iter().for_each(|input| world.take(machine.step(input)));
        }
        assert!(world.over, "{machine:?}");
    }
}
