//! Writes slots, from recorded intents only.

use std::sync::Arc;
use std::time::Duration;

use tenure::Key;
use tenure::lease::record::Op;
use tenure::store::{Durability, Expect, Put, StoreError, Write};

use super::held_cursor::HeldCursor;
use super::look::{Look, Sight};
use super::request::{Answer, Common, Next, Request, put};
use crate::claims::AcknowledgedWrite;
use crate::documents::{Assignment, Intent, Letter, Progress, Slot, first_token};
use crate::error::ClusterError;
use crate::mutant::ClusterMutant;

/// The result of applying intents.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// A task to work on was written, or may have been.
    pub(super) filled: bool,
    /// Tasks to work on that were certainly written.
    pub(super) acknowledged: Vec<AcknowledgedWrite>,
    /// The store did not take some write.
    pub(super) failed: bool,
    /// No intent was seen applied for the first time.
    pub(super) stuck: bool,
}

/// Applies the intents that are not seen applied.
#[derive(Debug)]
pub(super) enum Applying {
    /// Slots are written, each at the version that was read. `waiting` has the intents for which
    /// nothing can be done now.
    Writing { writes: Vec<(usize, Slot)>, waiting: Vec<usize> },
    /// The dead letters that were brought back are looked up.
    FindingLetters { applied: Applied, keys: Vec<Key> },
    /// They are deleted.
    RemovingLetters { applied: Applied },
}

