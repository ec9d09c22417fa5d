//! How long a tree may live: the end of the lease, as far as its guardian knows it.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Loss, Mandate};

use super::boot::BootTime;
use super::supervisor::Guardian;

/// How late a guardian may carry out a kill before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(1);
/// The least gain that counts as a renewal.
const LEAST_GAIN: Duration = Duration::from_millis(1);

/// The guardian's knowledge of a lease.
#[derive(Debug)]
pub(crate) struct LeaseDeadline {
    mandate: Mandate,
    grace: Duration,
    /// Until when the guardian knows the lease to be proven.
    until: BootTime,
    /// When the guardian must have killed the tree, once it was ordered to.
    dead_by: Option<BootTime>,
}

impl LeaseDeadline {
    /// A deadline for this mandate, with `grace` to stop before its end.
    pub(crate) fn new(mandate: Mandate, grace: Duration) -> LeaseDeadline {
        let until = proven(&mandate);
        LeaseDeadline { mandate, grace, until, dead_by: None }
    }

    /// Until when the guardian knows the lease to be proven.
    pub(crate) fn until(&self) -> BootTime {
        self.until
    }

    /// When the supervisor must kill the tree itself.
    pub(crate) fn latest(&self) -> BootTime {
        let lease = self.until.before(self.grace / 8);
        self.dead_by.map_or(lease, |dead_by| dead_by.min(lease))
    }

    /// Tells the guardian of a renewal. Returns true if there was one.
    ///
    /// # Errors
    /// When the guardian is dead or hangs.
    pub(crate) fn pass_on(&mut self, guardian: &Guardian) -> io::Result<bool> {
        let until = proven(&self.mandate);
        if until <= self.until.after(LEAST_GAIN) {
            return Ok(false);
        }
        self.until = until;
        guardian.renewed(until).map(|()| true)
    }

    /// When the tree must be dead after this loss.
    pub(crate) fn killed_after(&self, loss: &Loss) -> BootTime {
        // The lease still lasts for the stop budget. Ending an election lets the lease run out,
        // too.
        if matches!(loss, Loss::Expired | Loss::Ended) {
            self.until.before(self.grace / 4).min(BootTime::now().after(self.grace))
        } else {
            // Another leader may work already.
            BootTime::PAST
        }
    }

    /// Orders the guardian to tell the tree to stop, and to kill it at `kill_at`.
    ///
    /// # Errors
    /// When the guardian is dead or hangs.
    pub(crate) fn stop(
        &mut self,
        guardian: &Guardian,
        signal: Signal,
        kill_at: BootTime,
    ) -> io::Result<()> {
        let dead_by = kill_at.max(BootTime::now()).after(PATIENCE);
        self.dead_by = Some(self.dead_by.map_or(dead_by, |earlier| earlier.min(dead_by)));
        guardian.stop(signal, kill_at)
    }
}

/// Until when the lease is proven.
///
/// The clock is read first: a pause in between must not add to the time.
fn proven(mandate: &Mandate) -> BootTime {
    let now = BootTime::now();
    now.after(mandate.remaining())
}
