//! The check for bodies whose fields the index can keep as fields, and return unchanged.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

/// The deepest nesting. Our own records are much flatter.
const DEEPEST: usize = 16;
/// Longer values cannot be searched for.
const LONGEST_INDEXED: usize = 256;

/// Returns true if this body is a record that the servers keep byte by byte.
///
/// A record is a JSON object on a line of its own: every document of tenure is one. The servers
/// keep the source of a document as it was sent, but they parse it: some version or other refuses a
/// repeated field, an odd field name or a deep nesting. A line break would end the line of a bulk.
pub(super) fn is_record(body: &str) -> bool {
    let Some(body) = body.strip_suffix('\n') else { return false };
    if !body.starts_with('{') || !body.ends_with('}') || body.contains('\n') {
        return false;
    }
    let mut json = serde_json::Deserializer::from_str(body);
    let is_plain = Plain { depth: 0 }.deserialize(&mut json).is_ok() && json.end().is_ok();
    is_plain && serde_json::from_str::<Fields<'_>>(body).is_ok_and(|fields| fields.fit())
}

/// The fields with a type in the index, and those with a meaning of their own there.
///
/// The servers refuse a document with another type in one of them.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, rename = "holder")]
    _holder: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "name")]
    _name: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "state")]
    _state: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "id")]
    _id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "kind")]
    _kind: Option<Cow<'a, str>>,
    #[serde(rename = "expire")]
    _expire: Option<u64>,
    #[serde(rename = "token")]
    _token: Option<u64>,
    #[serde(rename = "serial")]
    _serial: Option<u64>,
    #[serde(borrow, rename = "nodes")]
    _nodes: Option<Vec<Node<'a>>>,
    key: Option<IgnoredAny>,
    text: Option<IgnoredAny>,
    base64: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Node<'a> {
    #[serde(borrow, rename = "name")]
    _name: Option<Cow<'a, str>>,
}

impl Fields<'_> {
    /// Returns true if no field is taken for another.
    fn fit(&self) -> bool {
        self.key.is_none() && self.text.is_none() && self.base64.is_none()
    }
}

/// The types of these fields in the index. Others are kept, and cannot be searched for.
pub(super) fn properties() -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": LONGEST_INDEXED});
    let number = json!({"type": "long", "ignore_malformed": true});
    json!({
        "holder": keyword,
        "name": keyword,
        "state": keyword,
        "id": keyword,
        "kind": keyword,
        "token": number,
        "serial": number,
        "expire": {"type": "date", "format": "epoch_millis", "ignore_malformed": true},
        "nodes": {"dynamic": "false", "properties": {"name": keyword}},
    })
}

/// Walks through a value without keeping it.
#[derive(Clone, Copy)]
struct Plain {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Plain {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Plain {
    fn below<E: Error>(self) -> Result<Plain, E> {
        let depth = self.depth + 1;
        if depth > DEEPEST { Err(E::custom("too deep")) } else { Ok(Plain { depth }) }
    }
}

impl<'de> Visitor<'de> for Plain {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let below = self.below()?;
        while items.next_element_seed(below)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let below = self.below()?;
        let mut names = HashSet::new();
        while let Some(name) = fields.next_key_seed(Name)? {
            if !names.insert(name) {
                return Err(A::Error::custom("a name twice"));
            }
            fields.next_value_seed(below)?;
        }
        Ok(())
    }
}

/// The name of a field, borrowed from the text. A simple name has no escapes, so it needs no copy.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = &'de str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'de str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = &'de str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a simple name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<&'de str, E> {
        let simple = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        if name.is_empty() || name.starts_with('_') || !name.bytes().all(simple) {
            return Err(E::custom("an odd name"));
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_simple_names_are_records() {
        for body in [
            r#"{}"#,
            r#"{"holder":"a","expire":1,"op":null,"x":[1.50,{"y":true}],"z":"é\u00e9\n"}"#,
            r#"{ "a" : 1e5 }"#,
            r#"{"holder":null,"nodes":[{"name":"a","token":1}],"state":"held"}"#,
            r#"{"nodes":[{}],"x":{"key":1,"text":2}}"#,
        ] {
            assert!(is_record(&format!("{body}\n")), "{body}");
        }
    }

    #[test]
    fn bodies_that_a_server_might_refuse_or_change_are_none() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(17), "}".repeat(17));
        for body in [
            "",
            "1",
            "[]",
            "{",
            "{}}",
            " {}",
            "{} ",
            "{\n}",
            "{}\n",
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"":1}"#,
            r#"{"a.b":1}"#,
            r#"{"$set":1}"#,
            r#"{"_id":1}"#,
            r#"{"\u0061":1}"#,
            r#"{"é":1}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":NaN}"#,
            r#"{"key":"a"}"#,
            r#"{"text":"a"}"#,
            r#"{"base64":"a"}"#,
            r#"{"holder":1}"#,
            r#"{"holder":["a"]}"#,
            r#"{"state":{}}"#,
            r#"{"id":1}"#,
            r#"{"kind":[]}"#,
            r#"{"token":"1"}"#,
            r#"{"serial":-1}"#,
            r#"{"expire":"soon"}"#,
            r#"{"nodes":1}"#,
            r#"{"nodes":[1]}"#,
            r#"{"nodes":[{"name":{}}]}"#,
            &deep,
        ] {
            assert!(!is_record(&format!("{body}\n")), "{body}");
        }
        assert!(!is_record("{}"), "it is on no line of its own");
    }
}
