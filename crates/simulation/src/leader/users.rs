//! The workers and users of a world: they submit, work, retry, cancel and pause.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure::{CandidateId, Key};
use tenure_cluster::claims::AcknowledgedWrite;
use tenure_cluster::documents::{
    ClusterConfig, Cursor, Entry, Format as _, Holding, INBOX_PAGES, Letter, MemberId, NodeEntry,
    Nodes, Order, OutcomeState, Page, Progress, Slot,
};

use super::rare::Rare;
use super::seat::MS;
use super::store::one_in;
use super::world::{Cluster, Happening, PROCESSES};

/// How many tasks are submitted, and how many the source has.
pub(super) const SUBMITTED: usize = 24;
pub(super) const LISTED: usize = 14;

pub(super) fn listed_id(number: usize) -> String {
    format!("listed-{number}")
}

/// Returns true if no cluster accepts this item of the source.
pub(super) fn is_refused(id: &str) -> bool {
    id.strip_prefix("listed-").is_some_and(|number| number.ends_with('7'))
}

pub(super) fn order(id: &str) -> Order {
    Order::new(id, "test", id.as_bytes().to_vec())
}

fn member(number: u64) -> MemberId {
    CandidateId::from_bits(u128::from(number))
}

impl Cluster {
    /// Lists the leader's node, sometimes alone: then the leader relies on local writes.
    pub(super) fn list_node(&mut self, node: MemberId) {
        let workers = if self.plot.forged { u32::MAX } else { 1 };
        let entry = |token| NodeEntry { token, workers, name: String::new(), draining: false };
        let mut nodes = vec![entry(node)];
        if self.kernel.rng.below(2) == 0 {
            nodes.push(entry(member(7)));
        }
        let nodes = Nodes { nodes, dead: Vec::new(), revision: 1, op: self.store.op() };
        self.store.write(self.keys.nodes(), &nodes);
    }

    pub(super) fn submit(&mut self) {
        let many = 1 + self.kernel.rng.below(4) as usize;
        let many = many.min(SUBMITTED - self.submitted);
        let numbers = self.submitted..self.submitted + many;
        let entries = numbers.map(|number| {
            let mut order = order(&format!("submitted-{number}"));
            order.attempts = 2;
            if number % 3 == 0 {
                let receipt = member(1_000 + number as u64);
                order.receipt = Some(receipt.clone());
                self.receipts.insert(order.id.clone(), receipt);
            }
            Entry::Task(order)
        });
        let entries: Vec<Entry> = entries.collect();
        if !entries.is_empty() && self.enter(entries) {
            self.submitted += many;
        }
    }

    /// Writes entries on the next page, if it is free, and wakes the leader.
    fn enter(&mut self, entries: Vec<Entry>) -> bool {
        let number = self.page;
        let key = self.keys.page(number);
        let before = self.store.read::<Page>(&key).map(|(_, page)| page);
        let is_free = match &before {
            Some(page) => page.number == number && page.entries.is_empty(),
            None => number < INBOX_PAGES,
        };
        if is_free {
            let op = self.store.op();
            self.store.write(key, &Page::filling(number, before.as_ref(), entries, op));
            self.page += 1;
        }
        self.ring(self.keys.leader_wake_up());
        if self.kernel.rng.below(2) == 0 {
            self.kernel.schedule(MS, Happening::WakeUp);
        }
        is_free
    }

    /// All slots that hold a task.
    pub(super) fn slots(&self) -> Vec<(Key, Slot)> {
        // Decoding all the vacant slots would take most of the time.
        let is_used = |body: &[u8]| body.windows(5).any(|text| text == b"\"id\":");
        let used = self.store.under(&self.slots_key).filter(|(_, it)| is_used(&it.body));
        let slot = |body: &[u8]| Slot::decode(body).expect("a slot");
        used.map(|(key, document)| (key.clone(), slot(&document.body))).collect()
    }

    /// Makes progress on a few tasks.
    pub(super) fn work(&mut self) {
        let mut live = self.slots();
        for _ in 0..1 + self.kernel.rng.below(4) {
            live.retain(|(_, slot)| slot.is_live());
            if live.is_empty() {
                return;
            }
            let held = live.iter().filter(|(_, slot)| slot.holding().is_some()).count();
            self.most_held = self.most_held.max(held + 1);
            let index = self.kernel.rng.below(live.len() as u64) as usize;
            let (key, slot) = live.swap_remove(index);
            let process = self.kernel.rng.below(PROCESSES as u64) as usize;
            let sent = self.processes[process].sending();
            let content = Arc::new(self.worked(slot));
            let version = self.store.write(key.clone(), &*content);
            self.note_end(&content);
            let number = key.below(&self.slots_key).and_then(|name| name.parse().ok());
            let slot = number.expect("a slot has a number");
            live.push((key, Slot::clone(&content)));
            self.untold.push((process, sent, AcknowledgedWrite { slot, version, content }));
        }
    }

