//! The format of a document's node, and the names of its versions.

use bytes::Bytes;
use tenure::store::{Document, MAX_DOCUMENT_BYTES, Version};

use super::wire::Stat;

/// The length of a document's number.
const DIGITS: usize = 16;

/// A document's own number, which no other document at this key ever had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number(String);

impl Number {
    pub(super) fn fresh() -> Number {
        Number(format!("{:016x}", rand::random::<u64>()))
    }

    /// The path of the node that exists as long as this document does.
    pub(super) fn below(&self, document: &str) -> String {
        format!("{document}/{}", self.0)
    }

    /// The data of the document's node: the number on its own line, then the body.
    pub(super) fn with(&self, body: &[u8]) -> Vec<u8> {
        [self.0.as_bytes(), b"\n", body].concat()
    }
}

/// One version of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edition {
    pub(super) number: Number,
    pub(super) version: i32,
}

impl Edition {
    pub(super) fn first(number: Number) -> Edition {
        Edition { number, version: 0 }
    }

    pub(super) fn next(self) -> Edition {
        Edition { version: self.version.wrapping_add(1), ..self }
    }

    pub(super) fn name(&self) -> Version {
        Version::new(format!("{}:{}", self.number.0, self.version))
    }

    /// Parses a version of ours. `None` if the version is of another form.
    pub(super) fn parse(version: &Version) -> Option<Edition> {
        let (number, version) = version.as_str().split_once(':')?;
        let version = version.parse().ok()?;
        Some(Edition { number: Number(hexadecimal(number.as_bytes())?), version })
    }
}

/// The document in a node.
///
/// Data without a number was written by hand. Its version does not parse as an [`Edition`].
pub(super) fn document(data: Vec<u8>, stat: &Stat) -> Document {
    let data = Bytes::from(data);
    // Cut a body that is too large just after the limit, so that it still shows as too large.
    let cut = |body: Bytes| body.slice(..body.len().min(MAX_DOCUMENT_BYTES + 1));
    match data.get(DIGITS).filter(|byte| **byte == b'\n').and_then(|_| hexadecimal(&data[..DIGITS]))
    {
        Some(number) => {
            let edition = Edition { number: Number(number), version: stat.version };
            Document { version: edition.name(), body: cut(data.slice(DIGITS + 1..)) }
        }
        None => {
            let version = Version::new(format!("by hand {:x} {}", stat.created, stat.version));
            Document { version, body: cut(data) }
        }
    }
}

fn hexadecimal(text: &[u8]) -> Option<String> {
    let digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let good = text.len() == DIGITS && text.iter().all(digit);
    good.then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(version: i32) -> Stat {
        Stat { created: 7, modified: 7, version, children_version: 0, owner: 0, children: 0 }
    }

    #[test]
    fn a_document_is_read_back_with_its_number() {
        let number = Number::fresh();
        for body in [&b""[..], b"{}", b"a\nb\xff"] {
            let read = document(number.with(body), &stat(3));
            assert_eq!(read.body, body);
            let edition = Edition { number: number.clone(), version: 3 };
            assert_eq!(Edition::parse(&read.version), Some(edition));
        }
    }

    #[test]
    fn what_was_written_by_hand_is_shown_whole() {
        for body in [&b"{}"[..], b"", b"0123456789ABCDEF\n{}", b"0123456789abcdef"] {
            let read = document(body.to_vec(), &stat(3));
            assert_eq!(read.body, body);
            assert_eq!(Edition::parse(&read.version), None);
        }
    }
}
