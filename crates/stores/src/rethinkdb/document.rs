//! Documents in the rows of the table, and the outcomes of writes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rand::RngExt as _;
use ring::digest;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure::Key;
use tenure::store::{Document, Expect, MAX_DOCUMENT_BYTES, Put, Version};

use super::json::{Json, text};
use super::keys;
use super::term::{self, Term};

/// A random operation id, unique to one write. It is the version of the document written.
pub(super) fn fresh_op() -> Arc<str> {
    let mut bytes = [0_u8; 16];
    rand::rng().fill(&mut bytes);
    hex(&bytes).into()
}

/// The single question for a write; none if the expected version is not ours.
pub(super) fn write(
    table: Term,
    key: &Key,
    expect: &Expect,
    body: Option<&Bytes>,
    op: &str,
) -> Option<Term> {
    let id = keys::id(key);
    let row = body.map(|body| row(&id, key, op, body));
    match (expect, row) {
        (Expect::Absent, Some(row)) => Some(table.insert(row)),
        // There is no document to delete.
        (Expect::Absent, None) => None,
        (Expect::At(version), row) => {
            let seen = term::text(our_op(version)?);
            let successor = row.unwrap_or_else(term::null);
            Some(table.get(&id).replace(|current| {
                let at_seen = current.clone().field("op").equals(seen);
                swap(current, at_seen, successor)
            }))
        }
    }
}

/// Replaces the current row by its successor if it is as expected.
///
/// A missing row stays missing, and any other row stays as it is.
pub(super) fn swap(current: Term, expected: Term, successor: Term) -> Term {
    let swapped = term::branch(expected, successor, current.clone());
    term::branch(current.equals(term::null()), term::null(), swapped)
}

/// The outcome of a write, from its answer; none if the answer is not a known one.
pub(super) fn outcome(answer: &Value, op: &str) -> Option<Put> {
    let count = |name: &str| answer.get(name).and_then(Value::as_f64).unwrap_or(0.0) >= 1.0;
    let done = count("inserted") || count("replaced") || count("deleted");
    let kept = count("unchanged") || count("skipped");
    let duplicate = answer
        .get("first_error")
        .and_then(Value::as_str)
        .is_some_and(|error| error.starts_with("Duplicate primary key"));
    match (done, kept, count("errors")) {
        (true, false, false) => Some(Put::Stored(Version::new(op))),
        (false, true, false) => Some(Put::Conflict),
        (false, false, true) if duplicate => Some(Put::Conflict),
        _ => None,
    }
}

/// Returns true if there was no document where one was expected.
pub(super) fn was_absent(answer: &Value) -> bool {
    answer.get("skipped").and_then(Value::as_f64).is_some_and(|skipped| skipped >= 1.0)
}

/// The error in a write's answer, shortened.
pub(super) fn complaint(answer: &Value) -> String {
    let said = answer.get("first_error").and_then(Value::as_str);
    let said = said.unwrap_or("the answer to a write makes no sense");
    said.chars().take(200).collect()
}

/// The fields of a row that we use, not yet parsed.
#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    op: Option<&'a RawValue>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

impl Row<'_> {
    /// The key of a row, if the row is at the id of its key.
    fn key(&self) -> Option<Key> {
        keys::key(&text(self.id)?, text(self.key).as_deref())
    }
}

/// A row that changed.
#[derive(Deserialize)]
pub(super) struct Change<'a> {
    #[serde(borrow)]
    new_val: Option<Row<'a>>,
    #[serde(borrow)]
    old_val: Option<Row<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Change<'_> {
    /// The server's message in place of changes that it left out.
    pub(super) fn error(&self) -> Option<String> {
        text(self.error)
    }
}

