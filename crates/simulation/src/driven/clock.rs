//! A node's clock: the simulation's time at the node's own rate. A paused node receives no wake-up.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure::{Clock, Moment, Timer};
use tokio::sync::Notify;
use tokio::time::Instant;

/// A clock that runs at its own rate. Clones are the same clock.
#[derive(Clone, Debug)]
pub(super) struct SimulatedClock {
    /// Millionths of the simulation's time.
    rate: u64,
    origin: Instant,
    // No watch channel: it wakes its receivers in an order that no seed decides.
    running: Arc<(AtomicBool, Notify)>,
}

impl SimulatedClock {
    pub(super) fn new(rate: u64) -> SimulatedClock {
        SimulatedClock {
            rate,
            origin: Instant::now(),
            running: Arc::new((AtomicBool::new(true), Notify::new())),
        }
    }

    /// Stops or continues the process. A stopped process receives nothing, but its clock goes on.
    pub(super) fn set_running(&self, running: bool) {
        self.running.0.store(running, Ordering::Relaxed);
        self.running.1.notify_waiters();
    }

    /// Resolves at once in a running process. In a stopped one it waits for the continuation.
    pub(super) async fn while_running(&self) {
        loop {
            let mut continued = pin!(self.running.1.notified());
            continued.as_mut().enable();
            if self.running.0.load(Ordering::Relaxed) {
                return;
            }
            continued.await;
        }
    }

    /// How much of the simulation's time this much of the node's time takes.
    pub(super) fn real(&self, local: Duration) -> Duration {
        let nanos = local.as_nanos() * 1_000_000 / u128::from(self.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn local(&self, real: Duration) -> Duration {
        let nanos = real.as_nanos() * u128::from(self.rate) / 1_000_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Moment {
        let elapsed = self.local(self.origin.elapsed());
        Moment { boot: elapsed, monotonic: elapsed }
    }

    fn wall(&self) -> u64 {
        // Hours apart between nodes: nothing may depend on it.
        self.rate * 7919
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(SimulatedTimer { clock: self.clone() })
    }
}

struct SimulatedTimer {
    clock: SimulatedClock,
}

#[async_trait]
impl Timer for SimulatedTimer {
    async fn until(&mut self, moment: Moment) {
        let left = moment.boot.saturating_sub(self.clock.now().boot);
        tokio::time::sleep(self.clock.real(left)).await;
        self.clock.while_running().await;
    }
}
