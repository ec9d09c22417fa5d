//! One refresh for all who list at the same moment.
//!
//! A search sees what the last refresh saw. A refresh writes all that is new into files of its own, and a small server
//! carries them out one after another on a single thread, also those that nobody waits for any more. Two hundred at
//! once, as when a process opens its elections, stood in a line for longer than any request may take, and kept
//! everybody else's standing behind them.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::{Instant, timeout_at};

use super::fault::{Failure, Kind};

/// The refreshes of a store: at most one at a time.
#[derive(Debug, Default)]
pub(super) struct Refreshes {
    /// The one that began last.
    last: Mutex<Option<Refresh>>,
}

/// One that has begun. It is polled by whoever waits for it, and it goes on when nobody does.
#[derive(Clone, Debug)]
struct Refresh {
    /// In the order in which they begin.
    number: u64,
    outcome: Shared<BoxFuture<'static, Result<(), Failure>>>,
}

impl Refreshes {
    /// Waits for a refresh that begins after this call: somebody else's, or this one.
    ///
    /// One that has begun is waited for, whatever becomes of those who wait; so it has to end by itself.
    pub(super) async fn next(
        &self,
        begin: impl Fn() -> BoxFuture<'static, Result<(), Failure>>,
        end: Instant,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        // The one under way may have begun before what we want to see was written.
        let wanted = self.begun() + 1;
        loop {
            let refresh = self.join(wanted, &begin);
            let outcome = timeout_at(end, refresh.outcome).await;
            let outcome = outcome.map_err(|_| Failure::late(Kind::Read, began.elapsed()))?;
            if refresh.number >= wanted {
                return outcome;
            }
        }
    }

    fn begun(&self) -> u64 {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map_or(0, |refresh| refresh.number)
    }

    /// The one that is wanted, or one that has to end before it can begin.
    fn join(
        &self,
        wanted: u64,
        begin: impl Fn() -> BoxFuture<'static, Result<(), Failure>>,
    ) -> Refresh {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match &*last {
            Some(refresh) if refresh.number >= wanted || refresh.outcome.peek().is_none() => {
                return refresh.clone();
            }
            Some(refresh) => refresh.number + 1,
            None => 1,
        };
        last.insert(Refresh { number, outcome: begin().shared() }).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::time::Duration;
    use tenure::Fault;
    use tokio::sync::oneshot;

    type Outcome = Result<(), Failure>;

    fn away() -> Failure {
        Failure::new(Fault::Unavailable, "away")
    }

    /// A server that ends refreshes as it is told to; one that is not expected is a mistake.
    struct Server {
        expected: Mutex<VecDeque<oneshot::Receiver<Outcome>>>,
    }

    impl Server {
        fn expects(count: usize) -> (Server, Vec<oneshot::Sender<Outcome>>) {
            let (tell, told) = (0..count).map(|_| oneshot::channel()).unzip();
            (Server { expected: Mutex::new(told) }, tell)
        }

        fn refresh(&self) -> BoxFuture<'static, Outcome> {
            let mut expected = self.expected.lock().expect("nobody panics with it");
            let told = expected.pop_front().expect("no more than expected");
            async { told.await.expect("it is told") }.boxed()
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test]
    async fn whoever_comes_during_a_refresh_shares_the_next_one() {
        let (server, tell) = Server::expects(2);
        let (refreshes, end) = (Refreshes::default(), soon());
        let one = || refreshes.next(|| server.refresh(), end);
        let telling = async {
            for tell in tell {
                tokio::task::yield_now().await;
                tell.send(Ok(())).expect("it is awaited");
            }
        };
        let (first, second, third, fourth, ()) = tokio::join!(one(), one(), one(), one(), telling);
        assert_eq!([first, second, third, fourth], [const { Ok(()) }; 4]);
        assert_eq!(refreshes.begun(), 2);
    }

    #[tokio::test]
    async fn a_refresh_that_is_over_serves_nobody_who_comes_later() {
        let refreshes = Refreshes::default();
        for number in 1..=3 {
            let outcome = refreshes.next(|| async { Ok(()) }.boxed(), soon()).await;
            assert_eq!((outcome, refreshes.begun()), (Ok(()), number));
        }
    }

    /// Each of them trying for itself would be the very line that sharing is to avoid.
    #[tokio::test]
    async fn a_failure_is_shared_too_and_the_next_may_succeed() {
        let (server, mut tell) = Server::expects(2);
        let (refreshes, end) = (Refreshes::default(), soon());
        let one = || refreshes.next(|| server.refresh(), end);
        let failing = async {
            tokio::task::yield_now().await;
            tell.remove(0).send(Err(away())).expect("it is awaited");
            tokio::task::yield_now().await;
            tell.remove(0).send(Ok(())).expect("it is awaited");
        };
        let (first, second, third, ()) = tokio::join!(one(), one(), one(), failing);
        assert_eq!([first, second, third], [Err(away()), Ok(()), Ok(())]);
    }

    #[tokio::test]
    async fn one_that_takes_too_long_is_not_asked_for_again_while_it_is_under_way() {
        let (server, mut tell) = Server::expects(2);
        let refreshes = Refreshes::default();
        for _ in 0..5 {
            let end = Instant::now() + Duration::from_millis(5);
            let late = refreshes.next(|| server.refresh(), end).await;
            assert_eq!(late.expect_err("it is late").fault, Fault::Unavailable);
        }
        assert_eq!(refreshes.begun(), 1);
        tell.remove(0).send(Ok(())).expect("it is under way");
        tell.remove(0).send(Ok(())).expect("it will be");
        assert_eq!(refreshes.next(|| server.refresh(), soon()).await, Ok(()));
        assert_eq!(refreshes.begun(), 2);
    }
}
