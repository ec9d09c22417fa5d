//! Rounds with documents that are garbled, deleted or forged.

use tenure::lease::record::MAX_NUMBER;

use super::*;
use crate::documents::Page;
use crate::error::ClusterError;

/// Regression: a leader wrote a cursor with a revision that is too large.
///
/// It then refused to read that cursor.
#[test]
fn a_cursor_whose_revision_is_at_its_limit_is_left_as_it_is() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let key = stage.client.keys.cursor();
    let forged = Cursor { revision: MAX_NUMBER, ..stage.cursor() };
    stage.write(&key, forged.encode());
    stage.submit(orders(3));
    stage.pass(5 * SECOND);
    assert_eq!(stage.cursor(), forged, "it can still be read");
    let cluster_config = stage.client.keys.cluster_config();
    stage.write(
        &cluster_config,
        ClusterConfig { revision: MAX_NUMBER, ..stage.cluster_config() }.encode(),
    );
    assert!(matches!(now(stage.client.pause()), Err(ClusterError::Document { .. })));
    assert_eq!(stage.cluster_config().revision, MAX_NUMBER, "it can still be read");
}

#[test]
fn a_garbled_slot_is_told_of_once_and_left_alone() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let key = stage.client.keys.slot(3);
    stage.write(&key, "nonsense".into());
    stage.submit(orders(300));
    stage.pass(5 * SECOND);
    assert_eq!(stage.live().len(), 255);
    let garbled = stage.events().into_iter().filter(|event| matches!(event, Event::Garbled { .. }));
    assert_eq!(garbled.count(), 1);
    let found = now(stage.client.store().get(&key)).expect("memory serves").expect("still there");
    assert_eq!(found.body, "nonsense");
}

#[test]
fn a_garbled_cursor_is_told_of_and_never_overwritten() {
    let mut stage = Stage::new();
    let key = stage.client.keys.cursor();
    stage.write(&key, "nonsense".into());
    stage.pass(5 * SECOND);
    let found = now(stage.client.store().get(&key)).expect("memory serves").expect("still there");
    assert_eq!(found.body, "nonsense");
    assert!(stage.events().iter().any(|event| matches!(event, Event::Garbled { .. })));
}

#[test]
fn a_garbled_page_is_passed_over_and_its_place_used_again() {
    let mut stage = Stage::new();
    stage.write(&stage.client.keys.page(0), "nonsense".into());
    stage.submit(orders(3));
    stage.pass(2 * SECOND);
    assert_eq!((stage.live().len(), stage.cursor().page), (3, 2));
    let page = stage.read::<Page>(&stage.client.keys.page(0)).expect("a page").1;
    assert_eq!((page.number, page.entries.len()), (256, 0));
}

#[test]
fn a_charter_or_a_cursor_that_somebody_deleted_loses_no_slot_and_no_token() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let grown = ClusterConfig { slots: 800, ..stage.cluster_config() };
    stage.write(&stage.client.keys.cluster_config(), grown.encode());
    stage.submit(orders(700));
    stage.pass(5 * SECOND);
    assert_eq!(stage.live().len(), 700);
    let highest = stage.live().iter().map(|(_, slot)| slot.task.serial).max();
    stage.delete(&stage.client.keys.cluster_config());
    stage.pass(2 * SECOND);
    assert!(stage.cluster_config().slots >= 700, "{}", stage.cluster_config().slots);
    stage.delete(&stage.client.keys.cursor());
    stage.elect(2);
    stage.pass(2 * SECOND);
    assert!(Some(stage.cursor().next) > highest);
}

#[test]
fn a_piece_that_nobody_counted_is_replaced() {
    let mut stage = Stage::new();
    stage.submit(orders(2));
    stage.pass(SECOND);
    stage.write(&stage.client.keys.piece(0), "left by somebody who was cut off".into());
    stage.finish_all();
    stage.pass(2 * SECOND);
    assert_eq!((stage.reports().len(), stage.cursor().done), (2, 2));
}

#[test]
fn a_node_list_or_a_charter_that_makes_no_sense_is_told_of_and_work_goes_on() {
    let mut stage = Stage::new();
    stage.write(&stage.client.keys.nodes(), "nonsense".into());
    stage.write(&stage.client.keys.cluster_config(), "nonsense".into());
    stage.submit(orders(3));
    stage.pass(5 * SECOND);
    assert_eq!((stage.live().len(), stage.cluster_config().slots), (3, 256));
    let garbled = stage.events().into_iter().filter(|event| matches!(event, Event::Garbled { .. }));
    assert_eq!(garbled.count(), 2);
    let nodes = now(stage.client.store().get(&stage.client.keys.nodes()));
    assert_eq!(nodes.expect("memory serves").expect("still there").body, "nonsense");
}

#[test]
fn what_a_slot_has_lost_is_put_back_while_the_cursor_knows_it() {
    let mut stage = Stage::new();
    stage.submit(orders(3));
    stage.pass(SECOND);
    let lost: Vec<Key> = stage.live().into_iter().map(|(key, _)| key).collect();
    stage.write(&lost[0], Bytes::from_static(b"garbage"));
    stage.delete(&lost[1]);
    stage.planner.local_writes.call_planner();
    stage.pass(SECOND);
    assert_eq!(stage.live().len(), 3);
    stage.finish_all();
    stage.planner.local_writes.call_planner();
    stage.pass(SECOND);
    assert_eq!((stage.cursor().accepted, stage.cursor().done), (3, 3));
}
