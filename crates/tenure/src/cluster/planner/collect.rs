//! Collecting what is at its end, until nothing is left to do but to count it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::look::{Look, Sight};
use crate::Key;
use crate::cluster::books::Books;
use crate::cluster::documents::{
    Cursor, Format, Letter, MemberId, Outcome, OutcomeState, Progress, Report, Slot,
};
use crate::cluster::mutant::ClusterMutant;
use crate::store::{Document, Durability, Expect, Fault, Put, StoreError, Write};

/// The most bytes of one piece of the results.
pub(super) const MAX_PIECE_BYTES: usize = 44 * 1024;
/// The most slots that are collected at once: each needs an intent.
const MOST_COLLECTED: usize = 768;

/// A slot whose task is at its end.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) number: usize,
    pub(super) slot: Arc<Slot>,
    pub(super) report: Report,
}

/// What became of a task, or nothing while it is not at its end.
pub(super) fn report(slot: &Slot) -> Option<Report> {
    let (state, note) = match &slot.progress {
        Progress::Done { result } => (OutcomeState::Done, result.clone()),
        Progress::Dead { error } if slot.cancel => (OutcomeState::Cancelled, Some(error.clone())),
        Progress::Dead { error } => (OutcomeState::Dead, Some(error.clone())),
        Progress::Vacant | Progress::Outstanding { .. } | Progress::Held(_) => return None,
    };
    let note = note.filter(|note| !note.is_empty());
    let (serial, id) = (slot.task.serial, slot.task.id.clone());
    Some(Report { serial, id, state, attempt: slot.attempt, note })
}

/// How much of a piece of the results a report takes.
pub(super) fn report_bytes(report: &Report) -> usize {
    // A report is text and numbers: if it could not be encoded, it would not fit either.
    serde_json::to_vec(report).map_or(MAX_PIECE_BYTES, |encoded| encoded.len() + 1)
}

/// As many of the slots at their end as go into one piece, the oldest first.
pub(super) fn choose(look: &Look, cursor: &Cursor) -> Vec<Ended> {
    let mut bytes = 0;
    let reported = look.ended(cursor).into_iter().filter_map(|(number, _, slot)| {
        let report = report(&slot)?;
        Some(Ended { number, slot, report })
    });
    let fits = |ended: &Ended| {
        bytes += report_bytes(&ended.report);
        bytes <= MAX_PIECE_BYTES
    };
    reported.take(MOST_COLLECTED).take_while(fits).collect()
}

/// Keeps those that an acknowledged write shows at their end: on a weak store a read proves nothing.
pub(super) async fn confirm(books: &Books, look: &mut Look, ended: Vec<Ended>) -> Vec<Ended> {
    if !books.is_weak() || ended.is_empty() || ClusterMutant::WeakCounts.is_on() {
        return ended;
    }
    let (mut writes, mut rewritten) = (Vec::new(), Vec::new());
    for ended in ended {
        let Some(version) = look.slots[ended.number].version() else { continue };
        let again = ended.slot.following(books.fresh_op(), ended.slot.progress.clone());
        writes.push(Write {
            key: books.keys.slot(ended.number),
            expect: Expect::At(version.clone()),
            body: Some(again.encode()),
            durability: Durability::Lasting,
        });
        rewritten.push(Ended { slot: Arc::new(again), ..ended });
    }
    let outcomes = books.store().put_many(writes).await;
    let confirmed = rewritten.into_iter().zip(outcomes).filter_map(|(ended, outcome)| {
        let Ok(Put::Stored(version)) = outcome else { return None };
        look.slots[ended.number] = Sight::Found(version, ended.slot.clone());
        Some(ended)
    });
    confirmed.collect()
}

/// Writes the dead letters and the outcomes that somebody waits for, and keeps those of which all of that stands in the store.
pub(super) async fn file(books: &Books, ended: Vec<Ended>) -> Result<Vec<Ended>, StoreError> {
    let mut wanted = BTreeMap::new();
    for ended in &ended {
        wanted.extend(letter(books, ended));
        wanted.extend(outcome(books, ended));
    }
    if wanted.is_empty() {
        return Ok(ended);
    }
    let missing = ensure(books, wanted).await?;
    let is_filed = |ended: &Ended| missing.iter().all(|(_, serial)| *serial != ended.report.serial);
    Ok(ended.into_iter().filter(is_filed).collect())
}

