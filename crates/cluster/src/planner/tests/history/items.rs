//! The source of a history: numbered items, some of which cannot be tasks.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use async_trait::async_trait;

use super::super::parts::{Chance, order};
use super::LISTED;
use crate::input::{End, InputError, Window, Windowed};

/// A source of numbered items, some of which cannot be tasks.
pub(super) struct Items {
    pub(super) chance: Chance,
    pub(super) calm: AtomicBool,
    pub(super) told: Mutex<BTreeSet<String>>,
}

impl Items {
    pub(super) fn id(number: usize) -> String {
        format!("listed-{number}")
    }

    pub(super) fn is_refused(id: &str) -> bool {
        id.strip_prefix("listed-").is_some_and(|number| number.ends_with('7'))
    }

    fn fails(&self, often: usize) -> bool {
        !self.calm.load(Relaxed) && self.chance.one_in(often)
    }

    async fn hesitate(&self) {
        let mut left = self.chance.below(4);
        std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

#[async_trait]
impl Windowed for Items {
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        self.hesitate().await;
        if self.fails(10) {
            return Err(InputError("it fails now and then".into()));
        }
        let from: usize = position.map_or(0, |position| position.parse().expect("our own"));
        let to = (from + 1 + from % 9).min(from + max).min(LISTED);
        let orders = (from..to).map(|number| {
            let mut order = order(&Items::id(number));
            if Items::is_refused(&order.id) {
                order.kind.clear();
            }
            order
        });
        let (orders, drained) = (orders.collect(), to == LISTED);
        Ok(Window { orders, position: Some(to.to_string()), drained })
    }

    async fn commit(&self, id: &str, _payload: &[u8], _end: End) -> Result<(), InputError> {
        self.hesitate().await;
        if self.fails(6) {
            return Err(InputError("it fails now and then".into()));
        }
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        Ok(())
    }
}
