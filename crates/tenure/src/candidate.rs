//! The candidates of an election.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::name::{NameError, check_segment};

/// The most bytes a candidate may publish.
pub const MAX_VALUE_BYTES: usize = 4 * 1024;

/// The unique id of one candidacy.
///
/// Standing again takes a fresh id; the human name is separate.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CandidateId(Arc<str>);

impl TryFrom<String> for CandidateId {
    type Error = NameError;

    fn try_from(text: String) -> Result<CandidateId, NameError> {
        CandidateId::parse(&text)
    }
}

impl From<CandidateId> for String {
    fn from(id: CandidateId) -> String {
        id.0.as_ref().into()
    }
}

impl CandidateId {
    /// An id made of 128 random bits.
    #[must_use]
    pub fn from_bits(bits: u128) -> CandidateId {
        CandidateId(format!("{bits:032x}").into())
    }

    /// Checks an id from an untrusted source.
    ///
    /// # Errors
    /// [`NameError`]: an id is one segment of a key.
    pub fn parse(text: &str) -> Result<CandidateId, NameError> {
        check_segment(text)?;
        Ok(CandidateId(text.into()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A candidate's description of itself: a name for people, and a value for programs.
///
/// ```
/// use tenure::Candidate;
/// let plain: Candidate = "host-a".try_into()?;
/// let with_address = Candidate::new("host-a")?.with_value("10.0.0.7:8080")?;
/// assert_eq!(plain.name(), with_address.name());
/// # Ok::<(), tenure::CandidateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    name: Arc<str>,
    value: Bytes,
}

impl Candidate {
    /// A candidate that publishes nothing but its name.
    ///
    /// # Errors
    /// [`CandidateError::Name`] when the name is not one printable segment.
    pub fn new(name: &str) -> Result<Candidate, CandidateError> {
        check_segment(name)?;
        Ok(Candidate { name: name.into(), value: Bytes::new() })
    }

    /// Sets the value to publish: an address, a version, any few bytes.
    ///
    /// # Errors
    /// [`CandidateError::ValueTooLong`] over [`MAX_VALUE_BYTES`].
    pub fn with_value(mut self, value: impl Into<Bytes>) -> Result<Candidate, CandidateError> {
        let value = value.into();
        check_value(&value)?;
        self.value = value;
        Ok(self)
    }

    /// Its name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value it publishes.
    #[must_use]
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    pub(crate) fn into_parts(self) -> (Arc<str>, Bytes) {
        (self.name, self.value)
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<(), CandidateError> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(CandidateError::ValueTooLong { bytes: value.len() });
    }
    Ok(())
}

impl TryFrom<&str> for Candidate {
    type Error = CandidateError;

    fn try_from(name: &str) -> Result<Candidate, CandidateError> {
        Candidate::new(name)
    }
}

/// Why a candidate was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CandidateError {
    /// Its name is not one printable segment.
    #[error("the candidate's name is refused: {0}")]
    Name(#[from] NameError),
    /// Its value is too long to travel with every renewal.
    #[error("the candidate's value has {bytes} bytes; at most {MAX_VALUE_BYTES} are allowed")]
    ValueTooLong {
        /// The length of the value.
        bytes: usize,
    },
}
