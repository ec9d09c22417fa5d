//! The check for bodies that the index can store as JSON and return unchanged.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The deepest nesting. Our own records are much flatter.
const DEEPEST: usize = 16;

/// Returns true if this body is a JSON object that the servers keep byte by byte.
///
/// They keep the source of a document as it was sent, but they parse it: some version or other
/// refuses a repeated field, an odd field name or a deep nesting. A line break would end the line
/// of a bulk.
pub(super) fn is_plain(body: &str) -> bool {
    if !body.starts_with('{') || !body.ends_with('}') || body.contains('\n') {
        return false;
    }
    let mut json = serde_json::Deserializer::from_str(body);
    Plain { depth: 0 }.deserialize(&mut json).is_ok() && json.end().is_ok()
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
        if name.is_empty() || !name.bytes().all(simple) {
            return Err(E::custom("an odd name"));
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_simple_names_are_plain() {
        for body in [
            r#"{}"#,
            r#"{"holder":"a","expire":1,"op":null,"x":[1.50,{"y":true}],"z":"é\u00e9\n"}"#,
            r#"{ "a" : 1e5 }"#,
        ] {
            assert!(is_plain(body), "{body}");
        }
    }

    #[test]
    fn whatever_a_server_might_refuse_or_change_is_not() {
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
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"":1}"#,
            r#"{"a.b":1}"#,
            r#"{"$set":1}"#,
            r#"{"\u0061":1}"#,
            r#"{"é":1}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":NaN}"#,
            &deep,
        ] {
            assert!(!is_plain(body), "{body}");
        }
    }
}
