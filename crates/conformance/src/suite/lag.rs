//! Measures how late tasks run on a busy machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// The time between two measurements.
const EVERY: Duration = Duration::from_millis(5);

/// Measures how long a ready task has to wait for its turn.
///
/// A case that compares two moments of one process decides nothing if a task waited longer than
/// their distance.
pub(super) struct Lag {
    most: Arc<AtomicU64>,
    measuring: JoinHandle<()>,
}

impl Lag {
    pub(super) fn start() -> Lag {
        let most = Arc::new(AtomicU64::new(0));
        let longest = most.clone();
        let measuring = tokio::spawn(async move {
            loop {
                let due = Instant::now() + EVERY;
                sleep_until(due).await;
                let late = u64::try_from(due.elapsed().as_millis()).unwrap_or(u64::MAX);
                longest.fetch_max(late, Ordering::Relaxed);
            }
        });
        Lag { most, measuring }
    }

    /// The longest wait so far, the present one included.
    pub(super) async fn longest(&self) -> Duration {
        sleep(EVERY * 2).await;
        Duration::from_millis(self.most.load(Ordering::Relaxed))
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.measuring.abort();
    }
}
