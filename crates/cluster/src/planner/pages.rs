//! Reads the inbox. A page with entries keeps its place until the leader frees it.

use std::collections::VecDeque;

use tenure::Key;
use tenure::lease::record::Op;
use tenure::store::{Durability, Expect, Put, StoreExt as _, Version, Write};

use crate::client::{ClusterClient, Found};
use crate::documents::{
    Assignment, Cursor, DocumentError, Entry, Format as _, INBOX_PAGES, Letter, MemberId, Order,
    Page,
};
use crate::error::ClusterError;

/// The fewest and the most pages that are kept in memory.
const LEAST_AHEAD: usize = 2;
const MOST_AHEAD: usize = 32;

/// An entry of the inbox, and the cursor's place after it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub(super) what: What,
    pub(super) page: u64,
    pub(super) taken: usize,
}

/// A request from the inbox.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// A task.
    Task(Order),
    /// A dead letter to bring back.
    Again {
        /// The serial under which the task died.
        letter: u64,
        /// The task.
        task: Assignment,
    },
    /// A task that was cancelled before it was taken.
    ///
    /// Its submitter may wait under this receipt.
    Cancelled(MemberId),
    /// A dead letter to bring back that was not looked up yet.
    Retry(u64),
    /// Nothing to do: there is no such letter, or the page is invalid.
    Nothing,
}

/// A page that stands in the store.
#[derive(Clone, Debug)]
struct Standing {
    number: u64,
    version: Version,
    content: Content,
    /// An acknowledged write has shown this content.
    confirmed: bool,
}

#[derive(Clone, Debug)]
enum Content {
    /// A page with entries.
    Page(Page),
    /// An invalid page: the leader passes it and frees its place.
    Garbled,
    /// A later page: the leader passes this one and leaves the place alone.
    Gone,
}

impl Standing {
    fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Page(page) => &page.entries,
            Content::Garbled | Content::Gone => &[],
        }
    }

    /// The content of its place once the page is taken.
    fn freed(&self, op: Op) -> Option<Page> {
        match &self.content {
            Content::Page(page) => Some(page.freed(op)),
            Content::Garbled => Some(Page::empty(self.number + INBOX_PAGES, op)),
            Content::Gone => None,
        }
    }
}

/// The state of a place of the ring, seen from the page that is wanted there.
#[derive(Debug, PartialEq)]
pub(super) enum Place {
    /// The wanted page is there, and empty.
    Empty,
    /// The wanted page is there, with entries.
    Written,
    /// An earlier page is there, which was already taken: its place must be freed.
    Behind,
    /// A later page is there: some process has lost count.
    Ahead,
}

/// Compares the wanted page with the page that was found.
pub(super) fn place(wanted: u64, found: &Page) -> Place {
    match found.number.cmp(&wanted) {
        std::cmp::Ordering::Equal if found.entries.is_empty() => Place::Empty,
        std::cmp::Ordering::Equal => Place::Written,
        std::cmp::Ordering::Less => Place::Behind,
        std::cmp::Ordering::Greater => Place::Ahead,
    }
}

/// The pages ahead of the cursor that were read.
#[derive(Debug)]
pub(super) struct Pages {
    standing: VecDeque<Standing>,
    ahead: usize,
    /// Pages that were taken and not freed yet.
    unfreed: Vec<Standing>,
    /// The pages that the predecessor left behind are freed.
    tidy: bool,
}

impl Pages {
    pub(super) fn new() -> Pages {
        Pages { standing: VecDeque::new(), ahead: LEAST_AHEAD, unfreed: Vec::new(), tidy: false }
    }

