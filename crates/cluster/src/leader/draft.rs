//! Drafts the next cursor: one decision for a whole round.
//!
//! The decision depends only on its arguments.

use std::collections::{BTreeSet, VecDeque};

use tenure::lease::record::Op;
use tenure::store::MAX_DOCUMENT_BYTES;

use super::collect::{Ended, MAX_PIECE_BYTES, report_bytes};
use super::pages::{Item, What};
use crate::documents::{
    Assignment, Cursor, DocumentError, Format as _, Intent, MAX_ID_BYTES, MAX_INTENTS_BYTES, Order,
    OutcomeState, Report,
};
use crate::input::Window;
use crate::mutant::ClusterMutant;

/// The most bytes of an intent that makes a slot vacant.
const VACATING_BYTES: usize = 48;
/// The most bytes by which the cursor's numbers may grow in one round.
const NUMBERS_BYTES: usize = 256;

/// The next cursor, and the documents that go with it.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) cursor: Cursor,
    /// The next piece of the results.
    pub(super) reports: Vec<Report>,
    /// The draft has something to record.
    pub(super) changed: bool,
    /// How much of the window it takes.
    pub(super) window: Fit,
    /// Items from the source that no cluster accepts.
    pub(super) refused: Vec<(u64, String, DocumentError)>,
}

/// How much of a window fits into the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// There was no window.
    Nothing,
    /// All of it.
    Wholly,
    /// None of it went in; only this many of its items would have fit.
    Only(usize),
}

/// Drafts the next cursor.
///
/// Slots in `ended` are counted and used again. Slots in `free` are used in their order. A window
/// is taken whole or not at all, because its position is the one after its last item.
pub(super) fn draft(
    before: &Cursor,
    ended: &[Ended],
    free: &[usize],
    items: Vec<Item>,
    window: Option<&Window>,
    op: Op,
) -> Draft {
    let mut drafting = Drafting::new(before, op);
    let changed = !ended.is_empty();
    for ended in ended {
        drafting.count(ended);
    }
    drafting.free.extend(free);
    let mut changed = changed | drafting.take_items(items);
    let fit = match window {
        None => Fit::Nothing,
        Some(window) => drafting.take_window(window),
    };
    changed |= fit == Fit::Wholly;
    drafting.vacate();
    let Drafting { mut cursor, reports, refused, .. } = drafting;
    if !reports.is_empty() {
        cursor.pieces += 1;
    }
    Draft { cursor, reports, changed, window: fit, refused }
}

#[derive(Clone)]
struct Drafting {
    cursor: Cursor,
    reports: Vec<Report>,
    refused: Vec<(u64, String, DocumentError)>,
    /// The bytes left for intents, less those reserved for vacating the counted slots.
    bytes: usize,
    piece_bytes: usize,
    /// Slots with a task that this draft counts.
    counted: VecDeque<usize>,
    free: VecDeque<usize>,
    letters: BTreeSet<u64>,
}

impl Drafting {
    fn new(before: &Cursor, op: Op) -> Drafting {
        let revision = before.revision + 1;
        let cursor = Cursor { intents: Vec::new(), revision, op, ..before.clone() };
        let rest = cursor.encode().len() + NUMBERS_BYTES;
        Drafting {
            cursor,
            reports: Vec::new(),
            refused: Vec::new(),
            bytes: MAX_DOCUMENT_BYTES.saturating_sub(rest).min(MAX_INTENTS_BYTES),
            piece_bytes: MAX_PIECE_BYTES,
            counted: VecDeque::new(),
            free: VecDeque::new(),
            letters: BTreeSet::new(),
        }
    }

    fn count(&mut self, ended: &Ended) {
        match ended.report.state {
            OutcomeState::Done => self.cursor.done += 1,
            OutcomeState::Dead => self.cursor.dead += 1,
            OutcomeState::Cancelled => self.cursor.cancelled += 1,
        }
        self.piece_bytes = self.piece_bytes.saturating_sub(report_bytes(&ended.report));
        self.reports.push(ended.report.clone());
        self.bytes = self.bytes.saturating_sub(VACATING_BYTES);
        self.counted.push_back(ended.number);
    }

