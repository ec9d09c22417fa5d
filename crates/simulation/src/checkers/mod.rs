//! The checkers, one promise a file. Each watches a [history](crate::history) for a breach.

mod ended;
mod fencing;
mod lock_delay;
mod one_leader;
mod outcome;
mod stop_first;

use std::time::Duration;

use crate::history::{Event, Who};
use crate::kernel::{Breach, Instant};

pub use ended::EndedIsTerminal;
pub use fencing::Fencing;
pub use lock_delay::LockDelay;
pub use one_leader::OneLeader;
pub use outcome::TruthfulOutcome;
pub use stop_first::StopFirst;

/// Watches one promise.
pub trait Check {
    /// Takes the next event of a history.
    ///
    /// # Errors
    /// The breach that this event shows.
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach>;
}

/// All the safety promises of an election, watched together.
#[derive(Debug, Default)]
pub struct Promises {
    one_leader: OneLeader,
    fencing: Fencing,
    stop_first: StopFirst,
    /// The promises about a record, which a queue does not have.
    record: Option<(EndedIsTerminal, TruthfulOutcome)>,
    /// The lock delay.
    pub lock_delay: LockDelay,
}

impl Promises {
    /// The promises of an election on leases.
    #[must_use]
    pub fn of_leases() -> Promises {
        Promises { record: Some(Default::default()), ..Promises::default() }
    }

    /// The promises of an election on a queue, with this lock delay.
    #[must_use]
    pub fn of_a_queue(delay: Duration) -> Promises {
        Promises { lock_delay: LockDelay::of_a_queue(delay), ..Promises::default() }
    }

    /// The candidate that leads at this moment of real time.
    #[must_use]
    pub fn leader(&self, at: Instant) -> Option<Who> {
        self.one_leader.leader(at)
    }
}

impl Check for Promises {
    fn observe(&mut self, event: &Event<'_>) -> Result<(), Breach> {
        self.one_leader.observe(event)?;
        self.fencing.observe(event)?;
        self.stop_first.observe(event)?;
        if let Some((ended, outcome)) = &mut self.record {
            ended.observe(event)?;
            outcome.observe(event)?;
        }
        self.lock_delay.observe(event)
    }
}
