//! Pages of documents, by ranges of ids.

use std::collections::BTreeMap;

use tenure::Key;
use tenure::store::{Document, Fault, Page, StoreError};

use super::connection::failed;
use super::fault::Kind;
use super::home::Home;
use super::json::Json;
use super::keys::{Range, group};
use super::term::{Bound, Term};
use super::{document, refused};

/// The most rows that are requested at once.
const MOST_ROWS: usize = 500;

/// A page of the documents strictly below `prefix`.
pub(super) async fn page(
    home: &Home,
    table: &Term,
    prefix: &Key,
    after: Option<&Key>,
    limit: usize,
) -> Result<Page, StoreError> {
    let mut page = Gathering::new(Range::new(prefix, after), limit);
    let doing = || format!("listing {prefix}");
    let mut rows = limit.saturating_add(1).clamp(1, MOST_ROWS);
    let mut last: Option<String> = None;
    loop {
        let from = last.as_deref().map_or(Bound::At(&page.range.first), Bound::After);
        let question = table.clone().page(from, page.range.end.as_deref(), rows);
        let answer = match home.answer(Kind::Read, &question).await {
            // The documents, or rows of others, are large.
            Err(failure) if failure.is_too_large() && rows > 1 => {
                rows /= 2;
                continue;
            }
            answer => answer,
        };
        let answer = answer.map_err(|failure| failed(failure, doing()))?;
        let found = answer.rows();
        let found = found.map_err(|garbled| refused(Fault::Unavailable, doing(), garbled))?;
        let full = found.len() >= rows;
        for row in &found {
            let id = document::id(row);
            if page.take(id.as_deref(), row) == Step::Enough {
                return Ok(page.end());
            }
            last = id.or(last);
        }
        if !full {
            return Ok(page.end());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    More,
    Enough,
}

/// The first documents so far, up to one more than the page has.
struct Gathering {
    range: Range,
    limit: usize,
    found: BTreeMap<Key, Document>,
    group: Vec<u8>,
}

impl Gathering {
    fn new(range: Range, limit: usize) -> Gathering {
        Gathering { range, limit, found: BTreeMap::new(), group: Vec::new() }
    }

    /// Takes the next row in the order of ids.
    fn take(&mut self, id: Option<&str>, row: &Json) -> Step {
        // Ids that are not text come before or after all of ours.
        let Some(id) = id else { return Step::More };
        if self.range.is_past(id) {
            return Step::Enough;
        }
        if self.group != group(id) {
            if self.found.len() > self.limit {
                return Step::Enough;
            }
            self.group = group(id).to_vec();
        }
        if let Some((key, document)) =
            document::read(row).filter(|(key, _)| self.range.contains(key))
        {
            self.found.insert(key, document);
            if self.found.len() > self.limit.saturating_add(1) {
                self.found.pop_last();
            }
        }
        Step::More
    }

    fn end(self) -> Page {
        let more = self.found.len() > self.limit;
        let documents: Vec<_> = self.found.into_iter().take(self.limit).collect();
        let next = documents.last().filter(|_| more).map(|(key, _)| key.clone());
        Page { documents, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rethinkdb::keys;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(text: &str) -> Key {
        Key::parse(text).expect("a good key")
    }

    /// The keys of a page over these documents, with rows in the table's order.
    fn gather(keys: &[Key], prefix: &Key, after: Option<&Key>, limit: usize) -> Vec<Key> {
        let range = Range::new(prefix, after);
        let mut ids: Vec<(String, &Key)> = keys.iter().map(|key| (keys::id(key), key)).collect();
        ids.sort();
        let within = |id: &str| {
            id >= range.first.as_str() && range.end.as_ref().is_none_or(|end| id < end.as_str())
        };
        let mut page = Gathering::new(range.clone(), limit);
        for (id, key) in ids.iter().filter(|(id, _)| within(id)) {
            let row = json!({ "id": id, "key": key.to_string(), "op": "x", "body": "" });
            if page.take(Some(id), &row.into()) == Step::Enough {
                break;
            }
        }
        page.end().documents.into_iter().map(|(key, _)| key).collect()
    }

    proptest! {
        #[test]
        fn pages_hold_every_document_once_in_the_order_of_keys(
            parts in prop::collection::btree_set("[ab]{1,2}|[ab]{118,128}|[ab]{50,60}/[a-c]{60,70}", 0..30),
            limit in 1usize..6,
        ) {
            let keys: Vec<Key> = parts.iter().map(|part| parse(&format!("p/{part}"))).collect();
            let mut sorted = keys.clone();
            sorted.sort();
            let (mut read, mut after) = (Vec::new(), None);
            loop {
                let page = gather(&keys, &parse("p"), after.as_ref(), limit);
                prop_assert!(page.len() <= limit);
                let Some(last) = page.last() else { break };
                after = Some(last.clone());
                read.extend(page);
            }
            prop_assert_eq!(read, sorted);
        }
    }
}
