//! Pages of documents, by a search. Nothing else searches.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tenure::Key;
use tenure::store::{Document, Page};
use tokio::time::Instant;

use super::client::{Client, Request, size_of};
use super::fault::{Cause, Failure, Kind};
use super::refreshes::Refreshes;
use super::version::Pair;
use super::{ids, source};
use crate::bounded::Bounded;

/// The most hits of one search. The servers stop at 10,000, and an answer must fit into memory.
const MOST_HITS: usize = 500;
/// The longest prefix for a range query. The servers refuse ranges between longer texts (an
/// automaton of more than a thousand states), but sort by them.
const LONGEST_BOUND: usize = 500;

/// The time-out of a refresh, in request time-outs. A longer one has lost its connection.
const LONGEST_REFRESH: u32 = 5;

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    hits: Hits<'a>,
}

#[derive(Deserialize)]
struct Hits<'a> {
    #[serde(borrow)]
    hits: Bounded<Hit<'a>, MOST_HITS>,
}

#[derive(Deserialize)]
struct Hit<'a> {
    #[serde(rename = "_id")]
    id: String,
    #[serde(rename = "_seq_no")]
    number: Option<i64>,
    #[serde(rename = "_primary_term")]
    term: Option<i64>,
    #[serde(borrow, rename = "_source")]
    source: Option<&'a RawValue>,
    /// The key that the hit is sorted by.
    sort: Bounded<String, 1>,
}

/// A page of the documents below a key.
pub(super) async fn page(
    client: &Arc<Client>,
    refreshes: &Refreshes,
    prefix: &Key,
    after: Option<&Key>,
    limit: usize,
) -> Result<Page, Failure> {
    let end = client.end();
    if after.is_none() {
        // The first page is enough: the next ones see no less.
        refreshes.catch_up(|| refresh(client.clone()).boxed(), end).await?;
    }
    let first = format!("{prefix}/");
    let last_key = after.map(|after| after.as_str().to_owned());
    let mut from = last_key.filter(|after| *after > first).unwrap_or(first);
    let mut page = Page::default();
    let mut most = MOST_HITS;
    // The loop repeats only for large pages, for large documents, and if others have written
    // documents that are not ours.
    loop {
        let missing = limit.saturating_sub(page.documents.len()).max(1);
        let size = missing.min(most);
        let whole = most > 0;
        let answer = match ask(client, prefix, &from, size.max(1), whole, end).await {
            Ok(answer) => answer,
            Err(failure) if failure.cause == Cause::Oversized && whole => {
                // Some documents are huge: ask for fewer at once, and in the end for one without
                // its content.
                most = size / 2;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let hits = parse(&answer)?;
        let beyond = |hit: &Hit<'_>| hit.sort.0.first().is_none_or(|key| *key >= end_of(prefix));
        let more = hits.len() >= size.max(1) && !hits.last().is_some_and(beyond);
        if let Some(last) = hits.last().and_then(|hit| hit.sort.0.first()) {
            from.clone_from(last);
        }
        for hit in &hits {
            let document = hit.document(whole)?;
            page.documents.extend(document.filter(|(key, _)| key.is_under(prefix)));
        }
        page.documents.truncate(limit);
        most = MOST_HITS;
        if !more {
            return Ok(page);
        }
        if page.documents.len() >= limit {
            page.next = page.documents.last().map(|(key, _)| key.clone());
            return Ok(page);
        }
    }
}

/// Refreshes the index. It outlives its callers, because the server goes on with it, and another
/// refresh would only queue behind it.
async fn refresh(client: Arc<Client>) -> Result<(), Failure> {
    let end = Instant::now() + client.request * LONGEST_REFRESH;
    client.call(request("_refresh", "", Bytes::new(), size_of(1, 0)), end).await.map(drop)
}

async fn ask(
    client: &Client,
    prefix: &Key,
    from: &str,
    size: usize,
    whole: bool,
    end: Instant,
) -> Result<Bytes, Failure> {
    let query = if prefix.as_str().len() <= LONGEST_BOUND {
        json!({"range": {"key": {"gt": format!("{prefix}/"), "lt": end_of(prefix)}}})
    } else {
        json!({"match_all": {}})
    };
    let body = json!({
        "size": size,
        "track_total_hits": false,
        "seq_no_primary_term": true,
        "_source": if whole { json!(true) } else { json!(["key"]) },
        "sort": ["key"],
        "search_after": [from],
        "query": query,
    });
    // A partial result looks like a whole one.
    let query = "allow_partial_search_results=false";
    let each = if whole { source::LARGEST } else { source::LARGEST_WITHOUT };
    let most = size_of(size, each);
    client.call(request("_search", query, body.to_string().into(), most), end).await
}

/// The end of the keys below a prefix. `0` is the byte after `/`.
fn end_of(prefix: &Key) -> String {
    format!("{prefix}0")
}

fn request(action: &'static str, query: &str, body: Bytes, most: usize) -> Request {
    let query = query.to_owned();
    Request { kind: Kind::Read, method: Method::POST, action, query, body, most }
}

fn parse(answer: &[u8]) -> Result<Vec<Hit<'_>>, Failure> {
    let answer: Answer<'_> = serde_json::from_slice(answer).map_err(|error| {
        let says = format!("the answer is not what a search gives: {error}");
        Failure::garbled(Kind::Read, says)
    })?;
    Ok(answer.hits.hits.0)
}

impl Hit<'_> {
    /// The document; none if it is not one of ours.
    fn document(&self, whole: bool) -> Result<Option<(Key, Document)>, Failure> {
        let garbled = |says: &str| Failure::garbled(Kind::Read, says);
        let source = self.source.ok_or_else(|| garbled("a hit without its source"))?;
        let pair = Pair::of(self.number, self.term);
        let pair = pair.ok_or_else(|| garbled("a hit without a sequence number"))?;
        let document =
            || if whole { source::decode(pair, source) } else { source::oversized(pair) };
        let ours = source::key(source).filter(|key| ids::id(key) == self.id);
        Ok(ours.map(|key| (key, document())))
    }
}
