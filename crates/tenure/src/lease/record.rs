//! The record of an election, and its wire format.
//!
//! A queue keeps its leader, its generation and its end itself. The record of such an election only
//! says that it is a queue, its lock delay, and whether it was deleted.
//!
//! One JSON object, readable with `cat`. A record from the store is untrusted: its size is capped
//! before it is parsed, and any value out of range is refused, never shortened or repaired.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::floor::{Floor, WireFloor};
use crate::candidate::CandidateId;
use crate::name::{MAX_SEGMENT_BYTES, check_segment};
use crate::protocol::{Holder, Protocol};
use crate::store::{MAX_DOCUMENT_BYTES, Mark};
use crate::timing::MAX_TTL;
use crate::value;

/// The largest number in a record: the largest that every JSON reader keeps exactly.
pub const MAX_NUMBER: u64 = (1 << 53) - 1;
/// The most bytes a mark of presence may take.
const MAX_MARK_BYTES: usize = 2 * 1024;

/// The unique name of one write. An op in a record shows which request wrote it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Op(Arc<str>);

impl TryFrom<String> for Op {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Op, &'static str> {
        if text.is_empty() || text.len() > 2 * MAX_SEGMENT_BYTES {
            return Err("an op that is empty or too long");
        }
        Ok(Op(text.into()))
    }
}

impl From<Op> for String {
    fn from(op: Op) -> String {
        op.0.as_ref().into()
    }
}

impl Op {
    /// Names the `number`th write of a candidate. The candidate's id is random.
    #[must_use]
    pub fn new(writer: &CandidateId, number: u64) -> Op {
        Op(format!("{writer}-{number}").into())
    }

    /// The op as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The state of an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no leader.
    Free {
        /// True if the last tenure ended by a release after its work had ended.
        clean: bool,
    },
    /// A candidate leads, or led until it vanished.
    Held(Arc<Holder>),
    /// It is over for the candidates of this generation.
    Ended {
        /// The holder at the time when another party ended the election.
        ///
        /// The holder's time must pass before a successor's begins.
        kept: Option<Arc<Holder>>,
        /// True if the election is hidden from lists. The record stays, because it remembers the
        /// token.
        deleted: bool,
    },
}

/// The record of an election. Never deleted, only freed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// How the election is decided.
    pub protocol: Protocol,
    /// The state of the election.
    pub state: State,
    /// When the lease ends by the holder's wall clock. For people; no decision uses it.
    pub expire: u64,
    /// The fencing token of the newest tenure; 0 before the first.
    pub token: u64,
    /// How long a lease without renewal is respected.
    pub ttl: Duration,
    /// How long a successor waits after a tenure that did not end by a clean release.
    pub delay: Duration,
    /// The delay that the next claim puts in force.
    pub next_delay: Option<Duration>,
    /// How often the election was created.
    pub generation: u64,
    /// Rises by one at every write: the order of records, since versions are opaque.
    pub revision: u64,
    /// The write that made this record.
    pub op: Op,
    /// The floor known to be in force; `None` in a record from before there were floors.
    pub floor: Option<Floor>,
}

