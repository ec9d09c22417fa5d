//! A table that fails on request.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use tenure::feed::{Beat, FeedStore, Found, Handle, Item, LEADER, Origin, Subscription};
use tenure::store::{Fault, Put, Reads, StoreError};
use tokio::sync::{broadcast, watch};

/// Wraps a database for one handle: other handles on the same one notice nothing.
#[derive(Debug)]
pub struct FaultyFeed {
    inner: Arc<dyn FeedStore>,
    reachable: watch::Sender<bool>,
    hearing: watch::Sender<bool>,
    muted: watch::Sender<bool>,
    injected: broadcast::Sender<Item>,
    fates: Mutex<Vec<Fate>>,
    reads: AtomicU64,
    beats: AtomicU64,
}

/// The fate of a heartbeat of the leader's document.
#[derive(Debug)]
enum Fate {
    /// It is applied, and its answer is lost.
    Lost,
    /// It is applied at once, and its answer comes only after its release.
    Unanswered(watch::Receiver<bool>, watch::Sender<bool>),
}

/// An answer that is being held back. Dropping this releases it, too.
#[derive(Debug)]
pub struct HeldAnswer {
    go: watch::Sender<bool>,
    arrived: watch::Receiver<bool>,
}

impl HeldAnswer {
    /// Resolves when the write has been applied, and its answer is held back.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn arrived(&mut self) {
        // The other end is kept until the answer has been released.
        let _ = self.arrived.wait_for(|arrived| *arrived).await;
    }

    /// Releases the answer.
    pub fn release(self) {
        self.go.send_replace(true);
    }
}

impl FaultyFeed {
    /// A database that works until it is told to fail.
    #[must_use]
    pub fn new(inner: Arc<dyn FeedStore>) -> Arc<FaultyFeed> {
        Arc::new(FaultyFeed {
            inner,
            reachable: watch::Sender::new(true),
            hearing: watch::Sender::new(true),
            muted: watch::Sender::new(false),
            injected: broadcast::Sender::new(64),
            fates: Mutex::default(),
            reads: AtomicU64::new(0),
            beats: AtomicU64::new(0),
        })
    }

    /// Goes away.
    ///
    /// Nothing is applied, every request fails, and subscriptions show nothing more.
    pub fn cut(&self) {
        self.reachable.send_replace(false);
        self.muted.send_replace(true);
    }

    /// Comes back.
    pub fn heal(&self) {
        self.reachable.send_replace(true);
        self.muted.send_replace(false);
    }

    /// Ends every subscription with an error, and refuses new ones.
    pub fn deafen(&self) {
        self.hearing.send_replace(false);
    }

    /// Accepts subscriptions again.
    pub fn hear(&self) {
        self.hearing.send_replace(true);
    }

    /// Shows nothing any more, without an error.
    pub fn mute(&self) {
        self.muted.send_replace(true);
    }

    /// Shows an item that the database did not.
    pub fn inject(&self, item: Item) {
        // Without a subscription the item is lost.
        let _ = self.injected.send(item);
    }

    /// Applies the next heartbeat of the leader's document, and loses its answer.
    pub fn lose_next_answer(&self) {
        self.lock().push(Fate::Lost);
    }

    /// Applies the next heartbeat of the leader's document, and holds back its answer.
    #[must_use]
    pub fn hold_next_answer(&self) -> HeldAnswer {
        let (go, gone) = watch::channel(false);
        let (arrive, arrived) = watch::channel(false);
        self.lock().push(Fate::Unanswered(gone, arrive));
        HeldAnswer { go, arrived }
    }

    /// How often the leader's document was read.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// How many writes of the leader's document were requested.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Fate>> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, doing: &str) -> Result<(), StoreError> {
        if *self.reachable.borrow() { Ok(()) } else { Err(failed(Fault::Unavailable, doing)) }
    }
}

fn failed(fault: Fault, doing: &str) -> StoreError {
    StoreError::new(fault, "faulty", doing, "a test wanted this to fail")
}

#[async_trait]
impl FeedStore for FaultyFeed {
    fn reads(&self) -> Reads {
        self.inner.reads()
    }

    fn table(&self) -> &str {
        self.inner.table()
    }

    async fn create(&self, table: &str) -> Result<(), StoreError> {
        self.check("creating")?;
        self.inner.create(table).await
    }

    async fn start(&self, table: &str) -> Result<(), StoreError> {
        self.check("starting")?;
        self.inner.start(table).await
    }

    async fn read(&self, table: &str, ids: &[String]) -> Result<Vec<Option<Found>>, StoreError> {
        self.check("reading")?;
        if ids.iter().any(|id| id == LEADER) {
            self.reads.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.read(table, ids).await
    }

    async fn heartbeat(&self, table: &str, beat: Beat) -> Result<Put, StoreError> {
        self.check("writing")?;
        let mut fate = None;
        if beat.id == LEADER {
            self.beats.fetch_add(1, Ordering::SeqCst);
            let mut fates = self.lock();
            fate = (!fates.is_empty()).then(|| fates.remove(0));
        }
        let answer = self.inner.heartbeat(table, beat).await;
        match fate {
            None => answer,
            Some(Fate::Lost) => Err(failed(Fault::Indeterminate, "writing")),
            Some(Fate::Unanswered(mut gone, arrived)) => {
                arrived.send_replace(true);
                // An error means that the test has dropped its `HeldAnswer`.
                let _ = gone.wait_for(|gone| *gone).await;
                answer
            }
        }
    }

    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError> {
        self.check("subscribing")?;
        if !*self.hearing.borrow() {
            return Err(failed(Fault::Unavailable, "subscribing"));
        }
        let (mut hearing, muted) = (self.hearing.subscribe(), self.muted.subscribe());
        let shown = self.inner.subscribe(table, from).await?;
        let shown = shown.filter(move |_| std::future::ready(!*muted.borrow()));
        let injected = stream::unfold(self.injected.subscribe(), async |mut injected| {
            let item = injected.recv().await.ok()?;
            Some((Ok(item), injected))
        });
        let deaf = async move {
            // An error means that the database is gone, and its users with it.
            let _ = hearing.wait_for(|hearing| !*hearing).await;
        };
        let broken = stream::once(async { Err(failed(Fault::Unavailable, "following")) });
        Ok(stream::select(shown, injected).take_until(deaf).chain(broken).boxed())
    }

    async fn unsubscribe(&self, subscription: Subscription) {
        drop(subscription);
    }

    fn handle(&self, table: &str, handle: Handle) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.handle(table, handle)
    }
}
