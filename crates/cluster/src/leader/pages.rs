//! Reads the inbox. A page with entries keeps its place until the leader frees it.

use std::collections::{BTreeSet, VecDeque};

use tenure::lease::record::Op;
use tenure::store::{Expect, Put, StoreError, Version, Write};

use super::final_records::{Ensuring, file_cancelled};
use super::request::{Answer, Common, Next, Request, put};
use crate::client::Found;
use crate::documents::{Assignment, Cursor, Entry, INBOX_PAGES, Letter, MemberId, Order, Page};

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

    /// Reads more pages, if there may be more.
    pub(super) fn read(&mut self, common: &Common, cursor: &Cursor) -> Option<(Reading, Request)> {
        self.standing.retain(|standing| standing.number >= cursor.page);
        let ahead = u64::try_from(self.ahead).unwrap_or(1);
        let from = self.standing.back().map_or(cursor.page, |last| last.number + 1);
        let wanted: Vec<u64> = (from..cursor.page + ahead).collect();
        let keys = wanted.iter().map(|number| common.settings.keys.page(*number)).collect();
        (!wanted.is_empty()).then_some((Reading::Finding(wanted), Request::Look(keys)))
    }

    /// Takes in an answer to [`Pages::read`]. Returns the next request, if there is one.
    pub(super) fn answer(
        &mut self,
        common: &mut Common,
        reading: Reading,
        answer: Answer,
    ) -> Result<Option<(Reading, Request)>, StoreError> {
        match reading {
            Reading::Finding(wanted) => {
                if let Some(request) = self.found(common, wanted, answer.found()?) {
                    return Ok(Some((Reading::Emptying, request)));
                }
            }
            Reading::Emptying => {
                // The next read shows whether that succeeded.
                if let Err(error) = answer.put() {
                    let says = "a page of the inbox was not freed; it is tried again";
                    common.warn_of(says, "", &error);
                }
            }
            Reading::Confirming(places) => {
                self.confirmed(places, answer);
                return Ok(None);
            }
        }
        Ok(self.confirm(common))
    }

    /// Takes in pages. Returns a request to free a place that was taken long ago.
    fn found(
        &mut self,
        common: &mut Common,
        wanted: Vec<u64>,
        found: Vec<Option<Found<Page>>>,
    ) -> Option<Request> {
        for (number, found) in wanted.into_iter().zip(found) {
            let Found { version, content } = found?;
            let key = common.settings.keys.page(number);
            let (content, confirmed) = match content {
                Err(error) => {
                    common.garbled(key, error);
                    (Content::Garbled, true)
                }
                Ok(page) => match place(number, &page) {
                    Place::Empty => return None,
                    Place::Behind => {
                        let empty = Page { number, ..page.freed(common.op()) };
                        return Some(Request::put(key, Expect::At(version), &empty));
                    }
                    Place::Ahead => {
                        common.warn("a page of the inbox is gone; it is passed over", number);
                        (Content::Gone, true)
                    }
                    Place::Written => (Content::Page(page), !common.is_weak()),
                },
            };
            self.standing.push_back(Standing { number, version, content, confirmed });
        }
        None
    }

    /// Rewrites pages on a weak store.
    ///
    /// Only an acknowledged write proves the content of a page.
    fn confirm(&self, common: &mut Common) -> Option<(Reading, Request)> {
        let unconfirmed = self.standing.iter().enumerate().filter(|(_, page)| !page.confirmed);
        let (mut places, mut writes) = (Vec::new(), Vec::new());
        for (place, standing) in unconfirmed {
            let Content::Page(page) = &standing.content else { continue };
            let again = page.rewritten(common.op());
            let key = common.settings.keys.page(standing.number);
            writes.push(put(key, Expect::At(standing.version.clone()), &again));
            places.push((place, again));
        }
        (!writes.is_empty()).then_some((Reading::Confirming(places), Request::Write(writes)))
    }

    fn confirmed(&mut self, places: Vec<(usize, Page)>, answer: Answer) {
        for ((place, again), outcome) in places.into_iter().zip(answer.wrote()) {
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
    pub(super) fn free(&mut self, common: &mut Common, cursor: &Cursor) -> Option<Request> {
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
        self.release(common)
    }

    fn release(&self, common: &mut Common) -> Option<Request> {
        let writes = self.unfreed.iter().filter_map(|taken| {
            let key = common.settings.keys.page(taken.number);
            Some(put(key, Expect::At(taken.version.clone()), &taken.freed(common.op())?))
        });
        let writes: Vec<Write> = writes.collect();
        (!writes.is_empty()).then_some(Request::Write(writes))
    }

    /// Takes in the answer to the request of [`Pages::free`].
    pub(super) fn freed(&mut self, common: &mut Common, answer: Answer) {
        let mut outcomes = answer.wrote().into_iter();
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
                common.warn_of("a page of the inbox was not freed", taken.number, &error);
                true
            }
            None => true,
        });
        self.tidy = tidy;
    }

    /// Looks for pages that a predecessor took last and did not free.
    ///
    /// Also for pages that were rewritten before they could be freed.
    pub(super) fn tidy(&mut self, common: &Common, cursor: &Cursor) -> Option<(Tidying, Request)> {
        if self.tidy {
            return None;
        }
        let most = u64::try_from(MOST_AHEAD).unwrap_or(0);
        let behind: Vec<u64> = (cursor.page.saturating_sub(most)..cursor.page).collect();
        let keys = behind.iter().map(|number| common.settings.keys.page(*number)).collect();
        // At the first page there is nothing behind.
        self.tidy = behind.is_empty();
        (!behind.is_empty()).then_some((Tidying::Looking(behind), Request::Look(keys)))
    }

    /// Takes in an answer to [`Pages::tidy`]. Returns the next request, if there is one.
    pub(super) fn tidied(
        &mut self,
        common: &mut Common,
        tidying: Tidying,
        answer: Answer,
    ) -> Result<Option<(Tidying, Request)>, StoreError> {
        match tidying {
            Tidying::Looking(behind) => {
                for (number, found) in behind.into_iter().zip(answer.found::<Page>()?) {
                    let Some(Found { version, content: Ok(page) }) = found else { continue };
                    let is_known = self.unfreed.iter().any(|taken| taken.number == number);
                    if page.number == number && !is_known {
                        let content = Content::Page(page);
                        self.unfreed.push(Standing { number, version, content, confirmed: true });
                    }
                }
                self.tidy = true;
                Ok(self.release(common).map(|request| (Tidying::Freeing, request)))
            }
            Tidying::Freeing => {
                self.freed(common, answer);
                Ok(None)
            }
        }
    }
}

