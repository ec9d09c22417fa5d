//! Only the holder of a task can end it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::store::StoreExt;
use tenure::{Backend, Key, MemoryStore, Timing};
use tenure_cluster::documents::{Format, Holding, Progress, Slot};
use tenure_cluster::{Cluster, Context, Event, Handler, Member, TaskError, Tasks, Verdict};
use tokio::sync::Notify;

use crate::stage::{TokioClock, member, op, order, read, write};

/// Works until the test lets it end, and ignores requests to stop.
struct Works {
    began: Arc<Notify>,
    ends: Arc<Notify>,
}

#[async_trait]
impl Handler for Works {
    async fn handle(&self, _: Bytes, _: &Context) -> Result<Option<String>, TaskError> {
        self.began.notify_one();
        self.ends.notified().await;
        Ok(Some("mine".into()))
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_by_another_than_its_holder_is_refused_and_changes_nothing() {
    let store = MemoryStore::new();
    let backend = Backend::new(Arc::new(store.clone())).with_clock(TokioClock::new());
    let (began, ends) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let works = Works { began: began.clone(), ends: ends.clone() };
    let cluster = Cluster::builder(&backend, "shop/till")
        .member(Member::new(1))
        .timing(Timing::new(Duration::from_secs(15)).expect("a usable ttl"))
        .tasks(Tasks::new().handling("sell", Arc::new(works)))
        .join()
        .await
        .expect("a node");
    let mut events = cluster.events();
    cluster.client().submit(vec![order("a")]).await.expect("accepted");
    began.notified().await;
    let (key, slot) = held(&store, &cluster).await;
    let other = Holding { member: member(5), expire: u64::MAX >> 12, presence: None, status: None };
    let theirs = slot.following(op(1), Progress::Held(Arc::new(other)));
    // The other holder has claimed the task, at the next token.
    let theirs = Slot { token: slot.token + 1, ..theirs };
    write(&store, &key, &theirs).await;

    ends.notify_one();
    let verdict = loop {
        if let Event::Ended { verdict, .. } = events.recv().await.expect("it goes on") {
            break verdict;
        }
    };
    assert_eq!(verdict, Verdict::Refused);
    let (_, found) = read::<Slot>(&store, &key).await.expect("it is there");
    assert_eq!(found, theirs, "it is still in progress, and theirs");
    assert_eq!(cluster.client().totals().await.expect("it serves").done, 0);
}

/// The slot that is held.
async fn held(store: &MemoryStore, cluster: &Cluster) -> (Key, Slot) {
    for number in 0..256 {
        let key = cluster.client().keys().slot(number);
        let Some(document) = store.get(&key).await.expect("a read") else { continue };
        let slot = Slot::decode(&document.body).expect("it makes sense");
        if slot.holding().is_some() {
            return (key, slot);
        }
    }
    panic!("nobody works on anything");
}
