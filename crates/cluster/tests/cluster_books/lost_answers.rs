//! Single writes without answers: nothing is sent again before the outcome is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tenure::store::{
    Document, Fault, Page as Listing, Put, Reads, Store, StoreError, StoreExt, Version, Write,
};
use tenure::{Key, MemoryStore};
use tenure_cluster::ClusterError;
use tenure_cluster::documents::{Cursor, Entry, FILLS_KEPT, INBOX_PAGES, Page};

use crate::stage::{client_on, inbox, op, order, read, write, write_body};

type Meanwhile = Box<dyn Fn(MemoryStore, Write) -> BoxFuture<'static, ()> + Send + Sync>;

/// Fails the first write of an inbox page, after calling `meanwhile`.
struct Once {
    inner: MemoryStore,
    reads: Reads,
    fault: Fault,
    /// Decides the effect of the write, and may change the store, before the error is answered.
    meanwhile: Meanwhile,
    pages_written: AtomicUsize,
}

impl std::fmt::Debug for Once {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Once {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn notifies(&self) -> bool {
        true
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        self.inner.get_many(keys).await
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let is_page = writes.iter().any(|write| write.key.as_str().contains("/inbox/"));
        if !is_page || self.pages_written.fetch_add(1, Ordering::Relaxed) > 0 {
            return self.inner.put_many(writes).await;
        }
        for write in writes {
            (self.meanwhile)(self.inner.clone(), write).await;
        }
        vec![Err(StoreError::new(self.fault, "once", "writing a page", "as told"))]
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Listing, StoreError> {
        self.inner.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.inner.changed(key, seen).await;
    }
}

/// Submits one task, and fails its first write after calling `meanwhile`.
///
/// Returns the result, the store and the number of writes of pages.
async fn submit<F>(
    reads: Reads,
    fault: Fault,
    meanwhile: impl Fn(MemoryStore, Write) -> F + Send + Sync + 'static,
) -> (Result<(), ClusterError>, MemoryStore, usize)
where
    F: Future<Output = ()> + Send + 'static,
{
    let inner = MemoryStore::new();
    let meanwhile: Meanwhile = Box::new(move |store, write| Box::pin(meanwhile(store, write)));
    let once = Arc::new(Once {
        inner: inner.clone(),
        reads,
        fault,
        meanwhile,
        pages_written: AtomicUsize::new(0),
    });
    let submitted = client_on(once.clone()).submit(vec![order("ours")]).await;
    (submitted, inner, once.pages_written.load(Ordering::Relaxed))
}

async fn waiting(store: &MemoryStore, from: u64) -> Vec<String> {
    inbox(&client_on(Arc::new(store.clone())), store, from).await
}

async fn apply(store: &MemoryStore, write: Write) {
    let put = store.put_one(write).await.expect("memory serves");
    assert!(matches!(put, Put::Stored(_)));
}

/// Takes in the page at this place and frees the place, as a leader does.
async fn consume(store: &MemoryStore, key: &Key) {
    let (_, page) = read::<Page>(store, key).await.expect("a page");
    let cursor = Cursor { page: page.number + 1, ..Cursor::new(op(50)) };
    write(store, &cursor_key(), &cursor).await;
    write(store, key, &page.freed(op(51))).await;
}

fn cursor_key() -> Key {
    client_on(Arc::new(MemoryStore::new())).keys().cursor()
}

/// Writes the task of another process on the page at this place.
async fn fill(store: &MemoryStore, key: &Key, by: u64) {
    let before = read::<Page>(store, key).await.map(|(_, page)| page);
    let number = before.as_ref().map_or(0, |page| page.number);
    let entries = vec![Entry::Task(order(&format!("theirs {by}")))];
    write(store, key, &Page::filling(number, before.as_ref(), entries, op(by))).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_applied_without_an_answer_is_not_sent_again() {
    let (submitted, store, pages) =
        submit(Reads::Linearizable, Fault::Indeterminate, |store, write| async move {
            apply(&store, write).await;
        })
        .await;
    submitted.expect("accepted");
    assert_eq!((waiting(&store, 0).await, pages), (vec!["ours".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn where_reads_prove_nothing_it_is_proven_by_a_rewrite() {
    let (submitted, store, pages) =
        submit(Reads::Weak, Fault::Indeterminate, |store, write| async move {
            apply(&store, write).await;
        })
        .await;
    submitted.expect("accepted");
    assert_eq!((waiting(&store, 0).await, pages), (vec!["ours".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_lost_is_sent_again_to_the_same_page() {
    for reads in [Reads::Linearizable, Reads::Weak] {
        let (submitted, store, pages) =
            submit(reads, Fault::Indeterminate, |_, _| async move {}).await;
        submitted.expect("accepted");
        assert_eq!((waiting(&store, 0).await, pages), (vec!["ours".to_owned()], 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_had_no_effect_is_sent_again() {
    let (submitted, store, _) =
        submit(Reads::Linearizable, Fault::Unavailable, |_, _| async move {}).await;
    submitted.expect("accepted");
    assert_eq!(waiting(&store, 0).await, ["ours"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_for_good_is_an_error_and_nothing_was_accepted() {
    for fault in [Fault::Permanent, Fault::Denied] {
        let (submitted, store, _) = submit(Reads::Linearizable, fault, |_, _| async move {}).await;
        assert!(matches!(submitted, Err(ClusterError::Store(error)) if error.fault == fault));
        assert!(waiting(&store, 0).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_in_and_freed_before_it_was_answered_is_accepted_and_not_sent_again() {
    for reads in [Reads::Linearizable, Reads::Weak] {
        let (submitted, store, _) =
            submit(reads, Fault::Indeterminate, |store, write| async move {
                let key = write.key.clone();
                apply(&store, write).await;
                consume(&store, &key).await;
            })
            .await;
        submitted.expect("accepted");
        assert!(waiting(&store, 1).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_found_although_others_have_used_its_place_since() {
    for reads in [Reads::Linearizable, Reads::Weak] {
        let (submitted, store, _) =
            submit(reads, Fault::Indeterminate, |store, write| async move {
                let key = write.key.clone();
                apply(&store, write).await;
                for lap in 1..FILLS_KEPT as u64 {
                    consume(&store, &key).await;
                    fill(&store, &key, lap).await;
                }
            })
            .await;
        submitted.expect("accepted");
        let place = (FILLS_KEPT as u64 - 1) * INBOX_PAGES;
        assert_eq!(waiting(&store, place).await, [format!("theirs {}", FILLS_KEPT - 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn when_too_many_have_used_its_place_the_doubt_is_told_and_nothing_sent() {
    let (submitted, store, _) =
        submit(Reads::Linearizable, Fault::Indeterminate, |store, write| async move {
            let key = write.key.clone();
            apply(&store, write).await;
            for lap in 1..=FILLS_KEPT as u64 {
                consume(&store, &key).await;
                fill(&store, &key, lap).await;
            }
        })
        .await;
    let Err(ClusterError::PartlyAccepted { accepted: 0, doubtful: 1, of: 1, source }) = submitted
    else {
        panic!("{submitted:?}")
    };
    assert!(matches!(&*source, ClusterError::Overtaken { .. }), "{source}");
    let place = FILLS_KEPT as u64 * INBOX_PAGES;
    assert_eq!(waiting(&store, place).await, [format!("theirs {FILLS_KEPT}")]);
}

#[tokio::test(start_paused = true)]
async fn what_lost_its_page_to_another_goes_to_the_next_once() {
    for reads in [Reads::Linearizable, Reads::Weak] {
        let (submitted, store, _) =
            submit(reads, Fault::Indeterminate, |store, write| async move {
                fill(&store, &write.key, 1).await;
                // The write comes late, and can have no effect any more.
                assert_eq!(store.put_one(write).await.expect("memory serves"), Put::Conflict);
            })
            .await;
        submitted.expect("accepted");
        assert_eq!(waiting(&store, 0).await, ["theirs 1", "ours"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_comes_after_it_was_sent_again_has_no_effect() {
    let (late, arrives) = tokio::sync::oneshot::channel();
    let late = std::sync::Mutex::new(Some(late));
    let (submitted, store, _) =
        submit(Reads::Linearizable, Fault::Indeterminate, move |_, write| {
            let late = late.lock().expect("not poisoned").take();
            async move {
                assert!(late.expect("asked once").send(write).is_ok());
            }
        })
        .await;
    submitted.expect("accepted");
    let write = arrives.await.expect("it was kept");
    assert_eq!(store.put_one(write).await.expect("memory serves"), Put::Conflict);
    assert_eq!(waiting(&store, 0).await, ["ours"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_was_garbled_meanwhile_leaves_a_doubt_that_is_told() {
    let (submitted, _, _) =
        submit(Reads::Linearizable, Fault::Indeterminate, |store, write| async move {
            write_body(&store, &write.key, "{".into()).await;
        })
        .await;
    let Err(ClusterError::PartlyAccepted { accepted: 0, doubtful: 1, of: 1, source }) = submitted
    else {
        panic!("{submitted:?}")
    };
    assert!(matches!(&*source, ClusterError::Document { .. }), "{source}");
}

/// Refuses to write more than this many pages.
#[derive(Debug)]
struct Narrow {
    inner: MemoryStore,
    left: AtomicUsize,
}

#[async_trait]
impl Store for Narrow {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        true
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        self.inner.get_many(keys).await
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let is_page = writes.iter().any(|write| write.key.as_str().contains("/inbox/"));
        if is_page && self.left.load(Ordering::Relaxed) == 0 {
            return vec![Err(StoreError::new(Fault::Unavailable, "narrow", "writing", "no room"))];
        }
        if is_page {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        self.inner.put_many(writes).await
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Listing, StoreError> {
        self.inner.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.inner.changed(key, seen).await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_store_stops_serving_it_is_said_how_many_were_accepted() {
    let inner = MemoryStore::new();
    let narrow = Narrow { inner: inner.clone(), left: AtomicUsize::new(2) };
    let orders: Vec<_> = (0..1500).map(|number| order(&format!("{number:04}"))).collect();
    let submitted = client_on(Arc::new(narrow)).submit(orders).await;
    let Err(ClusterError::PartlyAccepted { accepted, doubtful: 0, of: 1500, source }) = submitted
    else {
        panic!("{submitted:?}")
    };
    assert!(matches!(&*source, ClusterError::Store(_)), "{source}");
    let found = waiting(&inner, 0).await;
    assert_eq!((found.len(), found.last()), (accepted, Some(&format!("{:04}", accepted - 1))));
    assert!(accepted > 0 && accepted < 1500, "{accepted}");
}
