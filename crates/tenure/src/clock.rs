//! Time, read in one place.
//!
//! A lease is safe because its holder counts its elapsed time generously and every observer counts
//! stingily. Each side needs two clocks for that: `MONOTONIC` stands still while the machine
//! sleeps, `BOOTTIME` does not, and either may be wrong. The holder's elapsed time is the larger of
//! both, the observer's the smaller. The wall clock is only ever *shown*.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as system;
// Compiled in tests everywhere, so that it keeps compiling.
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code, unreachable_pub))]
mod portable;
#[cfg(not(target_os = "linux"))]
use portable as system;
#[cfg(feature = "test-util")]
mod test;

pub use system::SystemClock;
#[cfg(feature = "test-util")]
pub use test::TestClock;

/// A point in time on both clocks of one machine.
///
/// Moments are comparable only within one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Moment {
    /// Time since boot, sleep included.
    pub boot: Duration,
    /// Time since some point, sleep not included.
    pub monotonic: Duration,
}

impl Moment {
    /// How long ago `earlier` was, as a *holder* must count: by the longer clock.
    #[must_use]
    pub fn at_most_since(&self, earlier: Moment) -> Duration {
        let (boot, monotonic) = self.since(earlier);
        boot.max(monotonic)
    }

    /// How long ago `earlier` was, as an *observer* must count: by the shorter clock.
    #[must_use]
    pub fn at_least_since(&self, earlier: Moment) -> Duration {
        let (boot, monotonic) = self.since(earlier);
        boot.min(monotonic)
    }

    fn since(&self, earlier: Moment) -> (Duration, Duration) {
        // A clock that goes back counts as if it stood still.
        (self.boot.saturating_sub(earlier.boot), self.monotonic.saturating_sub(earlier.monotonic))
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment {
            boot: self.boot.saturating_add(span),
            monotonic: self.monotonic.saturating_add(span),
        }
    }
}

/// The source of time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Both clocks.
    fn now(&self) -> Moment;

    /// Milliseconds since 1970, for people to read. No decision uses it.
    fn wall(&self) -> u64;

    /// A timer on this clock.
    fn timer(&self) -> Box<dyn Timer>;
}

/// A timer that wakes its owner.
#[async_trait]
pub trait Timer: Send {
    /// Resolves at about this moment of the clock that counts sleep; it may be early.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn until(&mut self, moment: Moment);
}

/// The clock of this machine.
#[must_use]
pub fn system() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

fn wall_clock() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Before 1970 the clock is plainly unset, so zero is as good as any value.
    since_1970.map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_counts_the_longer_clock_and_the_observer_the_shorter() {
        let start = Moment::default();
        let slept = Moment { boot: Duration::from_secs(9), monotonic: Duration::from_secs(2) };
        assert_eq!(slept.at_most_since(start), Duration::from_secs(9));
        assert_eq!(slept.at_least_since(start), Duration::from_secs(2));
    }
}
