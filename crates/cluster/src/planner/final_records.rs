//! Writes the documents that must be in the store before a task is counted. The dead letter comes
//! before the outcome, so that a submitter that reads the outcome of a dead task finds its letter.

use std::collections::{BTreeMap, BTreeSet};

use tenure::Key;
use tenure::store::{Document, Durability, Expect, Fault, Put, StoreError, Write};

use super::collect::Ended;
use crate::client::ClusterClient;
use crate::documents::{Format as _, Letter, MemberId, Outcome, OutcomeState, Report, Slot};

/// Writes the dead letters and outcomes of these tasks. Returns the tasks with all their documents
/// in the store.
pub(super) async fn file(
    client: &ClusterClient,
    mut ended: Vec<Ended>,
) -> Result<Vec<Ended>, StoreError> {
    let letters = ended.iter().filter_map(|ended| letter(client, &ended.slot, &ended.report));
    let missing = ensure(client, letters.collect()).await?;
    ended.retain(|ended| !missing.contains(&ended.report.serial));
    let outcomes = ended.iter().filter_map(|ended| {
        let receipt = ended.slot.task.receipt.as_ref()?;
        Some(outcome(client, receipt, &ended.report))
    });
    let missing = ensure(client, outcomes.collect()).await?;
    ended.retain(|ended| !missing.contains(&ended.report.serial));
    Ok(ended)
}

/// Writes the outcomes of tasks that were cancelled before they were taken. Returns false if one of
/// them may be missing.
pub(super) async fn file_cancelled(
    client: &ClusterClient,
    receipts: Vec<MemberId>,
) -> Result<bool, StoreError> {
    let mut wanted = BTreeMap::new();
    for receipt in receipts {
        let (at, op) = (client.wall(), client.fresh_op());
        let outcome = Outcome { serial: 0, state: OutcomeState::Cancelled, note: None, at, op };
        let is_same: fn(&Document, u64) -> bool =
            |document, _| Outcome::decode(&document.body).is_ok();
        let paper = Paper { serial: 0, body: outcome.encode(), is_same };
        wanted.insert(client.keys.outcome(&receipt), paper);
    }
    Ok(ensure(client, wanted).await?.is_empty())
}

/// A document that must be in the store.
struct Paper {
    /// The serial of its task.
    serial: u64,
    body: bytes::Bytes,
    /// Returns true if the document found in its place is as good.
    is_same: fn(&Document, u64) -> bool,
}

fn letter(client: &ClusterClient, slot: &Slot, report: &Report) -> Option<(Key, Paper)> {
    if report.state != OutcomeState::Dead {
        return None;
    }
    let serial = report.serial;
    let letter = Letter {
        task: (*slot.task).clone(),
        attempt: report.attempt,
        error: report.note.clone().unwrap_or_default(),
        at: client.wall(),
        op: client.fresh_op(),
    };
    let is_same: fn(&Document, u64) -> bool = |document, serial| {
        Letter::decode(&document.body).is_ok_and(|letter| letter.task.serial == serial)
    };
    Some((client.keys.letter(serial), Paper { serial, body: letter.encode(), is_same }))
}

fn outcome(client: &ClusterClient, receipt: &MemberId, report: &Report) -> (Key, Paper) {
    let Report { serial, state, note, .. } = report.clone();
    let outcome = Outcome { serial, state, note, at: client.wall(), op: client.fresh_op() };
    let is_same: fn(&Document, u64) -> bool = |document, serial| {
        Outcome::decode(&document.body).is_ok_and(|outcome| outcome.serial == serial)
    };
    (client.keys.outcome(receipt), Paper { serial, body: outcome.encode(), is_same })
}

/// Makes sure that these documents are in the store.
///
/// Either this process or an earlier leader wrote them. Returns the serials of those for which this
/// is uncertain.
async fn ensure(
    client: &ClusterClient,
    wanted: BTreeMap<Key, Paper>,
) -> Result<BTreeSet<u64>, StoreError> {
    let mut missing = BTreeSet::new();
    if wanted.is_empty() {
        return Ok(missing);
    }
    let first = wanted.iter().map(|(key, paper)| paper.write(key, Expect::Absent)).collect();
    let outcomes = client.store().put_many(first).await;
    let mut doubtful: Vec<(Key, Paper)> = Vec::new();
    for ((key, paper), outcome) in wanted.into_iter().zip(outcomes) {
        match outcome {
            Ok(Put::Stored(_)) => {}
            Ok(Put::Conflict) => doubtful.push((key, paper)),
            Err(error) if error.fault == Fault::Indeterminate => doubtful.push((key, paper)),
            Err(error) => {
                tracing::warn!(%key, %error, "a document was not written; its slot waits");
                missing.insert(paper.serial);
            }
        }
    }
    if doubtful.is_empty() {
        return Ok(missing);
    }
    let keys: Vec<Key> = doubtful.iter().map(|(key, _)| key.clone()).collect();
    let found = client.store().get_many(&keys).await?;
    let (mut serials, mut writes) = (Vec::new(), Vec::new());
    for ((key, paper), found) in doubtful.into_iter().zip(found) {
        let is_same = |document: &Document| (paper.is_same)(document, paper.serial);
        if found.as_ref().is_some_and(is_same) && !client.is_weak() {
            continue;
        }
        let expect = found.map_or(Expect::Absent, |document| Expect::At(document.version));
        serials.push(paper.serial);
        writes.push(paper.write(&key, expect));
    }
    if !writes.is_empty() {
        let outcomes = client.store().put_many(writes).await;
        let outcomes = serials.into_iter().zip(outcomes);
        let unsure = outcomes.filter(|(_, outcome)| !matches!(outcome, Ok(Put::Stored(_))));
        missing.extend(unsure.map(|(serial, _)| serial));
    }
    Ok(missing)
}

impl Paper {
    fn write(&self, key: &Key, expect: Expect) -> Write {
        let (key, body) = (key.clone(), Some(self.body.clone()));
        Write { key, expect, body, durability: Durability::Lasting }
    }
}