    /// Returns true if the next page has no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.standing.is_empty()
    }

    /// Forgets everything, because the cursor is taken over again.
    pub(super) fn forget(&mut self) {
        *self = Pages::new();
    }

    /// Reads more pages, if there may be more. Returns the invalid pages.
    pub(super) async fn read(
        &mut self,
        client: &ClusterClient,
        cursor: &Cursor,
    ) -> Result<Vec<(Key, DocumentError)>, ClusterError> {
        self.standing.retain(|standing| standing.number >= cursor.page);
        let ahead = u64::try_from(self.ahead).unwrap_or(1);
        let from = self.standing.back().map_or(cursor.page, |last| last.number + 1);
        let wanted: Vec<u64> = (from..cursor.page + ahead).collect();
        let keys: Vec<Key> = wanted.iter().map(|number| client.keys.page(*number)).collect();
        let mut garbled = Vec::new();
        if keys.is_empty() {
            return Ok(garbled);
        }
        let found = client.find_many::<Page>(&keys).await?;
        for ((number, key), found) in wanted.into_iter().zip(keys).zip(found) {
            let Some(Found { version, content }) = found else { break };
            let (content, confirmed) = match content {
                Err(error) => {
                    garbled.push((key, error));
                    (Content::Garbled, true)
                }
                Ok(page) => match place(number, &page) {
                    Place::Empty => break,
                    Place::Behind => {
                        let empty = Page { number, ..page.freed(client.fresh_op()) };
                        make_empty(client, key, version, &empty).await;
                        break;
                    }
                    Place::Ahead => {
                        tracing::warn!(number, "a page of the inbox is gone; it is passed over");
                        (Content::Gone, true)
                    }
                    Place::Written => (Content::Page(page), !client.is_weak()),
                },
            };
            self.standing.push_back(Standing { number, version, content, confirmed });
        }
        self.confirm(client).await;
        Ok(garbled)
    }

    /// Rewrites pages on a weak store.
    ///
    /// Only an acknowledged write proves the content of a page.
    async fn confirm(&mut self, client: &ClusterClient) {
        let unconfirmed = self.standing.iter().enumerate().filter(|(_, page)| !page.confirmed);
        let (mut places, mut writes) = (Vec::new(), Vec::new());
        for (place, standing) in unconfirmed {
            let Content::Page(page) = &standing.content else { continue };
            let again = page.rewritten(client.fresh_op());
            writes.push(Write {
                key: client.keys.page(standing.number),
                expect: Expect::At(standing.version.clone()),
                body: Some(again.encode()),
                durability: Durability::Lasting,
            });
            places.push((place, again));
        }
        if writes.is_empty() {
            return;
        }
        let outcomes = client.store().put_many(writes).await;
        for ((place, again), outcome) in places.into_iter().zip(outcomes) {
            let Ok(Put::Stored(version)) = outcome else {
                self.standing.truncate(place);
                return;
            };
            let standing = &mut self.standing[place];
            (standing.version, standing.confirmed) = (version, true);
            standing.content = Content::Page(again);
        }
    }

    /// The entries from the cursor's place on, at most `most` of them.
    pub(super) fn items(&self, cursor: &Cursor, most: usize) -> Vec<Item> {
        let mut items = Vec::new();
        for standing in &self.standing {
            let number = standing.number;
            let entries = standing.entries();
            let skip = if number == cursor.page { cursor.taken } else { 0 };
            if skip >= entries.len() {
                items.push(Item { what: What::Nothing, page: number + 1, taken: 0 });
            }
            for (index, entry) in entries.iter().enumerate().skip(skip) {
                if items.len() >= most {
                    return items;
                }
                let what = match entry {
                    Entry::Task(order) => What::Task(order.clone()),
                    Entry::Retry(serial) => What::Retry(*serial),
                    Entry::Cancelled(receipt) => What::Cancelled(receipt.clone()),
                };
                let is_last = index + 1 == entries.len();
                let (page, taken) = if is_last { (number + 1, 0) } else { (number, index + 1) };
                items.push(Item { what, page, taken });
            }
        }
        items
    }

    /// Frees the places of pages that the cursor has taken. If all pages were taken, reads further
    /// ahead next time.
    pub(super) async fn free(&mut self, client: &ClusterClient, cursor: &Cursor) {
        let all = self.standing.len();
        let is_taken = |standing: &Standing| standing.number < cursor.page;
        while let Some(taken) = self.standing.pop_front_if(|standing| is_taken(standing)) {
            if !matches!(taken.content, Content::Gone) {
                self.unfreed.push(taken);
            }
        }
        if self.standing.is_empty() && all >= self.ahead {
            self.ahead = (self.ahead * 2).min(MOST_AHEAD);
        } else if self.standing.len() > 1 {
            self.ahead = (self.ahead / 2).max(LEAST_AHEAD);
        }
        self.release(client).await;
    }

    async fn release(&mut self, client: &ClusterClient) {
        if self.unfreed.is_empty() {
            return;
        }
        let writes = self.unfreed.iter().filter_map(|taken| {
            Some(Write {
                key: client.keys.page(taken.number),
                expect: Expect::At(taken.version.clone()),
                body: Some(taken.freed(client.fresh_op())?.encode()),
                durability: Durability::Lasting,
            })
        });
        let outcomes = client.store().put_many(writes.collect()).await;
        let mut outcomes = outcomes.into_iter();
        let mut tidy = self.tidy;
        self.unfreed.retain(|taken| match outcomes.next() {
            Some(Ok(Put::Stored(_))) => false,
            Some(Ok(Put::Conflict)) => {
                // The page was freed, or rewritten to cancel one of its tasks: another look shows
                // which.
                tidy = false;
                false
            }
            Some(Err(error)) => {
                tracing::warn!(number = taken.number, %error, "a page of the inbox was not freed");
                true
            }
            None => true,
        });
        self.tidy = tidy;
    }

    /// Frees pages that a predecessor took last and did not free.
    ///
    /// Also frees pages that were rewritten before they could be freed.
    pub(super) async fn tidy(
        &mut self,
        client: &ClusterClient,
        cursor: &Cursor,
    ) -> Result<(), ClusterError> {
        if self.tidy {
            return Ok(());
        }
        let most = u64::try_from(MOST_AHEAD).unwrap_or(0);
        let behind: Vec<u64> = (cursor.page.saturating_sub(most)..cursor.page).collect();
        let keys: Vec<Key> = behind.iter().map(|number| client.keys.page(*number)).collect();
        if !keys.is_empty() {
            let found = client.find_many::<Page>(&keys).await?;
            for (number, found) in behind.into_iter().zip(found) {
                let Some(Found { version, content: Ok(page) }) = found else { continue };
                let is_known = self.unfreed.iter().any(|taken| taken.number == number);
                if page.number == number && !is_known {
                    let content = Content::Page(page);
                    self.unfreed.push(Standing { number, version, content, confirmed: true });
                }
            }
        }
        self.tidy = true;
        self.release(client).await;
        Ok(())
    }
}

