//! The keys of documents in etcd; docs/keys.md documents them.

use bytes::Bytes;
use tenure::Key;

/// Turns keys of documents into keys of etcd and back.
///
/// A document is at `<prefix>//<key>`. The keys of a queue are `<prefix>/<name>/<lease>`, as etcd's
/// own clients write them. No name has an empty segment, so documents and queues never collide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    base: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        Keys { base: format!("{prefix}//") }
    }

    /// The prefix before the two slashes.
    pub(super) fn prefix(&self) -> &str {
        self.base.strip_suffix("//").expect("it was made so")
    }

    pub(super) fn encode(&self, key: &Key) -> Bytes {
        format!("{}{key}", self.base).into()
    }

    /// The document at this key; `None` for another client's data.
    pub(super) fn decode(&self, key: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(key).ok()?;
        Key::parse(text.strip_prefix(&self.base)?).ok()
    }

    /// The first key and the (exclusive) end of a range.
    ///
    /// It has the keys strictly below `prefix` and after `after`.
    pub(super) fn range(&self, prefix: &Key, after: Option<&Key>) -> (Bytes, Bytes) {
        let first = format!("{}{prefix}/", self.base);
        // `0` is the byte after the slash, so all keys that begin with the prefix and a slash are
        // below.
        let end = format!("{}{prefix}0", self.base);
        // The least key above another is that key with a NUL appended.
        let next =
            after.map(|after| format!("{}{after}\0", self.base)).filter(|next| *next > first);
        (next.unwrap_or(first).into(), end.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).expect("a good key")
    }

    #[test]
    fn documents_are_where_the_documentation_says() {
        for (prefix, text, stored) in [
            ("tenure", "elections/nightly", "tenure//elections/nightly"),
            ("/apps/tenure", "elections/a/b", "/apps/tenure//elections/a/b"),
            ("tenure", "candidates/a/b/%2F é", "tenure//candidates/a/b/%2F é"),
        ] {
            let keys = Keys::new(prefix);
            assert_eq!(keys.encode(&key(text)), stored.as_bytes());
            assert_eq!(keys.decode(stored.as_bytes()), Some(key(text)));
        }
        assert!(include_str!("../../../../docs/keys.md").contains("`tenure//elections/nightly`"));
    }

    #[test]
    fn what_others_wrote_is_no_document() {
        let keys = Keys::new("tenure");
        for foreign in
            [&b"tenure/a/b/694d8f"[..], b"tenure//", b"tenure//a//b", b"x", b"tenure//\xff"]
        {
            assert_eq!(keys.decode(foreign), None);
        }
    }

    #[test]
    fn a_range_begins_after_the_last_key_seen() {
        let keys = Keys::new("p");
        let range = |after: Option<&str>| keys.range(&key("a"), after.map(key).as_ref()).0;
        assert_eq!(range(None), "p//a/");
        assert_eq!(range(Some("a")), "p//a/");
        assert_eq!(range(Some("a/b")), "p//a/b\0");
        assert_eq!(keys.range(&key("a"), None).1, "p//a0");
    }
}
