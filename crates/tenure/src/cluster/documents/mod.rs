//! The documents of a cluster: formats that people can read and that never change silently.
//!
//! What is read is untrusted: its size is capped before it is parsed, and anything out of range is
//! refused, never shortened or repaired.

mod bell;
mod charter;
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

use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use bell::Bell;
pub use charter::{Charter, LEAST_SLOTS, MOST_SLOTS};
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

use crate::candidate::CandidateId;
use crate::lease::record::MAX_NUMBER;
use crate::store::{MAX_DOCUMENT_BYTES, Mark};
use crate::timing::MAX_TTL;

/// One membership of one process, named uniquely: joining again takes a fresh one.
pub type MemberId = CandidateId;

/// The most bytes of a parser's words that are shown.
const MAX_SAYS_BYTES: usize = 200;
/// The most bytes a mark of presence may take.
const MAX_MARK_BYTES: usize = 2 * 1024;

/// A document of the cluster that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is larger than such a document can be.
    #[error("the {document} has {bytes} bytes; it has at most {MAX_DOCUMENT_BYTES}")]
    TooLong {
        /// Which document.
        document: &'static str,
        /// How large it is.
        bytes: usize,
    },
    /// It is not JSON, or not of its shape.
    #[error("this is no {document}: {says}")]
    Shape {
        /// Which document it should be.
        document: &'static str,
        /// What the parser said.
        says: String,
    },
    /// A field does not make sense.
    #[error("the {document} has a bad {field}: {says}")]
    Field {
        /// Which document.
        document: &'static str,
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        says: &'static str,
    },
}

impl DocumentError {
    /// The store itself takes what stands there for no document.
    pub(super) fn refused(document: &'static str) -> DocumentError {
        let says = "the store refuses to show it; move it away".to_owned();
        DocumentError::Shape { document, says }
    }
}

/// A document with a format of its own.
pub trait Format: Serialize + DeserializeOwned {
    /// What people call it.
    const WHAT: &'static str;

    /// Refuses what its shape alone allows.
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
    /// [`DocumentError`] says what is wrong with it. Never panics.
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

/// What the parser said, short and printable: it may quote what was read, which is untrusted.
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

/// Text of a bounded length. What people see of it is escaped where it is shown.
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

/// The same, where there may be none.
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
