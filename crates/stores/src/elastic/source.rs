//! The form of our documents in the index; docs/keys.md explains it to users.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure::Key;
use tenure::store::{Document, MAX_DOCUMENT_BYTES};

use super::record::is_record;
use super::version::Pair;

/// The beginning of every source of ours; the key follows, as a JSON text.
const BEGINNING: &str = "{\"key\":";

/// The fields of a document whose body is no record.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source<'a> {
    /// The key, as text. It is not needed: the request had it.
    #[serde(borrow, rename = "key")]
    _key: Cow<'a, str>,
    /// A body that is text.
    text: Option<String>,
    /// Any other body.
    base64: Option<String>,
}

/// Appends the source of a document, on one line.
///
/// The fields of a record are fields of the source, where people can read them and search for them.
pub(super) fn encode(key: &Key, body: &[u8], line: &mut String) {
    line.push_str(BEGINNING);
    push(line, key.as_str());
    match std::str::from_utf8(body) {
        Ok(text) if is_record(text) => {
            // Without the bracket that opens it, and the end of its line.
            let fields = &text[1..text.len() - 1];
            if fields.trim_start() != "}" {
                line.push(',');
            }
            line.push_str(fields);
            return;
        }
        Ok(text) => {
            line.push_str(",\"text\":");
            push(line, text);
        }
        Err(_) => {
            line.push_str(",\"base64\":\"");
            STANDARD.encode_string(body, line);
            line.push('"');
        }
    }
    line.push('}');
}

/// The largest source of ours with the JSON around it. A text may be six times as long in JSON, and
/// the key is in it twice.
pub(super) const LARGEST: usize = 6 * MAX_DOCUMENT_BYTES + LARGEST_WITHOUT;
/// The largest JSON around a source, without the source.
pub(super) const LARGEST_WITHOUT: usize = 16 * 1024;

/// Appends a text as JSON.
fn push(line: &mut String, text: &str) {
    line.push_str(&serde_json::to_string(text).expect("text always can be written"));
}

/// The document with this source.
///
/// A source that is not ours becomes the body itself, and the code that expects a record there
/// reports the error.
pub(super) fn decode(pair: Pair, source: &RawValue) -> Document {
    let body = body(source).unwrap_or_else(|| Bytes::copy_from_slice(source.get().as_bytes()));
    // Of a body that is too large, one byte more than allowed is kept, which shows that it is.
    let body = body.slice(..body.len().min(MAX_DOCUMENT_BYTES + 1));
    Document { version: pair.version(), body }
}

/// The document at this version, with a body larger than we accept.
pub(super) fn oversized(pair: Pair) -> Document {
    Document { version: pair.version(), body: vec![b' '; MAX_DOCUMENT_BYTES + 1].into() }
}

/// The key that a source names.
pub(super) fn key(source: &RawValue) -> Option<Key> {
    #[derive(Deserialize)]
    struct Keyed {
        key: String,
    }
    let keyed: Keyed = serde_json::from_str(source.get()).ok()?;
    Key::parse(&keyed.key).ok()
}

fn body(source: &RawValue) -> Option<Bytes> {
    match serde_json::from_str(source.get()) {
        Ok(Source { text: Some(text), base64: None, .. }) => return Some(text.into()),
        Ok(Source { text: None, base64: Some(encoded), .. }) => {
            return STANDARD.decode(encoded).ok().map(Bytes::from);
        }
        Ok(Source { .. }) | Err(_) => {}
    }
    let after = source.get().strip_prefix(BEGINNING)?;
    let mut key = serde_json::Deserializer::from_str(after).into_iter::<Cow<'_, str>>();
    key.next()?.ok()?;
    let fields = &after[key.byte_offset()..];
    let body = format!("{{{}\n", fields.strip_prefix(',').unwrap_or(fields));
    // Another writer's source may begin like ours.
    is_record(&body).then(|| body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Pair = Pair { number: 0, term: 1 };

    fn encoded(key: &Key, body: &[u8]) -> String {
        let mut line = String::new();
        encode(key, body, &mut line);
        line
    }

    fn decoded(source: &str) -> Bytes {
        decode(PAIR, serde_json::from_str(source).expect("JSON")).body
    }

    #[test]
    fn bodies_are_written_as_the_documentation_says() {
        let documentation = include_str!("../../../../docs/keys.md");
        let key = Key::parse("elections/nightly").expect("a good key");
        for (body, source) in [
            (
                &b"{\"holder\":\"h\",\"expire\":0}\n"[..],
                r#"{"key":"elections/nightly","holder":"h","expire":0}"#,
            ),
            (b"{}\n", r#"{"key":"elections/nightly"}"#),
            (b"{ }\n", r#"{"key":"elections/nightly" }"#),
            (b"{\"text\":1}\n", r#"{"key":"elections/nightly","text":"{\"text\":1}\n"}"#),
            (b"{}", r#"{"key":"elections/nightly","text":"{}"}"#),
            (b"not \"JSON\"\n", r#"{"key":"elections/nightly","text":"not \"JSON\"\n"}"#),
            (b"\xff\0", r#"{"key":"elections/nightly","base64":"/wA="}"#),
            (b"", r#"{"key":"elections/nightly","text":""}"#),
        ] {
            assert_eq!(encoded(&key, body), source);
            assert_eq!(decoded(source), body);
            assert!(!source.contains("JSON") || documentation.contains(r#""text""#));
        }
        assert!(documentation.contains(r#""holder""#) && documentation.contains(r#""base64""#));
    }

    #[test]
    fn json_keeps_its_spaces_its_order_and_its_numbers() {
        let body = b"{ \"b\" : 1.10, \"a\":\"\\u00e9\",\"n\":1e5 }\n";
        let key = Key::parse("a").expect("a good key");
        assert_eq!(decoded(&encoded(&key, body)), &body[..]);
    }

    #[test]
    fn a_source_of_somebody_else_is_its_own_body() {
        for source in [
            r#"{}"#,
            r#"{"holder":"h"}"#,
            r#"{"holder":"h","key":"a"}"#,
            r#"{"key":"a","key":"b"}"#,
            r#"{"key":"a","holder":1}"#,
            r#"{"key":"a","text":"x","base64":"eA=="}"#,
            r#"{"key":"a","base64":"?"}"#,
            r#"{"key":1,"text":"x"}"#,
            r#"{"key":1,"holder":"h"}"#,
            r#"{"key":"a","text":"x","more":1}"#,
        ] {
            assert_eq!(decoded(source), source);
        }
    }

    #[test]
    fn a_body_that_is_too_large_is_cut_where_it_shows() {
        let source = format!(r#"{{"key":"a","text":"{}"}}"#, "x".repeat(MAX_DOCUMENT_BYTES + 9));
        assert_eq!(decoded(&source).len(), MAX_DOCUMENT_BYTES + 1);
        assert!(oversized(PAIR).body.len() > MAX_DOCUMENT_BYTES);
    }
}
