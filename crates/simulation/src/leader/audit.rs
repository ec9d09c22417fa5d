//! The audit of a world: the cluster's records must agree with the true events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tenure_cluster::documents::{OutcomeState, Piece, Report};

use super::users::{LISTED, SUBMITTED, is_refused, listed_id};
use super::world::Cluster;

impl Cluster {
    fn reports(&self) -> Result<BTreeMap<u64, Report>, String> {
        let cursor = self.cursor().ok_or("the cursor is gone")?;
        let mut reports = BTreeMap::new();
        for number in 0..cursor.pieces {
            let piece = self.store.read::<Piece>(&self.keys.piece(number));
            let (_, piece) = piece.ok_or_else(|| format!("piece {number} is missing"))?;
            for report in piece.reports {
                if let Some(before) = reports.insert(report.serial, report) {
                    return Err(format!("counted twice: {before:?}"));
                }
            }
        }
        Ok(reports)
    }

    /// Checks that the cluster's records agree with the true events.
    pub(super) fn audit(&self) -> Result<(), String> {
        let reports = self.reports()?;
        let counted = reports.values().filter(|report| !is_refused(&report.id));
        let counted: Ends =
            counted.map(|report| (report.serial, (report.id.clone(), report.state))).collect();
        if counted != self.ends {
            return Err(differences(&counted, &self.ends));
        }
        self.audit_tasks(&reports)?;
        self.audit_others(&reports)
    }

    /// Checks that each task was taken in once, and once more for each retry.
    fn audit_tasks(&self, reports: &BTreeMap<u64, Report>) -> Result<(), String> {
        let (letters, mut expected_letters) = (self.letters(), BTreeSet::new());
        let (mut done, mut dead, mut cancelled, mut accepted) = (0, 0, 0, 0);
        let listed = (0..LISTED).map(listed_id);
        for id in (0..SUBMITTED).map(|number| format!("submitted-{number}")).chain(listed) {
            let of_id: Vec<&Report> = reports.values().filter(|report| report.id == id).collect();
            accepted += u64::from(!of_id.is_empty());
            let is_again = |report: &&&Report| {
                self.retried.contains(&report.serial) && !letters.contains(&report.serial)
            };
            let expected = 1 + of_id.iter().filter(is_again).count();
            let may_be_none = self.doubtful.contains(&id);
            if of_id.len() != expected && !(may_be_none && of_id.is_empty()) {
                return Err(format!("{id} was taken in {} times: {of_id:?}", of_id.len()));
            }
            let Some((last, earlier)) = of_id.split_last() else { continue };
            if earlier.iter().any(|report| report.state != OutcomeState::Dead) {
                return Err(format!("{id} was done before it was retried: {of_id:?}"));
            }
            match last.state {
                OutcomeState::Done => done += 1,
                OutcomeState::Cancelled => cancelled += 1,
                OutcomeState::Dead => {
                    dead += 1;
                    if !is_refused(&id) {
                        expected_letters.insert(last.serial);
                    }
                }
            }
        }
        if letters != expected_letters {
            return Err(format!("dead letters {letters:?} instead of {expected_letters:?}"));
        }
        let cursor = self.cursor().ok_or("the cursor is gone")?;
        let totals = (cursor.accepted, cursor.done, cursor.dead, cursor.cancelled);
        let expected = (accepted, done, dead, cancelled);
        if totals != expected {
            return Err(format!("the cursor says {totals:?} instead of {expected:?}"));
        }
        Ok(())
    }

    fn audit_others(&self, reports: &BTreeMap<u64, Report>) -> Result<(), String> {
        for id in (0..LISTED).map(listed_id).filter(|id| !is_refused(id)) {
            if !self.told.contains(&id) {
                return Err(format!("the source was never told of {id}"));
            }
        }
        for (id, receipt) in &self.receipts {
            let has_ended = reports.values().any(|report| report.id == *id);
            if has_ended && self.store.truth(&self.keys.outcome(receipt)).is_none() {
                return Err(format!("the submitter of {id} is not told"));
            }
        }
        Ok(())
    }
}

type Ends = BTreeMap<u64, (String, OutcomeState)>;

fn differences(counted: &Ends, ended: &Ends) -> String {
    let mut says = String::from("the count is wrong:");
    for (serial, end) in counted {
        if ended.get(serial) != Some(end) {
            let _ = write!(says, " {serial} counted as {end:?}, was {:?};", ended.get(serial));
        }
    }
    for (serial, end) in ended.iter().filter(|(serial, _)| !counted.contains_key(serial)) {
        let _ = write!(says, " {serial} ended as {end:?} and is not counted;");
    }
    says
}
