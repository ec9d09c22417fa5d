//! Leaving: free the record, and make sure that no write of ours can still arrive.

use std::time::Duration;

use super::{Machine, Output, Purpose, Stage, left};
use crate::clock::Moment;
use crate::lease::mutant::Mutant;
use crate::lease::record::{Record, State};
use crate::protocol::{Farewell, Outcome};
use crate::store::{Fault, Reads};
use crate::timing::{RATE_DENOMINATOR, RATE_NUMERATOR};

impl Machine {
    pub(super) fn leave(&mut self, now: Moment, out: &mut Vec<Output>) {
        let Stage::Leaving { farewell, had_lease, .. } = self.stage.clone() else { return };
        if self.ops == 0 {
            // Nothing was ever written: there is nothing to take back.
            return self.over(Outcome::Withdrawn, out);
        }
        if self.stale || self.view.is_none() {
            return self.send_read(now, out);
        }
        let found = self.view.as_ref().and_then(|view| view.found.clone());
        let Some((version, record)) = found else {
            return self.leave_absent(now, out);
        };
        if record.is_held_by(&self.me.id) {
            if let Stage::Leaving { tried, .. } = &mut self.stage {
                *tried = true;
            }
            let op = self.next_op();
            let state = match farewell {
                Farewell::Free => State::Free { clean: had_lease },
                Farewell::End => State::Ended { kept: None, deleted: false },
            };
            let freed = Record { state, expire: 0, ..record.following(op) };
            return self.send_write(now, Some(version), freed, Purpose::Release, out);
        }
        let doubtful = match self.reads {
            // A claim of ours may still be on its way to this very version.
            Reads::Linearizable => {
                self.sent.iter().any(|sent| sent.base.as_ref() == Some(&version))
            }
            // A weak read of another holder proves nothing. The store may really hold our own
            // record, or a write of ours that was on its way.
            Reads::Weak => had_lease || !self.sent.is_empty(),
        };
        if doubtful && !self.is(Mutant::LeavesUnfenced) {
            return self.rewrite(now, version, &record, Purpose::Fence, out);
        }
        let outcome = self.leaving_empty_handed();
        self.over(outcome, out);
    }

    /// Leaves an election without a record.
    ///
    /// A record that we created is free, so a late creation need not be stopped.
    fn leave_absent(&mut self, now: Moment, out: &mut Vec<Output>) {
        let had_lease = matches!(self.stage, Stage::Leaving { had_lease: true, .. });
        let doubtful = self.reads == Reads::Weak && (had_lease || !self.sent.is_empty());
        if doubtful && !self.is(Mutant::WeakAbsenceBelieved) {
            // This replica lags. The store may really hold our own record, or a write of ours.
            return self.fail(now, Fault::Unavailable, out);
        }
        let outcome = self.leaving_empty_handed();
        self.over(outcome, out);
    }

    /// The outcome when the record is proven not to be ours.
    ///
    /// No write of ours can still arrive.
    pub(super) fn leaving_empty_handed(&self) -> Outcome {
        match self.stage {
            // We asked to free the record, and it is not ours any more: the release succeeded.
            Stage::Leaving { had_lease: true, tried: true, .. } => Outcome::Released,
            Stage::Leaving { led: true, .. } => Outcome::AlreadyLost,
            Stage::Leaving { led: false, .. } | Stage::Standing | Stage::Over => Outcome::Withdrawn,
        }
    }

    /// How long until a successor may lead when the store never answered (L2).
    pub(super) fn frees_within(&self, now: Moment, since: Moment) -> Duration {
        let found = self.view.as_ref().and_then(|view| view.found.as_ref());
        let (ttl, delay) = found
            .map_or((self.timing.ttl(), Duration::ZERO), |(_, record)| (record.ttl, record.delay));
        let waits = (ttl + delay + self.timing.jitter(ttl)) * RATE_NUMERATOR / RATE_DENOMINATOR;
        left(waits + self.timing.poll(self.notified), now.at_least_since(since))
    }

    pub(super) fn tell_whom_we_follow(&mut self, out: &mut Vec<Output>) {
        let held = self.view.as_ref().and_then(|view| view.found.as_ref());
        let other =
            held.and_then(|(_, record)| record.holder()).filter(|holder| holder.id != self.me.id);
        let same = match (other, &self.following) {
            (Some(now), Some(before)) => now.id == before.id && now.value == before.value,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            self.following = other.cloned();
            out.push(Output::Following(self.following.clone()));
        }
    }
}
