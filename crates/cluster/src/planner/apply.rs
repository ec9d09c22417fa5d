//! Writes slots, from recorded intents only.

use std::sync::Arc;
use std::time::Duration;

use tenure::lease::record::Op;
use tenure::store::{Durability, Expect, Put, Write};

use super::cause;
use super::held_cursor::HeldCursor;
use super::look::{Look, Sight};
use crate::claims::AcknowledgedWrite;
use crate::client::ClusterClient;
use crate::documents::{
    Assignment, Cursor, Format as _, Intent, Letter, Progress, Slot, first_token,
};
use crate::error::ClusterError;
use crate::mutant::ClusterMutant;

/// The result of applying intents.
#[derive(Debug)]
pub(super) struct Applied {
    /// Every intent is seen in its slot, and its dead letter, if any, is deleted.
    pub(super) wholly: bool,
    /// A task to work on was written, or may have been.
    pub(super) filled: bool,
    /// Tasks to work on that were certainly written.
    pub(super) acknowledged: Vec<AcknowledgedWrite>,
    /// The store did not take some write.
    pub(super) failed: bool,
}

/// Writes every intent that is not seen applied, each at the version that was read. Writes that
/// fail are left to the next look.
pub(super) async fn apply(
    client: &ClusterClient,
    ttl: Duration,
    held_cursor: &mut HeldCursor,
    look: &mut Look,
) -> Result<Applied, ClusterError> {
    let (mut writes, mut waiting) = (Vec::new(), Vec::new());
    for &place in &held_cursor.unseen {
        let intent = &held_cursor.cursor().intents[place];
        let sight = look.slots.get(intent.slot);
        let Some(sight) = sight else {
            // The cluster's configuration lost count; it is repaired from the slots in the store,
            // or it grows.
            waiting.push(place);
            continue;
        };
        match ruling(intent, sight, client.is_weak(), ttl, || client.fresh_op()) {
            Ruling::Seen => {}
            Ruling::Wait => waiting.push(place),
            Ruling::Write(expect, slot) => writes.push((place, expect, slot)),
        }
    }
    let (mut filled, mut failed, mut acknowledged) = (false, false, Vec::new());
    let requests = writes.iter().map(|(place, expect, slot)| Write {
        key: client.keys.slot(held_cursor.cursor().intents[*place].slot),
        expect: expect.clone(),
        body: Some(slot.encode()),
        durability: Durability::Lasting,
    });
    let requests: Vec<Write> = requests.collect();
    let outcomes =
        if requests.is_empty() { Vec::new() } else { client.store().put_many(requests).await };
    let mut outcomes = outcomes.into_iter();
    for (place, _, slot) in writes {
        filled |= slot.is_live();
        match outcomes.next() {
            Some(Ok(Put::Stored(version))) => {
                let number = held_cursor.cursor().intents[place].slot;
                let content = Arc::new(slot);
                if content.is_live() {
                    let (version, content) = (version.clone(), content.clone());
                    acknowledged.push(AcknowledgedWrite { slot: number, version, content });
                }
                look.stored(number, version, content);
            }
            Some(Ok(Put::Conflict)) | None => waiting.push(place),
            Some(Err(error)) => {
                if !failed {
                    let cause = cause(&error);
                    tracing::warn!(%error, cause, "a slot was not written; all are looked at again");
                }
                failed = true;
                waiting.push(place);
            }
        }
    }
    if ClusterMutant::CursorFirst.is_on() {
        waiting.clear();
    }
    waiting.sort_unstable();
    held_cursor.unseen = waiting;
    if held_cursor.letters_due {
        held_cursor.letters_due = !remove_letters(client, held_cursor.cursor()).await?;
    }
    Ok(Applied { wholly: held_cursor.is_seen_through(), filled, acknowledged, failed })
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

/// Deletes the dead letters that were brought back. Returns true once none is left.
async fn remove_letters(client: &ClusterClient, cursor: &Cursor) -> Result<bool, ClusterError> {
    if ClusterMutant::RetryKeepsLetter.is_on() {
        return Ok(true);
    }
    let serials = cursor.intents.iter().filter_map(|intent| intent.letter);
    let keys: Vec<_> = serials.map(|serial| client.keys.letter(serial)).collect();
    let found = client.find_many::<Letter>(&keys).await?;
    let writes = keys.into_iter().zip(found).filter_map(|(key, found)| {
        let expect = Expect::At(found?.version);
        Some(Write { key, expect, body: None, durability: Durability::Lasting })
    });
    let writes: Vec<Write> = writes.collect();
    if writes.is_empty() {
        return Ok(true);
    }
    let outcomes = client.store().put_many(writes).await;
    Ok(outcomes.iter().all(|outcome| matches!(outcome, Ok(Put::Stored(_)))))
}
