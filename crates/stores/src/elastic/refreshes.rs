//! Refreshes for listings. They see their handle's writes at once, and others' after a second.
//!
//! A search sees the writes before the last refresh. The servers refresh by themselves every second
//! while there are searches. A refresh on request costs them ten times as much as a write: it puts
//! all new documents into files of their own, one refresh after another on a single thread, even
//! after the client has given up. Opening an election lists it. With a refresh for each listing,
//! the refreshes of a busy server queued for longer than any request may take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::{Instant, timeout_at};

use super::fault::{Failure, Kind};
use super::index::Refreshed;

/// The refreshes of a store: at most one at a time, shared by concurrent listings.
#[derive(Debug)]
pub(super) struct Refreshes {
    index: Refreshed,
    /// The number of calls that wrote, or may have written.
    written: AtomicU64,
    /// The refresh that began last.
    last: Mutex<Option<Refresh>>,
}

/// A refresh that has begun. Waiting callers poll it, and the server goes on without them.
#[derive(Clone, Debug)]
struct Refresh {
    /// The value of `written` when it began.
    covers: u64,
    outcome: Shared<BoxFuture<'static, Result<(), Failure>>>,
}

impl Refreshes {
    pub(super) fn new(index: Refreshed) -> Refreshes {
        Refreshes { index, written: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// Records a write, or a possible write.
    pub(super) fn written(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns once a search sees all writes of this handle. Refreshes only if needed.
    ///
    /// A later caller joins a refresh that has not ended, even if earlier callers gave up. So a
    /// refresh has to end by itself.
    pub(super) async fn catch_up(
        &self,
        begin: impl Fn() -> BoxFuture<'static, Result<(), Failure>>,
        end: Instant,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        match self.index {
            Refreshed::BySelf => {}
            // Others may have written at any time, and only a refresh shows their writes.
            Refreshed::WhenAsked => self.written(),
        }
        let wanted = self.written.load(Ordering::SeqCst);
        if wanted == 0 {
            return Ok(());
        }
        loop {
            let refresh = self.join(wanted, &begin);
            let outcome = timeout_at(end, refresh.outcome).await;
            let outcome = outcome.map_err(|_| Failure::late(Kind::Read, began.elapsed()))?;
            if refresh.covers >= wanted {
                return outcome;
            }
        }
    }

    /// A refresh that covers `wanted`, or one that has to end before such a one.
    fn join(
        &self,
        wanted: u64,
        begin: impl Fn() -> BoxFuture<'static, Result<(), Failure>>,
    ) -> Refresh {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(refresh) = &*last {
            let joins = match refresh.outcome.peek() {
                None => true,
                Some(Ok(())) => refresh.covers >= wanted,
                Some(Err(_)) => false,
            };
            if joins {
                return refresh.clone();
            }
        }
        // Read before the refresh begins, so it sees at least this many writes.
        let covers = self.written.load(Ordering::SeqCst);
        last.insert(Refresh { covers, outcome: begin().shared() }).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::time::Duration;
    use tenure::store::Fault;
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    type Outcome = Result<(), Failure>;

    fn away() -> Failure {
        Failure::new(Fault::Unavailable, "away")
    }

    /// A server that ends refreshes as the test tells it, and expects no others.
    struct Server {
        expected: Mutex<VecDeque<oneshot::Receiver<Outcome>>>,
    }

    impl Server {
        fn expects(count: usize) -> (Server, VecDeque<oneshot::Sender<Outcome>>) {
            let (tell, told) = (0..count).map(|_| oneshot::channel()).unzip();
            (Server { expected: Mutex::new(told) }, tell)
        }

        fn refresh(&self) -> BoxFuture<'static, Outcome> {
            let mut expected = self.expected.lock().expect("nobody panics with it");
            let told = expected.pop_front().expect("no more than expected");
            async { told.await.expect("it is told") }.boxed()
        }

        fn left(&self) -> usize {
            self.expected.lock().expect("nobody panics with it").len()
        }
    }

    fn tell(telling: &mut VecDeque<oneshot::Sender<Outcome>>, outcome: Outcome) {
        telling.pop_front().expect("one more").send(outcome).expect("it is awaited");
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test]
    async fn whoever_has_written_nothing_new_needs_no_refresh() {
        let (server, mut telling) = Server::expects(2);
        let refreshes = Refreshes::new(Refreshed::BySelf);
        let list = || refreshes.catch_up(|| server.refresh(), soon());
        assert_eq!((list().await, server.left()), (Ok(()), 2));
        for left in [1, 0] {
            refreshes.written();
            let (listed, ()) = tokio::join!(list(), async { tell(&mut telling, Ok(())) });
            assert_eq!((listed, server.left()), (Ok(()), left));
            assert_eq!((list().await, server.left()), (Ok(()), left));
        }
    }

    #[tokio::test]
    async fn an_index_that_does_not_refresh_by_itself_is_asked_to_each_time() {
        let refreshes = Refreshes::new(Refreshed::WhenAsked);
        for _ in 0..3 {
            let (server, mut telling) = Server::expects(1);
            tell(&mut telling, Ok(()));
            assert_eq!(refreshes.catch_up(|| server.refresh(), soon()).await, Ok(()));
            assert_eq!(server.left(), 0);
        }
    }

    #[tokio::test]
    async fn a_refresh_is_shared_by_all_whose_writes_it_covers_and_the_next_by_the_others() {
        let (server, mut telling) = Server::expects(2);
        let refreshes = Refreshes::new(Refreshed::BySelf);
        refreshes.written();
        let list = || refreshes.catch_up(|| server.refresh(), soon());
        let first = async { tokio::join!(list(), list()) };
        let second = async {
            yield_now().await;
            refreshes.written();
            tokio::join!(list(), list(), list())
        };
        let telling = async {
            for _ in 0..2 {
                for _ in 0..5 {
                    yield_now().await;
                }
                tell(&mut telling, Ok(()));
            }
        };
        let (first, second, ()) = tokio::join!(first, second, telling);
        assert_eq!(first, (Ok(()), Ok(())));
        assert_eq!(second, (Ok(()), Ok(()), Ok(())));
    }

    /// If each caller tried for itself, the refreshes would queue, which sharing avoids.
    #[tokio::test]
    async fn a_failure_is_shared_too_and_the_next_may_succeed() {
        let (server, mut telling) = Server::expects(2);
        let refreshes = Refreshes::new(Refreshed::BySelf);
        refreshes.written();
        let list = || refreshes.catch_up(|| server.refresh(), soon());
        let failing = async { tell(&mut telling, Err(away())) };
        let (first, second, ()) = tokio::join!(list(), list(), failing);
        assert_eq!([first, second], [Err(away()), Err(away())]);
        let (third, ()) = tokio::join!(list(), async { tell(&mut telling, Ok(())) });
        assert_eq!(third, Ok(()));
    }

    #[tokio::test]
    async fn one_that_takes_too_long_is_not_asked_for_again_while_it_is_under_way() {
        let (server, mut telling) = Server::expects(1);
        let refreshes = Refreshes::new(Refreshed::BySelf);
        for _ in 0..5 {
            refreshes.written();
            let end = Instant::now() + Duration::from_millis(5);
            let late = refreshes.catch_up(|| server.refresh(), end).await;
            assert_eq!(late.expect_err("it is late").fault, Fault::Unavailable);
        }
        // It covers only the first of the writes, so another refresh follows.
        tell(&mut telling, Ok(()));
        let follows = || async { Err(away()) }.boxed();
        assert_eq!(refreshes.catch_up(follows, soon()).await, Err(away()));
    }
}
