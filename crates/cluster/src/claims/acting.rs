//! Decides the next writes and looks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure::Moment;
use tenure::lease::record::Op;
use tenure::store::Expect;

use super::{Batch, Claims, Ending, Look, MOST_SENT, Mine, Output, SlotWrite};
use crate::documents::{Holding, Progress, Slot};
use crate::mutant::ClusterMutant;

/// The shortest pause in which other nodes can take their share. The longest is twice this.
const SHARE_PAUSE: Duration = Duration::from_millis(10);

/// How long a node relies on the leader in its process before it looks by itself.
const FED: Duration = Duration::from_millis(500);

/// Why a slot is written.
enum SlotChange {
    Claim,
    /// The task's attempts are used up, or it was cancelled while no node worked on it.
    Bury(String),
    Renew,
    /// A read-back write of ours on a weak store. It counts only once it is written again.
    Confirm,
    Finish,
}

impl Claims {
    /// The time for the next `act`, if nothing else happens. To be called right after `act`.
    #[must_use]
    pub fn wake(&self, now: Moment) -> Option<Moment> {
        let timing = &self.settings.timing;
        let mut wakes: Vec<Moment> = Vec::new();
        for mine in self.mine.values() {
            let Some(lease) = &mine.lease else { continue };
            if !mine.stopping {
                wakes.push(lease.from + lease.window.saturating_sub(lease.grace));
                wakes.push(lease.from + self.renewal_after(mine));
            }
            wakes.push(lease.from + lease.window);
        }
        wakes.extend(self.batch.as_ref().map(|batch| batch.sent + timing.request()));
        wakes.extend(self.look.as_ref().map(|look| look.sent + timing.request()));
        wakes.extend(self.pause.map(|(since, span)| since + span));
        if self.free_hands() > 0 {
            wakes.extend(self.last_look.map(|last| last + timing.poll(self.notified)));
            wakes.extend(self.last_look.filter(|_| self.fed && self.stale).map(|last| last + FED));
            wakes.extend(self.slots.iter().filter_map(|known| {
                let view = known.view.as_ref()?;
                view.slot.is_live().then(|| view.since + view.slot.ttl)
            }));
        }
        // Times in the past were handled by the `act` just now, and wait for something else.
        wakes.into_iter().filter(|wake| wake.boot > now.boot).min()
    }

    /// Returns true if writes that the leader in this process reports replaces a look for now.
    fn is_fed_since(&self, now: Moment, last: Moment) -> bool {
        self.fed && now.at_least_since(last) < FED
    }

    fn free_hands(&self) -> usize {
        if self.place.is_none() { 0 } else { self.hands.saturating_sub(self.mine.len()) }
    }

    /// The time between renewals. A new status report brings the next renewal forward.
    fn renewal_after(&self, mine: &Mine) -> Duration {
        let heartbeat = self.settings.timing.heartbeat();
        if mine.unreported { heartbeat / 4 } else { heartbeat }
    }

    pub(super) fn write(&mut self, now: Moment, wall: u64) {
        if self.batch.is_some() || self.is_paused(now) {
            return;
        }
        let mut changes = self.due(now, false);
        self.claim(now, &mut changes);
        if changes.is_empty() {
            return;
        }
        // A batch is sent anyway, so add the writes that are due soon.
        if changes.len() < self.pace {
            let chosen: BTreeSet<usize> = changes.iter().map(|(slot, _)| *slot).collect();
            let soon = self.due(now, true);
            changes.extend(soon.into_iter().filter(|(slot, _)| !chosen.contains(slot)));
        }
        changes.truncate(self.pace);
        let ask = self.ask();
        let mut batch = Batch { ask, sent: now, writes: Vec::new() };
        let mut writes = Vec::new();
        for (slot, change) in changes {
            let Some((expect, body, lasting)) = self.body(slot, &change, wall) else { continue };
            let known = &mut self.slots[slot];
            known.flying = true;
            if known.sent.len() == MOST_SENT {
                known.sent.remove(0);
            }
            known.sent.push((body.op.clone(), now));
            let body = Arc::new(body);
            batch.writes.push((slot, body.clone()));
            writes.push(SlotWrite { slot, expect, body, lasting });
        }
        if !writes.is_empty() {
            self.batch = Some(batch);
            self.outputs.push(Output::Write(ask, writes));
        }
    }

    fn is_paused(&self, now: Moment) -> bool {
        // Only failures delay ends and renewals, and for half a request at most.
        self.pause
            .is_some_and(|(since, span)| span > SHARE_PAUSE * 2 && now.at_least_since(since) < span)
    }

