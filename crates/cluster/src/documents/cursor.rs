//! The leader's records: positions in the sources, next writes to slots, totals.

use serde::{Deserialize, Serialize};
use tenure::lease::record::Op;

use super::cluster_config::MOST_SLOTS;
use super::slot::{Assignment, check_assignment};
use super::{DocumentError, Format, check_number, check_text, is_false, refuse};

/// The most bytes of all intents together; the rest of the document is small.
pub const MAX_INTENTS_BYTES: usize = 44 * 1024;
/// The most bytes of a source's position.
pub const MAX_POSITION_BYTES: usize = 4 * 1024;

/// A planned write to a slot.
///
/// It is done once the slot's token is [`first_token`] of this serial or more.
///
/// [`first_token`]: super::first_token
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The slot.
    pub slot: usize,
    /// The serial number that the slot gets.
    pub serial: u64,
    /// The task to put in. Without it the slot becomes vacant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Assignment>,
    /// The dead letter that this task brings back; it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<u64>,
}

/// The cursor document. Only the leader writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The token of the leadership that wrote it. A new leader writes the cursor before anything
    /// else, so that writes of earlier leaders conflict from then on.
    pub leader: u64,
    /// The next serial number.
    pub next: u64,
    /// The source's position, in the source's own format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// The source has no more tasks.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drained: bool,
    /// The page of the inbox that is read next.
    pub page: u64,
    /// How many entries of that page are already taken.
    pub taken: usize,
    /// How many tasks were accepted.
    pub accepted: u64,
    /// How many of them are done.
    pub done: u64,
    /// How many of them are dead letters.
    pub dead: u64,
    /// How many of them were cancelled.
    pub cancelled: u64,
    /// How many pieces of results there are.
    pub pieces: u64,
    /// The writes to slots in progress. Nothing else is taken in until all of them are seen there.
    pub intents: Vec<Intent>,
    /// Rises by one at every write.
    pub revision: u64,
    /// The write that made this version.
    pub op: Op,
}

impl Cursor {
    /// The cluster's records before anything was taken in.
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
