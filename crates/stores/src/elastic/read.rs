//! Documents and their versions by `_mget`, which sees every write at once.

use std::borrow::Cow;

use bytes::Bytes;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure::Key;
use tenure::store::{Document, Version};
use tokio::time::Instant;

use super::client::{Client, Request, size_of};
use super::fault::{Cause, Failure, Kind, Refusal};
use super::version::Pair;
use super::{MOST_READS, ids, source};
use crate::bounded::Bounded;

#[derive(Serialize)]
struct Question<'a> {
    ids: Vec<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    docs: Bounded<Found<'a>, MOST_READS>,
}

/// One document in the answers of both servers, with the fields we need.
#[derive(Deserialize)]
struct Found<'a> {
    #[serde(default)]
    found: bool,
    #[serde(rename = "_seq_no")]
    number: Option<i64>,
    #[serde(rename = "_primary_term")]
    term: Option<i64>,
    #[serde(borrow, rename = "_source")]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Reads documents by key, in one request unless some of them are huge.
pub(super) async fn documents(
    client: &Client,
    keys: &[Key],
) -> Result<Vec<Option<Document>>, Failure> {
    let end = client.end();
    let mut parts = vec![keys];
    let mut found = Vec::with_capacity(keys.len());
    while let Some(part) = parts.pop() {
        match ask(client, part, Sources::Whole, end).await {
            Ok(answer) => found.extend(parse(&answer, part, document)?),
            Err(failure) if failure.cause != Cause::Oversized => return Err(failure),
            Err(_) if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(_) => {
                let answer = ask(client, part, Sources::None, end).await?;
                let oversized = |pair, _: Option<&RawValue>| Ok(source::oversized(pair));
                found.extend(parse(&answer, part, oversized)?);
            }
        }
    }
    Ok(found)
}

/// The versions of the documents with these keys, in one request.
pub(super) async fn versions(
    client: &Client,
    keys: &[Key],
    end: Instant,
) -> Result<Vec<Option<Version>>, Failure> {
    let answer = ask(client, keys, Sources::None, end).await?;
    parse(&answer, keys, |pair, _| Ok(pair.version()))
}

/// Whether documents are read with their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sources {
    Whole,
    None,
}

async fn ask(
    client: &Client,
    keys: &[Key],
    sources: Sources,
    end: Instant,
) -> Result<Bytes, Failure> {
    let (query, each) = match sources {
        Sources::Whole => ("", source::LARGEST),
        Sources::None => ("_source=false", source::LARGEST_WITHOUT),
    };
    let question = Question { ids: keys.iter().map(ids::id).collect() };
    let body = serde_json::to_vec(&question).expect("a list of texts can be written");
    let request = Request {
        kind: Kind::Read,
        method: Method::POST,
        action: "_mget",
        query: query.to_owned(),
        body: body.into(),
        most: size_of(keys.len(), each),
    };
    client.call(request, end).await
}

fn document(pair: Pair, source: Option<&RawValue>) -> Result<Document, Failure> {
    match source {
        Some(source) => Ok(source::decode(pair, source)),
        None => Err(garbled("a document without its source: the index does not keep it")),
    }
}

fn parse<T>(
    answer: &[u8],
    keys: &[Key],
    make: impl Fn(Pair, Option<&RawValue>) -> Result<T, Failure>,
) -> Result<Vec<Option<T>>, Failure> {
    let answer: Answer<'_> = serde_json::from_slice(answer)
        .map_err(|error| garbled(format!("the answer is not what an _mget gives: {error}")))?;
    let Bounded(docs) = answer.docs;
    if docs.len() != keys.len() {
        return Err(garbled("the answer has another number of documents than the question"));
    }
    let one = |found: Found<'_>| match (&found.error, found.found) {
        // A missing index is an error of each document. It never counts as a missing document.
        (Some(error), _) => Err(Failure::unread(&Refusal::of(error))),
        (None, false) => Ok(None),
        (None, true) => {
            let pair = Pair::of(found.number, found.term);
            let pair = pair.ok_or_else(|| garbled("a document without a sequence number"))?;
            make(pair, found.source).map(Some)
        }
    };
    docs.into_iter().map(one).collect()
}

fn garbled(says: impl Into<String>) -> Failure {
    Failure::garbled(Kind::Read, says)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::memory;
    use tenure::store::Fault;

    fn keys(count: usize) -> Vec<Key> {
        vec![Key::parse("elections/a").expect("a good key"); count]
    }

    #[test]
    fn what_is_missing_is_none_and_a_missing_index_is_an_error() {
        // Elasticsearch 7 adds `_type`.
        let answer = br#"{"docs":[{"_index":"t","_type":"_doc","_id":"a","_version":1,"_seq_no":3,
            "_primary_term":2,"found":true,"_source":{"key":"a","text":"x"}},
            {"_index":"t","_id":"b","found":false}]}"#;
        let found = parse(answer, &keys(2), document).expect("an answer");
        let first = found[0].clone().expect("it is there");
        assert_eq!((first.version.as_str(), &first.body[..]), ("3:2", &b"x"[..]));
        assert_eq!(found[1], None);
        let answer = br#"{"docs":[{"_index":"t","_id":"a","error":{"root_cause":[],
            "type":"index_not_found_exception","reason":"no such index [t]"}}]}"#;
        let failure = parse(answer, &keys(1), document).expect_err("no index");
        assert_eq!(failure.fault, Fault::Unavailable);
        assert!(failure.says.contains("no such index"), "{}", failure.says);
    }

    #[test]
    fn half_an_answer_is_no_answer() {
        for answer in [
            &b"<html>"[..],
            br#"{"docs":[]}"#,
            br#"{"docs":[{"found":true,"_seq_no":1}]}"#,
            br#"{"docs":[{"found":true,"_seq_no":1,"_primary_term":1}]}"#,
            br#"{"docs":[{"found":true,"_seq_no":-2,"_primary_term":0,"_source":{}}]}"#,
        ] {
            let failure = parse(answer, &keys(1), document).expect_err("not an answer");
            assert_eq!(failure.fault, Fault::Unavailable);
        }
    }

    /// Parsed into values, the error took a hundred times its size.
    #[test]
    fn a_huge_error_in_an_answer_takes_little_memory() {
        let test = "elastic::read::tests::a_huge_error_in_an_answer_takes_little_memory";
        let answer = memory::costly(|items| format!(r#"{{"docs":[{{"error":{items}}}]}}"#));
        memory::is_spared(test, 16, || {
            let failure = parse(answer.as_bytes(), &keys(1), document).expect_err("an error");
            assert_eq!(failure.fault, Fault::Unavailable);
        });
    }

    #[test]
    fn more_documents_than_anybody_asks_for_end_the_answer_early() {
        let test =
            "elastic::read::tests::more_documents_than_anybody_asks_for_end_the_answer_early";
        let answer = memory::costly(|items| format!(r#"{{"docs":{items}}}"#));
        memory::is_spared(test, 16, || {
            let failure = parse(answer.as_bytes(), &keys(1), document).expect_err("too many");
            assert!(failure.says.contains("more than 1000 items"), "{}", failure.says);
        });
    }
}
