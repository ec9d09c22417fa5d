//! Reading the inbox: a page that somebody has written stays as it is until the leader frees its place.

use std::collections::VecDeque;

use crate::cluster::books::Books;
use crate::cluster::documents::{
    Assignment, Cursor, DocumentError, Entry, Format as _, INBOX_PAGES, Letter, MemberId, Order,
    Page,
};
use crate::store::{Durability, Expect, Put, Version, Write};
use crate::{Error, Key};

/// The fewest and the most pages that are kept in memory.
const LEAST_AHEAD: usize = 2;
const MOST_AHEAD: usize = 32;

/// Something taken from the inbox, and where the cursor stands after it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub(super) what: What,
    pub(super) page: u64,
    pub(super) taken: usize,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// A task.
    Task(Order),
    /// A dead letter is brought back.
    Again {
        /// The serial under which it died.
        letter: u64,
        /// What was to be done.
        task: Assignment,
    },
    /// A task that was cancelled before it was taken; somebody may wait under this receipt.
    Cancelled(MemberId),
    /// A dead letter, before anybody looked whether there is one.
    Retry(u64),
    /// Nothing: there is no such letter, or the page makes no sense.
    Nothing,
}

/// A page that stands in the store.
#[derive(Clone, Debug)]
struct Standing {
    number: u64,
    version: Version,
    /// Nothing when it makes no sense, or was freed before its time.
    page: Option<Page>,
    /// An acknowledged write shows it.
    confirmed: bool,
}

/// What stands at a place of the ring, for a page that is wanted there.
#[derive(Debug, PartialEq)]
pub(super) enum Place {
    /// Nobody has written it yet.
    Empty,
    /// Somebody has.
    Written,
    /// An earlier page stands there, which is taken: its place must be freed.
    Behind,
    /// A later page stands there: somebody lost count.
    Ahead,
}

/// Compares the page that is wanted with what stands there.
pub(super) fn place(wanted: u64, found: &Page) -> Place {
    match found.number.cmp(&wanted) {
        std::cmp::Ordering::Equal if found.entries.is_empty() => Place::Empty,
        std::cmp::Ordering::Equal => Place::Written,
        std::cmp::Ordering::Less => Place::Behind,
        std::cmp::Ordering::Greater => Place::Ahead,
    }
}

/// The pages ahead of the cursor, as far as they were read.
#[derive(Debug)]
pub(super) struct Pages {
    standing: VecDeque<Standing>,
    ahead: usize,
    /// Taken, and not freed yet.
    unfreed: Vec<Standing>,
    /// What the predecessor left behind has been freed.
    tidy: bool,
}

impl Pages {
    pub(super) fn new() -> Pages {
        Pages { standing: VecDeque::new(), ahead: LEAST_AHEAD, unfreed: Vec::new(), tidy: false }
    }

    /// Forgets everything: the cursor was taken over again.
    pub(super) fn forget(&mut self) {
        *self = Pages::new();
    }

    /// Reads on, if there may be more. Gives back the pages that make no sense.
    pub(super) async fn read(
        &mut self,
        books: &Books,
        cursor: &Cursor,
    ) -> Result<Vec<(Key, DocumentError)>, Error> {
        self.standing.retain(|standing| standing.number >= cursor.page);
        let ahead = u64::try_from(self.ahead).unwrap_or(1);
        let from = self.standing.back().map_or(cursor.page, |last| last.number + 1);
        let wanted: Vec<u64> = (from..cursor.page + ahead).collect();
        let keys: Vec<Key> = wanted.iter().map(|number| books.keys.page(*number)).collect();
        let mut garbled = Vec::new();
        if keys.is_empty() {
            return Ok(garbled);
        }
        let found = books.find_many::<Page>(&keys).await?;
        for ((number, key), found) in wanted.into_iter().zip(keys).zip(found) {
            let Some(found) = found else {
                if number >= INBOX_PAGES {
                    // Somebody deleted it. Without it nobody could write there.
                    let page = Page::empty(number, books.fresh_op());
                    self.make_empty(books, Expect::Absent, page).await;
                }
                break;
            };
            let version = found.version;
            let page = match found.content {
                Ok(page) => page,
                Err(error) => {
                    garbled.push((key, error));
                    self.standing.push_back(Standing {
                        number,
                        version,
                        page: None,
                        confirmed: true,
                    });
                    continue;
                }
            };
            match place(number, &page) {
                Place::Empty => break,
                Place::Behind => {
                    let page = Page { number, ..page.freed(books.fresh_op()) };
                    self.make_empty(books, Expect::At(version), page).await;
                    break;
                }
                Place::Ahead => {
                    tracing::warn!(number, "a page of the inbox is gone; it is passed over");
                    self.standing.push_back(Standing {
                        number,
                        version,
                        page: None,
                        confirmed: true,
                    });
                }
                Place::Written => {
                    let page = Some(page);
                    let confirmed = !books.is_weak();
                    self.standing.push_back(Standing { number, version, page, confirmed });
                }
            }
        }
        self.confirm(books).await;
        Ok(garbled)
    }

