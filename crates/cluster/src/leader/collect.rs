//! Collects ended tasks, until only counting them is left to do.

use std::sync::Arc;

use tenure::store::{Expect, Put};

use super::look::Look;
use super::request::{Answer, Common, Next, Request, put};
use crate::documents::{OutcomeState, Progress, Report, Slot};
use crate::mutant::ClusterMutant;

/// The most bytes of one piece of the results.
pub(super) const MAX_PIECE_BYTES: usize = 44 * 1024;
/// The most slots that are collected at once: each needs an intent.
const MOST_COLLECTED: usize = 768;

/// A slot with an ended task.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) number: usize,
    pub(super) slot: Arc<Slot>,
    pub(super) report: Report,
}

/// The outcome of a task, or `None` while it has not ended.
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

/// The bytes that a report takes in a piece of the results.
pub(super) fn report_bytes(report: &Report) -> usize {
    // A report is text and numbers. If it could not be encoded, it would not fit either.
    serde_json::to_vec(report).map_or(MAX_PIECE_BYTES, |encoded| encoded.len() + 1)
}

/// Chooses as many ended slots as fit into one piece, the oldest first.
///
/// Leaves out those that must wait.
pub(super) fn choose(ended: Vec<(usize, Arc<Slot>)>, waits: impl Fn(u64) -> bool) -> Vec<Ended> {
    let mut bytes = 0;
    let reported = ended.into_iter().filter_map(|(number, slot)| {
        let report = report(&slot).filter(|report| !waits(report.serial))?;
        Some(Ended { number, slot, report })
    });
    let fits = |ended: &Ended| {
        bytes += report_bytes(&ended.report);
        bytes <= MAX_PIECE_BYTES
    };
    reported.take(MOST_COLLECTED).take_while(fits).collect()
}

/// Ended tasks of which a write must prove that they ended, because a weak read proves nothing.
#[derive(Debug)]
pub(super) struct Confirming {
    confirmed: Vec<Ended>,
    rewritten: Vec<Ended>,
}

/// Rewrites the slots of ended tasks, where that is needed to count them.
pub(super) fn confirm(
    common: &mut Common,
    look: &Look,
    ended: Vec<Ended>,
) -> Next<Confirming, Vec<Ended>> {
    if !common.is_weak() || ClusterMutant::WeakCounts.is_on() {
        return Next::Done(ended);
    }
    let (confirmed, doubtful): (Vec<Ended>, Vec<Ended>) =
        ended.into_iter().partition(|ended| look.is_acknowledged(ended.number));
    if doubtful.is_empty() {
        return Next::Done(confirmed);
    }
    let (mut writes, mut rewritten) = (Vec::new(), Vec::new());
    for ended in doubtful {
        let Some(version) = look.slots[ended.number].version() else { continue };
        let again = ended.slot.following(common.op(), ended.slot.progress.clone());
        let key = common.settings.keys.slot(ended.number);
        writes.push(put(key, Expect::At(version.clone()), &again));
        rewritten.push(Ended { slot: Arc::new(again), ..ended });
    }
    Next::Ask(Confirming { confirmed, rewritten }, Request::Write(writes))
}

impl Confirming {
    /// Returns the tasks that an acknowledged write shows to have ended.
    pub(super) fn answer(self, look: &mut Look, answer: Answer) -> Vec<Ended> {
        let mut confirmed = self.confirmed;
        for (ended, outcome) in self.rewritten.into_iter().zip(answer.wrote()) {
            if let Ok(Put::Stored(version)) = outcome {
                look.stored(ended.number, version, ended.slot.clone());
                confirmed.push(ended);
            } else {
                look.is_outdated = true;
            }
        }
        confirmed
    }
}
