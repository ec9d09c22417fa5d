//! Leaving: free what is held, and see to it that nothing of ours can still arrive.

use super::*;

impl Machine {
    pub(super) fn leave(&mut self, now: Moment, out: &mut Vec<Output>) {
        let Stage::Leaving { farewell, had_lease, tried, .. } = self.stage.clone() else { return };
        if self.ops == 0 {
            // Nothing was ever written: there is nothing to take back.
            return self.over(Outcome::Withdrawn, out);
        }
        if self.stale || self.view.is_none() {
            return self.send_read(now, out);
        }
        let found = self.view.as_ref().and_then(|view| view.found.clone());
        let Some((version, record)) = found else {
            let outcome = self.leaving_empty_handed();
            return self.over(outcome, out);
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
        if tried && had_lease {
            // It was ours, we asked for it to be freed, and now it is not ours: that is what we wanted.
            return self.over(Outcome::Released, out);
        }
        if self.sent.iter().any(|sent| sent.base.as_ref() == Some(&version)) {
            // A claim of ours may still be on its way to this very version.
            return self.rewrite(now, version, &record, Purpose::Fence, out);
        }
        let outcome = self.leaving_empty_handed();
        self.over(outcome, out);
    }

    pub(super) fn leaving_empty_handed(&self) -> Outcome {
        match self.stage {
            Stage::Leaving { led: true, .. } => Outcome::AlreadyLost,
            Stage::Leaving { led: false, .. } | Stage::Standing | Stage::Over => Outcome::Withdrawn,
        }
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
