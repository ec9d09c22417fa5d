//! Rounds with a source that lists tasks.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::*;
use crate::input::{End, InputError, Window};

/// A source of numbered items that the test controls.
#[derive(Default)]
struct Items {
    /// How many items there are. Without more items the source waits.
    many: AtomicUsize,
    bytes: usize,
    drains: bool,
    asked: Mutex<Vec<usize>>,
    told: Mutex<Vec<String>>,
    /// The item that this source refuses to commit.
    deaf: Option<&'static str>,
}

impl Items {
    fn told(&self) -> BTreeSet<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[async_trait]
impl Windowed for Items {
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(max);
        let from: usize = position.map_or(0, |position| position.parse().expect("our own"));
        let many = self.many.load(Relaxed);
        if from == many && !self.drains {
            return std::future::pending().await;
        }
        let to = many.min(from + max);
        let orders = (from..to).map(|number| {
            let payload = vec![7; self.bytes].into();
            Order { payload, ..order(&format!("listed-{number}")) }
        });
        let (orders, drained) = (orders.collect(), self.drains && to == many);
        Ok(Window { orders, position: Some(to.to_string()), drained })
    }

    async fn commit(&self, id: &str, _payload: &[u8], _end: End) -> Result<(), InputError> {
        if self.deaf == Some(id) {
            return Err(InputError("it does not listen".into()));
        }
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_owned());
        Ok(())
    }
}

#[test]
fn a_source_is_read_to_its_end_and_told_of_each_item() {
    let items = Arc::new(Items { many: 700.into(), drains: true, ..Items::default() });
    let mut stage = Stage::with_source(Some(items.clone()));
    let mut worked = 0;
    for _ in 0..12 {
        stage.pass(SECOND);
        worked += stage.finish_all();
    }
    assert_eq!(worked, 700);
    let cursor = stage.cursor();
    assert_eq!((cursor.accepted, cursor.done, cursor.drained), (700, 700, true));
    assert_eq!(items.told().len(), 700);
}

#[test]
fn a_source_that_waits_holds_nobody_up() {
    let items = Arc::new(Items::default());
    let mut stage = Stage::with_source(Some(items.clone()));
    stage.pass(SECOND);
    stage.submit(orders(3));
    stage.pass(SECOND);
    assert_eq!(stage.live().len(), 3);
    stage.finish_all();
    stage.pass(2 * SECOND);
    assert_eq!(stage.cursor().done, 3);
    assert_eq!(items.asked.lock().unwrap_or_else(PoisonError::into_inner).len(), 1);
}

#[test]
fn a_window_that_is_too_large_for_the_cursor_is_asked_for_in_parts() {
    let items = Items { many: 40.into(), bytes: 10_000, drains: true, ..Items::default() };
    let mut stage = Stage::with_source(Some(Arc::new(items)));
    stage.pass(5 * SECOND);
    assert_eq!((stage.cursor().accepted, stage.live().len()), (40, 40));
    assert!(stage.cursor().drained);
}

#[test]
fn an_item_that_its_source_takes_no_note_of_waits_and_no_other_does() {
    let deaf = Some("listed-3");
    let items = Arc::new(Items { many: 9.into(), drains: true, deaf, ..Items::default() });
    let mut stage = Stage::with_source(Some(items.clone()));
    stage.pass(SECOND);
    stage.finish_all();
    stage.pass(20 * SECOND);
    assert_eq!((stage.cursor().done, items.told().len()), (8, 8));
}
