//! A local input that runs, and the tasks it emits.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of this")]

use std::time::Duration;

use tenure_cluster::documents::Order;
use tenure_cluster::input::{Emitter, Local};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Long enough for every step on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Running {
    /// `None` once the store takes nothing any more.
    orders: Option<mpsc::Receiver<Order>>,
    _task: JoinSet<()>,
}

/// Runs an input into a channel of this capacity, on the runtime of the test.
///
/// It runs until the result is dropped.
pub fn start(input: &std::sync::Arc<impl Local>, capacity: usize) -> Running {
    let (emitter, orders) = Emitter::channel(capacity);
    let (input, mut task) = (input.clone(), JoinSet::new());
    task.spawn(async move {
        let ended = input.run(&emitter).await;
        panic!("the input ended: {ended:?}");
    });
    Running { orders: Some(orders), _task: task }
}

impl Running {
    pub async fn next(&mut self) -> Order {
        let orders = self.orders.as_mut().expect("it is not closed");
        let next = tokio::time::timeout(PATIENCE, orders.recv()).await;
        next.expect("a task in time").expect("the input runs")
    }

    /// The tasks that have arrived, without waiting.
    pub fn arrived(&mut self) -> Vec<Order> {
        let orders = self.orders.as_mut().expect("it is not closed");
        std::iter::from_fn(|| orders.try_recv().ok()).collect()
    }

    pub async fn next_items(&mut self, count: usize) -> Vec<String> {
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(String::from_utf8(self.next().await.payload.into()).expect("text"));
        }
        items
    }

    /// From now on the store takes nothing.
    pub fn refuse(&mut self) {
        self.orders = None;
    }
}
