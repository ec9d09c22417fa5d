//! A piece of the results: what became of some tasks, kept in bounded documents.

use serde::{Deserialize, Serialize};

use super::slot::MAX_NOTE_BYTES;
use super::{DocumentError, Format, OutcomeState, check_name, check_text};
use crate::lease::record::Op;

/// What became of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Which task.
    pub serial: u64,
    /// Its name for people.
    pub id: String,
    /// How it ended.
    pub state: OutcomeState,
    /// How often it was begun.
    pub attempt: u32,
    /// What came of it, or why it failed; perhaps shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Some results, in the order in which they were collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// What became of each.
    pub reports: Vec<Report>,
    /// Which write made this.
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
