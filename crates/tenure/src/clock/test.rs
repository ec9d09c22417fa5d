//! A clock that moves only when the test advances it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Clock, Moment, Timer};

/// A clock for programs under test: it stands still until it is advanced.
///
/// Clones share one time. Candidates wait a moment before they claim a free election, so that a
/// crowd does not claim at once. On a clock that stands still, this moment never passes: a campaign
/// that is awaited alone never resolves. Advance the clock while you wait:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tenure::{Backend, Election, TestClock};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let clock = TestClock::default();
/// let backend = Backend::memory().with_clock(Arc::new(clock.clone()));
/// let election = Election::open(&backend, "billing/primary").await?;
///
/// let mut candidacy = election.stand("host-a".try_into()?)?;
/// let leadership = loop {
///     tokio::select! {
///         biased;
///         leadership = candidacy.elected() => break leadership?,
///         // Let the other tasks run, then let a little time pass.
///         () = tokio::task::yield_now() => clock.advance(Duration::from_millis(10)),
///     }
/// };
///
/// // The store answers and the driver renews, but in a leap over the whole window it could not.
/// clock.advance(Duration::from_secs(15));
/// assert!(!leadership.mandate().is_leader());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TestClock {
    now: Arc<watch::Sender<Moment>>,
    wall: Arc<Mutex<u64>>,
}

impl Default for TestClock {
    fn default() -> TestClock {
        // Not zero, so that a test can also look into the past.
        let start =
            Moment { boot: Duration::from_secs(1000), monotonic: Duration::from_secs(1000) };
        TestClock {
            now: Arc::new(watch::Sender::new(start)),
            wall: Arc::new(Mutex::new(1_515_527_529_288)),
        }
    }
}

impl TestClock {
    /// Lets time pass on every clock.
    pub fn advance(&self, span: Duration) {
        *self.lock_wall() += u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.now.send_modify(|now| *now = *now + span);
    }

    /// Lets the machine sleep: only the clock that counts sleep goes on.
    pub fn suspend(&self, span: Duration) {
        *self.lock_wall() += u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.now.send_modify(|now| now.boot += span);
    }

    /// Sets the wall clock, which must change nothing.
    pub fn set_wall(&self, millis: u64) {
        *self.lock_wall() = millis;
    }

    fn lock_wall(&self) -> std::sync::MutexGuard<'_, u64> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        *self.now.borrow()
    }

    fn wall(&self) -> u64 {
        *self.lock_wall()
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(TestTimer { now: self.now.subscribe() })
    }
}

struct TestTimer {
    now: watch::Receiver<Moment>,
}

#[async_trait]
impl Timer for TestTimer {
    async fn until(&mut self, moment: Moment) {
        // An error means that the clock is gone; then there is nothing left to wait for.
        let _ = self.now.wait_for(|now| now.boot >= moment.boot).await;
    }
}
