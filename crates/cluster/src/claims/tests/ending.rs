//! Tests of how a claim ends: done, failed, cancelled, or lost.

use super::*;

#[test]
fn an_end_that_comes_after_somebody_elses_claim_is_refused() {
    let mut world = World::with(1);
    let mut first = node(1, Reads::Linearizable);
    let mut second = node(2, Reads::Linearizable);
    let claim = begun(&world.serve(&mut first))[0];
    world.serve(&mut second);
    world.pass(timing().ttl());
    let theirs = begun(&world.serve(&mut second))[0];
    first.take(world.now, Input::Ended(claim, Ending::Done(None)));
    let said = world.serve(&mut first);
    assert!(said.contains(&Output::Lost(claim)), "{said:?}");
    assert!(said.contains(&Output::Settled(claim, Verdict::Refused)), "{said:?}");
    second.take(world.now, Input::Ended(theirs, Ending::Done(Some("ok".into()))));
    assert!(world.serve(&mut second).contains(&Output::Settled(theirs, Verdict::Accepted)));
    assert_eq!(world.slots[0].1.progress, Progress::Done { result: Some("ok".into()) });
}

#[test]
fn an_end_that_comes_late_counts_when_nobody_else_came() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let claim = begun(&world.serve(&mut node))[0];
    world.pass(timing().ttl() * 2);
    node.take(world.now, Input::Ended(claim, Ending::Done(None)));
    let said = world.serve(&mut node);
    assert!(said.contains(&Output::Lost(claim)), "{said:?}");
    assert!(said.contains(&Output::Settled(claim, Verdict::Accepted)), "{said:?}");
}

#[test]
fn work_is_told_to_stop_before_its_window_ends_and_a_late_answer_takes_nothing_back() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let claim = begun(&world.serve(&mut node))[0];
    world.pass(timing().heartbeat());
    let outputs = node.act(world.now, 0);
    let Some(Output::Write(ask, writes)) = outputs.first() else { panic!("{outputs:?}") };
    let answers = writes.iter().map(|write| Ok(world.put(write))).collect();
    world.pass(timing().window() - timing().heartbeat() - timing().grace());
    let said = node.act(world.now, 0);
    assert!(said.contains(&Output::MustStop(claim)), "{said:?}");
    node.take(world.now, Input::Wrote(*ask, answers));
    world.pass(timing().grace());
    let said = world.serve(&mut node);
    assert!(said.contains(&Output::Lost(claim)), "{said:?}");
    assert!(!said.iter().any(|output| matches!(output, Output::Extended(..))), "{said:?}");
}

#[test]
fn a_task_that_somebody_cancels_is_stopped_and_buried() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let claim = begun(&world.serve(&mut node))[0];
    let (version, slot) = &mut world.slots[0];
    *version = 1000;
    *slot =
        Slot { cancel: true, revision: slot.revision + 1, op: Op::new(&me(9), 1), ..slot.clone() };
    world.pass(timing().heartbeat());
    let said = world.serve(&mut node);
    assert!(said.contains(&Output::Cancel(claim)), "{said:?}");
    node.take(world.now, Input::Ended(claim, Ending::Cancelled));
    assert!(world.serve(&mut node).contains(&Output::Settled(claim, Verdict::Accepted)));
    assert!(world.slots[0].1.cancel);
    assert!(matches!(world.slots[0].1.progress, Progress::Dead { .. }));
}

#[test]
fn the_last_attempt_that_fails_makes_a_dead_letter_and_a_returned_one_does_not_count() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let claim = begun(&world.serve(&mut node))[0];
    node.take(world.now, Input::Ended(claim, Ending::Returned));
    let mut claim = begun(&world.serve(&mut node))[0];
    assert_eq!(world.slots[0].1.attempt, 1);
    for _ in 0..2 {
        node.take(world.now, Input::Ended(claim, Ending::Failed("no".into())));
        claim = begun(&world.serve(&mut node))[0];
    }
    node.take(world.now, Input::Ended(claim, Ending::Failed("no".into())));
    world.serve(&mut node);
    assert_eq!(world.slots[0].1.progress, Progress::Dead { error: "no".into() });
}

/// The simulation cannot detect this mutant.
///
/// There the task's mandate is closed for good, even if the machine revives the lease.
#[cfg(feature = "mutants")]
#[test]
fn a_late_answer_that_revives_is_noticed() {
    use crate::mutant::{ClusterMutant, break_rule};

    let test = work_is_told_to_stop_before_its_window_ends_and_a_late_answer_takes_nothing_back;
    break_rule(Some(ClusterMutant::LateAnswerRevives));
    let noticed = std::panic::catch_unwind(test).is_err();
    break_rule(None);
    assert!(noticed);
}
