//! Writes by `_bulk`, each with a condition and an outcome of its own.

use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure::store::{Expect, Fault, MAX_DOCUMENT_BYTES, Put, Write};

use super::client::{Client, Request, size_of};
use super::fault::{Failure, Kind, Refusal};
use super::version::Pair;
use super::{ids, source};
use crate::bounded::Bounded;

/// The size at which a request is full. The servers refuse 100 MB.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The most writes in one request: the shortest write has more than 32 bytes.
const MOST_WRITES: usize = MOST_BYTES / 32;
/// The largest outcome with its error, which may quote the document's id and more.
const LARGEST_OUTCOME: usize = 8 * 1024;

/// Filters each outcome down to the fields we read, a third of the whole. An error of the request
/// is not filtered.
const ANSWER: &str =
    "filter_path=items.*.status,items.*._seq_no,items.*._primary_term,items.*.error";

/// The writes of one request, each with its index among all writes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    places: Vec<usize>,
    lines: String,
    /// Outcomes that are known without a request.
    decided: Vec<(usize, Result<Put, Failure>)>,
}

/// Puts writes into as few requests as possible.
pub(super) fn batches(writes: Vec<(usize, Write)>) -> Vec<Batch> {
    let mut batches = vec![Batch::default()];
    for (place, write) in writes {
        let full = |batch: &Batch| batch.lines.len() >= MOST_BYTES;
        if batches.last().is_none_or(full) {
            batches.push(Batch::default());
        }
        let batch = batches.last_mut().expect("there is always one");
        match append(&write, &mut batch.lines) {
            Ok(()) => batch.places.push(place),
            Err(decided) => batch.decided.push((place, decided)),
        }
    }
    batches
}

impl Batch {
    /// Carries the writes out, and returns the outcome of each.
    pub(super) async fn send(self, client: &Client) -> Vec<(usize, Result<Put, Failure>)> {
        let Batch { places, lines, mut decided } = self;
        if places.is_empty() {
            return decided;
        }
        let request = Request {
            kind: Kind::Write,
            method: Method::POST,
            action: "_bulk",
            // The server stops trying when we have given up, and does not repeat data that we know.
            query: format!("timeout={}ms&{ANSWER}", client.request.as_millis().max(1)),
            body: lines.into(),
            most: size_of(places.len(), LARGEST_OUTCOME),
        };
        let answer = client.call(request, client.end()).await;
        match answer.and_then(|answer| parse(&answer, places.len())) {
            Ok(outcomes) => decided.extend(places.into_iter().zip(outcomes)),
            Err(failure) => {
                decided.extend(places.into_iter().map(|place| (place, Err(failure.clone()))));
            }
        }
        decided
    }
}

/// Appends the lines of one write, or returns its outcome if no request is needed.
fn append(write: &Write, lines: &mut String) -> Result<(), Result<Put, Failure>> {
    let size = write.body.as_ref().map_or(0, bytes::Bytes::len);
    if size > MAX_DOCUMENT_BYTES {
        let says = format!("{size} bytes are more than {MAX_DOCUMENT_BYTES}");
        return Err(Err(Failure::new(Fault::Permanent, says)));
    }
    let expected = match &write.expect {
        Expect::Absent => None,
        // No document was ever at a version that is not ours.
        Expect::At(version) => Some(Pair::parse(version).ok_or(Ok(Put::Conflict))?),
    };
    let action = match (&write.body, expected) {
        (Some(_), None) => "create",
        (Some(_), Some(_)) => "index",
        (None, Some(_)) => "delete",
        // There is nothing to delete, and the servers would not check that.
        (None, None) => {
            let says = "a deletion of what is expected to be absent";
            return Err(Err(Failure::new(Fault::Permanent, says)));
        }
    };
    let id = serde_json::to_string(&ids::id(&write.key)).expect("text always can be written");
    let condition = expected.map_or_else(String::new, |Pair { number, term }| {
        format!(r#","if_seq_no":{number},"if_primary_term":{term}"#)
    });
    lines.extend(["{\"", action, "\":{\"_id\":", &id, &condition, "}}\n"]);
    if let Some(body) = &write.body {
        source::encode(&write.key, body, lines);
        lines.push('\n');
    }
    Ok(())
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    items: Bounded<Item<'a>, MOST_WRITES>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, alias = "create", alias = "index", alias = "delete")]
    outcome: Outcome<'a>,
}

#[derive(Deserialize)]
struct Outcome<'a> {
    status: u16,
    #[serde(rename = "_seq_no")]
    number: Option<i64>,
    #[serde(rename = "_primary_term")]
    term: Option<i64>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn parse(answer: &[u8], asked: usize) -> Result<Vec<Result<Put, Failure>>, Failure> {
    let answer: Answer<'_> = serde_json::from_slice(answer).map_err(|error| {
        let says = format!("the answer is not what a _bulk gives: {error}");
        Failure::garbled(Kind::Write, says)
    })?;
    let Bounded(items) = answer.items;
    if items.len() != asked {
        let says = "the answer has another number of outcomes than there were writes";
        return Err(Failure::garbled(Kind::Write, says));
    }
    Ok(items.into_iter().map(|item| item.outcome.judge()).collect())
}