/// Reads pages of the inbox.
#[derive(Debug)]
pub(super) enum Reading {
    /// These pages are read.
    Finding(Vec<u64>),
    /// A place that was taken long ago is freed.
    Emptying,
    /// Pages are rewritten to prove their content.
    Confirming(Vec<(usize, Page)>),
}

/// Frees the pages that a predecessor left behind.
#[derive(Debug)]
pub(super) enum Tidying {
    Looking(Vec<u64>),
    Freeing,
}

/// Looks up the dead letters to bring back.
#[derive(Debug)]
pub(super) enum FindingLetters {
    /// The letters of these items, by place and serial, are looked up.
    Looking(Vec<(usize, u64)>),
    /// On a weak store: the letters of the items at these places are rewritten, to prove them.
    Rewriting(Vec<usize>),
}

/// The first move, if an item brings back a letter.
pub(super) fn find_letters(common: &Common, items: &[Item]) -> Option<(FindingLetters, Request)> {
    let asked = items.iter().enumerate().filter_map(|(index, item)| match item.what {
        What::Retry(serial) => Some((index, serial)),
        What::Task(_) | What::Again { .. } | What::Cancelled(_) | What::Nothing => None,
    });
    let asked: Vec<(usize, u64)> = asked.collect();
    let keys = asked.iter().map(|(_, serial)| common.settings.keys.letter(*serial)).collect();
    (!asked.is_empty()).then_some((FindingLetters::Looking(asked), Request::Look(keys)))
}

impl FindingLetters {
    /// Puts the letters into the items. Cuts the list where the lookup is not certain.
    pub(super) fn answer(
        self,
        common: &mut Common,
        items: &mut Vec<Item>,
        answer: Answer,
    ) -> Result<Option<(FindingLetters, Request)>, StoreError> {
        match self {
            FindingLetters::Looking(asked) => {
                let (mut writes, mut places) = (Vec::new(), Vec::new());
                for ((index, serial), found) in asked.into_iter().zip(answer.found::<Letter>()?) {
                    let key = common.settings.keys.letter(serial);
                    items[index].what = match found.map(|found| (found.version, found.content)) {
                        // If a weak read has missed the letter, it stays among the dead letters and
                        // can be retried again.
                        None => What::Nothing,
                        Some((_, Err(error))) => {
                            let says = "a dead letter makes no sense and cannot be retried";
                            common.warn_of(says, &key, &error);
                            What::Nothing
                        }
                        Some((version, Ok(letter))) => {
                            // One letter may be asked for twice, and is written once.
                            if common.is_weak() && writes.iter().all(|it: &Write| it.key != key) {
                                let again = Letter { op: common.op(), ..letter.clone() };
                                writes.push(put(key, Expect::At(version), &again));
                                places.push(index);
                            }
                            What::Again { letter: serial, task: letter.task }
                        }
                    };
                }
                let request = Request::Write(writes);
                Ok((!places.is_empty()).then_some((FindingLetters::Rewriting(places), request)))
            }
            FindingLetters::Rewriting(places) => {
                let outcomes = places.into_iter().zip(answer.wrote());
                let mut unsure = outcomes.filter(|(_, put)| !matches!(put, Ok(Put::Stored(_))));
                if let Some((place, _)) = unsure.next() {
                    items.truncate(place);
                }
                Ok(None)
            }
        }
    }
}

/// Writes the outcomes of tasks that were cancelled before they were taken.
///
/// Their submitters may wait for them.
pub(super) fn tell_cancelled(common: &mut Common, items: &[Item]) -> Next<Ensuring, BTreeSet<u64>> {
    let receipts = items.iter().filter_map(|item| match &item.what {
        What::Cancelled(receipt) => Some(receipt.clone()),
        What::Task(_) | What::Again { .. } | What::Retry(_) | What::Nothing => None,
    });
    file_cancelled(common, receipts)
}

/// Cuts the list where the outcome of a cancelled task may be missing.
pub(super) fn cut_cancelled(items: &mut Vec<Item>) {
    let first = items.iter().position(|item| matches!(item.what, What::Cancelled(_)));
    items.truncate(first.unwrap_or(items.len()));
}
