//! Tells a source which of its items have ended, without delaying the rounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tenure::Moment;

use super::collect::Ended;
use crate::client::ClusterClient;
use crate::documents::{Progress, Slot};
use crate::input::{End, InputError, Windowed};

/// How many calls are under way at once.
const MOST_FLYING: usize = 64;
/// How long a round waits for calls that it has just begun.
const GRACE: Duration = Duration::from_millis(20);

/// Calls of [`Windowed::commit`].
#[derive(Default)]
pub(super) struct Commits {
    flying: FuturesUnordered<BoxFuture<'static, (u64, Result<(), InputError>)>>,
    /// The serials of the calls in flight.
    begun: BTreeSet<u64>,
    /// Serials that the source was told of, and that are not counted yet.
    told: BTreeSet<u64>,
    /// Serials of failed calls, and when they may be tried again.
    failed: BTreeMap<u64, Moment>,
}

impl Commits {
    /// Returns true if a task must wait: its call is under way, or failed a moment ago.
    pub(super) fn waits(&self, serial: u64, now: Moment) -> bool {
        self.begun.contains(&serial)
            || self.failed.get(&serial).is_some_and(|until| until.boot > now.boot)
    }

    /// Notes that the source was already told of this task.
    pub(super) fn assume_told(&mut self, serial: u64) {
        self.failed.remove(&serial);
        self.told.insert(serial);
    }

    /// Forgets all other serials than these.
    pub(super) fn keep_only(&mut self, serials: &BTreeSet<u64>) {
        self.told.retain(|serial| serials.contains(serial));
        self.failed.retain(|serial, _| serials.contains(serial));
    }

    /// Returns the tasks that the source was told of, or need not be. The others stay in their
    /// slots for another round.
    pub(super) async fn settle(
        &mut self,
        client: &ClusterClient,
        source: Option<&Arc<dyn Windowed>>,
        limit: Duration,
        ended: Vec<Ended>,
    ) -> Vec<Ended> {
        let Some(source) = source else { return ended };
        let is_untold = |ended: &&Ended| {
            is_from_source(&ended.slot) && !self.told.contains(&ended.report.serial)
        };
        let mut untold: VecDeque<Arc<Slot>> =
            ended.iter().filter(is_untold).map(|ended| ended.slot.clone()).collect();
        if !untold.is_empty() {
            let mut grace = pin!(client.sleep(GRACE));
            loop {
                while self.flying.len() < MOST_FLYING
                    && let Some(slot) = untold.pop_front()
                {
                    self.begun.insert(slot.task.serial);
                    self.flying.push(tell(client.clone(), source.clone(), slot, limit));
                }
                let told = tokio::select! {
                    biased;
                    told = self.flying.next() => told,
                    () = grace.as_mut() => break,
                };
                let Some((serial, result)) = told else { break };
                self.take(client, limit, serial, result);
            }
        }
        let is_settled = |ended: &Ended| {
            !is_from_source(&ended.slot) || self.told.contains(&ended.report.serial)
        };
        ended.into_iter().filter(is_settled).collect()
    }

    fn take(
        &mut self,
        client: &ClusterClient,
        limit: Duration,
        serial: u64,
        result: Result<(), InputError>,
    ) {
        self.begun.remove(&serial);
        match result {
            Ok(()) => {
                self.failed.remove(&serial);
                self.told.insert(serial);
            }
            Err(error) => {
                tracing::warn!(serial, %error, "the source took no note of an item; it is told again");
                self.failed.insert(serial, client.backend.clock().now() + limit);
            }
        }
    }

    /// Resolves when a call has ended; never while there is none.
    pub(super) async fn any(&mut self, client: &ClusterClient, limit: Duration) {
        match self.flying.next().await {
            Some((serial, result)) => self.take(client, limit, serial, result),
            None => std::future::pending().await,
        }
    }

    /// The time when the first failed call may be tried again.
    pub(super) fn due(&self) -> Option<Moment> {
        self.failed.values().min().copied()
    }
}

/// Returns true if a task may have come from the source. Telling it of another task does no harm.
fn is_from_source(slot: &Slot) -> bool {
    slot.task.to.is_none() && slot.task.receipt.is_none()
}

fn tell(
    client: ClusterClient,
    source: Arc<dyn Windowed>,
    slot: Arc<Slot>,
    limit: Duration,
) -> BoxFuture<'static, (u64, Result<(), InputError>)> {
    Box::pin(async move {
        let task = &slot.task;
        let end = match &slot.progress {
            Progress::Dead { .. } if slot.cancel => End::Cancelled,
            Progress::Dead { .. } => End::Dead,
            Progress::Vacant
            | Progress::Outstanding { .. }
            | Progress::Held(_)
            | Progress::Done { .. } => End::Done,
        };
        let told = AssertUnwindSafe(source.commit(&task.id, &task.payload, end)).catch_unwind();
        let result = tokio::select! {
            biased;
            told = told => told.unwrap_or_else(|_| Err(InputError("it panicked".into()))),
            () = client.sleep(limit) => Err(InputError("it took too long".into())),
        };
        (task.serial, result)
    })
}
