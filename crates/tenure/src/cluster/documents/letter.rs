//! A dead letter: a task whose attempts are used up, kept until somebody retries it.

use serde::{Deserialize, Serialize};

use super::slot::{Assignment, MAX_NOTE_BYTES, check_assignment};
use super::{DocumentError, Format, check_text};
use crate::lease::record::Op;

/// A task that failed for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// What was to be done.
    #[serde(flatten)]
    pub task: Assignment,
    /// How often it was begun.
    pub attempt: u32,
    /// Why the last attempt failed.
    pub error: String,
    /// When, by the leader's wall clock, in milliseconds since 1970.
    pub at: u64,
    /// Which write made this.
    pub op: Op,
}

impl Format for Letter {
    const WHAT: &'static str = "dead letter";

    fn check(&self) -> Result<(), DocumentError> {
        check_assignment::<Letter>(&self.task)?;
        check_text::<Letter>("error", &self.error, MAX_NOTE_BYTES)
    }
}