    /// Takes as many items as fit, in their order. Returns true if the cursor moves.
    fn take_items(&mut self, items: Vec<Item>) -> bool {
        let mut moved = false;
        for Item { what, page, taken } in items {
            let fits = match what {
                // The letter was not looked up, so the entry stays in the inbox.
                What::Retry(_) => false,
                What::Cancelled(_) | What::Nothing => true,
                What::Task(order) => {
                    let fits = self.fill(|serial| (order.numbered(serial), None));
                    self.cursor.accepted += u64::from(fits);
                    fits
                }
                What::Again { letter, .. } if self.letters.contains(&letter) => true,
                What::Again { letter, task } => self.bring_back(letter, task),
            };
            if !fits {
                break;
            }
            (self.cursor.page, self.cursor.taken, moved) = (page, taken, true);
        }
        moved
    }

    /// Reopens a dead task under another serial.
    fn bring_back(&mut self, letter: u64, task: Assignment) -> bool {
        if !self.fill(|serial| (Assignment { serial, ..task }, Some(letter))) {
            return false;
        }
        self.letters.insert(letter);
        match self.cursor.dead.checked_sub(1) {
            Some(dead) => self.cursor.dead = dead,
            // The cursor has not counted this letter, for example because it was put there by hand.
            None => self.cursor.accepted += 1,
        }
        true
    }

    fn take_window(&mut self, window: &Window) -> Fit {
        let mut trial = self.clone();
        let longer = window.position.as_ref().map_or(0, json_bytes);
        let shorter = self.cursor.position.as_ref().map_or(0, json_bytes);
        trial.bytes = trial.bytes.saturating_sub(longer.saturating_sub(shorter));
        for (index, order) in window.orders.iter().enumerate() {
            let fits = match order.check() {
                Ok(()) => {
                    let fits = trial.fill(|serial| (order.clone().numbered(serial), None));
                    trial.cursor.accepted += u64::from(fits);
                    fits
                }
                Err(error) => trial.refuse(order, error),
            };
            if !fits {
                return Fit::Only(index);
            }
        }
        trial.cursor.position.clone_from(&window.position);
        trial.cursor.drained = window.drained;
        *self = trial;
        Fit::Wholly
    }

    /// Counts an item that no cluster accepts as dead. It gets no letter: there is nothing to
    /// retry.
    fn refuse(&mut self, order: &Order, error: DocumentError) -> bool {
        let serial = self.cursor.next;
        let mut id = order.id[..order.id.floor_char_boundary(MAX_ID_BYTES)].to_owned();
        if id.is_empty() {
            id.push('?');
        }
        let (state, note) = (OutcomeState::Dead, Some(error.to_string()));
        let report = Report { serial, id: id.clone(), state, attempt: 0, note };
        let Some(left) = self.piece_bytes.checked_sub(report_bytes(&report)) else { return false };
        self.piece_bytes = left;
        self.reports.push(report);
        self.refused.push((serial, id, error));
        self.cursor.next += 1;
        self.cursor.accepted += 1;
        self.cursor.dead += 1;
        true
    }

    /// Puts a task into the next slot. Uses the counted slots first, which must be written anyway.
    fn fill(&mut self, task: impl FnOnce(u64) -> (Assignment, Option<u64>)) -> bool {
        let (slot, extra) = match (self.counted.front(), self.free.front()) {
            (Some(slot), _) => (*slot, VACATING_BYTES),
            (None, Some(slot)) => (*slot, 0),
            (None, None) => return false,
        };
        let serial = self.cursor.next;
        let (task, letter) = task(serial);
        let intent = Intent { slot, serial, task: Some(task), letter };
        let Some(left) = (self.bytes + extra).checked_sub(json_bytes(&intent)) else {
            return false;
        };
        self.bytes = left;
        if self.counted.pop_front().is_none() {
            self.free.pop_front();
        }
        self.cursor.next += 1;
        self.cursor.intents.push(intent);
        true
    }

    /// Makes unused counted slots vacant, so that they are not counted twice.
    fn vacate(&mut self) {
        if ClusterMutant::CountsTwice.is_on() {
            return;
        }
        for slot in std::mem::take(&mut self.counted) {
            let serial = self.cursor.next;
            self.cursor.next += 1;
            self.cursor.intents.push(Intent { slot, serial, task: None, letter: None });
        }
    }
}

/// The bytes that a value takes in a JSON list.
fn json_bytes<T: serde::Serialize>(value: &T) -> usize {
    // A value that cannot be encoded does not fit either.
    serde_json::to_vec(value).map_or(usize::MAX / 2, |encoded| encoded.len() + 1)
}
