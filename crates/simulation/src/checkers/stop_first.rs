//! S3: work is told to stop a whole budget before the window ends.
//!
//! It ends before the release.

use super::Check;
use crate::history::{Event, What, Who};
use crate::kernel::{Breach, Instant, Promise, Term};

/// Clocks count whole nanoseconds; two conversions may each be one off.
const ROUNDING: u64 = 4;

/// Watches S3.
#[derive(Debug, Default)]
pub struct StopFirst {
    tenures: Vec<Tenure>,
}

#[derive(Debug)]
struct Tenure {
    who: Who,
    lease: Term,
    told: bool,
    /// The process stood still since the last renewal. Its work could not be told to stop.
    paused: bool,
    working: bool,
}

impl StopFirst {
    fn of(&mut self, who: Who) -> Option<&mut Tenure> {
        self.tenures.iter_mut().find(|tenure| tenure.who == who)
    }

    fn told(&mut self, at: Instant, who: Who) -> Result<(), Breach> {
        let broken = |how| Err(Breach::new(Promise::StopFirst, how));
        let Some(tenure) = self.of(who) else {
            return broken(format!("candidate {who} must stop, and does not lead"));
        };
        if tenure.told {
            return broken(format!("candidate {who} must stop twice in one tenure: not latched"));
        }
        tenure.told = true;
        if !tenure.paused && at + tenure.lease.grace > tenure.lease.until + ROUNDING {
            return broken(format!(
                "candidate {who} must stop {} ns before its window ends, and needs {}",
                tenure.lease.until.saturating_sub(at),
                tenure.lease.grace
            ));
        }
        Ok(())
    }

    fn gives_up(&mut self, at: Instant, who: Who) -> Result<(), Breach> {
        match self.of(who) {
            Some(tenure) if tenure.working && tenure.lease.until > at => Err(Breach::new(
                Promise::StopFirst,
                format!("candidate {who} gives its lease up while its work goes on"),
            )),
            Some(_) | None => Ok(()),
        }
    }
}

impl Check for StopFirst {
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach> {
        match event.what {
            What::Elected { who, lease } => {
                self.tenures.retain(|tenure| tenure.who != who);
                let tenure = Tenure { who, lease, told: false, paused: false, working: true };
                self.tenures.push(tenure);
            }
            What::Extended { who, lease } => {
                if let Some(tenure) = self.of(who) {
                    tenure.lease = lease;
                    tenure.paused = false;
                }
            }
            What::MustStop { who } => self.told(event.at, who)?,
            What::Lost { who, loss, .. } => {
                if let Some(tenure) = self.of(who)
                    && *loss == tenure::protocol::Loss::Expired
                    && !tenure.told
                    && !tenure.paused
                {
                    return Err(Breach::new(
                        Promise::StopFirst,
                        format!("candidate {who}'s window ended before its work was told to stop"),
                    ));
                }
            }
            What::WorkEnded { who } => {
                if let Some(tenure) = self.of(who) {
                    tenure.working = false;
                }
            }
            // Servers that were replaced know no session: a leader loses its own before its window
            // ends, and no clock could have warned its work.
            What::Vandalised => self.tenures.iter_mut().for_each(|tenure| tenure.paused = true),
            What::Paused { who } => {
                if let Some(tenure) = self.of(who) {
                    tenure.paused = true;
                }
            }
            What::Crashed { who } => self.tenures.retain(|tenure| tenure.who != who),
            What::Sent { who, gives_up: true, .. } | What::Leaves { who } => {
                self.gives_up(event.at, who)?;
            }
            What::Deleted
            | What::Stood { .. }
            | What::GaveUp { .. }
            | What::Learned { .. }
            | What::Sent { .. }
            | What::Committed { .. }
            | What::Over { .. } => {}
        }
        Ok(())
    }
}
