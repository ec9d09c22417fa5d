//! A node that leaves takes nothing along.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::store::{Document, Page, Put, Reads, Store, StoreError, StoreExt, Version, Write};
use tenure::{Backend, Key, MemoryStore, Timing};
use tenure_cluster::documents::{Format, Slot};
use tenure_cluster::{Cluster, Context, Handler, Member, TaskError, Tasks};
use tokio::sync::Notify;

use crate::stage::{TokioClock, order};

/// A memory store that carries claims out at once and answers them when the test says so.
#[derive(Debug)]
struct SlowToAnswer {
    inner: MemoryStore,
    claimed: Arc<Notify>,
    answers: Arc<Notify>,
}

fn is_claim(write: &Write) -> bool {
    let slot = write.body.as_ref().and_then(|body| Slot::decode(body).ok());
    slot.is_some_and(|slot| slot.holding().is_some())
}

#[async_trait]
impl Store for SlowToAnswer {
    fn reads(&self) -> Reads {
        self.inner.reads()
    }

    fn notifies(&self) -> bool {
        self.inner.notifies()
    }

    fn forgets_deleted(&self) -> bool {
        self.inner.forgets_deleted()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        self.inner.get_many(keys).await
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let claims = writes.iter().any(is_claim);
        let outcomes = self.inner.put_many(writes).await;
        if claims {
            self.claimed.notify_one();
            self.answers.notified().await;
        }
        outcomes
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.inner.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.inner.changed(key, seen).await;
    }
}

/// Never runs in these tests.
struct Works;

#[async_trait]
impl Handler for Works {
    async fn handle(&self, _: Bytes, _: &Context) -> Result<Option<String>, TaskError> {
        Err(TaskError::new("it was begun"))
    }
}

/// The only task's slot, after its node left while the claim was on its way.
async fn slot_after_leaving() -> Slot {
    let inner = MemoryStore::new();
    let (claimed, answers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (claims, answer) = (claimed.clone(), answers.clone());
    let store = SlowToAnswer { inner: inner.clone(), claimed, answers };
    let backend = Backend::new(Arc::new(store)).with_clock(TokioClock::new());
    let cluster = Cluster::builder(&backend, "shop/till")
        .member(Member::new(1))
        .timing(Timing::new(Duration::from_secs(15)).expect("a usable ttl"))
        .tasks(Tasks::new().handling("sell", Arc::new(Works)))
        .join()
        .await
        .expect("a node");
    let client = cluster.client().clone();
    client.submit(vec![order("a")]).await.expect("accepted");
    claims.notified().await;
    let leaving = tokio::spawn(async move { cluster.leave().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    answer.notify_one();
    leaving.await.expect("it leaves");
    let document = inner.get(&client.keys().slot(0)).await.expect("a read").expect("a slot");
    Slot::decode(&document.body).expect("it makes sense")
}

/// Regression: the node left at once, and its claim cost the task a ttl and an attempt.
#[tokio::test(start_paused = true)]
async fn a_claim_under_way_is_given_back_before_its_node_leaves() {
    let slot = slot_after_leaving().await;
    assert!(slot.holding().is_none(), "{slot:?}");
    assert_eq!(slot.attempt, 0, "{slot:?}");
}

#[cfg(feature = "mutants")]
#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_with_claims_under_way_is_noticed() {
    use tenure_cluster::mutant::{ClusterMutant, break_rule};
    break_rule(Some(ClusterMutant::LeavesWithClaimsUnderWay));
    let slot = slot_after_leaving().await;
    break_rule(None);
    assert!(slot.holding().is_some(), "{slot:?}");
}