    fn worked(&mut self, slot: Slot) -> Slot {
        let op = self.store.op();
        if slot.holding().is_none() {
            if one_in(&mut self.kernel.rng, 40) {
                self.kernel.saw(Rare::CancelledInSlot);
                let dead = slot.following(op, Progress::Dead { error: "cancelled".into() });
                return Slot { cancel: true, ..dead };
            }
            let (member, presence, status) = (member(7), None, None);
            let held = Holding { member, expire: 1, presence, status };
            let claimed = slot.following(op, Progress::Held(Arc::new(held)));
            return Slot { token: slot.token + 1, attempt: slot.attempt + 1, ..claimed };
        }
        let progress = match one_in(&mut self.kernel.rng, 4) {
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
        self.kernel
            .note(|| format!("task {} ({}) ended: {state:?}", slot.task.serial, slot.task.id));
        self.ends.insert(slot.task.serial, (slot.task.id.clone(), state));
    }

    /// Tells leaders of acknowledged writes, sooner or later and in any order.
    ///
    /// It mostly picks writes of a process that leads.
    pub(super) fn tell(&mut self) {
        for _ in 0..self.untold.len().min(8) {
            let index = self.kernel.rng.below(self.untold.len() as u64) as usize;
            let local_writes = self.processes[self.untold[index].0].clone();
            let leads = self.seats.iter().any(|it| Arc::ptr_eq(&it.local_writes, &local_writes));
            if one_in(&mut self.kernel.rng, if leads { 3 } else { 200 }) {
                let (_, sent, write) = self.untold.swap_remove(index);
                local_writes.worked(sent, [write]);
                let called = || tenure_cluster::leader::Input::Called;
                self.wake(called, |seat| Arc::ptr_eq(&seat.local_writes, &local_writes));
            }
        }
    }

    /// The serials of the dead letters.
    pub(super) fn letters(&self) -> BTreeSet<u64> {
        let letters = self.store.under(&self.letters_key);
        let letters = letters.map(|(_, document)| Letter::decode(&document.body));
        letters.map(|letter| letter.expect("a letter").task.serial).collect()
    }

    pub(super) fn retry(&mut self) {
        // On a weak store, an old read may hide that the task is not counted yet.
        let uncounted: BTreeSet<u64> = match self.plot.manner.weak {
            true => self.slots().iter().map(|(_, slot)| slot.task.serial).collect(),
            false => BTreeSet::new(),
        };
        let fresh = |serial: &u64| !self.retried.contains(serial) && !uncounted.contains(serial);
        let Some(serial) = self.letters().into_iter().find(fresh) else { return };
        let twice = vec![Entry::Retry(serial); 1 + self.kernel.rng.below(2) as usize];
        if self.enter(twice) {
            self.kernel.saw(Rare::Retried);
            self.retried.insert(serial);
        }
    }

    /// Cancels a submitted task that is in the inbox. A leader may have taken it already.
    pub(super) fn cancel(&mut self) {
        let Some(cursor) = self.cursor() else { return };
        for number in cursor.page..self.page {
            let key = self.keys.page(number);
            let Some((_, page)) = self.store.read::<Page>(&key) else { continue };
            let skipped = if number == cursor.page { cursor.taken } else { 0 };
            let place =
                page.entries.iter().skip(skipped).position(
                    |entry| matches!(entry, Entry::Task(order) if order.receipt.is_some()),
                );
            let Some(place) = place.map(|place| place + skipped) else { continue };
            if page.number == number
                && let Entry::Task(order) = &page.entries[place]
                && let Some(receipt) = order.receipt.clone()
            {
                self.kernel.saw(Rare::Cancelled);
                self.doubtful.insert(order.id.clone());
                let op = self.store.op();
                self.store.write(key, &page.cancelling(place, receipt, op));
                return;
            }
        }
    }

    pub(super) fn flip_pause(&mut self, paused: bool) {
        let key = self.keys.cluster_config();
        let Some((_, before)) = self.store.read::<ClusterConfig>(&key) else { return };
        if paused {
            self.kernel.saw(Rare::Paused);
        }
        let (revision, op) = (before.revision + 1, self.store.op());
        self.store.write(key, &ClusterConfig { paused, revision, op, ..before });
    }

    pub(super) fn cursor(&self) -> Option<Cursor> {
        self.store.read(&self.keys.cursor()).map(|(_, cursor)| cursor)
    }
}
