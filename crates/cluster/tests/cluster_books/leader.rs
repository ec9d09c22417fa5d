//! A leader that only reads the inbox, in the way of the planner.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenure::CandidateId;
use tenure::lease::record::Op;
use tenure::store::{Expect, Put, Reads, Store, StoreExt, Version};
use tenure_cluster::ClusterClient;
use tenure_cluster::documents::{Cursor, Entry, Format, INBOX_PAGES, Page};

use crate::stage::{read, write};

/// Takes in pages, one after another.
pub(crate) struct Leader<'a> {
    client: &'a ClusterClient,
    /// The leader's own line, which never fails. Reads of `inbox` may be untrue.
    store: &'a dyn Store,
    inbox: &'a dyn Store,
    rng: StdRng,
    written: u64,
    cursor: (Option<Version>, Cursor),
    /// The entries that were taken in, in order.
    pub(crate) taken: Vec<Entry>,
}

impl<'a> Leader<'a> {
    pub(crate) fn new(
        client: &'a ClusterClient,
        store: &'a dyn Store,
        inbox: &'a dyn Store,
        seed: u64,
    ) -> Leader<'a> {
        let first = Cursor::new(Op::new(&CandidateId::from_bits(1), 0));
        let rng = StdRng::seed_from_u64(seed);
        Leader { client, store, inbox, rng, written: 0, cursor: (None, first), taken: Vec::new() }
    }

    fn op(&mut self) -> Op {
        self.written += 1;
        Op::new(&CandidateId::from_bits(1), self.written)
    }

    /// Reads until `over` is true, and then until nothing is left.
    pub(crate) async fn run(&mut self, mut over: tokio::sync::watch::Receiver<bool>) {
        self.take_office().await;
        loop {
            let ends = *over.borrow();
            if self.rng.random_range(0..100) < 20 {
                tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..500))).await;
            }
            if self.step().await {
                continue;
            }
            // Reads may show pages that never lasted, so there can be gaps.
            if self.client.mend_inbox(self.cursor.1.page).await.unwrap_or(true) {
                continue;
            }
            if ends && self.is_empty().await {
                return;
            }
            let pause = Duration::from_millis(self.rng.random_range(1..200));
            let _ = tokio::time::timeout(pause, over.changed()).await;
        }
    }

    /// Writes the cursor, as every leader does before it reads anything.
    pub(crate) async fn take_office(&mut self) {
        let version = write(self.store, &self.client.keys().cursor(), &self.cursor.1).await;
        self.cursor.0 = Some(version);
    }

    /// Returns true if the inbox is certainly empty.
    async fn is_empty(&self) -> bool {
        for number in self.cursor.1.page..self.cursor.1.page + INBOX_PAGES {
            let page = read::<Page>(self.store, &self.client.keys().page(number)).await;
            if page.is_some_and(|(_, page)| page.number == number && !page.entries.is_empty()) {
                return false;
            }
        }
        true
    }

    /// Takes in a part of the next page. Returns false if the page seems to have no entries.
    pub(crate) async fn step(&mut self) -> bool {
        let number = self.cursor.1.page;
        let key = self.client.keys().page(number);
        let Ok(found) = self.inbox.get(&key).await else { return true };
        let Some(found) = found else { return false };
        let page = Page::decode(&found.body).expect("pages make sense");
        if page.number != number || page.entries.is_empty() {
            return false;
        }
        let (mut page, mut version) = (page, found.version);
        if self.inbox.reads() == Reads::Weak {
            page = page.rewritten(self.op());
            let put = self.store.put(&key, Expect::At(version), page.encode()).await;
            match put.expect("a good line") {
                Put::Stored(stored) => version = stored,
                Put::Conflict => return true,
            }
        }
        let from = self.cursor.1.taken;
        let to = self.rng.random_range(from + 1..=page.entries.len());
        if !self.record(&page, to).await {
            return true;
        }
        self.taken.extend(page.entries[from..to].iter().cloned());
        if to == page.entries.len() {
            self.free(&page, version).await;
        }
        true
    }

    /// Takes the entries of this page before `to`, by a compare-and-set of the cursor.
    pub(crate) async fn record(&mut self, page: &Page, to: usize) -> bool {
        let op = self.op();
        let (version, before) = &self.cursor;
        let is_wholly = to == page.entries.len();
        let (next, taken) = if is_wholly { (page.number + 1, 0) } else { (page.number, to) };
        let after =
            Cursor { page: next, taken, revision: before.revision + 1, op, ..before.clone() };
        let key = self.client.keys().cursor();
        let expect = version.clone().map_or(Expect::Absent, Expect::At);
        match self.store.put(&key, expect, after.encode()).await.expect("a good line") {
            Put::Stored(version) => {
                self.cursor = (Some(version), after);
                true
            }
            Put::Conflict => {
                let (version, cursor) = read(self.store, &key).await.expect("somebody wrote it");
                self.cursor = (Some(version), cursor);
                false
            }
        }
    }

    async fn free(&mut self, page: &Page, version: Version) {
        let key = self.client.keys().page(page.number);
        let (mut page, mut version) = (page.clone(), version);
        loop {
            // A leader that is killed here frees the page later, or its successor does.
            if self.rng.random_range(0..100) < 20 {
                tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..100))).await;
            }
            let freed = page.freed(self.op());
            match self.store.put(&key, Expect::At(version), freed.encode()).await {
                Ok(Put::Stored(_)) => return,
                Ok(Put::Conflict) => {}
                Err(error) => panic!("a good line: {error}"),
            }
            (version, page) = read(self.store, &key).await.expect("it is never deleted");
        }
    }
}
