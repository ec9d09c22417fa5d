//! A dead letter: a task with no attempts left, kept until it is retried.

use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;

use super::slot::{Assignment, MAX_NOTE_BYTES, check_assignment};
use super::{DocumentError, Format, check_text};

/// A task that failed for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The task.
    #[serde(flatten)]
    pub task: Assignment,
    /// How often it was begun.
    pub attempt: u32,
    /// Why the last attempt failed.
    pub error: String,
    /// When the leader wrote it, by its wall clock, in milliseconds since 1970.
    pub at: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Format for Letter {
    const WHAT: &'static str = "dead letter";

    fn check(&self) -> Result<(), DocumentError> {
        check_assignment::<Letter>(&self.task)?;
        check_text::<Letter>("error", &self.error, MAX_NOTE_BYTES)
    }
}
