//! Points in time that two processes of one machine agree on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};

/// Nanoseconds since boot, sleep included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct BootTime(u64);

impl BootTime {
    /// A time that has always passed.
    pub(crate) const PAST: BootTime = BootTime(0);

    /// The current time.
    pub(crate) fn now() -> BootTime {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
        BootTime(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }

    /// The time this long after `self`.
    pub(crate) fn after(self, span: Duration) -> BootTime {
        BootTime(self.0.saturating_add(nanoseconds(span)))
    }

    /// The time this long before `self`.
    pub(crate) fn before(self, span: Duration) -> BootTime {
        BootTime(self.0.saturating_sub(nanoseconds(span)))
    }

    /// How long it is until then; zero when it has passed.
    pub(crate) fn remaining(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(BootTime::now().0))
    }

    /// Returns true if the time has passed.
    pub(crate) fn has_passed(self) -> bool {
        BootTime::now() >= self
    }
}

impl std::fmt::Display for BootTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A timer to poll on. It counts sleep: when a machine wakes up, the timer may have expired.
#[derive(Debug)]
pub(crate) struct BootTimer(OwnedFd);

impl BootTimer {
    pub(crate) fn new() -> rustix::io::Result<BootTimer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Boottime, flags).map(BootTimer)
    }

    /// Makes the timer readable at that time, or never. It is unreadable until then.
    pub(crate) fn set(&self, at: Option<BootTime>) -> rustix::io::Result<()> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = at.map_or(never, |at| Timespec {
            tv_sec: i64::try_from(at.0 / 1_000_000_000).unwrap_or(i64::MAX),
            // Zero would disarm the timer.
            tv_nsec: i64::try_from(at.0 % 1_000_000_000).unwrap_or(0).max(1),
        });
        let spec = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec).map(drop)
    }
}

impl AsFd for BootTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_ahead_remains_and_one_behind_has_passed() {
        let now = BootTime::now();
        assert!(now.has_passed());
        assert!(now.after(Duration::from_secs(60)).remaining() > Duration::from_secs(50));
        assert_eq!(now.before(Duration::from_secs(1)).remaining(), Duration::ZERO);
        assert_eq!(now.after(Duration::MAX).before(Duration::MAX), BootTime::PAST);
    }
}
