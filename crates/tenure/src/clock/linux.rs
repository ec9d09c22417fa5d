//! The clocks of Linux: `BOOTTIME`, `MONOTONIC`, and a timer on the former.

use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use super::{Clock, Moment, Timer};

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock {
    _private: (),
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment { boot: read(ClockId::Boottime), monotonic: read(ClockId::Monotonic) }
    }

    fn wall(&self) -> u64 {
        super::wall_clock()
    }

    fn timer(&self) -> Box<dyn Timer> {
        match BootTimer::new() {
            Ok(timer) => Box::new(timer),
            Err(error) => {
                tracing::warn!(%error, "no timer on the boot clock; ticking instead");
                Box::new(TickTimer)
            }
        }
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let nanos = u32::try_from(time.tv_nsec).expect("the kernel keeps nanoseconds below a second");
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// A timer that fires when the machine wakes up.
///
/// tokio's timers stand still while the machine sleeps.
struct BootTimer {
    descriptor: AsyncFd<OwnedFd>,
}

impl BootTimer {
    fn new() -> std::io::Result<BootTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(BootTimer { descriptor: crate::descriptor::watch(descriptor)? })
    }

    fn arm(&self, moment: Moment) -> std::io::Result<()> {
        // All zero would disarm it, so a moment in the past becomes the first nanosecond.
        let at = moment.boot.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: at.subsec_nanos().into(),
            },
        };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

#[async_trait]
impl Timer for BootTimer {
    async fn until(&mut self, moment: Moment) {
        if let Err(error) = self.arm(moment) {
            tracing::warn!(%error, "arming the timer");
            return TickTimer.until(moment).await;
        }
        loop {
            let Ok(mut ready) = self.descriptor.readable().await else {
                return TickTimer.until(moment).await;
            };
            let mut expirations = [0u8; 8];
            let read =
                ready.try_io(|inner| Ok(rustix::io::read(inner.get_ref(), &mut expirations)?));
            match read {
                // Re-arming clears the expiration of an earlier deadline; then there is nothing to
                // read yet.
                Err(_would_block) => {}
                Ok(_) => return,
            }
        }
    }
}

/// The fallback where the kernel has no such timer.
///
/// It sleeps for short times, so that it soon notices when the machine wakes up.
struct TickTimer;

#[async_trait]
impl Timer for TickTimer {
    async fn until(&mut self, moment: Moment) {
        let left = moment.boot.saturating_sub(read(ClockId::Boottime));
        // At the shortest ttl a quarter of the stop budget is 7 ms; waking early is always allowed.
        tokio::time::sleep(left.min(Duration::from_millis(7))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_timer_fires_at_its_moment_and_not_before() {
        let clock = SystemClock::default();
        let mut timer = clock.timer();
        let start = clock.now();
        timer.until(start + Duration::from_millis(20)).await;
        let first = clock.now().at_most_since(start);
        assert!(first >= Duration::from_millis(20), "{first:?}");
        // A moment that has passed resolves at once, and a second use is a timer of its own.
        timer.until(start).await;
        timer.until(start + Duration::from_millis(40)).await;
        let second = clock.now().at_most_since(start);
        assert!(second >= Duration::from_millis(40), "{second:?}");
    }
}
