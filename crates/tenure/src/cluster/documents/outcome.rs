//! What became of a task that somebody waits for.

use serde::{Deserialize, Serialize};

use super::slot::MAX_NOTE_BYTES;
use super::{DocumentError, Format, check_text};
use crate::lease::record::Op;

/// How it ended.
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

/// The outcome, kept until whoever waited has read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which task.
    pub serial: u64,
    /// How it ended.
    pub state: OutcomeState,
    /// What came of it, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When, by the leader's wall clock, in milliseconds since 1970.
    pub at: u64,
    /// Which write made this.
    pub op: Op,
}

impl Format for Outcome {
    const WHAT: &'static str = "outcome";

    fn check(&self) -> Result<(), DocumentError> {
        check_text::<Outcome>("note", self.note.as_deref().unwrap_or_default(), MAX_NOTE_BYTES)
    }
}
