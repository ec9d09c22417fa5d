//! Values of an answer, kept as the JSON they arrived in.
//!
//! A tree of values takes up to a hundred times the memory of its text. So an answer is cut into
//! its rows in place, and only the fields that are needed become values.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::response::Garbled;
use crate::bounded::Bounded;

/// The most rows of an answer. Documents are listed in pages, and a feed's parts are smaller.
pub(super) const MOST_ROWS: usize = 100_000;
/// The most memory that a tree of values may take, in bytes.
const LARGEST_TREE: usize = 64 * 1024 * 1024;
/// Upper bounds of an object's memory, and of any other value's, beside its text.
const OBJECT: usize = 700;
const OTHER: usize = 80;

/// One value: a slice of its message, which it keeps alive.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Json(Bytes);

impl Json {
    /// The part of a message with this value.
    pub(super) fn part(message: &Bytes, value: &RawValue) -> Json {
        Json(message.slice_ref(value.get().as_bytes()))
    }

    pub(super) fn text(&self) -> &str {
        // The whole message was already checked to be text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_null(&self) -> bool {
        &self.0[..] == b"null"
    }

    /// Parses only the fields of the type `T`.
    pub(super) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Garbled> {
        serde_json::from_slice(&self.0).map_err(|error| Garbled::new(error.to_string()))
    }

    /// The value as a tree, unless that would take too much memory.
    pub(super) fn value(&self) -> Result<Value, Garbled> {
        let cost = cost(&self.0);
        if cost > LARGEST_TREE {
            let says = format!("its {} bytes would take {cost} bytes of memory", self.0.len());
            return Err(Garbled::new(says));
        }
        self.read()
    }

    /// All rows as trees, unless that would take too much memory.
    pub(super) fn values(rows: &[Json]) -> Result<Vec<Value>, Garbled> {
        let cost: usize = rows.iter().map(|row| cost(&row.0)).sum();
        if cost > LARGEST_TREE {
            let says = format!("its {} rows would take {cost} bytes of memory", rows.len());
            return Err(Garbled::new(says));
        }
        rows.iter().map(Json::read).collect()
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Result<Vec<Json>, Garbled> {
        let Bounded(items): Bounded<&RawValue, MOST_ROWS> = self.read()?;
        Ok(items.into_iter().map(|item| Json::part(&self.0, item)).collect())
    }
}

/// A field's text; none if the field is missing or is not text.
pub(super) fn text(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

/// An upper bound of the memory that the value takes as a tree.
fn cost(text: &[u8]) -> usize {
    let (mut cost, mut quoted, mut escaped) = (OTHER + text.len(), false, false);
    for byte in text {
        match (quoted, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (_, false, b'"') => quoted = !quoted,
            (false, _, b'{') => cost += OBJECT,
            (false, _, b',' | b'[') => cost += OTHER,
            _ => {}
        }
    }
    cost
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text().chars().take(200).collect::<String>())
    }
}

#[cfg(test)]
impl From<Value> for Json {
    fn from(value: Value) -> Json {
        Json(value.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_read_whole_or_in_parts() {
        let value = json!({ "a": [1, "x,{[\"\\"], "b": null });
        let json = Json::from(value.clone());
        assert_eq!(json.value(), Ok(value));
        assert_eq!(
            Json::from(json!([1, [2]])).items(),
            Ok(vec![json!(1).into(), json!([2]).into()])
        );
        assert!(json.items().is_err() && Json::from(Value::Null).is_null());
    }

    #[test]
    fn a_tree_that_would_take_too_much_memory_is_refused_and_a_long_text_is_not() {
        let tree = format!("[{}0]", r#"{"a":0},"#.repeat(200_000));
        let error = Json(tree.into()).value().expect_err("too much");
        assert!(error.to_string().contains("bytes of memory"), "{error}");
        let text = Json::from(json!("{[,".repeat(1_000_000)));
        assert!(text.value().is_ok());
    }
}
