//! The lock delay: a successor waits D after a tenure without a clean release.
//!
//! D is stored with the predecessor's tenure. It passes on the successor's clock, because the
//! successor waits. A candidate that succeeds itself need not wait: it knows that its work ended.
//!
//! On a queue a tenure also ends cleanly if its work ends within its window, however the tenure was
//! lost: its entry stood until then, and the candidate leaves with a note that the work has ended.
//! A candidate on a queue waits before it records that its tenure begins. If it leaves without
//! having led, its successor need not wait again: the delay has passed, though on the clock of the
//! candidate that waited.

use std::time::Duration;

use super::Check;
use crate::history::{Event, What, Who};
use crate::kernel::{Breach, Instant, Promise};

/// Clocks count whole nanoseconds; two conversions may each be one off.
const ROUNDING: u64 = 4;

/// Watches the lock delay.
#[derive(Debug, Default)]
pub struct LockDelay {
    rates: Vec<(Who, u64)>,
    /// The delay in force during the tenure of the committed token.
    in_force: Vec<(u64, Duration)>,
    newest: Option<Tenure>,
    vandalised: bool,
    /// The delay of a queue, which is in no record.
    queue: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Tenure {
    who: Who,
    token: u64,
    until: Instant,
    ended: Option<Instant>,
    clean: bool,
}

impl LockDelay {
    /// Watches the lock delay of a queue.
    #[must_use]
    pub fn of_a_queue(delay: Duration) -> LockDelay {
        LockDelay { queue: Some(delay), ..LockDelay::default() }
    }

    /// Forgets the last tenure, because its election was deleted.
    pub fn forget(&mut self) {
        self.newest = None;
    }

    /// A candidate's record of its tenure's beginning has reached the queue's store.
    ///
    /// # Errors
    /// The delay had not passed.
    pub fn begun(&mut self, at: Instant, who: Who, token: u64) -> Result<(), Breach> {
        let Some(last) = self.newest.filter(|last| last.token != token) else { return Ok(()) };
        if !self.vandalised {
            self.follow(at, who, last)?;
        }
        self.newest = None;
        Ok(())
    }

    fn of(&mut self, who: Who) -> Option<&mut Tenure> {
        self.newest.as_mut().filter(|tenure| tenure.who == who && tenure.ended.is_none())
    }

    fn succeed(&self, at: Instant, who: Who) -> Result<(), Breach> {
        match self.newest.filter(|last| last.who != who) {
            Some(last) => self.follow(at, who, last),
            None => Ok(()),
        }
    }

    fn follow(&self, at: Instant, who: Who, last: Tenure) -> Result<(), Breach> {
        if last.clean {
            return Ok(());
        }
        let recorded = self.in_force.iter().rev().find(|(token, _)| *token == last.token);
        let delay = self.queue.or(recorded.map(|(_, delay)| *delay));
        let rate = self.rates.iter().rev().find(|(whose, _)| *whose == who);
        let (Some(delay), Some((_, rate))) = (delay, rate) else { return Ok(()) };
        let real = delay.as_nanos() * 1_000_000 / u128::from(*rate);
        let real = u64::try_from(real).unwrap_or(u64::MAX / 2);
        let end = last.ended.map_or(last.until, |ended| ended.min(last.until));
        if real > 0 && at + ROUNDING < end + real {
            return Err(Breach::new(
                Promise::LockDelay,
                format!(
                    "candidate {who} leads {} ns after the end of candidate {}'s unclean tenure; the \
                     lock delay is {real} ns by its clock",
                    at.saturating_sub(end),
                    last.who
                ),
            ));
        }
        Ok(())
    }
}

impl Check for LockDelay {
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach> {
        match event.what {
            What::Stood { who, rate } => self.rates.push((who, rate)),
            What::Committed { record: Some(record), .. } => {
                if self.in_force.last().is_none_or(|(token, _)| *token != record.token) {
                    self.in_force.push((record.token, record.delay));
                }
            }
            What::Elected { who, lease } => {
                if !self.vandalised {
                    self.succeed(event.at, who)?;
                }
                let (token, until) = (lease.token, lease.until);
                self.newest = Some(Tenure { who, token, until, ended: None, clean: false });
            }
            What::Extended { who, lease } => {
                if let Some(tenure) = self.of(who) {
                    tenure.until = lease.until;
                }
            }
            What::Lost { who, .. } | What::Crashed { who } => {
                if let Some(tenure) = self.of(who) {
                    tenure.ended = Some(event.at);
                }
            }
            What::GaveUp { who } => {
                if let Some(tenure) = self.of(who) {
                    tenure.ended = Some(event.at);
                    tenure.clean = true;
                }
            }
            What::WorkEnded { who } if self.queue.is_some() => {
                let newest = self.newest.as_mut().filter(|tenure| tenure.who == who);
                if let Some(tenure) = newest {
                    tenure.clean |= event.at < tenure.until + ROUNDING;
                }
            }
            What::Vandalised => self.vandalised = true,
            What::Committed { record: None, .. }
            | What::MustStop { .. }
            | What::WorkEnded { .. }
            | What::Paused { .. }
            | What::Learned { .. }
            | What::Sent { .. }
            | What::Deleted
            | What::Leaves { .. }
            | What::Over { .. } => {}
        }
        Ok(())
    }
}