    /// Puts an empty page where none stands, or one that was taken long ago. The next look shows what came of it.
    async fn make_empty(&self, books: &Books, expect: Expect, page: Page) {
        let number = page.number;
        let body = Some(page.encode());
        let (key, durability) = (books.keys.page(number), Durability::Lasting);
        let outcomes = books.store().put_many(vec![Write { key, expect, body, durability }]).await;
        if let Some(Err(error)) = outcomes.into_iter().next() {
            tracing::warn!(number, %error, "a page of the inbox was not freed; it is tried again");
        }
    }

    /// On a weak store, writes what was read once more: whoever wrote it finds its op in it all the same.
    async fn confirm(&mut self, books: &Books) {
        let unconfirmed = self.standing.iter().enumerate().filter(|(_, page)| !page.confirmed);
        let (mut places, mut writes) = (Vec::new(), Vec::new());
        for (place, standing) in unconfirmed {
            let Some(page) = &standing.page else { continue };
            let again = Page { revision: page.revision + 1, ..page.clone() };
            writes.push(Write {
                key: books.keys.page(standing.number),
                expect: Expect::At(standing.version.clone()),
                body: Some(again.encode()),
                durability: Durability::Lasting,
            });
            places.push((place, again));
        }
        if writes.is_empty() {
            return;
        }
        let outcomes = books.store().put_many(writes).await;
        for ((place, again), outcome) in places.into_iter().zip(outcomes) {
            let Ok(Put::Stored(version)) = outcome else {
                self.standing.truncate(place);
                return;
            };
            let standing = &mut self.standing[place];
            (standing.version, standing.page, standing.confirmed) = (version, Some(again), true);
        }
    }