/// The first move. Writes that fail are left to the next look.
pub(super) fn apply(
    common: &mut Common,
    held_cursor: &mut HeldCursor,
    look: &mut Look,
) -> Result<Next<Applying, Applied>, ClusterError> {
    let (mut writes, mut requests, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    let (weak, ttl) = (common.is_weak(), common.settings.timing.ttl());
    for &place in &held_cursor.unseen {
        let intent = &held_cursor.cursor().intents[place];
        let Some(sight) = look.slots.get(intent.slot) else {
            // The cluster's configuration lost count; it is repaired from the slots in the store,
            // or it grows.
            waiting.push(place);
            continue;
        };
        match ruling(intent, sight, weak, ttl, || common.op()) {
            Ruling::Seen => {}
            Ruling::Wait => waiting.push(place),
            Ruling::Write(expect, slot) => {
                requests.push(put(common.settings.keys.slot(intent.slot), expect, &slot));
                writes.push((place, slot));
            }
        }
    }
    let writing = Applying::Writing { writes, waiting };
    if requests.is_empty() {
        return writing.answer(common, held_cursor, look, Answer::Wrote(Vec::new()));
    }
    Ok(Next::Ask(writing, Request::Write(requests)))
}

impl Applying {
    pub(super) fn answer(
        self,
        common: &mut Common,
        held_cursor: &mut HeldCursor,
        look: &mut Look,
        answer: Answer,
    ) -> Result<Next<Applying, Applied>, ClusterError> {
        match self {
            Applying::Writing { writes, waiting } => {
                let applied = wrote(common, held_cursor, look, writes, waiting, answer);
                Ok(find_letters(common, held_cursor, applied))
            }
            Applying::FindingLetters { applied, keys } => {
                let found = answer.found::<Letter>()?;
                let writes = keys.into_iter().zip(found).filter_map(|(key, found)| {
                    let expect = Expect::At(found?.version);
                    Some(Write { key, expect, body: None, durability: Durability::Lasting })
                });
                let writes: Vec<Write> = writes.collect();
                if writes.is_empty() {
                    held_cursor.letters_due = false;
                    return Ok(Next::Done(applied));
                }
                Ok(Next::Ask(Applying::RemovingLetters { applied }, Request::Write(writes)))
            }
            Applying::RemovingLetters { applied } => {
                let outcomes = answer.wrote();
                let is_removed =
                    |outcome: &Result<Put, StoreError>| matches!(outcome, Ok(Put::Stored(_)));
                held_cursor.letters_due = !outcomes.iter().all(is_removed);
                Ok(Next::Done(applied))
            }
        }
    }
}

/// Takes in the outcomes of writes to slots.
fn wrote(
    common: &mut Common,
    held_cursor: &mut HeldCursor,
    look: &mut Look,
    writes: Vec<(usize, Slot)>,
    mut waiting: Vec<usize>,
    answer: Answer,
) -> Applied {
    let mut applied = Applied::default();
    let mut outcomes = answer.wrote().into_iter();
    for (place, slot) in writes {
        applied.filled |= slot.is_live();
        match outcomes.next() {
            Some(Ok(Put::Stored(version))) => {
                let number = held_cursor.cursor().intents[place].slot;
                let content = Arc::new(slot);
                if content.is_live() {
                    let (version, content) = (version.clone(), content.clone());
                    applied.acknowledged.push(AcknowledgedWrite { slot: number, version, content });
                }
                look.stored(number, version, content);
            }
            Some(Ok(Put::Conflict)) | None => waiting.push(place),
            Some(Err(error)) => {
                if !applied.failed {
                    common.warn_of("a slot was not written; all are looked at again", "", &error);
                }
                applied.failed = true;
                waiting.push(place);
            }
        }
    }
    if ClusterMutant::CursorFirst.is_on() {
        waiting.clear();
    }
    waiting.sort_unstable();
    applied.stuck = held_cursor.unseen.len() == waiting.len();
    held_cursor.unseen = waiting;
    applied
}

/// Looks up the dead letters that were brought back, to delete them.
fn find_letters(
    common: &Common,
    held_cursor: &mut HeldCursor,
    applied: Applied,
) -> Next<Applying, Applied> {
    held_cursor.letters_due &= !ClusterMutant::RetryKeepsLetter.is_on();
    if !held_cursor.letters_due {
        return Next::Done(applied);
    }
    let serials = held_cursor.cursor().intents.iter().filter_map(|intent| intent.letter);
    let keys: Vec<Key> = serials.map(|serial| common.settings.keys.letter(serial)).collect();
    let request = Request::Look(keys.as_slice().into());
    Next::Ask(Applying::FindingLetters { applied, keys }, request)
}

/// The decision about one intent.
#[derive(Debug, PartialEq)]
pub(super) enum Ruling {
    /// It was applied: its slot shows it, or something later.
    Seen,
    /// Nothing can be done now.
    Wait,
    /// Write this slot.
    Write(Expect, Slot),
}

/// Decides about one intent by the state of its slot.
pub(super) fn ruling(
    intent: &Intent,
    sight: &Sight<Slot>,
    weak: bool,
    ttl: Duration,
    op: impl FnOnce() -> Op,
) -> Ruling {
    let is_applied = |slot: &Slot| slot.token >= first_token(intent.serial);
    match sight {
        Sight::Found(_, slot) if is_applied(slot) && !weak => Ruling::Seen,
        // A weak read proves nothing, so the slot is written again with the progress that its
        // holder has made since. The holder goes on at the same token, as after a cancel.
        Sight::Found(version, slot) if is_applied(slot) => {
            let again = slot.following(op(), slot.progress.clone());
            Ruling::Write(Expect::At(version.clone()), again)
        }
        Sight::Found(version, slot) => {
            let slot = intended(intent, slot.revision + 1, ttl, op());
            Ruling::Write(Expect::At(version.clone()), slot)
        }
        // Serials only rise, so the slot's token was lower before it became invalid.
        Sight::Garbled(version, _) => {
            Ruling::Write(Expect::At(version.clone()), intended(intent, 1, ttl, op()))
        }
        Sight::Absent => Ruling::Write(Expect::Absent, intended(intent, 1, ttl, op())),
        Sight::Unreadable => Ruling::Wait,
    }
}

/// The slot as an intent wants it.
pub(super) fn intended(intent: &Intent, revision: u64, ttl: Duration, op: Op) -> Slot {
    let (task, progress) = match &intent.task {
        Some(task) => (task.clone(), Progress::Outstanding { avoid: None, error: None }),
        None => (nothing(intent.serial), Progress::Vacant),
    };
    Slot {
        task: Arc::new(task),
        progress,
        cancel: false,
        token: first_token(intent.serial),
        attempt: 0,
        ttl,
        revision,
        op,
    }
}

/// The task of a vacant slot: only its serial has a meaning.
pub(super) fn nothing(serial: u64) -> Assignment {
    Assignment {
        serial,
        id: String::new(),
        kind: String::new(),
        payload: bytes::Bytes::new(),
        attempts: 0,
        timeout: None,
        to: None,
        receipt: None,
    }
}
