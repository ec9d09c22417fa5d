//! The documents of a cluster that have a floor.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::store::Store;
use tenure::{Backend, Key, MemoryStore};
use tenure_cluster::{Cluster, Context, Handler, Member, Order, TaskError, Tasks};

use crate::stage::TokioClock;

struct Sells;

#[async_trait]
impl Handler for Sells {
    async fn handle(&self, _: Bytes, _: &Context) -> Result<Option<String>, TaskError> {
        Ok(None)
    }
}

/// The tokens of slots follow from their tasks, and a floor for each slot would cost one write for
/// each task.
#[tokio::test(start_paused = true)]
async fn slots_have_no_floors() {
    let store = MemoryStore::new();
    let backend = Backend::new(Arc::new(store.clone())).with_clock(TokioClock::new());
    let cluster = Cluster::builder(&backend, "shop/till")
        .member(Member::new(1))
        .tasks(Tasks::new().handling("sell", Arc::new(Sells)))
        .join()
        .await
        .expect("a node");
    let orders = (0..3).map(|number| Order::new(format!("task-{number}"), "sell", "one"));
    cluster.client().submit(orders.collect()).await.expect("accepted");
    while cluster.client().totals().await.expect("it serves").done < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let list = async |prefix: &str| {
        let prefix = Key::parse(prefix).expect("a good key");
        store.list(&prefix, None, 10).await.expect("it answers").documents
    };
    assert!(!list("clusters/shop/till/slots").await.is_empty(), "there are slots");
    let floors = list("floors").await;
    assert!(floors.is_empty(), "{floors:?}");
}
