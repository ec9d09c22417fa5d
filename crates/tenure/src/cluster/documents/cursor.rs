//! The books of the leader: how far the sources are read, what goes into which slot, and what came
//! of it all.

use serde::{Deserialize, Serialize};

use super::charter::MOST_SLOTS;
use super::slot::{Assignment, check_assignment};
use super::{DocumentError, Format, check_number, check_text, is_false, refuse};
use crate::lease::record::Op;

/// The most bytes of all intents together; the rest of the document is small.
pub const MAX_INTENTS_BYTES: usize = 44 * 1024;
/// The most bytes of a source's position.
pub const MAX_POSITION_BYTES: usize = 4 * 1024;

/// What is to be written into a slot. It has been, once the slot's token is [`first_token`] of this
/// serial or more.
///
/// [`first_token`]: super::first_token
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Which slot.
    pub slot: usize,
    /// The serial number that it gets.
    pub serial: u64,
    /// What goes in; without it the slot becomes vacant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Assignment>,
    /// The dead letter that is brought back by this, and goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<u64>,
}

/// The cursor document. Only the leader writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The token of the leadership that wrote it: a later leader writes it first of all, and an
    /// earlier one's writes conflict from then on.
    pub leader: u64,
    /// The serial number that comes next.
    pub next: u64,
    /// Where the source is read on; its own affair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// The source has nothing more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drained: bool,
    /// The page of the inbox that is read next.
    pub page: u64,
    /// How many entries of that page are taken already.
    pub taken: usize,
    /// How many tasks were taken in.
    pub accepted: u64,
    /// How many of them are done.
    pub done: u64,
    /// How many of them are dead letters.
    pub dead: u64,
    /// How many of them were cancelled.
    pub cancelled: u64,
    /// How many pieces of results there are.
    pub pieces: u64,
    /// What is being written into slots. Nothing else is taken in until all of it is seen there.
    pub intents: Vec<Intent>,
    /// Rises by one at every write.
    pub revision: u64,
    /// Which write made this.
    pub op: Op,
}

impl Cursor {
    /// The books before anything was taken in.
    #[must_use]
    pub fn new(op: Op) -> Cursor {
        Cursor {
            leader: 0,
            next: 1,
            position: None,
            drained: false,
            page: 0,
            taken: 0,
            accepted: 0,
            done: 0,
            dead: 0,
            cancelled: 0,
            pieces: 0,
            intents: Vec::new(),
            revision: 0,
            op,
        }
    }

    /// How many tasks are neither done nor dead nor cancelled.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.accepted.saturating_sub(self.done + self.dead + self.cancelled)
    }
}

impl Format for Cursor {
    const WHAT: &'static str = "cursor";

    fn check(&self) -> Result<(), DocumentError> {
        for (field, number) in [
            ("leader", self.leader),
            ("next", self.next),
            ("page", self.page),
            ("accepted", self.accepted),
            ("done", self.done),
            ("dead", self.dead),
            ("cancelled", self.cancelled),
            ("pieces", self.pieces),
            ("revision", self.revision),
        ] {
            check_number::<Cursor>(field, number)?;
        }
        check_text::<Cursor>(
            "position",
            self.position.as_deref().unwrap_or_default(),
            MAX_POSITION_BYTES,
        )?;
        for intent in &self.intents {
            if intent.slot >= MOST_SLOTS || intent.serial >= self.next {
                return Err(refuse::<Cursor>("intents", "a slot or a serial out of range"));
            }
            if let Some(task) = &intent.task {
                check_assignment::<Cursor>(task)?;
                if task.serial != intent.serial {
                    return Err(refuse::<Cursor>("intents", "a task under another serial"));
                }
            }
        }
        Ok(())
    }
}