    /// The writes that are due for our claims. `soon` selects those that could still wait a little.
    fn due(&self, now: Moment, soon: bool) -> Vec<(usize, SlotChange)> {
        let mut due = Vec::new();
        for (slot, mine) in &self.mine {
            let known = &self.slots[*slot];
            if known.flying || known.doubt {
                continue;
            }
            let Some(view) = &known.view else { continue };
            let unproven = known.sent.iter().any(|(op, _)| *op == view.slot.op);
            let mut held = view.slot.token == mine.token && view.slot.holding().is_some();
            held |= ClusterMutant::LateCompletionWins.is_on() && mine.ending.is_some();
            if unproven && self.is_weak() && (!held || mine.ending.is_none()) {
                due.push((*slot, SlotChange::Confirm));
            } else if held && mine.ending.is_some() {
                due.push((*slot, SlotChange::Finish));
            } else if held && !mine.stopping {
                let Some(lease) = &mine.lease else { continue };
                let after = self.renewal_after(mine) / if soon { 2 } else { 1 };
                if now.at_most_since(lease.from) >= after {
                    due.push((*slot, SlotChange::Renew));
                }
            }
        }
        // On a weak store: claims of ours that a look showed but that were never granted.
        if self.is_weak() && !soon {
            for (slot, known) in self.slots.iter().enumerate() {
                let Some(view) = known.view.as_ref().filter(|_| !known.flying && !known.doubt)
                else {
                    continue;
                };
                let unproven = known.sent.iter().any(|(op, _)| *op == view.slot.op);
                if unproven && !self.mine.contains_key(&slot) && view.slot.holding().is_some() {
                    due.push((slot, SlotChange::Confirm));
                }
            }
        }
        due
    }

    /// Adds claims, as many as there are free hands, starting at this node's own place.
    fn claim(&mut self, now: Moment, changes: &mut Vec<(usize, SlotChange)>) {
        let free = self.free_hands();
        let Some(place) = self.place.as_ref().filter(|_| free > 0 && !self.slots.is_empty()) else {
            return;
        };
        if self.pause.is_some_and(|(since, span)| now.at_least_since(since) < span) {
            return;
        }
        let mut open: Vec<(usize, SlotChange)> = (0..self.slots.len())
            .filter_map(|slot| self.change_at(now, slot).map(|change| (slot, change)))
            .collect();
        // All nodes see about the same list, so each starts at its own place in it.
        let most = open.len();
        let start = most * place.before / place.all_workers.max(1);
        open.rotate_left(start.min(most));
        self.put_last_attempts_first(&mut open);
        let alone = place.members.len() <= 1;
        let share = if alone || self.shared_out {
            open.len()
        } else {
            (open.len() * place.workers).div_ceil(place.all_workers.max(1))
        };
        let room = self.pace.saturating_sub(changes.len());
        let most = free.min(share).min(room);
        let left = open.len().saturating_sub(most);
        let taken = open.len() - left;
        changes.extend(open.into_iter().take(most));
        if !alone && taken > 0 {
            self.shared_out = true;
            let span = SHARE_PAUSE.as_micros() as u64;
            let pause = SHARE_PAUSE + Duration::from_micros(self.draw(span));
            self.pause = Some((now, pause));
        }
        // Once these are done, there may be more work than the last look showed.
        self.stale |= taken > 0;
    }

    /// Puts last attempts first, and drops those for which no worker is idle.
    fn put_last_attempts_first(&self, open: &mut Vec<(usize, SlotChange)>) {
        let mut idle = self.idle_workers();
        open.retain(|open| {
            let is_last = self.is_last_attempt(open);
            let kept = !is_last || idle > 0;
            idle -= usize::from(kept && is_last);
            kept
        });
        open.sort_by_key(|open| !self.is_last_attempt(open));
    }

    /// The number of workers without a task that they work on or could begin.
    fn idle_workers(&self) -> usize {
        let unended = self.mine.values().filter(|mine| mine.ending.is_none()).count();
        // These claims may have been granted.
        let slots = self.slots.iter().enumerate().filter(|(_, known)| known.flying || known.doubt);
        let open = slots.filter(|(slot, _)| !self.mine.contains_key(slot)).count();
        self.workers.saturating_sub(unended + open)
    }

    fn is_last_attempt(&self, (slot, change): &(usize, SlotChange)) -> bool {
        let view = self.slots[*slot].view.as_ref();
        matches!(change, SlotChange::Claim) && view.is_some_and(|view| view.slot.is_last_attempt())
    }

