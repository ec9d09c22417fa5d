//! Rounds in which one leader follows another.

use super::super::super::Deposed;
use super::*;
use crate::documents::{Intent, Page, first_token};

#[test]
fn a_planner_stops_when_a_later_leader_has_the_cursor_and_changes_nothing_more() {
    let mut stage = Stage::new();
    stage.submit(orders(3));
    stage.pass(SECOND);
    let mut second = Working::new(&stage.client, &stage.clock, 2, None);
    assert!(second.settle().is_none());
    stage.submit(orders(3));
    stage.clock.advance(SECOND);
    let over = stage.planner.settle().expect("it stops");
    assert_eq!(over.expect("no error"), Deposed { by: 2 });
    second.settle_for(&stage.clock, SECOND);
    assert_eq!((stage.cursor().leader, stage.cursor().accepted, stage.live().len()), (2, 6, 6));
}

#[test]
fn a_successor_finishes_what_was_recorded_before_anything_else() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let before = stage.cursor();
    let task = order("recorded").numbered(before.next);
    let (slot, serial) = (17, before.next);
    let intents = vec![Intent { slot, serial, task: Some(task), letter: None }];
    let (next, accepted, op) = (before.next + 1, 1, stage.client.fresh_op());
    let recorded = Cursor { intents, next, accepted, op, ..before };
    stage.write(&stage.client.keys.cursor(), recorded.encode());
    stage.write(&stage.client.keys.slot(17), "nonsense is in the way".into());
    stage.elect(2);
    stage.pass(SECOND);
    let slot = stage.read::<Slot>(&stage.client.keys.slot(17)).expect("it was written").1;
    assert_eq!((slot.token, slot.task.id.as_str()), (first_token(serial), "recorded"));
}

#[test]
fn a_page_that_was_taken_and_not_freed_is_freed_by_the_successor() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    stage.submit(orders(3));
    let page = stage.read::<Page>(&stage.client.keys.page(0)).expect("a page").1;
    stage.pass(SECOND);
    assert_eq!(stage.cursor().page, 1);
    stage.write(&stage.client.keys.page(0), page.encode());
    stage.elect(2);
    stage.pass(SECOND);
    let page = stage.read::<Page>(&stage.client.keys.page(0)).expect("a page").1;
    assert_eq!((page.number, page.entries.len()), (256, 0));
    assert_eq!(stage.cursor().accepted, 3);
}
