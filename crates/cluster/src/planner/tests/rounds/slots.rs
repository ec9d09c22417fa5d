//! Rounds that make slots, and fill more tasks into them than they hold at once.

use std::collections::BTreeSet;

use super::*;

#[test]
fn a_new_cluster_gets_its_documents_and_more_slots_when_workers_hold_most_of_them() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    assert_eq!((stage.cluster_config().slots, stage.cursor().leader), (256, 1));
    let node = stage.join(7, 40);
    stage.submit(orders(1000));
    stage.pass(5 * SECOND);
    assert_eq!(stage.cluster_config().slots, 256, "what waits there is enough for 40 workers");
    // Hold another half of the slots each time, for less than a ttl.
    for (held, slots) in [(128, 512), (256, 800)] {
        for (key, slot) in stage.waiting().into_iter().take(held) {
            stage.hold(&key, &slot, &node);
        }
        stage.pass(SECOND);
        assert_eq!((stage.cluster_config().slots, stage.live().len()), (slots, slots));
    }
    let nodes = stage.client.keys.nodes();
    stage.delete(&nodes);
    stage.pass(2 * SECOND);
    assert_eq!(stage.cluster_config().slots, 800, "it never shrinks");
}

/// Regression: a node list with 4 billion workers made 16,384 slots, for good.
#[test]
fn a_forged_count_of_workers_makes_no_slots_whatever_waits() {
    let mut stage = Stage::new();
    let node = stage.join(7, u32::MAX);
    stage.submit(orders(2000));
    stage.pass(5 * SECOND);
    for (key, slot) in stage.waiting().into_iter().take(4) {
        stage.hold(&key, &slot, &node);
    }
    stage.pass(2 * SECOND);
    assert_eq!((stage.cluster_config().slots, stage.live().len()), (256, 256));
}

#[test]
fn more_tasks_than_slots_are_each_counted_once() {
    let mut stage = Stage::new();
    stage.submit(orders(1000));
    let mut worked = 0;
    for _ in 0..40 {
        stage.pass(SECOND);
        assert!(stage.live().len() <= 256);
        worked += stage.finish_all();
    }
    assert_eq!(worked, 1000);
    let cursor = stage.cursor();
    assert_eq!((cursor.accepted, cursor.done, cursor.open()), (1000, 1000, 0));
    let ids: BTreeSet<String> = stage.reports().into_iter().map(|report| report.id).collect();
    assert_eq!((ids.len(), stage.reports().len()), (1000, 1000));
    assert!(stage.slots().iter().all(|(_, slot)| slot.progress == Progress::Vacant));
}
