//! Writes the documents that must be in the store before a task is counted. The dead letter comes
//! before the outcome, so that a submitter that reads the outcome of a dead task finds its letter.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tenure::Key;
use tenure::store::{Document, Durability, Expect, Fault, Put, StoreError, Write};

use super::collect::Ended;
use super::request::{Answer, Common, Next, Request};
use crate::client::Shown;
use crate::documents::{Format as _, Letter, MemberId, Outcome, OutcomeState, Report, Slot};

/// A document that must be in the store.
#[derive(Debug)]
struct Record {
    /// The serial of its task.
    serial: u64,
    body: Bytes,
    /// Returns true if the document found in its place is as good.
    is_same: fn(&Document, u64) -> bool,
}

/// Makes sure that documents are in the store.
///
/// Either this process or an earlier leader wrote them. Ends with the serials of those for which
/// this is uncertain.
#[derive(Debug)]
pub(super) struct Ensuring {
    missing: BTreeSet<u64>,
    step: EnsuringStep,
}

#[derive(Debug)]
enum EnsuringStep {
    /// All of them are written.
    Writing(BTreeMap<Key, Record>),
    /// Those are read that were there, or of which no answer came.
    Reading(Vec<(Key, Record)>),
    /// The documents of these serials are written over the ones that were read.
    Rewriting(Vec<u64>),
}

/// Writes the dead letters and outcomes of ended tasks.
#[derive(Debug)]
pub(super) enum Filing {
    Letters(Vec<Ended>, Ensuring),
    Outcomes(Vec<Ended>, Ensuring),
}

/// The first move. Ends with the tasks that have all their documents in the store.
pub(super) fn file(common: &mut Common, ended: Vec<Ended>) -> Next<Filing, Vec<Ended>> {
    let letters = ended.iter().filter_map(|ended| letter(common, &ended.slot, &ended.report));
    match Ensuring::begin(letters.collect()) {
        Next::Ask(ensuring, request) => Next::Ask(Filing::Letters(ended, ensuring), request),
        Next::Done(_) => file_outcomes(common, ended),
    }
}

fn file_outcomes(common: &mut Common, ended: Vec<Ended>) -> Next<Filing, Vec<Ended>> {
    let outcomes = ended.iter().filter_map(|ended| {
        let receipt = ended.slot.task.receipt.as_ref()?;
        Some(outcome(common, receipt, &ended.report))
    });
    match Ensuring::begin(outcomes.collect()) {
        Next::Ask(ensuring, request) => Next::Ask(Filing::Outcomes(ended, ensuring), request),
        Next::Done(_) => Next::Done(ended),
    }
}

impl Filing {
    pub(super) fn answer(
        self,
        common: &mut Common,
        answer: Answer,
    ) -> Result<Next<Filing, Vec<Ended>>, StoreError> {
        let without = |mut ended: Vec<Ended>, missing: BTreeSet<u64>| {
            ended.retain(|ended| !missing.contains(&ended.report.serial));
            ended
        };
        Ok(match self {
            Filing::Letters(ended, ensuring) => match ensuring.answer(common, answer)? {
                Next::Ask(ensuring, request) => {
                    Next::Ask(Filing::Letters(ended, ensuring), request)
                }
                Next::Done(missing) => file_outcomes(common, without(ended, missing)),
            },
            Filing::Outcomes(ended, ensuring) => match ensuring.answer(common, answer)? {
                Next::Ask(ensuring, request) => {
                    Next::Ask(Filing::Outcomes(ended, ensuring), request)
                }
                Next::Done(missing) => Next::Done(without(ended, missing)),
            },
        })
    }
}

/// Writes the outcomes of tasks that were cancelled before they were taken.
pub(super) fn file_cancelled(
    common: &mut Common,
    receipts: impl Iterator<Item = MemberId>,
) -> Next<Ensuring, BTreeSet<u64>> {
    let records = receipts.map(|receipt| {
        let (at, op) = (common.wall, common.op());
        let outcome = Outcome { serial: 0, state: OutcomeState::Cancelled, note: None, at, op };
        let is_same: fn(&Document, u64) -> bool =
            |document, _| Outcome::decode(&document.body).is_ok();
        let record = Record { serial: 0, body: outcome.encode(), is_same };
        (common.settings.keys.outcome(&receipt), record)
    });
    Ensuring::begin(records.collect())
}

