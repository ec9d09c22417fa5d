//! Handles looks at all slots, and writes that the leader in this process reports.

use std::sync::Arc;

use tenure::Moment;
use tenure::protocol::Ask;
use tenure::store::Fault;

use super::{AcknowledgedWrite, Claim, Claims, Known, Output, Seen, Verdict, View};
use crate::documents::CLAIMS_A_TASK;
use crate::mutant::ClusterMutant;

impl Claims {
    pub(super) fn looked(
        &mut self,
        now: Moment,
        ask: Ask,
        answer: Result<Vec<Option<Seen>>, Fault>,
    ) {
        let Some(look) = self.look.take_if(|look| look.ask == ask) else { return };
        self.last_look = Some(now);
        let Ok(seen) = answer else {
            self.pause = Some((now, self.settings.timing.request() / 2));
            return;
        };
        self.stale = false;
        if self.slots.len() < seen.len() {
            self.slots.resize_with(seen.len(), Known::default);
        }
        for (slot, seen) in seen.into_iter().enumerate() {
            let known = &self.slots[slot];
            let older = known.view.as_ref().is_some_and(|view| view.learnt > look.learnt);
            // A look that ran at the same time as a write may show the slot before or after it.
            if !known.flying && !older {
                self.saw(now, slot, seen);
            }
        }
        // A look that was sent before the doubt arose does not remove it.
        self.doubt = self.slots.iter().any(|known| known.doubt);
    }

    /// Takes in facts from the leader in this process. They may be outdated by now; then a claim
    /// conflicts, and a look follows.
    pub(super) fn told(&mut self, now: Moment, acknowledged: Vec<AcknowledgedWrite>) {
        for AcknowledgedWrite { slot, version, content } in acknowledged {
            if self.slots.len() <= slot {
                self.slots.resize_with(slot + 1, Known::default);
            }
            // Only a look, which reads the node list with the slots, shows whether the other member
            // that the task is for is there.
            if content.task.to.as_ref().is_some_and(|to| *to != self.settings.member) {
                self.stale = true;
                continue;
            }
            let known = &mut self.slots[slot];
            // Our own writes and looks know better about these slots.
            if known.flying || known.doubt || self.mine.contains_key(&slot) {
                continue;
            }
            let write_seen = AcknowledgedWrite { slot, version, content };
            if known.view.as_ref().is_none_or(|view| write_seen.is_newer_than(&view.slot)) {
                self.learnt += 1;
                let AcknowledgedWrite { version, content, .. } = write_seen;
                let (slot, since, learnt) = (content, now, self.learnt);
                known.view = Some(View { version, slot, since, learnt, gone: false });
                self.shared_out = false;
            }
        }
    }

    fn saw(&mut self, now: Moment, slot: usize, seen: Option<Seen>) {
        self.learnt += 1;
        let learnt = self.learnt;
        let known = &mut self.slots[slot];
        let doubted = std::mem::take(&mut known.doubt);
        let seen = match seen {
            Some(Seen { version, slot: Ok(content) }) => (version, content),
            Some(Seen { version, slot: Err(error) }) => {
                if known.garbled.as_ref() != Some(&version) {
                    known.garbled = Some(version);
                    self.outputs.push(Output::Garbled(slot, error));
                }
                return self.vanished(now, slot);
            }
            None => return self.vanished(now, slot),
        };
        let (version, content) = seen;
        match &mut known.view {
            Some(view) if view.version == version => view.learnt = learnt,
            view => {
                let slot = Arc::new(content);
                // A rule broken on purpose: renewals are not noticed.
                let kept = ClusterMutant::ClaimWithoutVersion.is_on();
                let since = view.as_ref().filter(|_| kept).map_or(now, |view| view.since);
                *view = Some(View { version, slot, since, learnt, gone: false });
            }
        }
        if doubted || self.mine.contains_key(&slot) {
            self.compare(now, slot);
        }
    }

    /// Handles a slot that is missing or invalid; a claim of ours there is lost.
    fn vanished(&mut self, now: Moment, slot: usize) {
        self.slots[slot].view = None;
        if self.is_weak() && self.mine.get(&slot).is_some_and(|mine| mine.lease.is_some()) {
            // A weak read proves nothing. Without renewals the claim runs out by itself, and until
            // then looks go on.
            self.slots[slot].doubt = true;
            self.pause = Some((now, self.settings.timing.request() / 2));
            return;
        }
        self.slots[slot].sent.clear();
        self.lose(slot);
        if self.mine.get(&slot).is_some_and(|mine| mine.ending.is_some()) {
            self.settle(slot, Verdict::Refused);
        }
    }

    /// Compares a slot just read with our claim on it.
    ///
    /// Also compares it with our writes that may have changed it.
    fn compare(&mut self, now: Moment, slot: usize) {
        let known = &self.slots[slot];
        let Some(view) = &known.view else { return };
        let content = view.slot.clone();
        let sent = known.sent.iter().find(|(op, _)| *op == content.op).map(|(_, sent)| *sent);
        let held_by_me =
            content.holding().is_some_and(|holding| holding.member == self.settings.member);
        let mine = self.mine.get(&slot).map(|mine| mine.token);
        match (mine, sent) {
            // The slot holds a write of ours. On a weak store this proves nothing until it is
            // written again.
            (_, Some(sent)) if !self.is_weak() => self.landed(now, slot, sent),
            (_, Some(_)) => {}
            // A cancellation was requested; everything else is unchanged.
            (Some(token), None) if held_by_me && content.token == token => {
                let mine = self.mine.get_mut(&slot);
                if let Some(mine) = mine.filter(|mine| content.cancel && !mine.cancelled) {
                    mine.cancelled = true;
                    self.outputs.push(Output::Cancel(Claim { slot, token }));
                }
            }
            (Some(token), None) => {
                if content.token < token && self.is_weak() {
                    // An old look: it shows the slot before our own acknowledged write.
                    return;
                }
                self.lose(slot);
                if ClusterMutant::LateCompletionWins.is_on() {
                    return;
                }
                if self.mine.get(&slot).is_some_and(|mine| mine.ending.is_some()) {
                    let verdict = match content.token {
                        // Only the holder of a token ends a task at that token.
                        at if at == token && content.holding().is_none() => Verdict::Accepted,
                        at if at / CLAIMS_A_TASK > token / CLAIMS_A_TASK => Verdict::Unknown,
                        _ => Verdict::Refused,
                    };
                    self.settle(slot, verdict);
                }
            }
            (None, None) => {}
        }
    }

    /// Reports how a claim ended, and forgets the claim.
    pub(super) fn settle(&mut self, slot: usize, verdict: Verdict) {
        if let Some(mine) = self.mine.remove(&slot) {
            self.finished = true;
            self.outputs.push(Output::Settled(Claim { slot, token: mine.token }, verdict));
        }
    }
}
