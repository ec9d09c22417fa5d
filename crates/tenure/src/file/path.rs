//! Keys as paths, and back.
//!
//! `elections/a/b` is `elections/a/b.json`. A file system holds every byte but `/` and NUL. So only
//! three cases are escaped, and no segment of 128 bytes outgrows a file name:
//! - a leading `.` is `%2E`: dot-files are the store's own;
//! - the dot of a trailing `.json` is `%2E`: the directory `a.json` and the document `a` would
//!   clash;
//! - a `%` before two hexadecimal digits is `%25`: else it would be read as an escape.

use crate::Key;
use crate::name::check_segment;

const SUFFIX: &str = ".json";
const KEPT: &str = ".kept";
const SPARE: &str = ".spare";
const TEMPORARY: &str = ".temp";
/// The suffix of the record that the work of a work file was started.
const START: &str = ".start";
/// The file that lasting writes of a directory go through.
pub(super) const JOURNAL: &str = ".journal";
const RANDOM_DIGITS: usize = 32;

/// The place of a document below the store's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The directories to walk, outermost first.
    pub directory: Vec<String>,
    /// The document's file in the last of them.
    pub name: String,
}

impl Place {
    pub(super) fn of(key: &Key) -> Place {
        let mut directory: Vec<String> = key.segments().map(encode).collect();
        let last = directory.pop().unwrap_or_default();
        Place { directory, name: format!("{last}{SUFFIX}") }
    }

    /// The whole path below the store's directory.
    pub(super) fn path(&self) -> String {
        let mut path = String::with_capacity(64);
        for name in &self.directory {
            path.push_str(name);
            path.push('/');
        }
        path.push_str(&self.name);
        path
    }
}

/// The directory that holds the documents below this prefix.
pub(super) fn directory(prefix: &Key) -> Vec<String> {
    prefix.segments().map(encode).collect()
}

/// The second name of a document's last lasting content.
pub(super) fn kept(name: &str) -> String {
    format!(".{name}{KEPT}")
}

/// The file that the next renewal is written to.
pub(super) fn spare(name: &str) -> String {
    format!(".{name}{SPARE}")
}

/// The document's file name, if this is the name of its kept copy.
pub(super) fn name_of_kept(file: &str) -> Option<&str> {
    let name = file.strip_prefix('.')?.strip_suffix(KEPT)?;
    segment_of_document(name).map(|_| name)
}

/// A fresh name that is used nowhere else.
pub(super) fn temporary() -> String {
    format!(".{}{TEMPORARY}", random())
}

pub(super) fn is_temporary(file: &str) -> bool {
    let name = file.strip_prefix('.').and_then(|rest| rest.strip_suffix(TEMPORARY));
    name.is_some_and(is_random)
}

/// 128 random bits in hexadecimal.
pub(super) fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}

pub(super) fn is_random(name: &str) -> bool {
    name.len() == RANDOM_DIGITS
        && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of the record that the work of this work file was started.
pub(super) fn start(work: &str) -> String {
    format!("{work}{START}")
}

/// The name of the work file, if this is the name of its record.
pub(super) fn work_of_start(file: &str) -> Option<&str> {
    file.strip_suffix(START).filter(|work| is_random(work))
}

/// The segment that a document's file name stands for; `None` for a name we never write.
pub(super) fn segment_of_document(file: &str) -> Option<String> {
    decode(file.strip_suffix(SUFFIX)?)
}

/// The segment that a directory's name stands for; `None` for a name we never write.
pub(super) fn segment_of_directory(file: &str) -> Option<String> {
    decode(file)
}

fn encode(segment: &str) -> String {
    let mut encoded = String::with_capacity(segment.len() + 2);
    for (at, character) in segment.char_indices() {
        let rest = &segment[at..];
        match character {
            '.' if at == 0 || rest == SUFFIX => encoded.push_str("%2E"),
            '%' if is_escape(rest) => encoded.push_str("%25"),
            _ => encoded.push(character),
        }
    }
    encoded
}

fn decode(encoded: &str) -> Option<String> {
    let mut segment = String::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some(character) = rest.chars().next() {
        let (plain, taken) = match (character, rest.get(..3)) {
            ('%', Some("%2E")) => ('.', 3),
            ('%', Some("%25")) => ('%', 3),
            _ => (character, character.len_utf8()),
        };
        segment.push(plain);
        rest = &rest[taken..];
    }
    // Two names for one key would be two documents.
    (check_segment(&segment).is_ok() && encode(&segment) == encoded).then_some(segment)
}

fn is_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 3 && bytes[1].is_ascii_hexdigit() && bytes[2].is_ascii_hexdigit()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_encoding_of_segments_is_fixed() {
        for (segment, file) in [
            ("a", "a"),
            ("a b", "a b"),
            ("ü🦀", "ü🦀"),
            (".hidden", "%2Ehidden"),
            ("...", "%2E.."),
            ("a.b", "a.b"),
            ("a.json", "a%2Ejson"),
            (".json", "%2Ejson"),
            ("a.json.json", "a.json%2Ejson"),
            ("a.JSON", "a.JSON"),
            ("100%", "100%"),
            ("%zz", "%zz"),
            ("%2E", "%252E"),
            ("%25", "%2525"),
            ("%2e", "%252e"),
            ("%%41", "%%2541"),
            ("%2.json", "%2%2Ejson"),
            ("presence", "presence"),
        ] {
            assert_eq!(encode(segment), file, "{segment}");
            assert_eq!(decode(file).as_deref(), Some(segment), "{file}");
        }
    }

    #[test]
    fn a_name_we_never_write_stands_for_nothing() {
        for file in [".a", "a.json", "%41", "%2e", "a%2E", "", "%2E", "%2E%2E", "a\u{7}", "%2Ea%2E"]
        {
            assert_eq!(decode(file), None, "{file}");
        }
    }

    #[test]
    fn a_key_is_a_path_of_directories_and_a_document() {
        let place = Place::of(&Key::parse("elections/a.json/b").expect("a key"));
        assert_eq!(place.directory, ["elections", "a%2Ejson"]);
        assert_eq!(place.path(), "elections/a%2Ejson/b.json");
        assert_eq!((place.name.as_str(), kept("b.json").as_str()), ("b.json", ".b.json.kept"));
        assert_eq!(name_of_kept(".b.json.kept"), Some("b.json"));
        assert_eq!(name_of_kept(".b.kept"), None);
        assert!(is_temporary(&temporary()) && !is_temporary(".b.json.kept"));
        assert!(!is_temporary(JOURNAL) && name_of_kept(JOURNAL).is_none());
        assert!(segment_of_document(JOURNAL).is_none() && segment_of_directory(JOURNAL).is_none());
    }

    proptest! {
        #[test]
        fn every_segment_fits_and_comes_back(segment in "([.%a-f0-9]|\\.json|\\PC){1,40}") {
            prop_assume!(check_segment(&segment).is_ok());
            let file = encode(&segment);
            let document = format!("{file}{SUFFIX}");
            prop_assert!(spare(&document).len() <= 255);
            prop_assert_eq!(decode(&file), Some(segment));
        }

        #[test]
        fn any_file_name_is_decoded_without_panic(file in "\\PC{0,60}") {
            if let Some(segment) = decode(&file) {
                prop_assert_eq!(encode(&segment), file);
            }
        }
    }
}
