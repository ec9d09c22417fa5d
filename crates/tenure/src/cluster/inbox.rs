//! Accepting tasks: a ring of pages that anybody may write on and the leader reads.
//!
//! What was sent without an answer is never sent to another page before it is certain that it did
//! not happen, so nothing is accepted twice. [`documents::Page`](super::documents::Page) says how
//! that can be known.

mod packing;
mod search;
mod sight;

use std::sync::Arc;

use super::books::{Books, Found};
use super::documents::{Cursor, Entry, Format, INBOX_PAGES, Order, Page};
use super::patience::Patience;
use crate::lease::record::Op;
use crate::store::{Expect, Fault, Put, StoreExt, Version};
use crate::{Error, Key};
use search::Search;
use sight::{Sight, look};

impl Books {
    /// Accepts tasks: when this returns they are in the store, and will be done. Waits while the
    /// inbox is full.
    ///
    /// They are accepted in their order, each exactly once, whatever answers are lost; a store that
    /// does not serve is waited for, up to a minute.
    ///
    /// # Errors
    /// [`Error::Order`] names the first task that no cluster would take; then none was accepted.
    /// [`Error::Store`] when the store does not serve and none was accepted,
    /// [`Error::PartlyAccepted`] says how many were otherwise.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open which of them were accepted.
    pub async fn submit(&self, orders: Vec<Order>) -> Result<(), Error> {
        for (index, order) in orders.iter().enumerate() {
            order.check().map_err(|source| Error::Order { index, source })?;
        }
        self.enter(orders.into_iter().map(Entry::Task).collect()).await
    }

    /// Writes entries on pages, as [`Books::submit`] does.
    pub(super) async fn enter(&self, entries: Vec<Entry>) -> Result<(), Error> {
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

    /// Sees to it that the leader, for whom this page comes next, can pass it if there is something
    /// on a page after it.
    ///
    /// Pages are filled in order, so that is only needed where a reader was shown what never lasted
    /// (a store whose reads prove nothing) or somebody deleted documents. Says whether there was
    /// such a gap.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Cancel safe: what it writes on a page has no effect of its own.
    pub async fn mend_inbox(&self, next: u64) -> Result<bool, Error> {
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
                // Whoever was faster has closed the gap as well.
                let _: Put =
                    self.store().put(&self.keys.page(number), expect, page.encode()).await?;
            }
        }
        Ok(mended)
    }

    pub(super) async fn pages(&self, numbers: &[u64]) -> Result<Vec<Option<Found<Page>>>, Error> {
        let keys: Vec<Key> = numbers.iter().map(|number| self.keys.page(*number)).collect();
        self.find_many(&keys).await
    }
}

/// Where a page can be written.
#[derive(Debug)]
struct Spot {
    number: u64,
    expect: Expect,
    before: Option<Page>,
}

/// What to wait for when there is no such page.
#[derive(Debug)]
struct Full {
    key: Key,
    seen: Option<Version>,
}

/// Why entries could not be written.
#[derive(Debug)]
struct Stuck {
    /// Whether they may have been, or may yet be.
    doubtful: bool,
    error: Error,
}

impl Stuck {
    fn into_error(self, accepted: usize, doubtful: usize, of: usize) -> Error {
        if accepted == 0 && doubtful == 0 {
            return self.error;
        }
        Error::PartlyAccepted { accepted, doubtful, of, source: Arc::new(self.error) }
    }
}

/// Writes one page after another.
#[derive(Debug)]
struct Clerk<'a> {
    books: &'a Books,
    patience: Patience<'a>,
    /// All pages before this one are taken.
    from: u64,
    /// Pages from this one on could not be there yet when the cursor was last read.
    limit: u64,
    /// How many were written.
    pages: usize,
}

