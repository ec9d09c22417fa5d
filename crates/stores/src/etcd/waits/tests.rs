//! Tests of waits against changes that a test reports.

use futures_util::FutureExt as _;

use super::*;

fn topic() -> Topic {
    Topic::one("a/b".into())
}

/// The topics to watch, and from which revision.
fn unasked(waits: &Waits) -> Vec<(Topic, i64)> {
    let mut last = 0;
    let numbers = || {
        last += 1;
        last
    };
    waits.unasked(numbers).into_iter().map(|(_, topic, start)| (topic, start)).collect()
}

fn present(revision: i64) -> News {
    News { revision, created: 1 }
}

fn deleted(revision: i64) -> News {
    News { revision, created: 0 }
}

#[tokio::test]
async fn a_wait_ends_with_the_event_it_waits_for_and_not_with_its_own() {
    let waits = Arc::new(Waits::default());
    let topic = topic();
    let mut wait = pin!(waits.changed(&topic, Some(5)));
    assert!(wait.as_mut().now_or_never().is_none());
    assert_eq!(unasked(&waits), [(topic.clone(), 6)]);
    waits.event(&topic, present(5));
    assert!(wait.as_mut().now_or_never().is_none());
    waits.event(&topic, present(7));
    wait.await;
    assert!(waits.changed(&topic, Some(5)).now_or_never().is_some(), "what is past wakes at once");
    assert!(waits.changed(&topic, Some(7)).now_or_never().is_none());
    assert!(unasked(&waits).is_empty(), "the watch goes on serving");
}

#[tokio::test]
async fn a_wait_for_something_absent_ends_when_its_watch_begins_or_begins_after_the_last_look() {
    let waits = Arc::new(Waits::default());
    let topic = topic();
    let mut wait = pin!(waits.changed(&topic, None));
    assert!(wait.as_mut().now_or_never().is_none());
    assert_eq!(unasked(&waits), [(topic.clone(), 0)]);
    waits.begun(&topic, 9);
    wait.await;
    let look = Glimpse { document: 0, created: 0, store: 12 };
    waits.saw([(topic.clone(), look)].into_iter());
    let mut wait = pin!(waits.changed(&topic, None));
    assert!(wait.as_mut().now_or_never().is_none());
    waits.event(&topic, present(13));
    wait.await;
}

#[tokio::test]
async fn everybody_wakes_when_the_stream_ends_and_may_wait_for_the_next() {
    let waits = Arc::new(Waits::default());
    let topic = topic();
    let mut wait = pin!(waits.changed(&topic, Some(5)));
    let mut gone = pin!(waits.gone(&topic, 5));
    assert!(wait.as_mut().now_or_never().is_none());
    assert!(gone.as_mut().now_or_never().is_none());
    waits.fell_silent(false);
    assert!(wait.as_mut().now_or_never().is_none(), "there was nothing to miss");
    waits.fell_silent(true);
    wait.await;
    assert_eq!(gone.await, Gone::Perhaps);
    assert!(!waits.listening());
    assert!(waits.changed(&topic, Some(5)).now_or_never().is_none());
    waits.begin_again();
    assert!(waits.is_empty(), "that wait was dropped");
}

#[tokio::test]
async fn an_entry_is_gone_when_it_is_deleted_and_not_when_its_value_changes() {
    let waits = Arc::new(Waits::default());
    let topic = topic();
    let look = Glimpse { document: 5, created: 5, store: 9 };
    waits.saw([(topic.clone(), look)].into_iter());
    let mut gone = pin!(waits.gone(&topic, 5));
    assert!(gone.as_mut().now_or_never().is_none());
    assert_eq!(unasked(&waits), [(topic.clone(), 10)], "watched from the look on");
    waits.event(&topic, News { revision: 11, created: 5 });
    assert!(gone.as_mut().now_or_never().is_none());
    waits.event(&topic, deleted(12));
    waits.event(&topic, News { revision: 13, created: 13 });
    assert_eq!(gone.await, Gone::Deleted, "another stands at the same key");
    assert_eq!(waits.gone(&topic, 5).now_or_never(), Some(Gone::Deleted));
    assert!(waits.gone(&topic, 13).now_or_never().is_none());
}

/// The end of an election writes the first entry in its queue. The entry's watch reports that
/// before the deletion.
#[tokio::test]
async fn an_entry_that_was_written_before_its_deletion_is_told_from_one_that_was_not() {
    let waits = Arc::new(Waits::default());
    let topic = topic();
    let look = Glimpse { document: 5, created: 5, store: 9 };
    waits.saw([(topic.clone(), look)].into_iter());
    let mut gone = pin!(waits.gone(&topic, 5));
    assert!(gone.as_mut().now_or_never().is_none());
    assert!(waits.is_unwritten_since(&topic, 9));
    assert!(!waits.is_unwritten_since(&topic, 7), "the watch does not tell of revision 8");
    waits.event(&topic, News { revision: 11, created: 5 });
    waits.event(&topic, deleted(12));
    assert_eq!(gone.await, Gone::Deleted);
    assert!(!waits.is_unwritten_since(&topic, 9));
    assert!(waits.is_unwritten_since(&topic, 11), "a later look showed that write");
    waits.fell_silent(true);
    assert!(!waits.is_unwritten_since(&topic, 11), "nothing is known without a watch");
}

#[tokio::test]
async fn a_range_that_nobody_looked_at_wakes_once_and_then_when_something_happens() {
    let waits = Arc::new(Waits::default());
    let range = Topic { key: "a/".into(), end: "a0".into() };
    let mut moved = pin!(waits.moved(&range));
    assert!(moved.as_mut().now_or_never().is_none());
    waits.begun(&range, 9);
    moved.await;
    let mut moved = pin!(waits.moved(&range));
    assert!(moved.as_mut().now_or_never().is_none());
    waits.event(&range, present(10));
    moved.await;
    assert!(waits.moved(&range).now_or_never().is_none(), "that was heard of");
}

#[tokio::test]
async fn an_entry_that_a_look_did_not_show_is_gone_at_once() {
    let waits = Arc::new(Waits::default());
    let topic = topic();
    waits.saw([(topic.clone(), Glimpse { document: 0, created: 0, store: 9 })].into_iter());
    assert_eq!(waits.gone(&topic, 5).now_or_never(), Some(Gone::Deleted));
}

#[tokio::test]
async fn a_watch_that_began_later_does_not_say_that_an_entry_stands() {
    let waits = Arc::new(Waits::default());
    let topic = topic();
    let mut wait = pin!(waits.changed(&topic, None));
    assert!(wait.as_mut().now_or_never().is_none());
    assert_eq!(waits.gone(&topic, 5).now_or_never(), Some(Gone::Perhaps));
    waits.begun(&topic, 9);
    assert_eq!(waits.gone(&topic, 5).now_or_never(), Some(Gone::Perhaps));
    let look = Glimpse { document: 5, created: 5, store: 10 };
    waits.saw([(topic.clone(), look)].into_iter());
    let mut gone = pin!(waits.gone(&topic, 5));
    assert!(gone.as_mut().now_or_never().is_none(), "it stood after the watch began");
    waits.event(&topic, deleted(12));
    assert_eq!(gone.await, Gone::Deleted);
}
