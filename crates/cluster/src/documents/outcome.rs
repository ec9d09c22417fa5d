//! The outcome of a task that its submitter waits for.

use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;

use super::slot::MAX_NOTE_BYTES;
use super::{DocumentError, Format, check_text};

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeState {
    /// It is done.
    Done,
    /// Its attempts are used up; it is a dead letter.
    Dead,
    /// It was cancelled.
    Cancelled,
}

/// An outcome, kept until the waiting submitter has read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The task's serial number.
    pub serial: u64,
    /// How it ended.
    pub state: OutcomeState,
    /// The result, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When the leader collected it, by its wall clock, in milliseconds since 1970.
    pub at: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Format for Outcome {
    const WHAT: &'static str = "outcome";

    fn check(&self) -> Result<(), DocumentError> {
        check_text::<Outcome>("note", self.note.as_deref().unwrap_or_default(), MAX_NOTE_BYTES)
    }
}