/// Writes the outcomes of tasks that were cancelled before they were taken. False while one of them may not stand.
pub(super) async fn file_cancelled(
    books: &Books,
    receipts: Vec<MemberId>,
) -> Result<bool, StoreError> {
    let mut wanted = BTreeMap::new();
    for receipt in receipts {
        let (at, op) = (books.wall(), books.fresh_op());
        let outcome = Outcome { serial: 0, state: OutcomeState::Cancelled, note: None, at, op };
        let is_same: fn(&Document, u64) -> bool =
            |document, _| Outcome::decode(&document.body).is_ok();
        let paper = Paper { serial: 0, body: outcome.encode(), is_same };
        wanted.insert(books.keys.outcome(&receipt), paper);
    }
    if wanted.is_empty() {
        return Ok(true);
    }
    Ok(ensure(books, wanted).await?.is_empty())
}

/// A document that must stand before a slot is counted.
struct Paper {
    serial: u64,
    body: bytes::Bytes,
    /// Whether what stands there is as good.
    is_same: fn(&Document, u64) -> bool,
}

fn letter(books: &Books, ended: &Ended) -> Option<(Key, Paper)> {
    if ended.report.state != OutcomeState::Dead {
        return None;
    }
    let serial = ended.report.serial;
    let letter = Letter {
        task: (*ended.slot.task).clone(),
        attempt: ended.slot.attempt,
        error: ended.report.note.clone().unwrap_or_default(),
        at: books.wall(),
        op: books.fresh_op(),
    };
    let is_same: fn(&Document, u64) -> bool = |document, serial| {
        Letter::decode(&document.body).is_ok_and(|letter| letter.task.serial == serial)
    };
    Some((books.keys.letter(serial), Paper { serial, body: letter.encode(), is_same }))
}

fn outcome(books: &Books, ended: &Ended) -> Option<(Key, Paper)> {
    let receipt = ended.slot.task.receipt.as_ref()?;
    let Report { serial, state, note, .. } = ended.report.clone();
    let outcome = Outcome { serial, state, note, at: books.wall(), op: books.fresh_op() };
    let is_same: fn(&Document, u64) -> bool = |document, serial| {
        Outcome::decode(&document.body).is_ok_and(|outcome| outcome.serial == serial)
    };
    Some((books.keys.outcome(receipt), Paper { serial, body: outcome.encode(), is_same }))
}

/// Sees to it that these documents stand, written by us or by a leader before us. Gives back those of which that is not known.
async fn ensure(
    books: &Books,
    wanted: BTreeMap<Key, Paper>,
) -> Result<Vec<(Key, u64)>, StoreError> {
    let write = |key: &Key, expect: Expect, paper: &Paper| Write {
        key: key.clone(),
        expect,
        body: Some(paper.body.clone()),
        durability: Durability::Lasting,
    };
    let first = wanted.iter().map(|(key, paper)| write(key, Expect::Absent, paper)).collect();
    let outcomes = books.store().put_many(first).await;
    let mut standing: Vec<(Key, Paper)> = Vec::new();
    let mut missing = Vec::new();
    for ((key, paper), outcome) in wanted.into_iter().zip(outcomes) {
        match outcome {
            Ok(Put::Stored(_)) => {}
            Ok(Put::Conflict) => standing.push((key, paper)),
            Err(error) if error.fault == Fault::Indeterminate => standing.push((key, paper)),
            Err(error) => {
                tracing::warn!(%key, %error, "a document was not written; its slot waits");
                missing.push((key, paper.serial));
            }
        }
    }
    if standing.is_empty() {
        return Ok(missing);
    }
    let keys: Vec<Key> = standing.iter().map(|(key, _)| key.clone()).collect();
    let found = books.store().get_many(&keys).await?;
    let mut again = Vec::new();
    for ((key, paper), found) in standing.into_iter().zip(found) {
        let is_same = |document: &Document| (paper.is_same)(document, paper.serial);
        if found.as_ref().is_some_and(is_same) && !books.is_weak() {
            continue;
        }
        let expect = found.map_or(Expect::Absent, |document| Expect::At(document.version));
        again.push((write(&key, expect, &paper), key, paper.serial));
    }
    let (writes, left): (Vec<_>, Vec<_>) =
        again.into_iter().map(|(write, key, serial)| (write, (key, serial))).unzip();
    if !writes.is_empty() {
        let outcomes = books.store().put_many(writes).await;
        let unsure = left.into_iter().zip(outcomes);
        missing.extend(
            unsure
                .filter(|(_, outcome)| !matches!(outcome, Ok(Put::Stored(_))))
                .map(|(left, _)| left),
        );
    }
    Ok(missing)
}
