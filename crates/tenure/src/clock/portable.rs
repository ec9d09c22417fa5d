//! The clock for systems with only one usable clock: the standard library's.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{Clock, Moment, Timer};

/// The clock of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock { origin: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let elapsed = self.origin.elapsed();
        Moment { boot: elapsed, monotonic: elapsed }
    }

    fn wall(&self) -> u64 {
        super::wall_clock()
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(TickTimer { clock: *self })
    }
}

struct TickTimer {
    clock: SystemClock,
}

#[async_trait]
impl Timer for TickTimer {
    async fn until(&mut self, moment: Moment) {
        let left = moment.boot.saturating_sub(self.clock.now().boot);
        tokio::time::sleep(left.min(Duration::from_millis(7))).await;
    }
}
