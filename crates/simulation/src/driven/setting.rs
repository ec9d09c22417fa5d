//! The common parts of all simulations through the driver.
//!
//! These are time, clocks, and kinds of trouble.
//!
//! The order of the random draws is part of the meaning of a seed: one draw more or less here
//! changes every world.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::clock::SimulatedClock;
use crate::kernel::{REAL_RATE, Rates, Rng};

/// Runs a world in simulated time.
///
/// Time stands still until nothing is left to do, and then jumps to the next timer.
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

/// A world with faults.
pub(super) trait Troubled {
    /// The source of randomness for its faults.
    fn rng(&mut self) -> &mut Rng;
    /// Returns true if a promise was broken: then there is no need to go on.
    fn is_broken(&self) -> bool;
    /// Applies one fault, to a node or to all of them.
    async fn injection(&mut self);
}

/// Applies faults for this long.
///
/// The pauses in between take up to `longest_calm` milliseconds.
pub(super) async fn trouble(world: &mut impl Troubled, span: Duration, longest_calm: u64) {
    let end = Instant::now() + span;
    while Instant::now() < end && !world.is_broken() {
        let calm = Duration::from_millis(world.rng().between(20, longest_calm));
        tokio::time::sleep(calm).await;
        world.injection().await;
    }
}

/// The clock of the node with this number.
pub(super) fn clock_of(number: u64, rates: Rates, rng: &mut Rng) -> SimulatedClock {
    SimulatedClock::new(match rates {
        Rates::Tolerated => rng.between(REAL_RATE, rates.fastest()),
        Rates::Beyond if number.is_multiple_of(2) => REAL_RATE,
        Rates::Beyond => REAL_RATE * 12 / 5,
    })
}

/// The length of a pause: up to three ttls.
pub(super) fn pause_within(rng: &mut Rng, ttl: Duration) -> Duration {
    ttl * u32::try_from(rng.between(1, 30)).unwrap_or(1) / 10
}

/// Pauses a process for this long. A process that has died meanwhile does not wake up.
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

/// A chance of up to `most` in 1,000 in half of all worlds; none in the others.
pub(super) fn chance(rng: &mut Rng, most: u64) -> u32 {
    let chance = if rng.permille(500) { rng.below(most) } else { 0 };
    u32::try_from(chance).unwrap_or(0)
}

/// A random part of this span.
pub(super) fn part_of(rng: &mut Rng, most: Duration) -> Duration {
    Duration::from_nanos(rng.below(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
}

/// A node's own source of random numbers.
pub(super) fn randomness(seed: u64) -> Arc<dyn Fn() -> u64 + Send + Sync> {
    let draws = AtomicU64::new(seed);
    Arc::new(move || Rng::new(draws.fetch_add(1, Ordering::Relaxed)).next())
}
