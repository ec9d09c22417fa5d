//! The ids of documents in the index; docs/keys.md explains them to users.

use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use tenure::Key;

/// The longest id that the servers accept.
const LONGEST_ID: usize = 512;

/// The id of the document with this key.
///
/// It is the key itself. If the key is too long, it is its first segment and its hash. No key has
/// an empty segment, so no hash can be taken for a key.
pub(super) fn id(key: &Key) -> Cow<'_, str> {
    if key.as_str().len() <= LONGEST_ID {
        return key.as_str().into();
    }
    let mut id = key.segments().next().unwrap_or_default().to_owned();
    id.push_str("//");
    for byte in Sha256::digest(key.as_str().as_bytes()) {
        // Writing to a string does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    id.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).expect("a good key")
    }

    #[test]
    fn documents_are_where_the_documentation_says() {
        let documentation = include_str!("../../../../docs/keys.md");
        for text in ["elections/nightly", "elections/billing/primary", "elections/é %2F"] {
            assert_eq!(id(&key(text)), text);
        }
        let long = format!("elections/{}", ["x".repeat(128).as_str()].repeat(4).join("/"));
        let hashed = "elections//277e590192b074468e66db1fc0b398c5c0b90511938b87b5c05bf6b8288bf9ed";
        assert_eq!(id(&key(&long)), hashed);
        assert!(documentation.contains("`elections//"));
    }

    #[test]
    fn the_longest_id_that_is_no_hash_has_512_bytes() {
        let start = ["x".repeat(128).as_str()].repeat(3).join("/");
        let fits = format!("{start}/{}", "y".repeat(125));
        assert_eq!(fits.len(), 512);
        assert_eq!(id(&key(&fits)), fits);
        assert!(id(&key(&format!("{fits}y"))).len() < 512);
    }
}
