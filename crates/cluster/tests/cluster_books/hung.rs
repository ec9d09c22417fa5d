//! A node tells its work to stop in time, even if the store stops answering.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::store::{Document, Page, Put, Reads, Store, StoreError, Version, Write};
use tenure::{Backend, Key, MemoryStore, Timing};
use tenure_cluster::{Cluster, Context, Handler, Member, Stopped, TaskError, Tasks};
use tokio::sync::{mpsc, watch};

use crate::stage::{TokioClock, order};

const TTL: Duration = Duration::from_secs(5);

/// A memory store that can hang: it reports one last change, then answers nothing.
#[derive(Debug)]
struct Hanging {
    inner: MemoryStore,
    hangs: watch::Receiver<bool>,
}

impl Hanging {
    async fn answers(&self) {
        if *self.hangs.borrow() {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for Hanging {
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
        self.answers().await;
        self.inner.get_many(keys).await
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        self.answers().await;
        self.inner.put_many(writes).await
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.answers().await;
        self.inner.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        let mut hangs = self.hangs.clone();
        tokio::select! {
            () = self.inner.changed(key, seen) => {}
            // The test holds the sender until its end.
            _ = hangs.wait_for(|hangs| *hangs) => {}
        }
    }
}

/// Works until it is told to stop, and reports how long its mandate would have lasted then.
struct Works {
    began: mpsc::UnboundedSender<()>,
    told: mpsc::UnboundedSender<(Stopped, Duration)>,
}

#[async_trait]
impl Handler for Works {
    async fn handle(&self, _: Bytes, context: &Context) -> Result<Option<String>, TaskError> {
        let _ = self.began.send(());
        let why = context.stopped().await;
        let _ = self.told.send((why, context.mandate().remaining()));
        Err(TaskError::new("stopped"))
    }
}

/// A regression: the node's loop waited for its read of the wake-up document, and never told the
/// work to stop.
#[tokio::test(start_paused = true)]
async fn work_is_told_to_stop_in_time_although_the_question_about_the_bell_is_never_answered() {
    let (hang, hangs) = watch::channel(false);
    let store = Hanging { inner: MemoryStore::new(), hangs };
    let backend = Backend::new(Arc::new(store)).with_clock(TokioClock::new());
    let timing = Timing::new(TTL).expect("a usable ttl");
    let (began, mut begun) = mpsc::unbounded_channel();
    let (told, mut tells) = mpsc::unbounded_channel();
    let cluster = Cluster::builder(&backend, "shop/till")
        .member(Member::new(1))
        .timing(timing)
        .tasks(Tasks::new().handling("sell", Arc::new(Works { began, told })))
        .join()
        .await
        .expect("a node");
    cluster.client().submit(vec![order("a")]).await.expect("accepted");
    begun.recv().await.expect("the work began");

    hang.send_replace(true);

    let heard = tokio::time::timeout(2 * TTL, tells.recv()).await;
    let (why, left) = heard.expect("it was told to stop").expect("it ran");
    assert_eq!(why, Stopped::Lost);
    // Tokio's timers are a millisecond late.
    assert!(left + Duration::from_millis(3) >= timing.grace(), "only {left:?} were left");
}
