//! Documents as BSON; docs/keys.md explains their form to users.

use bytes::Bytes;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document as Bsons, doc};
use tenure::Key;
use tenure::store::{Document, MAX_DOCUMENT_BYTES, Version};

/// The longest version that is read. We write no longer ones.
const LONGEST_VERSION: i32 = 64;

/// A version that no document has had yet.
pub(super) fn fresh() -> Version {
    Version::new(format!("{:032x}", rand::random::<u128>()))
}

/// The document as BSON. A body that is text stays text, so that people can read it.
pub(super) fn encode(key: &Key, version: &Version, body: &Bytes) -> Bsons {
    let body = match std::str::from_utf8(body) {
        Ok(text) => Bson::String(text.to_owned()),
        Err(_) => Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: body.to_vec() }),
    };
    doc! { "_id": key.as_str(), "version": version.as_str(), "body": body }
}

/// The projection of a read: the server never sends a field that is too long.
pub(super) fn projection() -> Bsons {
    let most = i32::try_from(MAX_DOCUMENT_BYTES).expect("the bound is small");
    doc! {
        "version": if_short("$version", LONGEST_VERSION),
        "body": if_short("$body", most),
    }
}

/// The field if it is text or bytes of at most `most` bytes. The size of another type would be an
/// error.
fn if_short(field: &str, most: i32) -> Bsons {
    let short = doc! { "$lte": [{ "$binarySize": field }, most] };
    doc! { "$cond": [
        { "$in": [{ "$type": field }, ["string", "binData"]] },
        { "$cond": [short, field, "$$REMOVE"] },
        "$$REMOVE",
    ] }
}

/// The document and its key; none if it has no valid key.
pub(super) fn decode(found: Bsons) -> Option<(Key, Document)> {
    let (mut key, mut version, mut body) = (None, None, None);
    for (name, value) in found {
        match (name.as_str(), value) {
            ("_id", Bson::String(text)) => key = Key::parse(&text).ok(),
            ("version", Bson::String(text)) => version = Some(Version::new(text)),
            ("body", Bson::String(text)) => body = Some(Bytes::from(text)),
            ("body", Bson::Binary(binary)) => body = Some(Bytes::from(binary.bytes)),
            _ => {}
        }
    }
    // The document is not ours, or too large. This body shows that it is unreadable, and no write
    // expects this version.
    let version = version.unwrap_or_else(|| Version::new(""));
    let body = body.unwrap_or_else(|| Bytes::from(vec![0; MAX_DOCUMENT_BYTES + 1]));
    Some((key?, Document { version, body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::parse("elections/nightly").expect("a good key")
    }

    #[test]
    fn documents_are_as_the_documentation_says() {
        let text = encode(&key(), &Version::new("1"), &Bytes::from("{}"));
        assert_eq!(text, doc! { "_id": "elections/nightly", "version": "1", "body": "{}" });
        assert!(include_str!("../../../../docs/keys.md").contains("`elections/nightly`"));
    }

    #[test]
    fn any_bytes_are_read_back() {
        for body in [&b""[..], b"{}", b"\xff\0", b"$body", "é\0".as_bytes()] {
            let version = fresh();
            let body = Bytes::from(body);
            let found = decode(encode(&key(), &version, &body)).expect("one of ours");
            assert_eq!(found, (key(), Document { version, body }));
        }
    }

    #[test]
    fn what_others_wrote_is_unreadable_or_none_of_ours() {
        let (_, found) = decode(doc! { "_id": "elections/nightly", "body": 7 }).expect("a key");
        assert_eq!((found.version.as_str(), found.body.len()), ("", MAX_DOCUMENT_BYTES + 1));
        assert_eq!(decode(doc! { "_id": 7 }), None);
        assert_eq!(decode(doc! { "_id": "a//b" }), None);
    }
}
