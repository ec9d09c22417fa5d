//! Rounds with submitted tasks: they are taken in, they end, and their outcomes are kept a while.

use tenure::store::MAX_DOCUMENT_BYTES;

use super::*;
use crate::documents::{
    Entry, Letter, MAX_NOTE_BYTES, MAX_TASK_BYTES, Outcome, OutcomeState, WakeUp,
};

#[test]
fn a_submission_wakes_the_leader_and_the_leader_rings_the_bell() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let wake_up = stage.client.keys.wake_up();
    let before = stage.read::<WakeUp>(&wake_up).expect("it was rung at the start").1.rung;
    stage.submit(orders(3));
    assert!(stage.planner.settle().is_none());
    assert_eq!(stage.live().len(), 3, "no time had to pass");
    assert!(stage.read::<WakeUp>(&wake_up).expect("a bell").1.rung > before);
}

#[test]
fn a_nudge_wakes_the_leader() {
    let mut stage = Stage::new();
    stage.submit(orders(3));
    stage.pass(SECOND);
    stage.finish_all();
    assert!(stage.planner.settle().is_none());
    assert_eq!(stage.cursor().done, 0, "nobody told it");
    stage.planner.local_writes.call_planner();
    stage.pass(Duration::from_millis(50));
    assert_eq!(stage.cursor().done, 3);
}

#[test]
fn a_paused_cluster_counts_what_ends_and_takes_nothing_in() {
    let mut stage = Stage::new();
    stage.submit(orders(3));
    stage.pass(SECOND);
    let cluster_config = ClusterConfig { paused: true, ..stage.cluster_config() };
    stage.write(&stage.client.keys.cluster_config(), cluster_config.encode());
    stage.submit(orders(5));
    stage.finish_all();
    stage.pass(2 * SECOND);
    assert_eq!((stage.cursor().accepted, stage.cursor().done, stage.live().len()), (3, 3, 0));
    let cluster_config = ClusterConfig { paused: false, ..stage.cluster_config() };
    stage.write(&stage.client.keys.cluster_config(), cluster_config.encode());
    stage.pass(2 * SECOND);
    assert_eq!(stage.live().len(), 5);
}

#[test]
fn a_dead_task_becomes_a_letter_and_a_retry_brings_it_back_once() {
    let mut stage = Stage::new();
    stage.submit(orders(1));
    stage.pass(SECOND);
    stage.kill_all(false);
    stage.pass(2 * SECOND);
    let letters = now(stage.client.store().list(&stage.client.keys.letters(), None, 9));
    let letters = letters.expect("memory serves").documents;
    let [(key, letter)] = &letters[..] else { panic!("{letters:?}") };
    let letter = Letter::decode(&letter.body).expect("a letter");
    assert_eq!((letter.error.as_str(), letter.task.id.as_str()), ("it failed", "task-0"));
    assert_eq!((stage.cursor().dead, stage.live().len()), (1, 0));
    let retry = Entry::Retry(letter.task.serial);
    now(stage.client.enter(vec![retry.clone(), retry.clone()])).expect("room");
    stage.pass(SECOND);
    now(stage.client.enter(vec![retry])).expect("room");
    stage.pass(SECOND);
    assert_eq!(stage.live().len(), 1);
    let slot = &stage.live()[0].1;
    assert!(slot.task.serial > letter.task.serial && slot.attempt == 0);
    assert!(stage.read::<Letter>(key).is_none());
    assert_eq!((stage.cursor().accepted, stage.cursor().dead, stage.cursor().open()), (1, 0, 1));
}

#[test]
fn a_cancelled_task_leaves_no_letter() {
    let mut stage = Stage::new();
    stage.submit(vec![Order { receipt: Some(member(9)), ..order("a") }]);
    stage.pass(SECOND);
    stage.kill_all(true);
    stage.pass(2 * SECOND);
    let letters = now(stage.client.store().list(&stage.client.keys.letters(), None, 9));
    assert!(letters.expect("memory serves").documents.is_empty());
    assert_eq!((stage.cursor().dead, stage.cursor().cancelled), (0, 1));
    let outcome = stage.read::<Outcome>(&stage.client.keys.outcome(&member(9)));
    assert_eq!(outcome.expect("somebody waits").1.state, OutcomeState::Cancelled);
}

#[test]
fn large_results_go_into_as_many_pieces_as_they_need() {
    let mut stage = Stage::new();
    stage.submit(orders(200));
    stage.pass(2 * SECOND);
    let result = || Some("\u{1}".repeat(MAX_NOTE_BYTES));
    stage.end_all(|slot| {
        slot.following(stage.client.fresh_op(), Progress::Done { result: result() })
    });
    stage.pass(20 * SECOND);
    assert_eq!((stage.cursor().done, stage.reports().len()), (200, 200));
    for number in 0..stage.cursor().pieces {
        let piece = now(stage.client.store().get(&stage.client.keys.piece(number)));
        let bytes = piece.expect("memory serves").expect("a piece").body.len();
        assert!(bytes <= MAX_DOCUMENT_BYTES, "{bytes}");
    }
}

#[test]
fn large_tasks_are_taken_in_as_they_fit() {
    let mut stage = Stage::new();
    let large = |order: Order| Order { payload: vec![7; MAX_TASK_BYTES].into(), ..order };
    stage.submit(orders(30).into_iter().map(large).collect());
    stage.pass(5 * SECOND);
    assert_eq!((stage.cursor().accepted, stage.live().len()), (30, 30));
}

#[test]
fn outcomes_that_nobody_came_for_are_removed_after_an_hour() {
    let mut stage = Stage::new();
    stage.submit(vec![Order { receipt: Some(member(9)), ..order("a") }]);
    stage.pass(SECOND);
    stage.finish_all();
    stage.pass(2 * SECOND);
    let key = stage.client.keys.outcome(&member(9));
    for _ in 0..6 {
        assert!(stage.read::<Outcome>(&key).is_some());
        stage.clock.advance(Duration::from_secs(9 * 60));
        stage.pass(SECOND);
    }
    stage.clock.advance(Duration::from_secs(30 * 60));
    stage.pass(SECOND);
    assert!(stage.read::<Outcome>(&key).is_none());
}
