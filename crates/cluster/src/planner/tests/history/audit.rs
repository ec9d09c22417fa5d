//! The audit of a history: the cluster's records must agree with the true events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::PoisonError;

use tenure::store::StoreExt as _;

use super::super::parts::now;
use super::items::Items;
use super::{LISTED, SUBMITTED, World};
use crate::documents::{Format as _, OutcomeState, Page, Piece, Report};

impl World {
    fn reports(&self) -> Result<BTreeMap<u64, Report>, String> {
        let cursor = self.cursor().ok_or("the cursor is gone")?;
        let mut reports = BTreeMap::new();
        for number in 0..cursor.pieces {
            let piece = now(self.truth.read::<Piece>(&self.truth.keys.piece(number)));
            let (_, piece) =
                piece.expect("memory").ok_or_else(|| format!("piece {number} is missing"))?;
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
        let counted = reports
            .values()
            .filter(|report| !Items::is_refused(&report.id))
            .map(|report| (report.serial, (report.id.clone(), report.state)));
        let counted: BTreeMap<_, _> = counted.collect();
        if counted != self.ends {
            return Err(differences(&counted, &self.ends));
        }
        let letters = self.letters();
        let mut expected_letters = BTreeSet::new();
        let (mut done, mut dead, mut cancelled, mut accepted) = (0, 0, 0, 0);
        let listed = (0..LISTED).map(Items::id);
        for id in (0..SUBMITTED).map(|number| format!("submitted-{number}")).chain(listed) {
            let of_id: Vec<&Report> = reports.values().filter(|report| report.id == id).collect();
            accepted += u64::from(!of_id.is_empty());
            let again = of_id.iter().filter(|report| {
                self.retried.contains(&report.serial) && !letters.contains(&report.serial)
            });
            let may_be_none = self.cancelled.contains(&id) || self.doubtful.contains(&id);
            let expected = 1 + again.count();
            if of_id.len() != expected && !(may_be_none && of_id.is_empty()) {
                return Err(format!("{id} was taken in {} times: {of_id:?}", of_id.len()));
            }
            let Some((last, earlier)) = of_id.split_last() else { continue };
            if earlier.iter().any(|report| report.state != OutcomeState::Dead) {
                return Err(format!("{id} was done before it was retried: {of_id:?}"));
            }
            if self.cancelled.contains(&id) && last.state != OutcomeState::Cancelled {
                return Err(format!("{id} was cancelled, and then {last:?}"));
            }
            match last.state {
                OutcomeState::Done => done += 1,
                OutcomeState::Cancelled => cancelled += 1,
                OutcomeState::Dead => {
                    dead += 1;
                    if !Items::is_refused(&id) {
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
        if totals != (accepted, done, dead, cancelled) {
            let expected = (accepted, done, dead, cancelled);
            return Err(format!("the books say {totals:?} instead of {expected:?}"));
        }
        self.audit_others(&reports)
    }

    fn audit_others(&self, reports: &BTreeMap<u64, Report>) -> Result<(), String> {
        let told = self.items.told.lock().unwrap_or_else(PoisonError::into_inner);
        for id in (0..LISTED).map(Items::id).filter(|id| !Items::is_refused(id)) {
            if !told.contains(&id) {
                return Err(format!("the source was never told of {id}"));
            }
        }
        for (id, receipt) in &self.receipts {
            let outcome = now(self.truth.store().get(&self.truth.keys.outcome(receipt)));
            let has_ended = reports.values().any(|report| report.id == *id);
            if has_ended && outcome.expect("memory").is_none() {
                return Err(format!("whoever waits for {id} is not told"));
            }
        }
        let pages = now(self.truth.store().list(
            &self.truth.keys.root().child("inbox").expect("a key"),
            None,
            2_000,
        ));
        for (key, document) in pages.expect("memory").documents {
            if !Page::decode(&document.body).expect("a page").entries.is_empty() {
                return Err(format!("{key} was taken and not freed"));
            }
        }
        Ok(())
    }
}

type Ends = BTreeMap<u64, (String, OutcomeState)>;

fn differences(counted: &Ends, ended: &Ends) -> String {
    let mut says = String::from("counted is not what happened:");
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
