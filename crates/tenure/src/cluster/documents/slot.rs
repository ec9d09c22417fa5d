//! A numbered slot: a task, and the lock of whoever works on it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    Format, MemberId, check_mark, check_name, check_number, check_span, check_text, is_false,
    refuse,
};
use crate::lease::record::Op;
use crate::store::Mark;

/// The most bytes of a task's payload.
pub const MAX_TASK_BYTES: usize = 16 * 1024;
/// The most bytes of a result, an error or a status that are kept with a task.
pub const MAX_NOTE_BYTES: usize = 4 * 1024;
/// The most bytes of a task's id, and of its kind.
pub const MAX_ID_BYTES: usize = 1024;
/// How often one task can be claimed at most: its tokens lie between its first and the next task's.
pub const CLAIMS_A_TASK: u64 = 1024;

/// The token of the slot that a task is put into. Serial numbers only rise, so a slot's tokens do,
/// even when its document was deleted.
#[must_use]
pub fn first_token(serial: u64) -> u64 {
    serial.saturating_mul(CLAIMS_A_TASK)
}

/// What is to be done: a kind that programs register, and a payload that only this kind
/// understands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// The number under which it was accepted, counted from 1; unique in its cluster.
    pub serial: u64,
    /// Names it for people.
    pub id: String,
    /// Which registered type runs it.
    pub kind: String,
    /// What that type is told.
    #[serde(rename = "task", with = "super::base64_bytes")]
    pub payload: Bytes,
    /// How often it may be begun.
    pub attempts: u32,
    /// How long one attempt may take; without it, as long as it likes.
    #[serde(default, with = "super::maybe_millis", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Only this member takes it, while it is in the node list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<MemberId>,
    /// Under which name somebody waits for its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<MemberId>,
}

/// Who works on a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// The member.
    pub member: MemberId,
    /// When its lease ends by its own wall clock, in milliseconds since 1970. For people.
    pub expire: u64,
    /// How its death can be proven, where it can.
    pub presence: Option<Mark>,
    /// What the task last reported.
    pub status: Option<String>,
}

/// What a slot is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// There is nothing in it.
    Vacant,
    /// Nobody works on it.
    Outstanding {
        /// Whoever failed it last: others go first.
        avoid: Option<MemberId>,
        /// Why it failed last.
        error: Option<String>,
    },
    /// Somebody works on it, or did until it vanished.
    Held(Arc<Holding>),
    /// It is done, and never opened again.
    Done {
        /// What came of it.
        result: Option<String>,
    },
    /// Its attempts are used up, or it was cancelled.
    Dead {
        /// Why the last of them failed.
        error: String,
    },
}

/// One slot. Never deleted while the cluster lives, only filled again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Slot {
    /// What is in it; of a vacant one, nothing of this means anything but the serial.
    pub task: Arc<Assignment>,
    /// How it stands with it.
    pub progress: Progress,
    /// Somebody asked for its end before it is done.
    pub cancel: bool,
    /// Rises at every claim and at every refill.
    pub token: u64,
    /// How often it has been begun.
    pub attempt: u32,
    /// How long a lock that stands still is respected.
    pub ttl: Duration,
    /// Rises by one at every write.
    pub revision: u64,
    /// Which write made this.
    pub op: Op,
}

impl Slot {
    /// Who works on it.
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

    /// Whether there is something in it that is not at its end.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.progress, Progress::Outstanding { .. } | Progress::Held(_))
    }

    /// Whether it may not be begun again.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.attempt >= self.task.attempts || self.token + 1 >= first_token(self.task.serial + 1)
    }

    /// Whether the next claim is the last.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.attempt + 1 >= self.task.attempts
    }

    /// The same slot after another write.
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

/// Refuses a task that cannot be one, wherever it stands.
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

/// The slot as it is written. Field order is the order people read it in.
#[derive(Clone, Serialize, Deserialize)]
struct Wire {
    /// Empty when nobody works on it.
    holder: String,
    expire: u64,
    state: State,
    serial: u64,
    /// Empty in a vacant slot, as the next three are.
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
