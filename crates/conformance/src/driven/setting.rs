//! What all simulations through the driver are set in: their time, their clocks, their kinds of
//! trouble.
//!
//! In which order things are drawn is part of what a seed means: a draw more or less here changes
//! every world.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Rates;
use super::clock::SimulatedClock;
use crate::rng::Rng;

/// Runs a world in a time of its own, which stands still until nothing is left to do and then jumps
/// to the next timer.
///
/// # Panics
/// When no runtime can be built.
pub(super) fn in_simulated_time<T>(world: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    runtime.block_on(world)
}

/// A world in which things go wrong.
pub(super) trait Troubled {
    /// What its troubles are drawn from.
    fn rng(&mut self) -> &mut Rng;
    /// Whether a promise was broken: then there is no need to go on.
    fn is_broken(&self) -> bool;
    /// Something happens to a node, or to all of them.
    async fn mischief(&mut self);
}

/// Lets things go wrong for so long, with calms of up to so many milliseconds in between.
pub(super) async fn trouble(world: &mut impl Troubled, span: Duration, longest_calm: u64) {
    let end = Instant::now() + span;
    while Instant::now() < end && !world.is_broken() {
        let calm = Duration::from_millis(world.rng().between(20, longest_calm));
        tokio::time::sleep(calm).await;
        world.mischief().await;
    }
}

impl Rates {
    /// The clock of the node of this number.
    pub(super) fn clock_of(self, number: u64, rng: &mut Rng) -> SimulatedClock {
        SimulatedClock::new(match self {
            Rates::Tolerated => rng.between(1_000_000, 1_250_000),
            Rates::Beyond if number.is_multiple_of(2) => 1_000_000,
            Rates::Beyond => 2_400_000,
        })
    }
}

/// How long a process is paused: up to three ttls.
pub(super) fn pause_within(rng: &mut Rng, ttl: Duration) -> Duration {
    ttl * u32::try_from(rng.between(1, 30)).unwrap_or(1) / 10
}

/// Pauses a process for so long. One that has died meanwhile does not wake up.
pub(super) fn pause(
    clock: SimulatedClock,
    span: Duration,
    is_dead: impl FnOnce() -> bool + Send + 'static,
) {
    clock.set_running(false);
    tokio::spawn(async move {
        tokio::time::sleep(span).await;
        clock.set_running(!is_dead());
    });
}

/// A chance of up to so many in a thousand, in half of all worlds; none in the others.
pub(super) fn chance(rng: &mut Rng, most: u64) -> u32 {
    let chance = if rng.permille(500) { rng.below(most) } else { 0 };
    u32::try_from(chance).unwrap_or(0)
}

/// Some part of this span.
pub(super) fn part_of(rng: &mut Rng, most: Duration) -> Duration {
    Duration::from_nanos(rng.below(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
}

/// What a node draws for itself.
pub(super) fn randomness(seed: u64) -> Arc<dyn Fn() -> u64 + Send + Sync> {
    let draws = AtomicU64::new(seed);
    Arc::new(move || Rng::new(draws.fetch_add(1, Ordering::Relaxed)).next())
}
