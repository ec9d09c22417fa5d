//! The paths of documents in ZooKeeper; docs/keys.md documents them.

use std::fmt::Write as _;

use tenure::Key;

/// The node above all documents.
///
/// It keeps documents apart from queues, because no encoded segment has a `=`.
const DOCUMENTS: &str = "=documents";
/// The end of a document's node name. The names of levels do not have it.
const MARK: char = '=';

/// Turns keys of documents into paths and back.
///
/// The document `elections/a/b` is the node `<root>/=documents/elections/a/b=`. Below it is one
/// empty node, named after the document's own number. If a node is deleted and created again,
/// ZooKeeper counts its versions from 0 again, and the number tells the two documents apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paths {
    root: String,
    base: String,
}

impl Paths {
    /// Puts documents below `root`, an absolute path without a slash at its end.
    pub(super) fn new(root: &str) -> Paths {
        Paths { root: root.to_owned(), base: format!("{root}/{DOCUMENTS}") }
    }

    pub(super) fn root(&self) -> &str {
        &self.root
    }

    pub(super) fn document(&self, key: &Key) -> String {
        format!("{}{MARK}", self.level(key))
    }

    /// The node that has the documents strictly below this key.
    pub(super) fn level(&self, key: &Key) -> String {
        let mut path = self.base.clone();
        for segment in key.segments() {
            path.push('/');
            encode(segment, &mut path);
        }
        path
    }

    /// The nodes that must exist before this one, outermost first.
    ///
    /// Also returns how many of them stay for good; these come first.
    pub(super) fn above<'a>(&self, path: &'a str) -> (Vec<&'a str>, usize) {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
        let nodes: Vec<&str> = ends.map(|end| &path[..end]).collect();
        let lasting = nodes.iter().filter(|node| node.len() <= self.base.len()).count();
        (nodes, lasting)
    }
}

/// The meaning of a node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Document(String),
    Level(String),
}

/// Parses the name of a node; `None` if this store would not write that name.
pub(super) fn name(node: &str) -> Option<Named> {
    match node.strip_suffix(MARK) {
        Some(document) => decode(document).map(Named::Document),
        None => decode(node).map(Named::Level),
    }
}

/// Appends a segment, encoded: only characters that ZooKeeper and shells accept stay as they are.
pub(super) fn encode(segment: &str, path: &mut String) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.:@+,".contains(&byte) {
            path.push(byte as char);
        } else {
            // Writing to a string does not fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

fn decode(node: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(node.len());
    let mut rest = node.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || rest.next().and_then(|digit| (digit as char).to_digit(16));
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let segment = String::from_utf8(bytes).ok()?;
    // Accept only the encoding that we write: any other would be a second name for the same key.
    let mut again = String::new();
    encode(&segment, &mut again);
    (again == node).then_some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).expect("a good key")
    }

    #[test]
    fn documents_are_where_the_documentation_says() {
        let paths = Paths::new("/tenure");
        for (text, path) in [
            ("elections/nightly", "/tenure/=documents/elections/nightly="),
            ("elections/a/b", "/tenure/=documents/elections/a/b="),
            ("elections/é =%", "/tenure/=documents/elections/%C3%A9%20%3D%25="),
        ] {
            assert_eq!(paths.document(&key(text)), path);
        }
        let page = include_str!("../../../../docs/keys.md");
        assert!(page.contains("`/tenure/=documents/elections/nightly=`"));
        assert_eq!(paths.level(&key("elections/a")), "/tenure/=documents/elections/a");
    }

    #[test]
    fn names_are_read_back() {
        for segment in ["a", "é", "=", "%2F", "a.b", "..."] {
            let mut node = String::new();
            encode(segment, &mut node);
            assert_eq!(name(&node), Some(Named::Level(segment.to_owned())));
            assert_eq!(name(&format!("{node}=")), Some(Named::Document(segment.to_owned())));
        }
        for foreign in ["a b", "%2f", "%", "%4", "a=b"] {
            assert_eq!(name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn levels_are_created_from_the_outside_in() {
        let paths = Paths::new("/apps/tenure");
        let document = paths.document(&key("elections/a/b"));
        let (nodes, lasting) = paths.above(&document);
        assert_eq!(
            nodes,
            [
                "/apps",
                "/apps/tenure",
                "/apps/tenure/=documents",
                "/apps/tenure/=documents/elections",
                "/apps/tenure/=documents/elections/a",
            ]
        );
        assert_eq!(lasting, 3);
    }
}
