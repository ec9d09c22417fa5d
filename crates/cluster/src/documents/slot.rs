//! A numbered slot: a task, and the lock of the node that works on it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;
use tenure::store::Mark;

use super::{
    Format, MemberId, check_mark, check_name, check_number, check_span, check_text, is_false,
    refuse,
};

/// The most bytes of a task's payload.
pub const MAX_TASK_BYTES: usize = 16 * 1024;
/// The most bytes of a result, an error or a status that is kept with a task.
pub const MAX_NOTE_BYTES: usize = 4 * 1024;
/// The most bytes of a task's id, and of its kind.
pub const MAX_ID_BYTES: usize = 1024;
/// The upper bound on the claims of one task.
///
/// Its tokens lie between its first token and the next task's.
pub const CLAIMS_A_TASK: u64 = 1024;

/// The first token of a task in its slot.
///
/// Serial numbers only rise, so a slot's tokens only rise too, even when its document was deleted.
#[must_use]
pub fn first_token(serial: u64) -> u64 {
    serial.saturating_mul(CLAIMS_A_TASK)
}

/// A task: a registered kind, and a payload that only this kind understands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// The number under which it was accepted, counted from 1. It is unique in its cluster.
    pub serial: u64,
    /// Its name for people.
    pub id: String,
    /// The registered type that runs it.
    pub kind: String,
    /// The input for that type.
    #[serde(rename = "task", with = "super::base64_bytes")]
    pub payload: Bytes,
    /// How often it may be begun.
    pub attempts: u32,
    /// How long one attempt may take; `None` is no limit.
    #[serde(default, with = "super::maybe_millis", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The only member that may take it, as long as that member is in the node list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<MemberId>,
    /// The name of the outcome document, if the submitter waits for the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<MemberId>,
}

/// The member that works on a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// The member.
    pub member: MemberId,
    /// When its lease ends by its own wall clock, in milliseconds since 1970. For people.
    pub expire: u64,
    /// The mark that can prove the member's death, if there is one.
    pub presence: Option<Mark>,
    /// The last status that the task reported.
    pub status: Option<String>,
}

/// The state of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The slot is free.
    Vacant,
    /// The task waits for a member.
    Outstanding {
        /// The member that failed the task last: other members go first.
        avoid: Option<MemberId>,
        /// Why it failed last.
        error: Option<String>,
    },
    /// A member works on the task, or did until it vanished.
    Held(Arc<Holding>),
    /// The task is done, and is never opened again.
    Done {
        /// The task's result.
        result: Option<String>,
    },
    /// The task's attempts are used up, or it was cancelled.
    Dead {
        /// Why the last attempt failed.
        error: String,
    },
}

/// One slot. It is never deleted while the cluster lives, only filled again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Slot {
    /// The task. In a vacant slot only its serial has a meaning.
    pub task: Arc<Assignment>,
    /// The state of the task.
    pub progress: Progress,
    /// Its cancellation was requested.
    pub cancel: bool,
    /// Rises at every claim and at every refill.
    pub token: u64,
    /// How often the task has been begun.
    pub attempt: u32,
    /// How long a lock that does not change is respected.
    pub ttl: Duration,
    /// Rises by one at every write.
    pub revision: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Slot {
    /// The member that works on the task, if any.
    #[must_use]
    pub fn holding(&self) -> Option<&Arc<Holding>> {
        match &self.progress {
            Progress::Held(holding) => Some(holding),
            Progress::Vacant
            | Progress::Outstanding { .. }
            | Progress::Done { .. }
            | Progress::Dead { .. } => None,
        }
    }

    /// Returns true if the slot holds a task that has not ended.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.progress, Progress::Outstanding { .. } | Progress::Held(_))
    }

    /// Returns true if the task may not be begun again.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.attempt >= self.task.attempts || self.token + 1 >= first_token(self.task.serial + 1)
    }

    /// Returns true if the next claim uses the last attempt.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.attempt + 1 >= self.task.attempts
    }

    /// The same slot with this progress and the next revision.
    #[must_use]
    pub fn following(&self, op: Op, progress: Progress) -> Slot {
        Slot { progress, revision: self.revision + 1, op, ..self.clone() }
    }
}

impl Format for Slot {
    const WHAT: &'static str = "slot";

    fn check(&self) -> Result<(), super::DocumentError> {
        let task = &self.task;
        check_number::<Slot>("token", self.token)?;
        check_number::<Slot>("serial", task.serial)?;
        check_number::<Slot>("revision", self.revision)?;
        check_span::<Slot>("ttl", self.ttl)?;
        let own = first_token(task.serial)..first_token(task.serial.saturating_add(1));
        if !own.contains(&self.token) {
            return Err(refuse::<Slot>("token", "not one of its serial's"));
        }
        match &self.progress {
            Progress::Vacant => return Ok(()),
            Progress::Outstanding { error, .. } => check_note("error", error.as_deref())?,
            Progress::Held(holding) => {
                check_mark::<Slot>(holding.presence.as_ref())?;
                check_note("status", holding.status.as_deref())?;
            }
            Progress::Done { result } => check_note("result", result.as_deref())?,
            Progress::Dead { error } => check_note("error", Some(error))?,
        }
        check_assignment::<Slot>(task)
    }
}

