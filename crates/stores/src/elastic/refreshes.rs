//! One refresh for all who list at the same moment.
//!
//! A search sees what the last refresh saw. A refresh writes all that is new into files of its own, and a small server
//! carries them out one after another on a single thread: two hundred at once, as when a process opens its elections,
//! stood in a line for longer than any request may take, and let everybody else's stand there too.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::fault::{Failure, Kind};

/// The refreshes of a store, numbered in the order in which they begin.
#[derive(Debug)]
pub(super) struct Refreshes {
    begun: AtomicU64,
    /// The last one that is known to have succeeded.
    succeeded: AtomicU64,
    /// One at a time; the others wait for the next.
    turn: Semaphore,
}

impl Default for Refreshes {
    fn default() -> Refreshes {
        Refreshes {
            begun: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            turn: Semaphore::new(1),
        }
    }
}

impl Refreshes {
    /// Returns once a refresh that began after this call has succeeded: somebody else's, or this one.
    pub(super) async fn next(
        &self,
        refresh: impl Future<Output = Result<(), Failure>>,
        end: Instant,
    ) -> Result<(), Failure> {
        // The one under way may have begun before what we want to see was written.
        let wanted = self.begun.load(Ordering::SeqCst) + 1;
        let began = Instant::now();
        let turn = timeout_at(end, self.turn.acquire()).await;
        let turn = turn.map_err(|_| Failure::late(Kind::Read, began.elapsed()))?;
        let _turn = turn.expect("it is never closed");
        if self.succeeded.load(Ordering::SeqCst) >= wanted {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        refresh.await?;
        self.succeeded.store(number, Ordering::SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tenure::Fault;
    use tokio::sync::oneshot;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    async fn never() -> Result<(), Failure> {
        panic!("somebody else's refresh would have done");
    }

    /// A refresh that ends as it is told to.
    fn told() -> (oneshot::Sender<Result<(), Failure>>, impl Future<Output = Result<(), Failure>>) {
        let (tell, told) = oneshot::channel();
        (tell, async { told.await.expect("it is told") })
    }

    #[tokio::test]
    async fn whoever_comes_during_a_refresh_shares_the_next_one() {
        let refreshes = Refreshes::default();
        let (end_first, first) = told();
        let (end_second, second) = told();
        let order = async {
            tokio::task::yield_now().await;
            end_first.send(Ok(())).expect("it is awaited");
            tokio::task::yield_now().await;
            end_second.send(Ok(())).expect("it is awaited");
        };
        let end = soon();
        let (one, two, three, four, ()) = tokio::join!(
            refreshes.next(first, end),
            refreshes.next(second, end),
            refreshes.next(never(), end),
            refreshes.next(never(), end),
            order,
        );
        assert_eq!([one, two, three, four], [const { Ok(()) }; 4]);
        assert_eq!(refreshes.begun.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_refresh_that_is_over_serves_nobody_who_comes_later() {
        let refreshes = Refreshes::default();
        for number in 1..=3 {
            assert_eq!(refreshes.next(async { Ok(()) }, soon()).await, Ok(()));
            assert_eq!(refreshes.begun.load(Ordering::SeqCst), number);
        }
    }

    #[tokio::test]
    async fn a_refresh_that_fails_or_is_cancelled_serves_nobody() {
        let refreshes = Refreshes::default();
        let (end_first, first) = told();
        let (_never_ends, second) = told();
        let end = soon();
        let failing = async {
            tokio::task::yield_now().await;
            end_first.send(Err(Failure::new(Fault::Unavailable, "away"))).expect("awaited");
        };
        let cancelled = async {
            let _ =
                tokio::time::timeout(Duration::from_millis(20), refreshes.next(second, end)).await;
        };
        let (one, (), three, ()) = tokio::join!(
            refreshes.next(first, end),
            cancelled,
            refreshes.next(async { Ok(()) }, end),
            failing,
        );
        assert_eq!(one.expect_err("it failed").fault, Fault::Unavailable);
        assert_eq!(three, Ok(()));
        assert_eq!(refreshes.succeeded.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_turn_for_longer_than_a_request_may_take() {
        let refreshes = Refreshes::default();
        let (_never_ends, first) = told();
        let hanging =
            tokio::time::timeout(Duration::from_millis(50), refreshes.next(first, soon()));
        let end = Instant::now() + Duration::from_millis(10);
        let (_, late) = tokio::join!(hanging, refreshes.next(never(), end));
        assert_eq!(late.expect_err("it is late").fault, Fault::Unavailable);
    }
}
