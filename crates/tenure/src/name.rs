//! Checked names, and the keys under which documents live in a store.
//!
//! A backend only ever gets a [`Key`], and a `Key` can only be built from checked segments. A
//! backend therefore never sees an empty segment, `..`, a NUL or a control character; it only has
//! to encode characters that its own store cannot hold.

use std::fmt;
use std::sync::Arc;

/// Most segments a name may have.
pub const MAX_SEGMENTS: usize = 8;
/// Most bytes a segment may have.
pub const MAX_SEGMENT_BYTES: usize = 128;
/// Most segments a key may have: its kind, a whole name, and one id below it.
pub const MAX_KEY_SEGMENTS: usize = MAX_SEGMENTS + 2;

/// The name of an election: 1 to 8 segments joined by `/`, such as `billing/primary`.
///
/// ```
/// use tenure::Name;
/// assert_eq!(Name::parse("billing/primary")?.segments().count(), 2);
/// assert!(Name::parse("billing/../primary").is_err());
/// # Ok::<(), tenure::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`] says which rule the text breaks, and where.
    pub fn parse(text: &str) -> Result<Name, NameError> {
        check(text, MAX_SEGMENTS)?;
        Ok(Name(text.into()))
    }

    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its segments, outermost first.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The names above this one, outermost first: `a` and `a/b` for `a/b/c`.
    pub fn ancestors(&self) -> impl Iterator<Item = Name> {
        self.0.match_indices('/').map(|(at, _)| Name(self.0[..at].into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        Name::parse(text)
    }
}

/// The address of a document: checked segments joined by `/`.
///
/// Keys are ordered by their text, byte by byte; [`Store::list`] uses this order.
///
/// [`Store::list`]: crate::store::Store::list
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Checks a key.
    ///
    /// # Errors
    /// [`NameError`], by the rules of names, with room for two more segments.
    pub fn parse(text: &str) -> Result<Key, NameError> {
        check(text, MAX_KEY_SEGMENTS)?;
        Ok(Key(text.into()))
    }

    /// The record of an election.
    #[must_use]
    pub fn election(name: &Name) -> Key {
        Key(format!("elections/{name}").into())
    }

    /// The floor of an election: it remembers the token if the record is deleted.
    #[must_use]
    pub fn floor(name: &Name) -> Key {
        Key(format!("floors/{name}").into())
    }

    /// The prefix of all elections' records.
    #[must_use]
    pub fn elections() -> Key {
        Key("elections".into())
    }

    /// The prefix of the registrations of an election's candidates.
    #[must_use]
    pub fn candidates(name: &Name) -> Key {
        Key(format!("candidates/{name}").into())
    }

    /// The key one segment below this one.
    ///
    /// # Errors
    /// [`NameError`] when the segment, or the key it would make, breaks a rule.
    pub fn child(&self, segment: &str) -> Result<Key, NameError> {
        check_segment(segment)?;
        Key::parse(&format!("{}/{segment}", self.0))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its segments, outermost first.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Returns true if this key is strictly below `prefix`.
    #[must_use]
    pub fn is_under(&self, prefix: &Key) -> bool {
        self.below(prefix).is_some()
    }

    /// The rest after `prefix/`, when this key is strictly below it.
    #[must_use]
    pub fn below(&self, prefix: &Key) -> Option<&str> {
        self.0.strip_prefix(&*prefix.0)?.strip_prefix('/')
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty; give at least one segment, such as `nightly`")]
    Empty,
    /// It begins with a slash.
    #[error("the name begins with `/`; names are relative, write `a/b`, not `/a/b`")]
    LeadingSlash,
    /// It ends with a slash.
    #[error("the name ends with `/`; its last segment would be empty")]
    TrailingSlash,
    /// Two slashes stand side by side.
    #[error("segment {position} of the name is empty; write one `/` between segments")]
    EmptySegment {
        /// The number of the segment, counted from 1.
        position: usize,
    },
    /// A segment is `.` or `..`, which file systems take for directories.
    #[error("segment {position} of the name is `{segment}`, which a file system would follow")]
    Dots {
        /// The number of the segment, counted from 1.
        position: usize,
        /// The segment.
        segment: &'static str,
    },
    /// The name has a NUL or another control character, which stores and terminals mangle.
    #[error(
        "segment {position} of the name has the control character U+{:04X} at byte {at}; \
         use printable text", *character as u32
    )]
    Control {
        /// The number of the segment, counted from 1.
        position: usize,
        /// The character.
        character: char,
        /// Its byte offset in the segment.
        at: usize,
    },
    /// A segment is too long for some store.
    #[error(
        "segment {position} of the name has {bytes} bytes; at most {MAX_SEGMENT_BYTES} are allowed"
    )]
    SegmentTooLong {
        /// The number of the segment, counted from 1.
        position: usize,
        /// The length of the segment.
        bytes: usize,
    },
    /// There are too many segments.
    #[error("the name has {segments} segments; at most {most} are allowed")]
    TooManySegments {
        /// The number of segments.
        segments: usize,
        /// The most segments allowed.
        most: usize,
    },
}

