//! A store that fails on request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure::Key;
use tenure::store::{Document, Fault, Page, Put, Reads, Store, StoreError, Version, Write};
use tokio::sync::watch;

/// Wraps a store for one handle: other handles on the same storage notice nothing.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    reachable: watch::Sender<bool>,
    fates: Mutex<Fates>,
}

#[derive(Debug, Default)]
struct Fates {
    by_key: BTreeMap<Key, Vec<Fate>>,
    /// The fate of the next write of any document below a key.
    below: Option<(Key, Fate)>,
    lost: u64,
    refused: u64,
}

/// The fate of a write.
#[derive(Clone, Debug)]
enum Fate {
    /// It is applied, and its answer is lost.
    Lost,
    /// It has no effect.
    Refused,
    /// It leaves only after its release.
    Late(watch::Receiver<bool>, watch::Sender<bool>),
    /// It is applied at once, and its answer comes only after its release.
    Unanswered(watch::Receiver<bool>, watch::Sender<bool>),
}

/// A write that is being held back. Dropping this releases it, too.
#[derive(Debug)]
pub struct Held {
    go: watch::Sender<bool>,
    arrived: watch::Receiver<bool>,
}

impl Held {
    /// Resolves when there is a write to hold.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn arrived(&mut self) {
        // The other end is kept until the write has been released.
        let _ = self.arrived.wait_for(|arrived| *arrived).await;
    }

    /// Releases the write.
    pub fn release(self) {
        self.go.send_replace(true);
    }
}

impl Faulty {
    /// A store that works until it is told to fail.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Arc<Faulty> {
        let reachable = watch::Sender::new(true);
        Arc::new(Faulty { inner, reachable, fates: Mutex::default() })
    }

    /// Goes away: from now on nothing is applied, and every request fails.
    pub fn cut(&self) {
        self.reachable.send_replace(false);
    }

    /// Comes back.
    pub fn heal(&self) {
        self.reachable.send_replace(true);
    }

    /// Applies the next `count` writes of this document, and loses their answers.
    pub fn lose_answers(&self, key: &Key, count: usize) {
        self.plan(key, vec![Fate::Lost; count]);
    }

    /// How many answers were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Makes the next `count` writes of this document fail before they have an effect.
    pub fn refuse(&self, key: &Key, count: usize) {
        self.plan(key, vec![Fate::Refused; count]);
    }

    /// How many writes were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Holds back the next write of this document, before it is applied.
    #[must_use]
    pub fn hold_write(&self, key: &Key) -> Held {
        let (held, fate) = hold(Fate::Late);
        self.plan(key, vec![fate]);
        held
    }

    /// Holds back the next write of any document below this key, before it is applied.
    #[must_use]
    pub fn hold_next_below(&self, prefix: &Key) -> Held {
        let (held, fate) = hold(Fate::Late);
        self.lock().below = Some((prefix.clone(), fate));
        held
    }

    /// Applies the next write of this document, and holds back its answer.
    #[must_use]
    pub fn hold_answer(&self, key: &Key) -> Held {
        let (held, fate) = hold(Fate::Unanswered);
        self.plan(key, vec![fate]);
        held
    }

    fn plan(&self, key: &Key, fates: Vec<Fate>) {
        self.lock().by_key.entry(key.clone()).or_default().extend(fates);
    }

    fn fate_of(&self, write: &Write) -> Option<Fate> {
        let mut fates = self.lock();
        if let Some((_, fate)) = fates.below.take_if(|(prefix, _)| write.key.is_under(prefix)) {
            return Some(fate);
        }
        let planned = fates.by_key.get_mut(&write.key).filter(|planned| !planned.is_empty())?;
        let fate = planned.remove(0);
        match &fate {
            Fate::Lost => fates.lost += 1,
            Fate::Refused => fates.refused += 1,
            Fate::Late(..) | Fate::Unanswered(..) => {}
        }
        Some(fate)
    }

    fn lock(&self) -> MutexGuard<'_, Fates> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut(&self) -> bool {
        !*self.reachable.borrow()
    }

    async fn put_one(&self, write: Write) -> Result<Put, StoreError> {
        let doing = format!("writing {}", write.key);
        match self.fate_of(&write) {
            None => self.apply(write).await,
            Some(Fate::Refused) => Err(failed(Fault::Unavailable, doing)),
            Some(Fate::Lost) => {
                let _lost = self.apply(write).await;
                Err(failed(Fault::Indeterminate, doing))
            }
            Some(Fate::Late(gone, arrived)) => {
                wait_to_go(gone, &arrived).await;
                self.apply(write).await
            }
            Some(Fate::Unanswered(gone, arrived)) => {
                let answer = self.apply(write).await;
                wait_to_go(gone, &arrived).await;
                answer
            }
        }
    }

    async fn apply(&self, write: Write) -> Result<Put, StoreError> {
        use tenure::store::StoreExt;
        self.inner.put_one(write).await
    }

    /// Drops an answer, too, once the store is away.
    fn answered<T>(&self, answer: Result<T, StoreError>, doing: &str) -> Result<T, StoreError> {
        if self.is_cut() { Err(failed(Fault::Indeterminate, doing)) } else { answer }
    }
}

fn hold(fate: fn(watch::Receiver<bool>, watch::Sender<bool>) -> Fate) -> (Held, Fate) {
    let (go, gone) = watch::channel(false);
    let (arrive, arrived) = watch::channel(false);
    (Held { go, arrived }, fate(gone, arrive))
}

async fn wait_to_go(mut gone: watch::Receiver<bool>, arrived: &watch::Sender<bool>) {
    arrived.send_replace(true);
    // An error means that the test has dropped its `Held`.
    let _ = gone.wait_for(|gone| *gone).await;
}

fn failed(fault: Fault, doing: impl Into<String>) -> StoreError {
    StoreError::new(fault, "faulty", doing, "a test wanted this to fail")
}

#[async_trait]
impl Store for Faulty {
    fn reads(&self) -> Reads {
        self.inner.reads()
    }

    fn notifies(&self) -> bool {
        self.inner.notifies() && !self.is_cut()
    }

    fn forgets_deleted(&self) -> bool {
        self.inner.forgets_deleted()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        if self.is_cut() {
            return Err(failed(Fault::Unavailable, "reading"));
        }
        let answer = self.inner.get_many(keys).await;
        self.answered(answer, "reading")
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        if self.is_cut() {
            return writes.iter().map(|_| Err(failed(Fault::Unavailable, "writing"))).collect();
        }
        let planned = {
            let fates = self.lock();
            fates.below.is_some() || fates.by_key.values().any(|planned| !planned.is_empty())
        };
        let outcomes = if planned {
            let each = writes.into_iter().map(|write| self.put_one(write));
            futures_util::future::join_all(each).await
        } else {
            self.inner.put_many(writes).await
        };
        outcomes.into_iter().map(|outcome| self.answered(outcome, "writing")).collect()
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        if self.is_cut() {
            return Err(failed(Fault::Unavailable, "listing"));
        }
        let answer = self.inner.list(prefix, after, limit).await;
        self.answered(answer, "listing")
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        let mut reachable = self.reachable.subscribe();
        // The sender is in `self`.
        let _ = reachable.wait_for(|reachable| *reachable).await;
        self.inner.changed(key, seen).await;
        // No caller learns of a change while the store is away.
        let _ = reachable.wait_for(|reachable| *reachable).await;
    }
}
