//! A piece of the results: the outcomes of some tasks, in a bounded document.

use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;

use super::slot::MAX_NOTE_BYTES;
use super::{DocumentError, Format, OutcomeState, check_name, check_text};

/// The outcome of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The task's serial number.
    pub serial: u64,
    /// Its name for people.
    pub id: String,
    /// How it ended.
    pub state: OutcomeState,
    /// How often it was begun.
    pub attempt: u32,
    /// The result, or why it failed; perhaps shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Some outcomes, in the order in which they were collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The outcomes.
    pub reports: Vec<Report>,
    /// The write that made this version.
    pub op: Op,
}

impl Format for Piece {
    const WHAT: &'static str = "piece of results";

    fn check(&self) -> Result<(), DocumentError> {
        self.reports.iter().try_for_each(|report| {
            check_name::<Piece>("id", &report.id)?;
            check_text::<Piece>("note", report.note.as_deref().unwrap_or_default(), MAX_NOTE_BYTES)
        })
    }
}
