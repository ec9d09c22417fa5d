//! A task that was claimed ahead, by a node that died before beginning it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::{Backend, MemoryStore, Timing};
use tenure_cluster::{Cluster, ClusterClient, Context, Handler, Member, Order, TaskError, Tasks};

use crate::stage::TokioClock;

/// Records the ids of tasks that begin; a task hangs if `hangs` is set by then.
#[derive(Clone, Default)]
struct Notes {
    begun: Arc<Mutex<Vec<String>>>,
    hangs: Arc<AtomicBool>,
}

#[async_trait]
impl Handler for Notes {
    async fn handle(&self, _: Bytes, context: &Context) -> Result<Option<String>, TaskError> {
        self.begun.lock().expect("no panic").push(context.id().to_owned());
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(None)
    }
}

async fn join(store: &MemoryStore, notes: &Notes) -> Cluster {
    let backend = Backend::new(Arc::new(store.clone())).with_clock(TokioClock::new());
    Cluster::builder(&backend, "shop/till")
        .member(Member::new(1))
        .timing(Timing::new(Duration::from_secs(3)).expect("a usable ttl"))
        .tasks(Tasks::new().handling("sell", Arc::new(notes.clone())))
        .join()
        .await
        .expect("a node")
}

async fn ended(client: &ClusterClient, count: u64) {
    loop {
        let totals = client.totals().await.expect("it serves");
        if totals.done + totals.dead >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Rule S5: an accepted task is begun at least once. A claim counts as an attempt, and a node
/// claims more tasks than it has workers. A killed node must not use up the only attempt of tasks
/// that it has not begun. (It did, until a review.)
#[test]
fn what_was_taken_ahead_and_not_begun_has_used_no_attempt() {
    let store = MemoryStore::new();
    let notes = Notes::default();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().expect("a runtime")
    };
    let first = runtime();
    let count = 400;
    first.block_on(async {
        let cluster = join(&store, &notes).await;
        let orders = (0..count).map(|number| Order {
            attempts: 1,
            ..Order::new(format!("task-{number}"), "sell", "one")
        });
        cluster.client().submit(orders.collect()).await.expect("accepted");
        ended(cluster.client(), 100).await;
        notes.hangs.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    });
    // The first node is killed: it cannot give anything back.
    std::mem::forget(first);
    notes.hangs.store(false, Ordering::Relaxed);
    runtime().block_on(async {
        let cluster = join(&store, &notes).await;
        ended(cluster.client(), count).await;
        let begun = notes.begun.lock().expect("no panic").clone();
        let letters = cluster.client().letters(None, 500).await.expect("it serves");
        let never: Vec<String> = letters
            .items
            .into_iter()
            .map(|letter| letter.task.id)
            .filter(|id| !begun.contains(id))
            .collect();
        assert!(never.is_empty(), "dead, and never begun: {never:?}");
    });
}