fn check(text: &str, most: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.starts_with('/') {
        return Err(NameError::LeadingSlash);
    }
    if text.ends_with('/') {
        return Err(NameError::TrailingSlash);
    }
    let segments = text.split('/').count();
    if segments > most {
        return Err(NameError::TooManySegments { segments, most });
    }
    text.split('/').enumerate().try_for_each(|(index, segment)| check_one(index + 1, segment))
}

/// Checks text that is to be one segment, such as a candidate's name.
///
/// # Errors
/// The rule that it breaks.
pub fn check_segment(segment: &str) -> Result<(), NameError> {
    if segment.is_empty() {
        return Err(NameError::Empty);
    }
    check_one(1, segment)?;
    match segment.find('/') {
        None => Ok(()),
        Some(_) => {
            Err(NameError::TooManySegments { segments: segment.split('/').count(), most: 1 })
        }
    }
}

fn check_one(position: usize, segment: &str) -> Result<(), NameError> {
    match segment {
        "" => return Err(NameError::EmptySegment { position }),
        "." => return Err(NameError::Dots { position, segment: "." }),
        ".." => return Err(NameError::Dots { position, segment: ".." }),
        _ => {}
    }
    if segment.len() > MAX_SEGMENT_BYTES {
        return Err(NameError::SegmentTooLong { position, bytes: segment.len() });
    }
    match segment.char_indices().find(|(_, character)| character.is_control()) {
        None => Ok(()),
        Some((at, character)) => Err(NameError::Control { position, character, at }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_several_levels() {
        let name = Name::parse("component/primary").expect("a good name");
        assert_eq!(name.segments().collect::<Vec<_>>(), ["component", "primary"]);
        assert_eq!(Key::election(&name).as_str(), "elections/component/primary");
    }

    #[test]
    fn each_bad_name_says_what_is_wrong_and_why() {
        let long = "x".repeat(129);
        for (text, says) in [
            ("", "the name is empty"),
            ("/a", "begins with `/`"),
            ("a/", "ends with `/`"),
            ("a//b", "segment 2 of the name is empty"),
            (".", "segment 1 of the name is `.`"),
            ("a/..", "segment 2 of the name is `..`"),
            ("a\0b", "control character U+0000 at byte 1"),
            ("a\nb", "control character U+000A"),
            ("a\u{85}b", "control character U+0085"),
            (&long, "has 129 bytes; at most 128"),
            ("1/2/3/4/5/6/7/8/9", "has 9 segments; at most 8"),
        ] {
            let error = Name::parse(text).expect_err(text);
            assert!(error.to_string().contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn below_needs_a_whole_segment() {
        let key = Key::parse("elections/ab").expect("a key");
        assert!(!key.is_under(&Key::parse("elections/a").expect("a key")));
        assert!(key.is_under(&Key::elections()));
        assert!(!Key::elections().is_under(&Key::elections()));
    }

    #[test]
    fn ancestors_are_the_names_above() {
        let name = Name::parse("a/b/c").expect("a name");
        let above: Vec<String> = name.ancestors().map(|name| name.to_string()).collect();
        assert_eq!(above, ["a", "a/b"]);
    }
}