impl Record {
    /// Returns true if the election was deleted: it is hidden, and only its token is remembered.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        matches!(self.state, State::Ended { deleted: true, .. })
    }

    /// The holder, if the record is held.
    #[must_use]
    pub fn holder(&self) -> Option<&Arc<Holder>> {
        match &self.state {
            State::Held(holder) => Some(holder),
            State::Free { .. } | State::Ended { .. } => None,
        }
    }

    /// Returns true if this candidacy holds the record.
    #[must_use]
    pub fn is_held_by(&self, id: &CandidateId) -> bool {
        self.holder().is_some_and(|holder| holder.id == *id)
    }

    /// The next record in order: a higher revision and a new op, otherwise the same.
    pub(crate) fn following(&self, op: Op) -> Record {
        Record { revision: self.revision + 1, op, ..self.clone() }
    }

    /// Writes the record as one line of JSON.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let (state, holder, clean, deleted) = match &self.state {
            State::Free { clean } => (WireState::Free, None, *clean, false),
            State::Held(holder) => (WireState::Held, Some(holder), false, false),
            State::Ended { kept, deleted } => (WireState::Ended, kept.as_ref(), false, *deleted),
        };
        let (value, value_base64) =
            holder.map_or((None, None), |holder| value::encode(&holder.value));
        let wire = Wire {
            protocol: self.protocol,
            holder: holder.map(|holder| holder.id.as_str().into()).unwrap_or_default(),
            name: holder.map(|holder| (*holder.name).into()),
            expire: self.expire,
            token: self.token,
            ttl: millis(self.ttl),
            delay: millis(self.delay),
            next_delay: self.next_delay.map(millis),
            state,
            clean,
            deleted,
            generation: self.generation,
            revision: self.revision,
            op: self.op.as_str().into(),
            value,
            value_base64,
            presence: holder.and_then(|holder| holder.presence.clone()),
            floor: self.floor.as_ref().map(WireFloor::of),
        };
        let mut line = serde_json::to_vec(&wire).expect("strings, numbers and maps always encode");
        line.push(b'\n');
        line.into()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] says why the record is invalid. Never panics, and never takes more memory
    /// than a few times [`MAX_DOCUMENT_BYTES`].
    pub fn decode(body: &[u8]) -> Result<Record, RecordError> {
        if body.len() > MAX_DOCUMENT_BYTES {
            return Err(RecordError::TooLong { bytes: body.len() });
        }
        let wire: Wire = serde_json::from_slice(body).map_err(|error| RecordError::NotARecord {
            // Only the place and the kind: the text itself is untrusted, and may be a secret.
            says: error.to_string().chars().filter(|c| !c.is_control()).take(200).collect(),
        })?;
        wire.check()
    }

    /// Reads the record of an election that must be held by the lease protocol.
    ///
    /// # Errors
    /// As for [`Record::decode`], and [`RecordError::Queue`] for the record of a queue.
    pub fn decode_lease(body: &[u8]) -> Result<Record, RecordError> {
        let record = Record::decode(body)?;
        match record.protocol {
            Protocol::Lease => Ok(record),
            Protocol::Queue => Err(RecordError::Queue),
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The record as it is written. Field order is the order people read it in.
#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default, skip_serializing_if = "Protocol::is_lease")]
    protocol: Protocol,
    holder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    expire: u64,
    token: u64,
    ttl: u64,
    #[serde(default)]
    delay: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_delay: Option<u64>,
    state: WireState,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    clean: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    generation: u64,
    revision: u64,
    op: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    presence: Option<Mark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<WireFloor>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireState {
    Free,
    Held,
    Ended,
}

impl Wire {
    fn check(mut self) -> Result<Record, RecordError> {
        let floor = self.floor.take().map(WireFloor::check).transpose()?;
        for (field, number) in
            [("token", self.token), ("generation", self.generation), ("revision", self.revision)]
        {
            if number > MAX_NUMBER {
                return Err(RecordError::OutOfRange { field, number, most: MAX_NUMBER });
            }
        }
        let ttl = duration("ttl", self.ttl, 1)?;
        let delay = duration("delay", self.delay, 0)?;
        let next_delay =
            self.next_delay.map(|delay| duration("next_delay", delay, 0)).transpose()?;
        let op = Op::try_from(self.op.clone())
            .map_err(|says| RecordError::Field { field: "op", says: says.into() })?;
        let (expire, token, generation, revision) =
            (self.expire, self.token, self.generation, self.revision);
        let (clean, deleted) = (self.clean, self.deleted);
        let protocol = self.protocol;
        let state = match self.state {
            WireState::Free => State::Free { clean },
            WireState::Held => State::Held(
                self.holder()?
                    .ok_or(RecordError::Field { field: "holder", says: "held by nobody".into() })?,
            ),
            WireState::Ended => State::Ended { kept: self.holder()?, deleted },
        };
        if matches!(state, State::Held(_)) && token == 0 {
            return Err(RecordError::Field { field: "token", says: "held at token 0".into() });
        }
        if protocol == Protocol::Queue && !self_contained(&state) {
            return Err(RecordError::Field { field: "state", says: "a queue's leader".into() });
        }
        Ok(Record {
            protocol,
            state,
            expire,
            token,
            ttl,
            delay,
            next_delay,
            generation,
            revision,
            op,
            floor,
        })
    }

    fn holder(self) -> Result<Option<Arc<Holder>>, RecordError> {
        if self.holder.is_empty() {
            return Ok(None);
        }
        let refused =
            |field, error: &dyn fmt::Display| RecordError::Field { field, says: error.to_string() };
        let id = CandidateId::parse(&self.holder).map_err(|error| refused("holder", &error))?;
        let name = self.name.unwrap_or(self.holder);
        check_segment(&name).map_err(|error| refused("name", &error))?;
        let value = value::decode(self.value, self.value_base64)
            .map_err(|(field, says)| RecordError::Field { field, says })?;
        let mark_bytes = serde_json::to_vec(&self.presence).map_or(0, |encoded| encoded.len());
        if mark_bytes > MAX_MARK_BYTES {
            return Err(refused("presence", &"too long"));
        }
        Ok(Some(Arc::new(Holder { id, name: name.into(), value, presence: self.presence })))
    }
}

/// Returns true if the state names no holder. Of a queue, the first entry names the holder, not the
/// record.
fn self_contained(state: &State) -> bool {
    match state {
        State::Free { clean: _ } | State::Ended { kept: None, deleted: _ } => true,
        State::Held(_) | State::Ended { kept: Some(_), deleted: _ } => false,
    }
}

pub(super) fn duration(
    field: &'static str,
    millis: u64,
    least: u64,
) -> Result<Duration, RecordError> {
    let most = u64::try_from(MAX_TTL.as_millis()).unwrap_or(u64::MAX);
    if millis < least || millis > most {
        return Err(RecordError::OutOfRange { field, number: millis, most });
    }
    Ok(Duration::from_millis(millis))
}

/// A document that is not the record of an election.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The document is larger than a record can be.
    #[error("the election's document has {bytes} bytes; a record has at most {MAX_DOCUMENT_BYTES}")]
    TooLong {
        /// The size of the document.
        bytes: usize,
    },
    /// The document is not JSON, or not of the record's shape.
    #[error("the election's document is not a record: {says}")]
    NotARecord {
        /// The message of the parser.
        says: String,
    },
    /// The queue protocol decides this election.
    #[error("the election is held by the queue protocol")]
    Queue,
    /// A number is out of range.
    #[error("the election's document has {field} {number}, which is out of range (at most {most})")]
    OutOfRange {
        /// The name of the field.
        field: &'static str,
        /// The number found.
        number: u64,
        /// The largest number allowed.
        most: u64,
    },
    /// A field does not make sense.
    #[error("the election's document has a bad {field}: {says}")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The reason.
        says: String,
    },
}