/// Frees a place that was taken long ago. The next read shows whether that succeeded.
async fn make_empty(client: &ClusterClient, key: Key, version: Version, empty: &Page) {
    let number = empty.number;
    let (expect, body) = (Expect::At(version), Some(empty.encode()));
    let write = Write { key, expect, body, durability: Durability::Lasting };
    if let Err(error) = client.store().put_one(write).await {
        tracing::warn!(number, %error, "a page of the inbox was not freed; it is tried again");
    }
}

/// Looks up the dead letters to bring back. Cuts the list where the lookup is not certain.
pub(super) async fn find_letters(
    client: &ClusterClient,
    items: &mut Vec<Item>,
) -> Result<(), ClusterError> {
    let asked = items.iter().enumerate().filter_map(|(index, item)| match item.what {
        What::Retry(serial) => Some((index, serial)),
        What::Task(_) | What::Again { .. } | What::Cancelled(_) | What::Nothing => None,
    });
    let asked: Vec<(usize, u64)> = asked.collect();
    if asked.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = asked.iter().map(|(_, serial)| client.keys.letter(*serial)).collect();
    let found = client.find_many::<Letter>(&keys).await?;
    for (((index, serial), key), found) in asked.into_iter().zip(keys).zip(found) {
        items[index].what = match found.map(|found| (found.version, found.content)) {
            // If a weak read has missed the letter, it stays among the dead letters and can be
            // retried again.
            None => What::Nothing,
            Some((_, Err(error))) => {
                tracing::warn!(%key, %error, "a dead letter makes no sense and cannot be retried");
                What::Nothing
            }
            Some((version, Ok(letter))) => {
                if client.is_weak() && !rewrite(client, key, version, &letter).await {
                    items.truncate(index);
                    return Ok(());
                }
                What::Again { letter: serial, task: letter.task }
            }
        };
    }
    Ok(())
}

/// Writes the outcomes of tasks that were cancelled before they were taken.
///
/// Their submitters may wait for them. Cuts the list where a write failed.
pub(super) async fn tell_cancelled(
    client: &ClusterClient,
    items: &mut Vec<Item>,
) -> Result<(), ClusterError> {
    let receipts = items.iter().filter_map(|item| match &item.what {
        What::Cancelled(receipt) => Some(receipt.clone()),
        What::Task(_) | What::Again { .. } | What::Retry(_) | What::Nothing => None,
    });
    if !super::final_records::file_cancelled(client, receipts.collect()).await? {
        let first = items.iter().position(|item| matches!(item.what, What::Cancelled(_)));
        items.truncate(first.unwrap_or(items.len()));
    }
    Ok(())
}

async fn rewrite(client: &ClusterClient, key: Key, version: Version, letter: &Letter) -> bool {
    let body = Some(Letter { op: client.fresh_op(), ..letter.clone() }.encode());
    let (expect, durability) = (Expect::At(version), Durability::Lasting);
    let outcomes = client.store().put_many(vec![Write { key, expect, body, durability }]).await;
    matches!(outcomes.first(), Some(Ok(Put::Stored(_))))
}
