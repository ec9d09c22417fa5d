//! Heartbeats: when one is due, and when an answer is overdue.

use std::time::Duration;

use tenure::Moment;
use tenure::queue::Pace;
use tenure::queue::window::Kind;

use super::requests::{Awaited, NOWHERE, barrier};
use super::{End, State};
use crate::zookeeper::wire::Request;

impl State {
    /// Sends a heartbeat if one is due.
    pub(in super::super) fn beat(&mut self, now: Moment, out: &mut Vec<u8>) {
        if !self.until_beat(now).is_zero() {
            return;
        }
        if self.pace == Pace::Leading && self.is_eager(now) {
            self.eager = Some(now);
        }
        let request = match self.window.beat(now, self.pace) {
            Kind::Read => Request::Exists { path: NOWHERE.into(), watch: false },
            Kind::Sync => Request::Sync { path: NOWHERE.into() },
            Kind::Write => barrier(),
        };
        self.fly(now, &request, Awaited::Nobody, out);
    }

    /// How long until the connection needs attention.
    pub(in super::super) fn until_next(&self, now: Moment) -> Duration {
        self.until_overdue(now).unwrap_or(Duration::MAX).min(self.until_beat(now))
    }

    /// Fails if a request has waited too long.
    ///
    /// Call this when there is nothing to read: an answer that arrived while we were busy is not
    /// the server's fault.
    pub(in super::super) fn check_overdue(&self, now: Moment) -> Result<(), End> {
        match self.until_overdue(now) {
            Some(left) if left.is_zero() => Err(End::Overdue),
            Some(_) | None => Ok(()),
        }
    }

    /// How long until the oldest request has waited too long.
    ///
    /// The limit is Q for a session that leads, or is next. A session that only waits, or only has
    /// documents, may have sent many requests at once. Its limit is a third of its time, which
    /// leaves enough to go on with another server.
    fn until_overdue(&self, now: Moment) -> Option<Duration> {
        match self.pace {
            Pace::Leading => self.window.until_overdue(now),
            Pace::Waiting => {
                let waited = self.window.waited(now)?;
                Some((self.ttl / 3).saturating_sub(waited))
            }
        }
    }

    /// Returns true if a leader, or the next in the queue, needs a fresh proof.
    ///
    /// Two answers in a row give a proof. The next in the queue should not have to wait for it when
    /// its turn comes.
    fn is_eager(&self, now: Moment) -> bool {
        let proof = self.window.proof();
        let fresh = proof.is_some_and(|proof| now.at_most_since(proof.from) < self.ttl / 2);
        let lately = self.eager.is_some_and(|eager| now.at_most_since(eager) < self.ttl / 64);
        !fresh && !lately && self.flying.is_empty()
    }

    pub(super) fn until_beat(&self, now: Moment) -> Duration {
        let beat = self.window.until_heartbeat(now, self.pace);
        match self.pace {
            Pace::Waiting => beat,
            Pace::Leading if self.is_eager(now) => Duration::ZERO,
            // Reads of other users must not hold back a leader's writes.
            Pace::Leading => beat.min(self.window.until_write(now)),
        }
    }
}
