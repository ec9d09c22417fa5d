//! The workers and users of a history: they submit, work, retry, cancel and pause.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tenure::Key;
use tenure::store::{Expect, Put, StoreExt as _, Version};

use super::super::parts::{member, now, order};
use super::{PROCESSES, SUBMITTED, World};
use crate::Cancellation;
use crate::claims::AcknowledgedWrite;
use crate::documents::{
    ClusterConfig, Entry, Format as _, Holding, Letter, OutcomeState, Progress, Slot,
};

impl World {
    pub(super) fn submit(&mut self) {
        let many = (1 + self.chance.below(6)).min(SUBMITTED.saturating_sub(self.submitted));
        self.submit_many(many);
    }

    pub(super) fn submit_many(&mut self, many: usize) {
        let numbers = self.submitted..self.submitted + many;
        let orders = numbers.map(|number| {
            let mut order = order(&format!("submitted-{number}"));
            order.attempts = 2;
            if number % 3 == 0 {
                let receipt = member(1_000 + number as u64);
                order.receipt = Some(receipt.clone());
                self.receipts.insert(order.id.clone(), receipt);
            }
            order
        });
        let orders = orders.collect();
        self.submitted += many;
        now(self.truth.submit(orders)).expect("the inbox has room");
    }

    /// All slots that hold a task.
    pub(super) fn slots(&self) -> Vec<(Key, Version, Slot)> {
        let found = now(self.truth.store().list(&self.truth.keys.slots(), None, 2_000));
        let found = found.expect("memory serves").documents.into_iter();
        // Decoding all the vacant slots would take most of the time.
        let used = found.filter(|(_, document)| {
            std::str::from_utf8(&document.body).is_ok_and(|body| body.contains("\"id\":"))
        });
        let slot =
            |document: &tenure::store::Document| Slot::decode(&document.body).expect("a slot");
        used.map(|(key, document)| (key, document.version.clone(), slot(&document))).collect()
    }

    /// Makes progress on a few tasks.
    pub(super) fn work(&mut self) {
        for _ in 0..1 + self.chance.below(4) {
            let mut live: Vec<_> =
                self.slots().into_iter().filter(|(_, _, slot)| slot.is_live()).collect();
            if live.is_empty() {
                return;
            }
            let held = live.iter().filter(|(_, _, slot)| slot.holding().is_some()).count();
            self.most_held = self.most_held.max(held + 1);
            let (key, version, slot) = live.swap_remove(self.chance.below(live.len()));
            let local_writes = self.processes[self.chance.below(PROCESSES)].clone();
            let sent = local_writes.sending();
            let after = self.worked(slot);
            let put = now(self.truth.store().put(&key, Expect::At(version), after.encode()));
            let Ok(Put::Stored(version)) = put else { panic!("something came between: {put:?}") };
            self.note_end(&after);
            let number = key.below(&self.truth.keys.slots()).and_then(|name| name.parse().ok());
            let slot = number.expect("a slot has a number");
            self.untold.push((
                local_writes,
                sent,
                AcknowledgedWrite { slot, version, content: Arc::new(after) },
            ));
        }
    }

    fn worked(&self, slot: Slot) -> Slot {
        let op = self.truth.fresh_op();
        if slot.holding().is_none() {
            let (member, presence, status) = (member(7), None, None);
            let held = Holding { member, expire: 1, presence, status };
            let claimed = slot.following(op, Progress::Held(Arc::new(held)));
            return Slot { token: slot.token + 1, attempt: slot.attempt + 1, ..claimed };
        }
        let fails = self.chance.one_in(4);
        let progress = match fails {
            false => Progress::Done { result: Some(format!("{} is done", slot.task.id)) },
            true if slot.is_exhausted() => Progress::Dead { error: "it failed".into() },
            true => Progress::Outstanding { avoid: None, error: Some("it failed".into()) },
        };
        slot.following(op, progress)
    }

    fn note_end(&mut self, slot: &Slot) {
        let state = match slot.progress {
            Progress::Done { .. } => OutcomeState::Done,
            Progress::Dead { .. } if slot.cancel => OutcomeState::Cancelled,
            Progress::Dead { .. } => OutcomeState::Dead,
            Progress::Vacant | Progress::Outstanding { .. } | Progress::Held(_) => return,
        };
        self.ends.insert(slot.task.serial, (slot.task.id.clone(), state));
    }

    pub(super) fn letters(&self) -> BTreeSet<u64> {
        let found = now(self.truth.store().list(&self.truth.keys.letters(), None, 2_000));
        let found = found.expect("memory serves").documents;
        let letters = found.iter().map(|(_, document)| Letter::decode(&document.body));
        letters.map(|letter| letter.expect("a letter").task.serial).collect()
    }

    pub(super) fn retry(&mut self) {
        // On a weak store, an old read may hide that the task is not counted yet.
        let uncounted: BTreeSet<u64> = match self.plot.manner.weak {
            true => self.slots().iter().map(|(_, _, slot)| slot.task.serial).collect(),
            false => BTreeSet::new(),
        };
        let fresh = |serial: &u64| !self.retried.contains(serial) && !uncounted.contains(serial);
        let Some(serial) = self.letters().into_iter().find(fresh) else { return };
        self.retried.insert(serial);
        let twice = vec![Entry::Retry(serial); 1 + self.chance.below(2)];
        now(self.truth.enter(twice)).expect("the inbox has room");
    }

    /// Cancels a submitted task, in the inbox or in a slot.
    pub(super) fn cancel(&mut self) {
        let with_receipt: Vec<_> = self.receipts.clone().into_iter().collect();
        if with_receipt.is_empty() {
            return;
        }
        let (id, receipt) = with_receipt[self.chance.below(with_receipt.len())].clone();
        match self.truth.cancel_submitted(&receipt).now_or_never() {
            Some(Ok(Cancellation::Cancelled)) => {
                self.cancelled.insert(id);
            }
            // The cancellation was only requested, or would have to wait, and is dropped.
            Some(Ok(Cancellation::Asked)) | None => {
                self.doubtful.insert(id);
            }
            Some(Ok(Cancellation::NotFound)) => {}
            Some(Err(error)) => panic!("cancelling failed: {error}"),
        }
        self.slots().iter().for_each(|(_, _, slot)| self.note_end(slot));
    }

    pub(super) fn flip_pause(&mut self, paused: bool) {
        let key = self.truth.keys.cluster_config();
        let Some((version, cluster_config)) =
            now(self.truth.read::<ClusterConfig>(&key)).expect("memory")
        else {
            return;
        };
        let (revision, op) = (cluster_config.revision + 1, self.truth.fresh_op());
        let after = ClusterConfig { paused, revision, op, ..cluster_config };
        let _ = now(self.truth.store().put(&key, Expect::At(version), after.encode()));
    }
}
