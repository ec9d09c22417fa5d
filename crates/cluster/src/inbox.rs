//! Accepting tasks: a ring of pages that any process may write and the leader reads.
//!
//! Entries that were sent without an answer are never sent to another page until it is certain that
//! the first write had no effect. So no entry is accepted twice.
//! [`documents::Page`](super::documents::Page) explains how a writer can be certain.

mod packing;
mod search;
mod sight;

use std::sync::Arc;

use search::Search;
use sight::{Sight, look};
use tenure::Key;
use tenure::lease::record::Op;
use tenure::store::{Expect, Fault, Put, StoreExt, Version};

use super::client::{ClusterClient, Found};
use super::documents::{Cursor, Entry, Format, INBOX_PAGES, Order, Page};
use super::patience::Patience;
use crate::error::ClusterError;

impl ClusterClient {
    /// Submits tasks. When this returns they are in the store, and will be done.
    ///
    /// Waits while the inbox is full. The tasks are accepted in their order, each exactly once,
    /// even if answers are lost. A store that does not serve is waited for, up to a minute.
    ///
    /// # Errors
    /// [`ClusterError::Order`] names the first task that no cluster would accept; then none was
    /// accepted. [`ClusterError::Store`] when the store does not serve and no task was accepted.
    /// Otherwise [`ClusterError::PartlyAccepted`] says how many were.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open which tasks were accepted.
    pub async fn submit(&self, orders: Vec<Order>) -> Result<(), ClusterError> {
        for (index, order) in orders.iter().enumerate() {
            order.check().map_err(|source| ClusterError::Order { index, source })?;
        }
        self.enter(orders.into_iter().map(Entry::Task).collect()).await
    }

    /// Writes entries on pages, as [`ClusterClient::submit`] does.
    pub(super) async fn enter(&self, entries: Vec<Entry>) -> Result<(), ClusterError> {
        let (of, mut accepted) = (entries.len(), 0);
        let mut clerk = Clerk::new(self);
        for leaf in packing::pack(entries) {
            let begun = leaf.len();
            if let Err(stuck) = clerk.file(leaf).await {
                let doubtful = if stuck.doubtful { begun } else { 0 };
                return Err(stuck.into_error(accepted, doubtful, of));
            }
            if accepted == 0 {
                self.call_leader().await;
            }
            accepted += begun;
        }
        if clerk.pages > 1 {
            self.call_leader().await;
        }
        Ok(())
    }

    /// Closes gaps in the inbox, so that the leader can pass empty pages.
    ///
    /// `next` is the page that the leader reads next. If a later page has entries, this writes
    /// [`Entry::NOTHING`] on the empty pages before it.
    ///
    /// Pages are filled in order, so a gap appears only if a weak read showed a page that never
    /// lasted, or if documents were deleted. Returns true if there was a gap.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Cancel safe: the entries that it writes have no effect of their own.
    pub async fn mend_inbox(&self, next: u64) -> Result<bool, ClusterError> {
        let numbers: Vec<u64> = (next..next + INBOX_PAGES).collect();
        let found = self.pages(&numbers).await?;
        let sights: Vec<Sight> = numbers
            .iter()
            .zip(&found)
            .map(|(number, found)| look(found.as_ref(), *number, &[]))
            .collect();
        let Some(last) = sights.iter().rposition(|sight| matches!(sight, Sight::Taken)) else {
            return Ok(false);
        };
        let mut mended = false;
        for (number, sight) in numbers.into_iter().zip(sights).take(last) {
            if let Sight::Empty { expect, before } = sight {
                mended = true;
                let entries = vec![Entry::NOTHING];
                let page = Page::filling(number, before.as_ref(), entries, self.fresh_op());
                // On a conflict, a faster writer has closed the gap as well.
                let _: Put =
                    self.store().put(&self.keys.page(number), expect, page.encode()).await?;
            }
        }
        Ok(mended)
    }

    pub(super) async fn pages(
        &self,
        numbers: &[u64],
    ) -> Result<Vec<Option<Found<Page>>>, ClusterError> {
        let keys: Vec<Key> = numbers.iter().map(|number| self.keys.page(*number)).collect();
        self.find_many(&keys).await
    }
}

/// An empty page that can be written.
#[derive(Debug)]
struct Spot {
    number: u64,
    expect: Expect,
    before: Option<Page>,
}

