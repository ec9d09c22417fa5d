//! Fields of a feed's documents, as JSON and as BSON.

use mongodb::bson::{Bson, Document as Bsons};
use serde_json::Value;
use tenure::feed::{Fields, Found, LEADER};
use tenure::store::Version;

/// Additional fields in MongoDB: its own key, and a type that helps people to search.
const KEY: &str = "_id";
const KIND: &str = "type";
/// The field with the server's time.
pub(super) const TIMESTAMP: &str = "timestamp";

/// The document as BSON, without the server's time.
///
/// None if BSON cannot hold one of its numbers.
pub(super) fn encode(id: &str, fields: &Fields) -> Option<Bsons> {
    let mut document = Bsons::new();
    document.insert(KEY, id);
    if id == LEADER {
        document.insert(KIND, LEADER);
    }
    for (name, value) in fields.iter().filter(|(name, _)| ![KEY, KIND].contains(&name.as_str())) {
        document.insert(name, to_bson(value)?);
    }
    Some(document)
}

/// One of our documents as it was found.
///
/// Its version is its `op`. A document without an `op` is its own version.
pub(super) fn decode(document: Bsons) -> Found {
    let version = match document.get_str("op") {
        Ok(op) if !op.starts_with('{') => Version::new(op),
        _ => Version::new(Bson::Document(document.clone()).into_canonical_extjson().to_string()),
    };
    let others = document.into_iter().filter(|(name, _)| name != KEY && name != KIND);
    let fields = others.map(|(name, value)| match value {
        Bson::DateTime(time) if name == TIMESTAMP => (name, time.timestamp_millis().into()),
        value => (name, to_json(value)),
    });
    Found { version, fields: fields.collect() }
}

/// The document in a version; none if the version is an `op`.
pub(super) fn foreign(version: &Version) -> Option<Bson> {
    let text = Some(version.as_str()).filter(|text| text.starts_with('{'))?;
    Bson::try_from(serde_json::from_str::<Value>(text).ok()?).ok()
}

/// Converts a value literally. MongoDB's JSON form of a date does not become a date.
fn to_bson(value: &Value) -> Option<Bson> {
    Some(match value {
        Value::Null => Bson::Null,
        Value::Bool(yes) => Bson::Boolean(*yes),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            // The types that a shell shows as a number.
            (Some(integer), _) => i32::try_from(integer).map_or(Bson::Int64(integer), Bson::Int32),
            (None, Some(float)) if number.is_f64() => Bson::Double(float),
            _ => return None,
        },
        Value::String(text) => Bson::String(text.clone()),
        Value::Array(values) => {
            Bson::Array(values.iter().map(to_bson).collect::<Option<Vec<_>>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| Some((name.clone(), to_bson(value)?)));
            Bson::Document(fields.collect::<Option<Bsons>>()?)
        }
    })
}

fn to_json(value: Bson) -> Value {
    match value {
        Bson::Array(values) => values.into_iter().map(to_json).collect(),
        Bson::Document(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, to_json(value))).collect())
        }
        other => other.into_relaxed_extjson(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{DateTime, doc};
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn every_field_is_read_back() {
        let written = fields(json!({
            "id": "leader", "op": "a-1", "token": 3, "n": 9_007_199_254_740_991_u64, "x": 0.5,
            "none": null, "list": [1, {"$date": 7}], "": "", "yes": true,
        }));
        let document = encode(LEADER, &written).expect("all of it fits");
        assert_eq!(document.get_str("_id").ok(), Some("leader"));
        assert_eq!(document.get_str("type").ok(), Some("leader"));
        let found = decode(document);
        assert_eq!((found.version.as_str(), found.fields), ("a-1", written));
    }

    #[test]
    fn the_servers_time_is_milliseconds() {
        let found = decode(doc! { "op": "x", "timestamp": DateTime::from_millis(1234) });
        assert_eq!(found.fields.get("timestamp"), Some(&json!(1234)));
    }

    #[test]
    fn a_document_of_somebody_else_is_its_own_version() {
        let theirs = doc! { "_id": "leader", "value": "x", "at": DateTime::from_millis(1) };
        let found = decode(theirs.clone());
        assert_eq!(foreign(&found.version), Some(Bson::Document(theirs)));
        assert_eq!(foreign(&Version::new("70ac-9")), None);
    }

    #[test]
    fn a_number_that_mongodb_does_not_have_is_refused() {
        assert_eq!(encode("feeds/a", &fields(json!({"n": u64::MAX}))), None);
    }
}
