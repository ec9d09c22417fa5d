use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// A timer with the kernel's precision. Tokio's timers round up to a millisecond or two.
///
/// It costs a descriptor, which is opened at the first wait: a proxy without delays needs none.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    timer: Option<AsyncFd<OwnedFd>>,
}

impl Alarm {
    /// Waits until `due`. Does not wait if that has passed.
    ///
    /// # Cancel safety
    /// The next wait sets the timer again.
    pub(super) async fn until(&mut self, due: Instant) {
        while let Some(left) =
            due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            if self.wait(left).await.is_err() {
                // Out of descriptors: a coarse timer is better than none.
                tokio::time::sleep(left).await;
            }
        }
    }

    async fn wait(&mut self, left: Duration) -> io::Result<()> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => none.insert(open()?),
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = timer.readable().await?;
            let mut expirations = [0; 8];
            // Setting the timer clears an earlier expiration; then there is nothing to read yet.
            if let Ok(read) = ready
                .try_io(|timer| Ok(rustix::io::read(timer.get_ref(), expirations.as_mut_slice())?))
            {
                return read.map(drop);
            }
        }
    }
}

// tokio deprecated the safe constructor because a type may lie about its descriptor; an `OwnedFd`
// cannot.
#[expect(deprecated, reason = "sound for OwnedFd, see above")]
fn open() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}
