//! Pauses before an input that ended is started again.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tenure::Moment;

use super::InputError;
use crate::client::ClusterClient;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// Pauses that grow while runs keep ending early, and start over after a long run.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(super) fn new() -> Pauses {
        Pauses { next: FIRST }
    }

    /// The pause after a run of this length.
    fn after(&mut self, lasted: Duration, random: u64) -> Duration {
        if lasted >= LONGEST {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        // Nodes with inputs that fail for a common reason must not all come back at once.
        let half = u64::try_from(pause.as_millis() / 2).unwrap_or(u64::MAX);
        pause / 2 + Duration::from_millis(random % (half + 1))
    }

    /// Waits after a run that began at `began` and has just ended.
    pub(super) async fn wait(&mut self, client: &ClusterClient, began: Moment) {
        let lasted = client.backend.clock().now().at_least_since(began);
        let pause = self.after(lasted, client.backend.random());
        client.sleep(pause).await;
    }
}

/// Runs the input's code, and turns a panic into an error.
pub(super) async fn contained<T>(
    work: impl Future<Output = Result<T, InputError>>,
) -> Result<T, InputError> {
    // After a panic no state of the work is used: it is started anew.
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => Err(InputError(format!("it panicked: {}", words_of(&*panic)))),
    }
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute_and_begin_anew_after_a_long_run() {
        let mut pauses = Pauses::new();
        let millis: Vec<_> = (0..10).map(|_| pauses.after(Duration::ZERO, 0).as_millis()).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000]);
        assert_eq!(pauses.after(LONGEST, 0), FIRST / 2);
        assert!(pauses.after(Duration::ZERO, u64::MAX) <= FIRST * 2);
    }
}