/// The id of a row, if it is text.
pub(super) fn id(row: &Json) -> Option<String> {
    text(row.read::<Row<'_>>().ok()?.id)
}

/// The document in a row, with its key; none if the row is not one of ours.
pub(super) fn read(row: &Json) -> Option<(Key, Document)> {
    let fields: Row<'_> = row.read().ok()?;
    let key = fields.key()?;
    Some((key, document(row, &fields)))
}

/// The document in a row, with its id; none if the row has no text as its id.
pub(super) fn identify(row: &Json) -> Option<(String, Document)> {
    let fields: Row<'_> = row.read().ok()?;
    let id = text(fields.id)?;
    let named = fields.key().is_some();
    Some((id, if named { document(row, &fields) } else { foreign(row) }))
}

/// The changed document's key, and its operation; no operation if it was deleted.
pub(super) fn changed(change: &Change<'_>) -> Option<(Key, Option<Arc<str>>)> {
    let key = change.new_val.as_ref().or(change.old_val.as_ref())?.key()?;
    let op = change.new_val.as_ref().map(|new| text(new.op).unwrap_or_default().into());
    Some((key, op))
}

/// The operation in a version; none if the version is not one of ours.
pub(super) fn our_op(version: &Version) -> Option<&str> {
    let text = version.as_str();
    (text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(text)
}

fn row(id: &str, key: &Key, op: &str, body: &Bytes) -> Term {
    // Bodies are JSON that people read in the data explorer. Anything that is not text is kept as
    // bytes.
    let body = match std::str::from_utf8(body) {
        Ok(text) => term::text(text),
        Err(_) => term::binary(body),
    };
    let named = keys::hashed(id).then(|| ("key", term::text(&key.to_string())));
    let fields = [("id", term::text(id)), ("op", term::text(op)), ("body", body)];
    term::object(fields.into_iter().chain(named))
}

fn document(row: &Json, fields: &Row<'_>) -> Document {
    let op = text(fields.op).map(Version::new);
    let op = op.filter(|op| our_op(op).is_some());
    match (op, fields.body.and_then(body)) {
        (Some(version), Some(body)) => {
            // Of a body that is too large, one byte more than allowed is kept, which shows that it
            // is.
            Document { version, body: body.slice(..body.len().min(MAX_DOCUMENT_BYTES + 1)) }
        }
        _ => foreign(row),
    }
}

/// A row that is not ours, at one of our ids.
///
/// The document shows it as it is, at a version that none of our writes expects.
fn foreign(row: &Json) -> Document {
    let text = row.text().as_bytes();
    let hash = digest::digest(&digest::SHA256, text);
    let version = Version::new(format!("foreign-{}", hex(hash.as_ref())));
    Document {
        version,
        body: Bytes::copy_from_slice(&text[..text.len().min(MAX_DOCUMENT_BYTES + 1)]),
    }
}

/// Bytes, in the server's JSON form.
#[derive(Deserialize)]
struct Binary {
    // The second name is not the server's: earlier versions of ours wrote it.
    #[serde(rename = "$reql_type$", alias = "$reqltype$")]
    kind: String,
    data: String,
}

fn body(value: &RawValue) -> Option<Bytes> {
    if let Some(text) = text(Some(value)) {
        return Some(text.into());
    }
    let Binary { kind, data } = serde_json::from_str(value.get()).ok()?;
    STANDARD.decode(data).ok().filter(|_| kind == "BINARY").map(Bytes::from)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OP: &str = "00112233445566778899aabbccddeeff";

    fn key(text: &str) -> Key {
        Key::parse(text).expect("a good key")
    }

    #[test]
    fn every_write_has_an_operation_of_its_own() {
        let (one, other) = (fresh_op(), fresh_op());
        assert_ne!(one, other);
        assert_eq!(our_op(&Version::new(one.clone())), Some(&*one));
    }

    #[test]
    fn each_answer_of_a_write_means_one_thing() {
        let answer = |text: &str| {
            let counts = json!({ "deleted": 0, "errors": 0, "inserted": 0, "replaced": 0, "skipped": 0, "unchanged": 0 });
            let mut answer = counts.as_object().expect("an object").clone();
            let more: Value = serde_json::from_str(text).expect("JSON");
            answer.extend(more.as_object().expect("an object").clone());
            outcome(&Value::Object(answer), OP)
        };
        let stored = || Some(Put::Stored(Version::new(OP)));
        assert_eq!(answer(r#"{"inserted":1}"#), stored());
        assert_eq!(answer(r#"{"replaced":1}"#), stored());
        assert_eq!(answer(r#"{"deleted":1}"#), stored());
        assert_eq!(answer(r#"{"unchanged":1}"#), Some(Put::Conflict));
        assert_eq!(answer(r#"{"skipped":1}"#), Some(Put::Conflict));
        let duplicate = r#"{"errors":1,"first_error":"Duplicate primary key `id`:\n{}"}"#;
        assert_eq!(answer(duplicate), Some(Put::Conflict));
        assert_eq!(answer(r#"{"errors":1,"first_error":"Disk on fire."}"#), None);
        assert_eq!(answer(r#"{"errors":1,"inserted":1}"#), None);
        assert_eq!(answer("{}"), None);
        assert_eq!(outcome(&Value::Null, OP), None);
    }

    #[test]
    fn a_row_gives_back_the_body_that_was_written() {
        for body in [&b"{\"a\":1}"[..], b"", b"\x00\xff", "é\u{0}".as_bytes()] {
            let body = Bytes::from_static(body);
            let key = key("elections/a");
            let row = row("elections/a", &key, OP, &body);
            // A row without arrays is its own JSON.
            let asked = String::from_utf8(row.start()).expect("JSON");
            let value: Value = serde_json::from_str(&asked).expect("JSON");
            let document = Document { version: Version::new(OP), body };
            assert_eq!(read(&value[1].clone().into()), Some((key, document)));
        }
    }

    /// Earlier versions called the field `$reqltype$`, so bytes were stored as an object of that
    /// shape.
    #[test]
    fn bytes_are_read_as_the_server_writes_them_and_as_we_once_wrote_them() {
        for kind in ["$reql_type$", "$reqltype$"] {
            let body = json!({ kind: "BINARY", "data": "/wA=" });
            let row = json!({ "id": "a", "op": OP, "body": body });
            let (_, document) = read(&row.into()).expect("a row");
            assert_eq!((&document.body[..], document.version.as_str()), (&b"\xff\0"[..], OP));
        }
    }

    #[test]
    fn what_others_wrote_shows_as_it_is_and_is_never_overwritten() {
        let (_, one) = read(&json!({ "id": "leader", "value": "x" }).into()).expect("a key");
        let (_, other) = read(&json!({ "id": "leader", "value": "y" }).into()).expect("a key");
        assert_ne!(one.version, other.version);
        assert_eq!(one.body, r#"{"id":"leader","value":"x"}"#);
        let table = term::table("d", "t");
        let expect = Expect::At(one.version);
        assert_eq!(write(table, &key("leader"), &expect, None, OP), None);
        assert_eq!(read(&json!({ "id": ["a"], "op": OP }).into()), None);
        assert_eq!(read(&json!({ "id": "a//b", "op": OP }).into()), None);
        assert_eq!(read(&json!(1).into()), None);
    }

    #[test]
    fn what_is_there_and_cannot_be_read_is_not_absent() {
        let (id, document) =
            identify(&json!({ "id": "a//b", "op": OP, "body": "" }).into()).expect("a row");
        assert_eq!(id, "a//b");
        assert!(document.version.as_str().starts_with("foreign-"), "its key is not named");
        for none in [json!({ "op": OP }), json!({ "id": 7 }), json!([]), json!("x"), json!(null)] {
            assert_eq!(identify(&none.into()), None);
        }
    }

    fn changed(change: &Value) -> Option<(Key, Option<Arc<str>>)> {
        let json = Json::from(change.clone());
        super::changed(&json.read().expect("a change"))
    }

    #[test]
    fn a_change_names_its_document_and_its_operation() {
        let change = json!({ "new_val": { "id": "a", "op": OP }, "old_val": null });
        assert_eq!(changed(&change), Some((key("a"), Some(OP.into()))));
        let gone = json!({ "new_val": null, "old_val": { "id": "a", "op": OP } });
        assert_eq!(changed(&gone), Some((key("a"), None)));
        let pruned = json!({ "old_val": { "id": "a", "op": OP } });
        assert_eq!(changed(&pruned), Some((key("a"), None)));
        assert_eq!(changed(&json!({ "error": "skipped" })), None);
        let skipped = Json::from(json!({ "error": "skipped" }));
        let skipped: Change<'_> = skipped.read().expect("a change");
        assert_eq!(skipped.error().as_deref(), Some("skipped"));
    }
}
