//! A candidate's clocks.
//!
//! They have rates of their own, suspends that only one of them sees, and a wrong wall clock.

use std::time::Duration;

use tenure::Moment;

use crate::history::Instant;

/// Rates are counted in millionths of real time.
pub(crate) const REAL_RATE: u64 = 1_000_000;

/// The clocks of one machine.
#[derive(Clone, Debug)]
pub(crate) struct LocalClock {
    rate: u64,
    /// Machines boot at different times.
    base: u64,
    /// The time that the clock without sleep has missed in suspends so far.
    missed: u64,
    suspended: Option<Instant>,
    wall: u64,
}

impl LocalClock {
    pub(crate) fn new(rate: u64, base: u64, wall: u64) -> LocalClock {
        LocalClock { rate, base, missed: 0, suspended: None, wall }
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    pub(crate) fn now(&self, real: Instant) -> Moment {
        let boot = self.local(real);
        let missed = self.missed + self.suspended.map_or(0, |since| boot - self.local(since));
        Moment { boot: Duration::from_nanos(boot), monotonic: Duration::from_nanos(boot - missed) }
    }

    pub(crate) fn wall(&self, real: Instant) -> u64 {
        self.wall.wrapping_add(self.local(real) / 1_000_000) % (1 << 50)
    }

    pub(crate) fn set_wall(&mut self, wall: u64) {
        self.wall = wall;
    }

    pub(crate) fn suspend(&mut self, real: Instant) {
        self.suspended.get_or_insert(real);
    }

    pub(crate) fn wake_up(&mut self, real: Instant) {
        if let Some(since) = self.suspended.take() {
            self.missed += self.local(real) - self.local(since);
        }
    }

    /// The first real moment at which `span` has passed on this clock since `moment`.
    ///
    /// It uses the longer of both clocks: the one that counts sleep, because the other only misses
    /// time.
    pub(crate) fn passed(&self, moment: Moment, span: Duration) -> Instant {
        let local = nanos(moment.boot) + nanos(span) - self.base;
        (local * REAL_RATE).div_ceil(self.rate)
    }

    /// How long this much of the local clock takes in real time, rounded up.
    pub(crate) fn real(&self, span: Duration) -> u64 {
        (nanos(span) * REAL_RATE).div_ceil(self.rate)
    }

    fn local(&self, real: Instant) -> u64 {
        // Runs last minutes: nothing here comes near the end of 64 bits, and overflow is checked.
        self.base + real * self.rate / REAL_RATE
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a simulation lasts minutes")
}