/// How far the writing of one page has come.
#[derive(Debug)]
enum Errand {
    /// A page has to be found. Nothing that was sent can happen any more.
    Seeking,
    /// This one was empty. All that was sent was sent to it, and may have happened, or may yet.
    Ready { spot: Spot, sent: Vec<Op> },
    /// What was sent to this page may have happened, or may yet.
    Unsettled { number: u64, sent: Vec<Op> },
    /// They stand on this page.
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
    fn new(books: &'a Books) -> Clerk<'a> {
        Clerk { books, patience: Patience::new(books), from: 0, limit: 0, pages: 0 }
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

    /// One step. After an error the errand is where it was.
    async fn advance(&mut self, errand: &mut Errand, entries: &[Entry]) -> Result<Errand, Error> {
        match errand {
            Errand::Seeking => Ok(match self.seek().await? {
                Ok(spot) => Errand::Ready { spot, sent: Vec::new() },
                Err(full) => {
                    self.books.call_leader().await;
                    let poll = self.books.poll();
                    self.books.wait_for(&full.key, full.seen.as_ref(), poll).await;
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
    ) -> Result<Errand, Error> {
        let Spot { number, expect, before } = spot;
        let (number, op) = (*number, self.books.fresh_op());
        let page = Page::filling(number, before.as_ref(), entries.to_vec(), op.clone());
        sent.push(op);
        let key = self.books.keys.page(number);
        match self.books.store().put(&key, expect.clone(), page.encode()).await {
            Ok(Put::Stored(_)) => Ok(Errand::Accepted { number }),
            // A conflict may be with this very write, where something between us and the store sent
            // it twice.
            Ok(Put::Conflict) => Ok(Errand::Unsettled { number, sent: std::mem::take(sent) }),
            Err(error) if error.fault == Fault::Indeterminate => {
                Ok(Errand::Unsettled { number, sent: std::mem::take(sent) })
            }
            Err(error) => {
                // It had no effect and never will.
                sent.pop();
                Err(error.into())
            }
        }
    }

    /// Finds out whether what was sent to a page has happened. If it can still happen, it is made
    /// to.
    async fn settle(&mut self, number: u64, sent: &mut Vec<Op>) -> Result<Errand, Error> {
        let found = self.books.pages(&[number]).await?.pop().flatten();
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
            // Whichever of the writes comes first, the others then conflict: all expect this
            // version, or one that is gone.
            Sight::Empty { expect, before } => {
                let spot = Spot { number, expect, before };
                Ok(Errand::Ready { spot, sent: std::mem::take(sent) })
            }
            Sight::Early => {
                let (key, seen) = (self.books.keys.page(number), found.map(|found| found.version));
                self.books.wait_for(&key, seen.as_ref(), self.books.poll()).await;
                Ok(unsettled(sent))
            }
            Sight::Garbled(source) => {
                Err(Error::Document { key: self.books.keys.page(number), source })
            }
            Sight::Overtaken => Err(Error::Overtaken { key: self.books.keys.page(number) }),
        }
    }

    /// Whether what was read is what stands there. Where reads prove nothing, only a rewrite that
    /// is acknowledged shows it.
    async fn is_proven(&self, number: u64, found: Option<&Found<Page>>) -> Result<bool, Error> {
        if !self.books.is_weak() {
            return Ok(true);
        }
        let Some(Found { version, content: Ok(page) }) = found else { return Ok(false) };
        let (key, expect) = (self.books.keys.page(number), Expect::At(version.clone()));
        let again = page.rewritten(self.books.fresh_op());
        match self.books.store().put(&key, expect, again.encode()).await {
            Ok(Put::Stored(_)) => Ok(true),
            Ok(Put::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The first empty page, or what to wait for.
    async fn seek(&mut self) -> Result<Result<Spot, Full>, Error> {
        loop {
            if self.from >= self.limit
                && let Err(full) = self.read_cursor().await?
            {
                return Ok(Err(full));
            }
            let mut search = Search::new(self.from, self.limit);
            while let Some(numbers) = search.probes() {
                let found = self.books.pages(&numbers).await?;
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
                    return Ok(Err(Full { key: self.books.keys.page(number), seen }));
                }
                Sight::Ours | Sight::Taken | Sight::Garbled(_) | Sight::Overtaken => {
                    self.from = number + 1;
                }
            }
        }
    }

    /// Learns which pages can be there.
    async fn read_cursor(&mut self) -> Result<Result<(), Full>, Error> {
        let key = self.books.keys.cursor();
        let found = self.books.read::<Cursor>(&key).await?;
        let page = found.as_ref().map_or(0, |(_, cursor)| cursor.page);
        self.from = self.from.max(page);
        self.limit = page + INBOX_PAGES;
        if self.from < self.limit {
            return Ok(Ok(()));
        }
        Ok(Err(Full { key, seen: found.map(|(version, _)| version) }))
    }
}
