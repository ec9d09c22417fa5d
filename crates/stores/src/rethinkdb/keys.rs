//! The ids of documents in the table; docs/keys.md explains them to users.

use ring::digest;
use tenure::Key;

/// The longest primary key that the server accepts.
const LONGEST: usize = 127;
/// How many bytes of a longer key are kept, before two slashes and 64 digits. A character that does
/// not fit whole is left out.
const HEAD: usize = LONGEST - 2 - 64;
/// An id always has at least this many bytes of its key. (A character has up to four bytes.)
const CERTAIN: usize = HEAD - 3;

/// The id of a key's document.
///
/// It is the key itself. If the key is too long for the server, it is the key's beginning and a
/// hash. No key has an empty segment, so no short key looks like that.
pub(super) fn id(key: &Key) -> String {
    let text = key.to_string();
    if text.len() <= LONGEST {
        return text;
    }
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    let digits: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}//{digits}", start(&text, HEAD))
}

/// Returns true if the document with this id has to name its key.
pub(super) fn hashed(id: &str) -> bool {
    id.contains("//")
}

/// The key of the document with this id. `named` is the key in the document, for hashed ids.
pub(super) fn key(id: &str, named: Option<&str>) -> Option<Key> {
    if !hashed(id) {
        return Key::parse(id).ok();
    }
    Key::parse(named?).ok().filter(|key| self::id(key) == id)
}

/// A range of ids with all documents strictly below `prefix` and after `after`.
///
/// Two ids are in the order of their keys unless they begin with the same [`group`]: a page has to
/// look at whole groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: String,
    /// The first id beyond the range; none if [`Range::is_past`] has to judge each id.
    pub(super) end: Option<String>,
    /// The beginning of every id in the range.
    beginning: String,
    below: String,
    after: Option<Key>,
}

impl Range {
    pub(super) fn new(prefix: &Key, after: Option<&Key>) -> Range {
        let below = format!("{prefix}/");
        let beginning = start(&below, CERTAIN).to_owned();
        // `0` is the byte after `/`, so it ends the ids that begin with the prefix and a slash.
        let end = (beginning == below).then(|| format!("{prefix}0"));
        let last = after.map(|after| start(&after.to_string(), CERTAIN).to_owned());
        let first = last.filter(|last| *last > beginning).unwrap_or_else(|| beginning.clone());
        Range { first, end, beginning, below, after: after.cloned() }
    }

    /// Returns true if this id and all later ones are beyond the range.
    pub(super) fn is_past(&self, id: &str) -> bool {
        !id.starts_with(&self.beginning)
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        let (text, after) = (key.to_string(), self.after.as_ref());
        text.starts_with(&self.below) && after.is_none_or(|after| key > after)
    }
}

/// The beginning of an id. Ids of different groups are in the order of their keys.
pub(super) fn group(id: &str) -> &[u8] {
    &id.as_bytes()[..id.len().min(CERTAIN)]
}

fn start(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Key {
        Key::parse(text).expect("a good key")
    }

    #[test]
    fn documents_are_where_the_documentation_says() {
        for text in ["elections/nightly", "elections/a/b", "candidates/a/b/%2F é"] {
            assert_eq!(id(&parse(text)), text);
            assert_eq!(key(text, None), Some(parse(text)));
        }
        assert!(include_str!("../../../../docs/keys.md").contains("`elections/nightly`"));
    }

    #[test]
    fn a_key_that_the_server_finds_too_long_is_hashed_and_named() {
        let long = parse(&format!("elections/{}", "x".repeat(128)));
        let hashed = id(&long);
        assert_eq!(hashed.len(), LONGEST);
        assert!(hashed.starts_with("elections/xxx"));
        assert_eq!(key(&hashed, Some(&long.to_string())), Some(long.clone()));
        assert_eq!(key(&hashed, None), None);
        assert_eq!(key(&hashed, Some("elections/other")), None, "the id is another's");
        let longest = parse(&format!("elections/{}", "x".repeat(117)));
        assert_eq!(id(&longest), longest.to_string());
    }

    #[test]
    fn what_others_wrote_is_no_document() {
        for foreign in ["", "a//b", "a/../b", "/a", "a\n"] {
            assert_eq!(key(foreign, None), None, "{foreign:?}");
        }
    }

    fn keys() -> impl Strategy<Value = Key> {
        let segment = prop_oneof!["[ab]", "[ab]{40,128}", "[aé𝄞]{1,32}"];
        prop::collection::vec(segment, 1..5).prop_map(|parts| parse(&parts.join("/")))
    }

    proptest! {
        #[test]
        fn ids_fit_the_server_and_keep_the_order_of_keys_between_groups(a in keys(), b in keys()) {
            let (one, other) = (id(&a), id(&b));
            prop_assert!(one.len() <= LONGEST);
            prop_assert_eq!(one == other, a == b);
            if group(&one) != group(&other) {
                prop_assert_eq!(one < other, a < b);
            }
        }

        #[test]
        fn a_range_holds_the_ids_of_all_its_keys(prefix in keys(), after in keys(), other in keys()) {
            for key in [Key::parse(&format!("{prefix}/{other}")).ok(), Some(other), Some(after.clone())] {
                let Some(key) = key else { continue };
                let range = Range::new(&prefix, Some(&after));
                let below = key.to_string().starts_with(&format!("{prefix}/"));
                prop_assert_eq!(range.contains(&key), below && key > after);
                if range.contains(&key) {
                    let id = id(&key);
                    prop_assert!(id >= range.first && !range.is_past(&id));
                    prop_assert!(range.end.as_ref().is_none_or(|end| id < *end));
                }
            }
        }
    }
}