fn letter(common: &mut Common, slot: &Slot, report: &Report) -> Option<(Key, Record)> {
    if report.state != OutcomeState::Dead {
        return None;
    }
    let serial = report.serial;
    let letter = Letter {
        task: (*slot.task).clone(),
        attempt: report.attempt,
        error: report.note.clone().unwrap_or_default(),
        at: common.wall,
        op: common.op(),
    };
    let is_same: fn(&Document, u64) -> bool = |document, serial| {
        Letter::decode(&document.body).is_ok_and(|letter| letter.task.serial == serial)
    };
    let record = Record { serial, body: letter.encode(), is_same };
    Some((common.settings.keys.letter(serial), record))
}

fn outcome(common: &mut Common, receipt: &MemberId, report: &Report) -> (Key, Record) {
    let Report { serial, state, note, .. } = report.clone();
    let outcome = Outcome { serial, state, note, at: common.wall, op: common.op() };
    let is_same: fn(&Document, u64) -> bool = |document, serial| {
        Outcome::decode(&document.body).is_ok_and(|outcome| outcome.serial == serial)
    };
    let record = Record { serial, body: outcome.encode(), is_same };
    (common.settings.keys.outcome(receipt), record)
}

impl Ensuring {
    fn begin(wanted: BTreeMap<Key, Record>) -> Next<Ensuring, BTreeSet<u64>> {
        let missing = BTreeSet::new();
        if wanted.is_empty() {
            return Next::Done(missing);
        }
        let writes = wanted.iter().map(|(key, record)| record.write(key, Expect::Absent)).collect();
        let step = EnsuringStep::Writing(wanted);
        Next::Ask(Ensuring { missing, step }, Request::Write(writes))
    }

    pub(super) fn answer(
        self,
        common: &mut Common,
        answer: Answer,
    ) -> Result<Next<Ensuring, BTreeSet<u64>>, StoreError> {
        let mut missing = self.missing;
        match self.step {
            EnsuringStep::Writing(wanted) => {
                let mut doubtful: Vec<(Key, Record)> = Vec::new();
                for ((key, record), outcome) in wanted.into_iter().zip(answer.wrote()) {
                    match outcome {
                        Ok(Put::Stored(_)) => {}
                        Ok(Put::Conflict) => doubtful.push((key, record)),
                        Err(error) if error.fault == Fault::Indeterminate => {
                            doubtful.push((key, record));
                        }
                        Err(error) => {
                            let says = "a document was not written; its slot waits";
                            common.warn_of(says, &key, &error);
                            missing.insert(record.serial);
                        }
                    }
                }
                if doubtful.is_empty() {
                    return Ok(Next::Done(missing));
                }
                let request = Request::Read(doubtful.iter().map(|(key, _)| key.clone()).collect());
                let step = EnsuringStep::Reading(doubtful);
                Ok(Next::Ask(Ensuring { missing, step }, request))
            }
            EnsuringStep::Reading(doubtful) => {
                let found = answer.shown()?.into_iter().map(Shown::document);
                let (mut serials, mut writes) = (Vec::new(), Vec::new());
                for ((key, record), found) in doubtful.into_iter().zip(found) {
                    let is_same = |document: &Document| (record.is_same)(document, record.serial);
                    if found.as_ref().is_some_and(is_same) && !common.is_weak() {
                        continue;
                    }
                    let expect = found.map_or(Expect::Absent, |found| Expect::At(found.version));
                    serials.push(record.serial);
                    writes.push(record.write(&key, expect));
                }
                if writes.is_empty() {
                    return Ok(Next::Done(missing));
                }
                let step = EnsuringStep::Rewriting(serials);
                Ok(Next::Ask(Ensuring { missing, step }, Request::Write(writes)))
            }
            EnsuringStep::Rewriting(serials) => {
                let outcomes = serials.into_iter().zip(answer.wrote());
                let unsure = outcomes.filter(|(_, outcome)| !matches!(outcome, Ok(Put::Stored(_))));
                missing.extend(unsure.map(|(serial, _)| serial));
                Ok(Next::Done(missing))
            }
        }
    }
}

impl Record {
    fn write(&self, key: &Key, expect: Expect) -> Write {
        let (key, body) = (key.clone(), Some(self.body.clone()));
        Write { key, expect, body, durability: Durability::Lasting }
    }
}
