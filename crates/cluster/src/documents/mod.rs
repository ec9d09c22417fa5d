//! The documents of a cluster, in formats that people can read.
//!
//! The formats never change silently.
//!
//! Documents from the store are untrusted. Their size is checked before they are parsed, and any
//! value out of range is refused, never shortened or repaired.

mod cluster_config;
mod cursor;
mod keys;
mod letter;
mod member;
mod nodes;
mod outcome;
mod page;
mod piece;
mod plan;
mod settings;
mod slot;
#[cfg(test)]
mod tests;
mod wake_up;

use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenure::lease::record::MAX_NUMBER;
use tenure::store::{MAX_DOCUMENT_BYTES, Mark};
use tenure::{CandidateId, MAX_TTL};

pub use cluster_config::{ClusterConfig, LEAST_SLOTS, MOST_SLOTS};
pub use cursor::{Cursor, Intent, MAX_INTENTS_BYTES, MAX_POSITION_BYTES};
pub use keys::Keys;
pub use letter::Letter;
pub use member::MemberLock;
pub use nodes::{MOST_NODES, NodeEntry, Nodes};
pub use outcome::{Outcome, OutcomeState};
pub use page::{Entry, FILLS_KEPT, INBOX_PAGES, MAX_PAGE_BYTES, Order, Page};
pub use piece::{Piece, Report};
pub use plan::{MAX_PLAN_BYTES, MOST_PARTITIONS, Plan, Share};
pub use settings::Settings;
pub use slot::{
    Assignment, CLAIMS_A_TASK, Holding, MAX_ID_BYTES, MAX_NOTE_BYTES, MAX_TASK_BYTES, Progress,
    Slot, first_token,
};
pub use wake_up::WakeUp;

/// The unique id of one membership of one process. Joining again takes a new id.
pub type MemberId = CandidateId;

/// The most bytes of a parser's message that an error shows.
const MAX_SAYS_BYTES: usize = 200;
/// The most bytes a presence mark may take.
const MAX_MARK_BYTES: usize = 2 * 1024;

/// A document of the cluster is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is larger than any document can be.
    #[error("the {document} has {bytes} bytes; it has at most {MAX_DOCUMENT_BYTES}")]
    TooLong {
        /// The document.
        document: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// It is not JSON, or lacks the right shape.
    #[error("this is no {document}: {says}")]
    Shape {
        /// The expected document.
        document: &'static str,
        /// The parser's message.
        says: String,
    },
    /// A field is invalid.
    #[error("the {document} has a bad {field}: {says}")]
    Field {
        /// The document.
        document: &'static str,
        /// The field.
        field: &'static str,
        /// The defect.
        says: &'static str,
    },
}

impl DocumentError {
    /// The store refuses to show the content as a document.
    pub(super) fn refused(document: &'static str) -> DocumentError {
        let says = "the store refuses to show it; move it away".to_owned();
        DocumentError::Shape { document, says }
    }
}

/// A document with a format of its own.
pub trait Format: Serialize + DeserializeOwned {
    /// The document's name for people.
    const WHAT: &'static str;

    /// Checks the values that the JSON shape alone does not.
    ///
    /// # Errors
    /// [`DocumentError::Field`] names the field.
    fn check(&self) -> Result<(), DocumentError>;

    /// Writes it as one line of JSON.
    fn encode(&self) -> Bytes {
        let mut line = serde_json::to_vec(self).expect("strings, numbers and maps always encode");
        line.push(b'\n');
        line.into()
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`DocumentError`] says why the document is invalid. Never panics.
    fn decode(body: &[u8]) -> Result<Self, DocumentError> {
        if body.len() > MAX_DOCUMENT_BYTES {
            return Err(DocumentError::TooLong { document: Self::WHAT, bytes: body.len() });
        }
        let read: Self = serde_json::from_slice(body)
            .map_err(|error| DocumentError::Shape { document: Self::WHAT, says: shown(&error) })?;
        read.check()?;
        Ok(read)
    }
}

/// The parser's message, short and printable.
///
/// It may quote the document, which is untrusted.
fn shown(error: &serde_json::Error) -> String {
    let mut says: String = error.to_string().chars().filter(|c| !c.is_control()).collect();
    says.truncate(says.floor_char_boundary(MAX_SAYS_BYTES));
    says
}

fn refuse<T: Format>(field: &'static str, says: &'static str) -> DocumentError {
    DocumentError::Field { document: T::WHAT, field, says }
}

fn check_number<T: Format>(field: &'static str, number: u64) -> Result<(), DocumentError> {
    if number > MAX_NUMBER { Err(refuse::<T>(field, "out of range")) } else { Ok(()) }
}

fn check_span<T: Format>(field: &'static str, span: Duration) -> Result<(), DocumentError> {
    if span.is_zero() || span > MAX_TTL { Err(refuse::<T>(field, "out of range")) } else { Ok(()) }
}

/// Checks the length of a text. Text for people is escaped where it is shown.
fn check_text<T: Format>(
    field: &'static str,
    text: &str,
    most: usize,
) -> Result<(), DocumentError> {
    if text.len() > most { Err(refuse::<T>(field, "too long")) } else { Ok(()) }
}

fn check_name<T: Format>(field: &'static str, text: &str) -> Result<(), DocumentError> {
    if text.is_empty() {
        Err(refuse::<T>(field, "empty"))
    } else {
        check_text::<T>(field, text, MAX_ID_BYTES)
    }
}

fn check_mark<T: Format>(mark: Option<&Mark>) -> Result<(), DocumentError> {
    let bytes = serde_json::to_vec(&mark).map_or(0, |encoded| encoded.len());
    if bytes > MAX_MARK_BYTES { Err(refuse::<T>("presence", "too long")) } else { Ok(()) }
}

/// Durations as whole milliseconds.
mod millis {
    use super::*;

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// Optional durations as whole milliseconds.
mod maybe_millis {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => millis::serialize(span, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}

/// Bytes as base64 text.
mod base64_bytes {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        let decoded = STANDARD.decode(text.as_bytes());
        decoded.map(Bytes::from).map_err(|_| serde::de::Error::custom("not base64"))
    }
}

fn is_false(flag: &bool) -> bool {
    !*flag
}