/// The document to wait for when there is no empty page.
#[derive(Debug)]
struct Full {
    key: Key,
    seen: Option<Version>,
}

/// The reason why entries could not be written.
#[derive(Debug)]
struct Stuck {
    /// True if they may have been written, or may yet be.
    doubtful: bool,
    error: ClusterError,
}

impl Stuck {
    fn into_error(self, accepted: usize, doubtful: usize, of: usize) -> ClusterError {
        if accepted == 0 && doubtful == 0 {
            return self.error;
        }
        ClusterError::PartlyAccepted { accepted, doubtful, of, source: Arc::new(self.error) }
    }
}

/// Writes one page after another.
#[derive(Debug)]
struct Clerk<'a> {
    client: &'a ClusterClient,
    patience: Patience<'a>,
    /// All pages before this one are taken.
    from: u64,
    /// Pages from this one on could not exist yet when the cursor was last read.
    limit: u64,
    /// The number of pages that were written.
    pages: usize,
}

/// The progress of writing one page.
#[derive(Debug)]
enum Errand {
    /// A page must be found. No earlier write can take effect any more.
    Seeking,
    /// This page was empty. All earlier writes were sent to it; each may have taken effect, or may
    /// yet.
    Ready { spot: Spot, sent: Vec<Op> },
    /// The writes to this page may have taken effect, or may yet.
    Unsettled { number: u64, sent: Vec<Op> },
    /// The entries stand on this page.
    Accepted { number: u64 },
}

impl Errand {
    fn is_doubtful(&self) -> bool {
        match self {
            Errand::Seeking | Errand::Accepted { .. } => false,
            Errand::Ready { sent, .. } | Errand::Unsettled { sent, .. } => !sent.is_empty(),
        }
    }
}

