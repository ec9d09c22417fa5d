//! Expiry of the lease and of requests, and the handling of inputs.

use std::sync::Arc;

use super::{Flight, Input, Machine, Output, Request, Stage};
use crate::clock::Moment;
use crate::lease::mutant::Mutant;
use crate::protocol::{Ask, Farewell, Holder, Loss, Outcome};
use crate::store::Version;

/// Expiry: takes everything that has passed by `now` into account, before any input.
impl Machine {
    pub(super) fn expire(&mut self, now: Moment, out: &mut Vec<Output>) {
        if let Some(lease) = self.lease {
            if lease.remaining(now).is_zero() {
                self.lose(now, Loss::Expired, out);
            } else if !self.stopping && lease.until_stop(now).is_zero() {
                self.stopping = true;
                out.push(Output::MustStop);
                if self.is(Mutant::ReleaseBeforeStop) {
                    self.stage = Stage::Leaving {
                        farewell: Farewell::Free,
                        since: now,
                        had_lease: true,
                        led: true,
                        tried: false,
                    };
                }
            }
        }
        let late = |flight: &Flight| now.at_most_since(flight.sent) >= self.timing.request();
        if self.flight.as_ref().is_some_and(late) {
            let _given_up = self.flight.take();
            #[cfg(feature = "mutants")]
            if self.is(Mutant::LateAnswerRevives) {
                let is_write = |flight: &Flight| matches!(flight.request, Request::Write { .. });
                self.given_up.extend(_given_up.filter(is_write));
            }
            self.stale = true;
            self.suspend(out);
        }
        if let Some((since, span)) = self.pause
            && now.at_most_since(since) >= span
        {
            self.pause = None;
        }
    }

    pub(super) fn lose(&mut self, now: Moment, loss: Loss, out: &mut Vec<Output>) {
        let Some(lease) = self.lease.take() else { return };
        self.ended_token = lease.token;
        self.lost_at = Some(now);
        self.stopping = false;
        self.suspended = false;
        // A tenure that lasted is no reason to slow down.
        let lasted =
            self.tenure_began.is_some_and(|began| now.at_least_since(began) >= self.timing.ttl());
        self.lapses = if lasted { 0 } else { self.lapses.saturating_add(1) };
        out.push(Output::Lost { token: lease.token, loss });
    }

    pub(super) fn suspend(&mut self, out: &mut Vec<Output>) {
        if self.lease.is_some() && !self.suspended {
            self.suspended = true;
            out.push(Output::Suspended);
        }
    }

    pub(super) fn over(&mut self, outcome: Outcome, out: &mut Vec<Output>) {
        self.stage = Stage::Over;
        self.flight = None;
        out.push(Output::Over(outcome));
    }
}