impl Outcome<'_> {
    fn judge(self) -> Result<Put, Failure> {
        match (self.status, self.error.map(Refusal::of)) {
            (200 | 201, None) => match Pair::of(self.number, self.term) {
                Some(pair) => Ok(Put::Stored(pair.version())),
                None => Err(Failure::garbled(Kind::Write, "a write without a sequence number")),
            },
            (409, Some(refusal)) if refusal.kind == "version_conflict_engine_exception" => {
                Ok(Put::Conflict)
            }
            // The deleted document was already gone.
            (404, None) => Ok(Put::Conflict),
            (status, refusal) => Err(Failure::unwritten(status, &refusal.unwrap_or_default())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::Key;
    use tenure::store::{Durability, Version};

    fn write(expect: Expect, body: Option<&str>) -> Write {
        Write {
            key: Key::parse("elections/a \"b\"").expect("a good key"),
            expect,
            body: body.map(|body| body.to_owned().into()),
            durability: Durability::Lasting,
        }
    }

    #[test]
    fn each_write_is_an_action_with_its_condition() {
        let at = Expect::At(Version::new("7:2"));
        let lines = |write: &Write| {
            let mut lines = String::new();
            append(write, &mut lines).map(|()| lines)
        };
        for (write, expected) in [
            (
                write(Expect::Absent, Some("{\"a\":1}\n")),
                concat!(
                    r#"{"create":{"_id":"elections/a \"b\""}}"#,
                    "\n",
                    r#"{"key":"elections/a \"b\"","a":1}"#,
                    "\n"
                ),
            ),
            (
                write(at.clone(), Some("x\ny")),
                concat!(
                    r#"{"index":{"_id":"elections/a \"b\"","if_seq_no":7,"if_primary_term":2}}"#,
                    "\n",
                    r#"{"key":"elections/a \"b\"","text":"x\ny"}"#,
                    "\n"
                ),
            ),
            (
                write(at, None),
                concat!(
                    r#"{"delete":{"_id":"elections/a \"b\"","if_seq_no":7,"if_primary_term":2}}"#,
                    "\n"
                ),
            ),
        ] {
            assert_eq!(lines(&write), Ok(expected.to_owned()));
        }
        let never = write(Expect::At(Version::new("never")), Some("x"));
        assert_eq!(lines(&never), Err(Ok(Put::Conflict)));
    }

    #[test]
    fn each_item_has_its_own_outcome() {
        let answer = br#"{"took":1,"errors":true,"items":[
            {"create":{"_index":"t","_id":"a","_version":1,"result":"created","_seq_no":4,
                "_primary_term":1,"status":201}},
            {"index":{"_index":"t","_id":"b","status":409,"error":{
                "type":"version_conflict_engine_exception","reason":"because"}}},
            {"delete":{"_index":"t","_id":"c","_version":1,"result":"not_found","_seq_no":5,
                "_primary_term":1,"status":404}},
            {"index":{"_index":"t","_id":"d","status":503,"error":{
                "type":"unavailable_shards_exception","reason":"because"}}},
            {"create":{"_index":"t","_id":"e","status":201}}]}"#;
        let outcomes = parse(answer, 5).expect("an answer");
        assert_eq!(outcomes[0], Ok(Put::Stored(Version::new("4:1"))));
        assert_eq!(outcomes[1], Ok(Put::Conflict));
        assert_eq!(outcomes[2], Ok(Put::Conflict));
        for doubtful in &outcomes[3..] {
            let failure = doubtful.as_ref().expect_err("not certain");
            assert_eq!(failure.fault, Fault::Indeterminate);
        }
        let fewer = parse(answer, 6).expect_err("one is missing");
        assert_eq!(fewer.fault, Fault::Indeterminate);
        assert_eq!(parse(b"OK", 1).expect_err("no answer").fault, Fault::Indeterminate);
    }

    #[test]
    fn large_writes_are_several_requests() {
        let body = "x".repeat(MAX_DOCUMENT_BYTES);
        let write = |place| (place, write(Expect::Absent, Some(&body)));
        let writes = (0..300).map(write).collect();
        let batches = batches(writes);
        assert!(batches.len() > 2);
        let places: Vec<usize> = batches.iter().flat_map(|batch| batch.places.clone()).collect();
        assert_eq!(places, (0..300).collect::<Vec<_>>());
        assert!(batches.iter().all(|batch| batch.lines.len() < MOST_BYTES + 2 * body.len()));
    }

    #[test]
    fn a_huge_error_of_a_write_takes_little_memory() {
        let test = "elastic::bulk::tests::a_huge_error_of_a_write_takes_little_memory";
        let around =
            |items: &str| format!(r#"{{"items":[{{"index":{{"status":409,"error":{items}}}}}]}}"#);
        let answer = crate::bounded::memory::costly(around);
        crate::bounded::memory::is_spared(test, 16, || {
            let outcomes = parse(answer.as_bytes(), 1).expect("an answer");
            let failure = outcomes[0].as_ref().expect_err("not certain");
            assert_eq!(failure.fault, Fault::Indeterminate);
        });
    }
}
