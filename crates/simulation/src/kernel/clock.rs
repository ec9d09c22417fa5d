//! A simulated machine's clocks.
//!
//! They have rates of their own, suspends that only one of them sees, and a wrong wall clock.

use std::time::Duration;

use tenure::Moment;
use tenure::protocol::Lease;

use super::rng::Rng;

/// Real time in nanoseconds since the run began. No simulated process can read this clock.
pub type Instant = u64;

/// Rates are counted in millionths of real time.
pub const REAL_RATE: u64 = 1_000_000;

/// How far the clocks of a world may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rates {
    /// Within the tolerance, as the protocols ask.
    Tolerated,
    /// Beyond it: nothing is promised, and promises must be seen to break.
    Beyond,
}

impl Rates {
    /// The rate of the fastest clock. The slowest runs at [`REAL_RATE`].
    #[must_use]
    pub fn fastest(self) -> u64 {
        match self {
            Rates::Tolerated => REAL_RATE * 5 / 4,
            Rates::Beyond => REAL_RATE * 8 / 5,
        }
    }
}

/// A lease in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its fencing token.
    pub token: u64,
    /// The first moment at which its holder no longer believes that it leads.
    pub until: Instant,
    /// The stop budget of the holder's clock, in real time.
    pub grace: u64,
}

/// The clocks of one machine.
#[derive(Clone, Debug)]
pub struct LocalClock {
    rate: u64,
    /// Machines boot at different times.
    base: u64,
    /// The time that the clock without sleep has missed in suspends so far.
    missed: u64,
    suspended: Option<Instant>,
    wall: u64,
}

impl LocalClock {
    /// A clock of this rate. Its machine booted at a random time.
    #[must_use]
    pub fn draw(rng: &mut Rng, rate: u64) -> LocalClock {
        LocalClock { rate, base: rng.below(1 << 40), missed: 0, suspended: None, wall: 0 }
    }

    /// The rate, in millionths of real time.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// The moment that a process reads from this clock.
    #[must_use]
    pub fn now(&self, real: Instant) -> Moment {
        let boot = self.local(real);
        let missed = self.missed + self.suspended.map_or(0, |since| boot - self.local(since));
        Moment { boot: Duration::from_nanos(boot), monotonic: Duration::from_nanos(boot - missed) }
    }

    /// The time of the wall clock, in milliseconds.
    #[must_use]
    pub fn wall(&self, real: Instant) -> u64 {
        self.wall.wrapping_add(self.local(real) / 1_000_000) % (1 << 50)
    }

    /// Lets the wall clock jump.
    pub fn set_wall(&mut self, wall: u64) {
        self.wall = wall;
    }

    /// Suspends the machine, unless it is suspended already.
    pub fn suspend(&mut self, real: Instant) {
        self.suspended.get_or_insert(real);
    }

    /// Ends a suspend, if there is one.
    pub fn wake_up(&mut self, real: Instant) {
        if let Some(since) = self.suspended.take() {
            self.missed += self.local(real) - self.local(since);
        }
    }

    /// The first real moment at which `span` has passed on this clock since `moment`.
    ///
    /// It uses the longer of both clocks: the one that counts sleep, because the other only misses
    /// time.
    #[must_use]
    pub fn passed(&self, moment: Moment, span: Duration) -> Instant {
        let local = nanos(moment.boot) + nanos(span) - self.base;
        (local * REAL_RATE).div_ceil(self.rate)
    }

    /// How long this much of the local clock takes in real time, rounded up.
    #[must_use]
    pub fn real(&self, span: Duration) -> u64 {
        (nanos(span) * REAL_RATE).div_ceil(self.rate)
    }

    /// A lease on this clock, in real time.
    #[must_use]
    pub fn term(&self, lease: Lease) -> Term {
        Term {
            token: lease.token,
            until: self.passed(lease.from, lease.window),
            grace: self.real(lease.grace),
        }
    }

    fn local(&self, real: Instant) -> u64 {
        // Runs last minutes: nothing here comes near the end of 64 bits, and overflow is checked.
        self.base + real * self.rate / REAL_RATE
    }
}

/// A span in nanoseconds.
///
/// # Panics
/// When it is longer than centuries.
#[must_use]
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a simulation lasts minutes")
}