    /// What is on the pages from where the cursor stands, at most so many things to do.
    pub(super) fn items(&self, cursor: &Cursor, most: usize) -> Vec<Item> {
        let mut items = Vec::new();
        for standing in &self.standing {
            let number = standing.number;
            let entries = standing.page.as_ref().map_or(&[][..], |page| &page.entries);
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

    /// Frees the places of pages that the cursor has taken, and reads further ahead when it took all there was.
    pub(super) async fn free(&mut self, books: &Books, cursor: &Cursor) {
        let all = self.standing.len();
        let is_taken = |standing: &Standing| standing.number < cursor.page;
        while let Some(taken) = self.standing.pop_front_if(|standing| is_taken(standing)) {
            self.unfreed.push(taken);
        }
        if self.standing.is_empty() && all >= self.ahead {
            self.ahead = (self.ahead * 2).min(MOST_AHEAD);
        } else if self.standing.len() > 1 {
            self.ahead = (self.ahead / 2).max(LEAST_AHEAD);
        }
        self.release(books).await;
    }

    async fn release(&mut self, books: &Books) {
        if self.unfreed.is_empty() {
            return;
        }
        let writes = self.unfreed.iter().map(|taken| {
            let op = books.fresh_op();
            let page = match &taken.page {
                Some(page) => page.freed(op),
                None => Page::empty(taken.number + INBOX_PAGES, op),
            };
            Write {
                key: books.keys.page(taken.number),
                expect: Expect::At(taken.version.clone()),
                body: Some(page.encode()),
                durability: Durability::Lasting,
            }
        });
        let outcomes = books.store().put_many(writes.collect()).await;
        let mut outcomes = outcomes.into_iter();
        // A conflict means that somebody else freed it, or that the write before this one got there.
        self.unfreed.retain(|taken| match outcomes.next() {
            Some(Ok(_)) => false,
            Some(Err(error)) => {
                tracing::warn!(number = taken.number, %error, "a page of the inbox was not freed");
                true
            }
            None => true,
        });
    }

    /// Frees, once, what a predecessor had taken last and not freed any more.
    pub(super) async fn tidy(&mut self, books: &Books, cursor: &Cursor) -> Result<(), Error> {
        if self.tidy {
            return Ok(());
        }
        let most = u64::try_from(MOST_AHEAD).unwrap_or(0);
        let behind: Vec<u64> = (cursor.page.saturating_sub(most)..cursor.page).collect();
        let keys: Vec<Key> = behind.iter().map(|number| books.keys.page(*number)).collect();
        if !keys.is_empty() {
            let found = books.find_many::<Page>(&keys).await?;
            for (number, found) in behind.into_iter().zip(found) {
                let Some(found) = found else { continue };
                let Ok(page) = found.content else { continue };
                if page.number == number {
                    let (version, page) = (found.version, Some(page));
                    self.unfreed.push(Standing { number, version, page, confirmed: true });
                }
            }
        }
        self.tidy = true;
        self.release(books).await;
        Ok(())
    }
}

/// Looks for the dead letters that are asked for, and ends the list where that is not known.
pub(super) async fn find_letters(books: &Books, items: &mut Vec<Item>) -> Result<(), Error> {
    let asked = items.iter().enumerate().filter_map(|(index, item)| match item.what {
        What::Retry(serial) => Some((index, serial)),
        What::Task(_) | What::Again { .. } | What::Cancelled(_) | What::Nothing => None,
    });
    let asked: Vec<(usize, u64)> = asked.collect();
    if asked.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = asked.iter().map(|(_, serial)| books.keys.letter(*serial)).collect();
    let found = books.find_many::<Letter>(&keys).await?;
    for (((index, serial), key), found) in asked.into_iter().zip(keys).zip(found) {
        items[index].what = match found.map(|found| (found.version, found.content)) {
            // Whoever asked finds it among the dead letters again, if a weak read should have missed it.
            None => What::Nothing,
            Some((_, Err(error))) => {
                tracing::warn!(%key, %error, "a dead letter makes no sense and cannot be retried");
                What::Nothing
            }
            Some((version, Ok(letter))) => {
                if books.is_weak() && !rewrite(books, key, version, &letter).await {
                    items.truncate(index);
                    return Ok(());
                }
                What::Again { letter: serial, task: letter.task }
            }
        };
    }
    Ok(())
}

/// Tells whoever waits for tasks that were cancelled before they were taken; ends the list where that failed.
pub(super) async fn tell_cancelled(books: &Books, items: &mut Vec<Item>) -> Result<(), Error> {
    let receipts = items.iter().filter_map(|item| match &item.what {
        What::Cancelled(receipt) => Some(receipt.clone()),
        What::Task(_) | What::Again { .. } | What::Retry(_) | What::Nothing => None,
    });
    if !super::collect::file_cancelled(books, receipts.collect()).await? {
        let first = items.iter().position(|item| matches!(item.what, What::Cancelled(_)));
        items.truncate(first.unwrap_or(items.len()));
    }
    Ok(())
}

async fn rewrite(books: &Books, key: Key, version: Version, letter: &Letter) -> bool {
    let body = Some(Letter { op: books.fresh_op(), ..letter.clone() }.encode());
    let (expect, durability) = (Expect::At(version), Durability::Lasting);
    let outcomes = books.store().put_many(vec![Write { key, expect, body, durability }]).await;
    matches!(outcomes.first(), Some(Ok(Put::Stored(_))))
}
