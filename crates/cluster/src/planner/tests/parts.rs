//! Parts for tests of the planner: a clock, seeded randomness, a planner to poll.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tenure::protocol::Lease;
use tenure::store::Store;
use tenure::{Backend, Clock, Moment, Tenure, Timer, Timing};
use tokio::sync::{broadcast, watch};

use super::super::{Deposed, Planner};
use crate::Event;
use crate::client::ClusterClient;
use crate::documents::{MemberId, Order};
use crate::error::ClusterError;
use crate::input::Windowed;
use crate::local_writes::LocalWrites;

/// A clock that the test moves.
#[derive(Clone, Debug)]
pub(crate) struct Hand(Arc<watch::Sender<Moment>>);

impl Hand {
    pub(crate) fn new() -> Hand {
        let start = Moment { boot: Duration::from_secs(1), monotonic: Duration::from_secs(1) };
        Hand(Arc::new(watch::Sender::new(start)))
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.0.send_modify(|now| *now = *now + span);
    }
}

impl Clock for Hand {
    fn now(&self) -> Moment {
        *self.0.borrow()
    }

    fn wall(&self) -> u64 {
        1_700_000_000_000 + u64::try_from(self.now().boot.as_millis()).unwrap_or(0)
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(HandTimer(self.0.subscribe()))
    }
}

struct HandTimer(watch::Receiver<Moment>);

#[async_trait]
impl Timer for HandTimer {
    async fn until(&mut self, moment: Moment) {
        let _ = self.0.wait_for(|now| now.boot >= moment.boot).await;
    }
}

/// Seeded randomness, shared by everything in one history.
#[derive(Clone, Debug)]
pub(crate) struct Chance(Arc<Mutex<u64>>);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(Arc::new(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))))
    }

    fn draw(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A random number less than `end`.
    pub(crate) fn below(&self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).expect("a usize fits");
        usize::try_from(self.draw() % end).expect("it was less than a usize")
    }

    /// Returns true once in `often` times; never if that is 0.
    pub(crate) fn one_in(&self, often: usize) -> bool {
        often > 0 && self.below(often) == 0
    }
}

/// The result of a future that never waits.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a store in memory never waits")
}

pub(crate) fn member(number: u64) -> MemberId {
    MemberId::from_bits(u128::from(number))
}

pub(crate) fn order(id: &str) -> Order {
    Order::new(id, "test", id.as_bytes().to_vec())
}

pub(crate) fn timing() -> Timing {
    Timing::new(Duration::from_secs(6)).expect("a usable ttl")
}

pub(crate) fn client(store: Arc<dyn Store>, clock: &Hand) -> ClusterClient {
    let backend = Backend::new(store).with_clock(Arc::new(clock.clone()));
    ClusterClient::open(&backend, "test").expect("a name")
}

/// A planner that moves only when it is polled.
pub(crate) struct Working {
    future: Pin<Box<dyn Future<Output = Result<Deposed, ClusterError>> + Send>>,
    pub(crate) local_writes: Arc<LocalWrites>,
    pub(crate) events: broadcast::Receiver<Event>,
}

impl Working {
    pub(crate) fn new(
        client: &ClusterClient,
        clock: &Hand,
        token: u64,
        source: Option<Arc<dyn Windowed>>,
    ) -> Working {
        Working::beside(Arc::default(), client, clock, token, source)
    }

    /// Creates a planner in the process with this `local_writes`, perhaps not its first one.
    pub(crate) fn beside(
        local_writes: Arc<LocalWrites>,
        client: &ClusterClient,
        clock: &Hand,
        token: u64,
        source: Option<Arc<dyn Windowed>>,
    ) -> Working {
        let (events, heard) = broadcast::channel(1024);
        let mut planner = Planner {
            client: client.clone(),
            timing: timing(),
            source,
            local_writes: local_writes.clone(),
            events,
            me: member(token),
        };
        let (window, grace) = (Duration::from_secs(1_000_000), Duration::from_secs(1));
        let lease = Lease { token, from: clock.now(), window, grace };
        let tenure = Tenure::new(lease, Arc::new(clock.clone()), tracing::Span::none());
        let future = async move { planner.run(&tenure.mandate()).await };
        Working { future: Box::pin(future), local_writes, events: heard }
    }

    pub(crate) fn poll(&mut self) -> Poll<Result<Deposed, ClusterError>> {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Polls until nothing moves any more while time stands still.
    pub(crate) fn settle(&mut self) -> Option<Result<Deposed, ClusterError>> {
        for _ in 0..64 {
            if let Poll::Ready(over) = self.poll() {
                return Some(over);
            }
        }
        None
    }

    /// Settles again and again while time passes.
    pub(crate) fn settle_for(&mut self, clock: &Hand, span: Duration) {
        let step = Duration::from_millis(50);
        let mut left = span;
        while !left.is_zero() {
            assert!(self.settle().is_none(), "nobody deposed it");
            clock.advance(step.min(left));
            left = left.saturating_sub(step);
        }
        assert!(self.settle().is_none(), "nobody deposed it");
    }
}