fn check_note(field: &'static str, note: Option<&str>) -> Result<(), super::DocumentError> {
    check_text::<Slot>(field, note.unwrap_or_default(), MAX_NOTE_BYTES)
}

/// Checks a task, in any document.
pub(super) fn check_assignment<T: Format>(task: &Assignment) -> Result<(), super::DocumentError> {
    check_number::<T>("serial", task.serial)?;
    check_name::<T>("id", &task.id)?;
    check_name::<T>("kind", &task.kind)?;
    if task.payload.len() > MAX_TASK_BYTES {
        return Err(refuse::<T>("task", "too long"));
    }
    if task.attempts == 0 || u64::from(task.attempts) >= CLAIMS_A_TASK {
        return Err(refuse::<T>("attempts", "out of range"));
    }
    task.timeout.map_or(Ok(()), |timeout| check_span::<T>("timeout", timeout))
}

/// The slot as it is written. The fields are in reading order for people.
#[derive(Clone, Serialize, Deserialize)]
struct Wire {
    /// Empty when no member works on the task.
    holder: String,
    expire: u64,
    state: State,
    serial: u64,
    /// Empty in a vacant slot, like the next three fields.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(default, with = "super::base64_bytes", skip_serializing_if = "Bytes::is_empty")]
    task: Bytes,
    #[serde(default)]
    attempts: u32,
    #[serde(default, with = "super::maybe_millis", skip_serializing_if = "Option::is_none")]
    timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<MemberId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<MemberId>,
    #[serde(default, skip_serializing_if = "is_false")]
    cancel: bool,
    token: u64,
    attempt: u32,
    #[serde(with = "super::millis")]
    ttl: Duration,
    revision: u64,
    op: Op,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    avoid: Option<MemberId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    presence: Option<Mark>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Outstanding,
    Done,
    Dead,
}

impl From<Slot> for Wire {
    fn from(slot: Slot) -> Wire {
        let task = slot.task;
        let mut wire = Wire {
            holder: String::new(),
            expire: 0,
            state: State::Outstanding,
            serial: task.serial,
            id: task.id.clone(),
            kind: task.kind.clone(),
            task: task.payload.clone(),
            attempts: task.attempts,
            timeout: task.timeout,
            to: task.to.clone(),
            receipt: task.receipt.clone(),
            cancel: slot.cancel,
            token: slot.token,
            attempt: slot.attempt,
            ttl: slot.ttl,
            revision: slot.revision,
            op: slot.op,
            result: None,
            error: None,
            status: None,
            avoid: None,
            presence: None,
        };
        match slot.progress {
            Progress::Vacant => wire.state = State::Done,
            Progress::Outstanding { avoid, error } => (wire.avoid, wire.error) = (avoid, error),
            Progress::Held(holding) => {
                wire.holder = holding.member.as_str().into();
                wire.expire = holding.expire;
                wire.presence = holding.presence.clone();
                wire.status = holding.status.clone();
            }
            Progress::Done { result } => (wire.state, wire.result) = (State::Done, result),
            Progress::Dead { error } => (wire.state, wire.error) = (State::Dead, Some(error)),
        }
        wire
    }
}

impl TryFrom<Wire> for Slot {
    type Error = &'static str;

    fn try_from(wire: Wire) -> Result<Slot, &'static str> {
        let progress = match wire.state {
            State::Outstanding if wire.holder.is_empty() => {
                Progress::Outstanding { avoid: wire.avoid, error: wire.error }
            }
            State::Outstanding => Progress::Held(Arc::new(Holding {
                member: MemberId::parse(&wire.holder).map_err(|_| "a holder that is no id")?,
                expire: wire.expire,
                presence: wire.presence,
                status: wire.status,
            })),
            State::Done if wire.id.is_empty() => Progress::Vacant,
            State::Done => Progress::Done { result: wire.result },
            State::Dead => Progress::Dead { error: wire.error.unwrap_or_default() },
        };
        let task = Assignment {
            serial: wire.serial,
            id: wire.id,
            kind: wire.kind,
            payload: wire.task,
            attempts: wire.attempts,
            timeout: wire.timeout,
            to: wire.to,
            receipt: wire.receipt,
        };
        Ok(Slot {
            task: Arc::new(task),
            progress,
            cancel: wire.cancel,
            token: wire.token,
            attempt: wire.attempt,
            ttl: wire.ttl,
            revision: wire.revision,
            op: wire.op,
        })
    }
}