/// Inputs.
impl Machine {
    pub(super) fn take(&mut self, now: Moment, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Tick => {}
            Input::Batch => self.renew_now |= self.may_renew_early(now),
            Input::Hint => self.stale |= self.flight.is_none(),
            Input::Notified(notified) => self.notified = notified,
            Input::HolderGone(version) => self.note_death(now, &version),
            Input::Read(ask, answer) => {
                if let Some(flight) = self.landed(ask) {
                    self.last_read = Some(now);
                    self.take_read(now, flight.sent, answer, out);
                } else if self.is(Mutant::TerminalOnEarlyRead) {
                    self.take_read(now, now, answer, out);
                }
            }
            Input::ReadFloor(ask, answer) => {
                if self.landed(ask).is_some() {
                    self.take_floor(now, answer, out);
                }
            }
            Input::Wrote(ask, answer) => {
                match self.landed(ask).map(|flight| (flight.sent, flight.request)) {
                    Some((sent, Request::Write { record, purpose })) => {
                        self.take_write(now, sent, record, purpose, answer, out);
                    }
                    Some((_, Request::WriteFloor(laid))) => self.take_laid(now, laid, answer, out),
                    Some((_, Request::Read | Request::ReadFloor)) | None => {}
                }
            }
            Input::WorkEnded => {
                // The work was told to stop and has stopped: give up the rest of that tenure, then
                // stand again.
                if self.stopping {
                    self.lose(now, Loss::Resigned, out);
                }
                // Otherwise, while the lease lives, its work is not over.
                if self.lease.is_none() {
                    self.working = false;
                    self.stale = true;
                }
            }
            Input::Release(farewell) => self.begin_leaving(now, farewell),
            Input::Abandon => self.abandon(now, out),
            Input::Publish(value) => {
                self.me = Arc::new(Holder { value, ..(*self.me).clone() });
                self.renew_now = true;
            }
            Input::ForceLoss => self.lose(now, Loss::Forced, out),
        }
    }

    /// Takes the request that this answer belongs to, unless the request was given up.
    pub(super) fn landed(&mut self, ask: Ask) -> Option<Flight> {
        #[cfg(feature = "mutants")]
        if let Some(at) = self.given_up.iter().position(|flight| flight.ask == ask) {
            return Some(self.given_up.remove(at));
        }
        self.flight.take_if(|flight| flight.ask == ask)
    }

    pub(super) fn note_death(&mut self, now: Moment, version: &Version) {
        if let Some(view) = &mut self.view
            && view.found.as_ref().is_some_and(|(seen, _)| seen == version)
        {
            view.gone.get_or_insert(now);
        }
    }

    /// Leaves without freeing the lease.
    ///
    /// The work may still act as leader, so every other candidate must wait until the lease runs
    /// out.
    fn abandon(&mut self, now: Moment, out: &mut Vec<Output>) {
        self.lose(now, Loss::Resigned, out);
        // A renewal under way may still arrive; from then on others wait a whole ttl.
        self.over(Outcome::Unknown { frees_within: self.timing.ttl() }, out);
    }

    pub(super) fn begin_leaving(&mut self, now: Moment, farewell: Farewell) {
        if !matches!(self.stage, Stage::Standing) {
            return;
        }
        let lease = self.lease;
        let keep = match farewell {
            Farewell::Free => self.is(Mutant::LeaseKeptWhileFreeing),
            Farewell::End => self.is(Mutant::LeaseKeptWhileEnding),
        };
        if let Some(lease) = lease.filter(|_| !keep) {
            // Give up the lease before the request is sent: this candidate stops leading whether or
            // not the store applies the request.
            self.ended_token = lease.token;
            self.lease = None;
        }
        self.working = false;
        self.suspended = false;
        // A renewal or claim still under way is given up; a later read shows its outcome.
        if self.flight.take().is_some() {
            self.stale = true;
        }
        self.pause = None;
        self.stage = Stage::Leaving {
            farewell,
            since: now,
            had_lease: lease.is_some(),
            led: self.tenure_began.is_some(),
            tried: false,
        };
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::Settings;
    use super::*;
    use crate::CandidateId;
    use crate::store::{Put, Reads};
    use crate::timing::Timing;

    fn elected() -> (Machine, Moment) {
        let candidate = Holder {
            id: CandidateId::from_bits(7),
            name: "a".into(),
            value: Bytes::new(),
            presence: None,
        };
        let mut machine = Machine::new(Settings {
            candidate,
            timing: Timing::default(),
            delay: None,
            reads: Reads::Linearizable,
            floor: None,
            seed: 1,
        });
        let now = Moment::default();
        let read = machine.step(now, Input::Tick);
        let [Output::Read { ask }] = read[..] else { panic!("it reads first: {read:?}") };
        let created = machine.step(now, Input::Read(ask, Ok(None)));
        let [Output::Write { ask, .. }] = created[..] else { panic!("it creates: {created:?}") };
        let claim = machine.step(now, Input::Wrote(ask, Ok(Put::Stored(Version::new("0")))));
        let [Output::Write { ask, .. }] = claim[..] else { panic!("it claims: {claim:?}") };
        let version = Version::new("1");
        let won = machine.step(now, Input::Wrote(ask, Ok(Put::Stored(version))));
        assert!(matches!(won[..], [Output::Elected(_)]), "{won:?}");
        (machine, now)
    }

    #[test]
    fn an_abandoned_lease_is_lost_at_once_and_nothing_more_is_written() {
        let (mut machine, now) = elected();
        let frees_within = Timing::default().ttl();
        assert_eq!(
            machine.step(now, Input::Abandon),
            [
                Output::Lost { token: 1, loss: Loss::Resigned },
                Output::Over(Outcome::Unknown { frees_within }),
            ]
        );
        assert_eq!(machine.lease(now), None);
        assert_eq!(machine.wake(now), None);
        for input in [Input::Tick, Input::Hint, Input::Release(Farewell::Free)] {
            assert_eq!(machine.step(now + frees_within, input), []);
        }
    }

    #[test]
    fn a_renewal_answered_after_the_abandonment_revives_nothing() {
        let (mut machine, now) = elected();
        let later = now + Timing::default().heartbeat();
        let renewal = machine.step(later, Input::Tick);
        let [Output::Write { ask, .. }] = renewal[..] else { panic!("it renews: {renewal:?}") };
        assert_eq!(machine.step(later, Input::Abandon).len(), 2);
        let version = Version::new("2");
        assert_eq!(machine.step(later, Input::Wrote(ask, Ok(Put::Stored(version)))), []);
        assert_eq!(machine.lease(later), None);
    }
}