impl<'a> Clerk<'a> {
    fn new(client: &'a ClusterClient) -> Clerk<'a> {
        Clerk { client, patience: Patience::new(client), from: 0, limit: 0, pages: 0 }
    }

    /// Writes these entries on exactly one page.
    async fn file(&mut self, entries: Vec<Entry>) -> Result<(), Stuck> {
        let mut errand = Errand::Seeking;
        loop {
            match self.advance(&mut errand, &entries).await {
                Ok(Errand::Accepted { number }) => {
                    (self.from, self.pages) = (number + 1, self.pages + 1);
                    return Ok(());
                }
                Ok(next) => {
                    self.patience.renew();
                    errand = next;
                }
                Err(error) => {
                    let doubtful = errand.is_doubtful();
                    self.patience.after(error).await.map_err(|error| Stuck { doubtful, error })?;
                }
            }
        }
    }

    /// Does one step. An error leaves the request as it was.
    async fn advance(
        &mut self,
        errand: &mut Errand,
        entries: &[Entry],
    ) -> Result<Errand, ClusterError> {
        match errand {
            Errand::Seeking => Ok(match self.seek().await? {
                Ok(spot) => Errand::Ready { spot, sent: Vec::new() },
                Err(full) => {
                    self.client.call_leader().await;
                    let poll = self.client.poll();
                    self.client.wait_for(&full.key, full.seen.as_ref(), poll).await;
                    Errand::Seeking
                }
            }),
            Errand::Ready { spot, sent } => self.write(spot, sent, entries).await,
            Errand::Unsettled { number, sent } => self.settle(*number, sent).await,
            Errand::Accepted { number } => Ok(Errand::Accepted { number: *number }),
        }
    }

    /// Writes on a page that was empty.
    async fn write(
        &mut self,
        spot: &Spot,
        sent: &mut Vec<Op>,
        entries: &[Entry],
    ) -> Result<Errand, ClusterError> {
        let Spot { number, expect, before } = spot;
        let (number, op) = (*number, self.client.fresh_op());
        let page = Page::filling(number, before.as_ref(), entries.to_vec(), op.clone());
        sent.push(op);
        let key = self.client.keys.page(number);
        match self.client.store().put(&key, expect.clone(), page.encode()).await {
            Ok(Put::Stored(_)) => Ok(Errand::Accepted { number }),
            // The conflict may be with this same write, if something between us and the store sent
            // it twice.
            Ok(Put::Conflict) => Ok(Errand::Unsettled { number, sent: std::mem::take(sent) }),
            Err(error) if error.fault == Fault::Indeterminate => {
                Ok(Errand::Unsettled { number, sent: std::mem::take(sent) })
            }
            Err(error) => {
                // The write had no effect and never will.
                sent.pop();
                Err(error.into())
            }
        }
    }

    /// Finds out whether a write to this page took effect.
    ///
    /// If one still can, the next step writes the entries to the same page again.
    async fn settle(&mut self, number: u64, sent: &mut Vec<Op>) -> Result<Errand, ClusterError> {
        let found = self.client.pages(&[number]).await?.pop().flatten();
        let unsettled =
            |sent: &mut Vec<Op>| Errand::Unsettled { number, sent: std::mem::take(sent) };
        match look(found.as_ref(), number, sent) {
            Sight::Ours if self.is_proven(number, found.as_ref()).await? => {
                Ok(Errand::Accepted { number })
            }
            Sight::Taken if self.is_proven(number, found.as_ref()).await? => {
                self.from = number + 1;
                Ok(Errand::Seeking)
            }
            Sight::Ours | Sight::Taken => Ok(unsettled(sent)),
            // All writes expect this version, or one that is gone. So once one of them succeeds,
            // the others conflict.
            Sight::Empty { expect, before } => {
                let spot = Spot { number, expect, before };
                Ok(Errand::Ready { spot, sent: std::mem::take(sent) })
            }
            Sight::Early => {
                let (key, seen) = (self.client.keys.page(number), found.map(|found| found.version));
                self.client.wait_for(&key, seen.as_ref(), self.client.poll()).await;
                Ok(unsettled(sent))
            }
            Sight::Garbled(source) => {
                Err(ClusterError::Document { key: self.client.keys.page(number), source })
            }
            Sight::Overtaken => Err(ClusterError::Overtaken { key: self.client.keys.page(number) }),
        }
    }

    /// Returns true if the page certainly stands in the store as it was read.
    ///
    /// Where reads prove nothing, only an acknowledged rewrite shows that.
    async fn is_proven(
        &self,
        number: u64,
        found: Option<&Found<Page>>,
    ) -> Result<bool, ClusterError> {
        if !self.client.is_weak() {
            return Ok(true);
        }
        let Some(Found { version, content: Ok(page) }) = found else { return Ok(false) };
        let (key, expect) = (self.client.keys.page(number), Expect::At(version.clone()));
        let again = page.rewritten(self.client.fresh_op());
        match self.client.store().put(&key, expect, again.encode()).await {
            Ok(Put::Stored(_)) => Ok(true),
            Ok(Put::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds the first empty page, or the document to wait for.
    async fn seek(&mut self) -> Result<Result<Spot, Full>, ClusterError> {
        loop {
            if self.from >= self.limit
                && let Err(full) = self.read_cursor().await?
            {
                return Ok(Err(full));
            }
            let mut search = Search::new(self.from, self.limit);
            while let Some(numbers) = search.probes() {
                let found = self.client.pages(&numbers).await?;
                search.learn(numbers.into_iter().zip(found));
            }
            let (number, edge) = search.into_edge();
            self.from = number;
            let Some(found) = edge else { continue };
            match look(found.as_ref(), number, &[]) {
                Sight::Empty { expect, before } => {
                    return Ok(Ok(Spot { number, expect, before }));
                }
                Sight::Early => {
                    let seen = found.map(|found| found.version);
                    return Ok(Err(Full { key: self.client.keys.page(number), seen }));
                }
                Sight::Ours | Sight::Taken | Sight::Garbled(_) | Sight::Overtaken => {
                    self.from = number + 1;
                }
            }
        }
    }

    /// Reads the cursor to learn which pages can exist.
    async fn read_cursor(&mut self) -> Result<Result<(), Full>, ClusterError> {
        let key = self.client.keys.cursor();
        let found = self.client.read::<Cursor>(&key).await?;
        let page = found.as_ref().map_or(0, |(_, cursor)| cursor.page);
        self.from = self.from.max(page);
        self.limit = page + INBOX_PAGES;
        if self.from < self.limit {
            return Ok(Ok(()));
        }
        Ok(Err(Full { key, seen: found.map(|(version, _)| version) }))
    }
}
