//! Handles the answers to writes.

use std::time::Duration;

use tenure::Moment;
use tenure::protocol::{Ask, Lease};
use tenure::store::{Fault, Put};

use super::{Claim, Claims, Ending, MOST_WRITES, Mine, Output, Verdict, View};
use crate::documents::Slot;
use crate::mutant::ClusterMutant;

impl Claims {
    /// Gives up writes and looks that were not answered in time. The next look shows their effect.
    pub(super) fn give_up(&mut self, now: Moment) {
        let most = self.settings.timing.request();
        if let Some(batch) = self.batch.take_if(|batch| now.at_most_since(batch.sent) >= most) {
            self.pace = (self.pace / 4).max(1);
            for (slot, _) in batch.writes {
                self.doubts(slot);
            }
        }
        if self.look.take_if(|look| now.at_most_since(look.sent) >= most).is_some() {
            self.last_look = Some(now);
            self.pause = Some((now, Duration::ZERO));
        }
    }

    /// Adapts the batch size to the store. A slow batch uses up part of the windows that it grants,
    /// and may be given up, so the next ones are smaller.
    fn keep_pace(&mut self, took: Duration, writes: usize) {
        let most = self.settings.timing.request();
        if took > most / 2 {
            self.pace = (writes.min(self.pace) / 2).max(1);
        } else if took < most / 8 && writes >= self.pace / 2 {
            self.pace = (self.pace * 2).min(MOST_WRITES);
        }
    }

    fn doubts(&mut self, slot: usize) {
        self.learnt += 1;
        let known = &mut self.slots[slot];
        (known.flying, known.doubt) = (false, true);
        if let Some(view) = &mut known.view {
            // Only a look that is sent from now on shows the effect of the write.
            view.learnt = self.learnt;
        }
        self.doubt = true;
    }

    pub(super) fn wrote(&mut self, now: Moment, ask: Ask, answers: Vec<Result<Put, Fault>>) {
        let Some(batch) = self.batch.take_if(|batch| batch.ask == ask) else { return };
        self.keep_pace(now.at_most_since(batch.sent), batch.writes.len());
        let mut answers = answers.into_iter();
        for (slot, content) in batch.writes {
            match answers.next().unwrap_or(Err(Fault::Indeterminate)) {
                Ok(Put::Stored(version)) => {
                    self.learnt += 1;
                    let learnt = self.learnt;
                    let known = &mut self.slots[slot];
                    known.flying = false;
                    known.view =
                        Some(View { version, slot: content, since: now, learnt, gone: false });
                    self.landed(now, slot, batch.sent);
                }
                Ok(Put::Conflict) => {
                    let known = &mut self.slots[slot];
                    known.sent.retain(|(op, _)| *op != content.op);
                    if self.mine.contains_key(&slot) || !known.sent.is_empty() {
                        self.doubts(slot);
                    } else {
                        // Another node was faster. Nothing is known of this slot until the next
                        // look.
                        (known.flying, known.view) = (false, None);
                    }
                }
                // The write had no effect, so it may be tried again.
                Err(Fault::Unavailable | Fault::Permanent | Fault::Denied) => {
                    let known = &mut self.slots[slot];
                    known.sent.retain(|(op, _)| *op != content.op);
                    known.flying = false;
                    self.pause = Some((now, self.settings.timing.request() / 2));
                }
                Err(Fault::Indeterminate) => self.doubts(slot),
            }
        }
    }

    /// Handles a write of ours, sent at `sent`, that now stands in the slot.
    pub(super) fn landed(&mut self, now: Moment, slot: usize, sent: Moment) {
        let known = &mut self.slots[slot];
        known.sent.clear();
        let Some(content) = known.view.as_ref().map(|view| view.slot.clone()) else { return };
        if content.holding().is_none() {
            return self.settle(slot, Verdict::Accepted);
        }
        let sent = if ClusterMutant::WindowFromAnswer.is_on() { now } else { sent };
        let timing = &self.settings.timing;
        let (window, grace) = (timing.window(), timing.grace());
        let lease = Lease { token: content.token, from: sent, window, grace };
        let claim = Claim { slot, token: content.token };
        match self.mine.get_mut(&slot) {
            Some(mine) if mine.token == content.token => {
                let reported = content.holding().and_then(|holding| holding.status.as_ref());
                mine.unreported = mine.status.as_ref() != reported;
                if ClusterMutant::LateAnswerRevives.is_on() {
                    (mine.stopping, mine.lease) = (false, Some(lease));
                    self.outputs.push(Output::Extended(claim, lease));
                }
                // A claim that must stop is not revived, and a lost one never returns.
                if !mine.stopping
                    && let Some(held) = &mut mine.lease
                    && held.remaining(now) < lease.remaining(now)
                {
                    *held = lease;
                    self.outputs.push(Output::Extended(claim, lease));
                }
            }
            _ => self.begin(now, slot, claim, lease, &content),
        }
    }

    fn begin(&mut self, now: Moment, slot: usize, claim: Claim, lease: Lease, content: &Slot) {
        let late = lease.until_stop(now).is_zero();
        let mine = Mine {
            token: claim.token,
            lease: Some(lease).filter(|_| !late),
            stopping: late,
            cancelled: false,
            status: None,
            unreported: false,
            // The grant came too late to begin the task: return it to the others.
            ending: late.then_some(Ending::Returned),
        };
        self.mine.insert(slot, mine);
        if !late {
            let (task, attempt) = (content.task.clone(), content.attempt);
            self.outputs.push(Output::Begin { claim, lease, task, attempt });
        }
    }
}