    /// The write that this node could make to a slot that is not its own.
    fn change_at(&self, now: Moment, slot: usize) -> Option<SlotChange> {
        let known = &self.slots[slot];
        if known.flying || known.doubt || self.mine.contains_key(&slot) {
            return None;
        }
        let view = known.view.as_ref()?;
        let content = &view.slot;
        let early = ClusterMutant::ClaimEarly.is_on();
        let ttl = if early { content.ttl / 2 } else { content.ttl };
        let lapsed = view.gone || now.at_least_since(view.since) >= ttl;
        let error = match &content.progress {
            Progress::Vacant | Progress::Done { .. } | Progress::Dead { .. } => return None,
            Progress::Outstanding { avoid, error } => {
                if avoid.as_ref() == Some(&self.settings.member) && self.others() && !lapsed {
                    return None;
                }
                error.clone().unwrap_or_else(|| "its attempts are used up".into())
            }
            Progress::Held(_) if !lapsed => return None,
            Progress::Held(holding) => {
                format!("its node {} vanished in attempt {}", holding.member, content.attempt)
            }
        };
        if content.cancel {
            return Some(SlotChange::Bury("cancelled".into()));
        }
        if content.is_exhausted() {
            return Some(SlotChange::Bury(error));
        }
        let place = self.place.as_ref()?;
        let addressed = content.task.to.as_ref();
        let for_another =
            addressed.is_some_and(|to| *to != self.settings.member && place.members.contains(to));
        let able = self.settings.kinds.contains(&content.task.kind);
        (able && !for_another).then_some(SlotChange::Claim)
    }

    fn others(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.members.len() > 1)
    }

    fn body(
        &mut self,
        slot: usize,
        change: &SlotChange,
        wall: u64,
    ) -> Option<(Expect, Slot, bool)> {
        let op = self.op();
        let view = self.slots[slot].view.as_ref()?;
        let (expect, before) = (Expect::At(view.version.clone()), view.slot.clone());
        let timing = &self.settings.timing;
        let ttl = timing.ttl();
        let me = &self.settings.member;
        let held = |status: Option<String>| {
            let expire = wall.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
            let presence = self.settings.presence.clone();
            Progress::Held(Arc::new(Holding { member: me.clone(), expire, presence, status }))
        };
        let mut lasting = true;
        let body = match change {
            SlotChange::Claim => Slot {
                token: before.token + 1,
                attempt: before.attempt + 1,
                ttl,
                ..before.following(op, held(None))
            },
            SlotChange::Bury(error) => {
                before.following(op, Progress::Dead { error: error.clone() })
            }
            SlotChange::Confirm => before.following(op, before.progress.clone()),
            SlotChange::Renew => {
                lasting = false;
                let status = self.mine.get(&slot).and_then(|mine| mine.status.clone());
                Slot { ttl, ..before.following(op, held(status)) }
            }
            SlotChange::Finish => {
                let ending = self.mine.get(&slot)?.ending.as_ref()?;
                self.ended(&before, op, ending)
            }
        };
        Some((expect, body, lasting))
    }

    fn ended(&self, before: &Slot, op: Op, ending: &Ending) -> Slot {
        match ending {
            Ending::Done(result) => before.following(op, Progress::Done { result: result.clone() }),
            Ending::Cancelled => Slot {
                cancel: true,
                ..before.following(op, Progress::Dead { error: "cancelled".into() })
            },
            Ending::Failed(error) if before.is_exhausted() || before.cancel => {
                before.following(op, Progress::Dead { error: error.clone() })
            }
            Ending::Failed(error) => {
                let (avoid, error) = (Some(self.settings.member.clone()), Some(error.clone()));
                before.following(op, Progress::Outstanding { avoid, error })
            }
            Ending::Returned => {
                let outstanding = Progress::Outstanding { avoid: None, error: None };
                let attempt = before.attempt.saturating_sub(1);
                Slot { attempt, ..before.following(op, outstanding) }
            }
        }
    }

    pub(super) fn start_look(&mut self, now: Moment) {
        if self.look.is_some() {
            return;
        }
        if let Some((since, span)) = self.pause {
            if now.at_least_since(since) < span {
                return;
            }
            self.pause = None;
        }
        let idle = self.free_hands() > 0;
        let polled = self.last_look.is_none_or(|last| {
            now.at_least_since(last) >= self.settings.timing.poll(self.notified)
        });
        let nothing_known = || {
            let mut slots = 0..self.slots.len();
            slots.all(|slot| self.change_at(now, slot).is_none())
        };
        let told_enough = self.last_look.is_some_and(|last| self.is_fed_since(now, last));
        let curious = self.stale && self.batch.is_none() && !told_enough;
        let wanted = self.doubt || idle && (polled || curious && nothing_known());
        if idle && !self.stale && self.finished && self.mine.is_empty() && nothing_known() {
            self.finished = false;
            self.outputs.push(Output::RanDry);
        }
        if wanted {
            let ask = self.ask();
            self.look = Some(Look { ask, sent: now, learnt: self.learnt });
            self.outputs.push(Output::Look(ask));
        }
    }
}
