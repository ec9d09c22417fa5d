//! A world of events in simulated time: the queue of coming events, and the loop that runs them.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt::Debug;

use super::breach::{Breach, Promise};
use super::clock::Instant;
use super::listed::Listed;
use super::log::Log;
use super::rng::Rng;
use super::simulator::Run;

/// A world that is still busy after this many events runs in circles.
const MOST_EVENTS: u64 = 600_000;

/// A simulated world.
pub trait World: Sized {
    /// The events that can be scheduled.
    type Happening;
    /// The rare paths that are counted.
    type Rare: Listed;

    /// The part of the world that the kernel runs.
    fn kernel(&mut self) -> &mut Kernel<Self::Happening, Self::Rare>;

    /// Carries out an event.
    fn happen(&mut self, happening: Self::Happening);

    /// Returns true if an event no longer means anything, such as a timer that was set anew.
    fn is_outdated(&self, _happening: &Self::Happening) -> bool {
        false
    }
}

/// Runs a world until it ends, or until a promise is broken.
#[must_use]
pub fn run<W: World>(mut world: W) -> Run<W::Rare> {
    while let Some(happening) = world.kernel().next() {
        if world.is_outdated(&happening) {
            continue;
        }
        if world.kernel().log.count() > MOST_EVENTS {
            world.kernel().breaks(Promise::Wakefulness, "the world never comes to rest");
        }
        world.happen(happening);
        if world.kernel().over || world.kernel().is_broken() {
            break;
        }
    }
    let kernel = world.kernel();
    let mut run = kernel.log.finish();
    if let Some(breach) = run.breach.as_ref().filter(|_| !run.trace.is_empty()) {
        run.trace.push(format!("{:>14}   BROKEN {breach}", kernel.now));
    }
    run
}

/// Simulated time with its coming events, random numbers, and the record of the run.
#[derive(Debug)]
pub struct Kernel<H, R> {
    /// The simulated real time.
    pub now: Instant,
    /// The random numbers of the seed.
    pub rng: Rng,
    coming: BinaryHeap<Scheduled<H>>,
    scheduled: u64,
    over: bool,
    log: Log<R>,
}

impl<H, R: Listed> Kernel<H, R> {
    /// The kernel of this seed's world, perhaps with a trace.
    #[must_use]
    pub fn new(seed: u64, trace: bool) -> Kernel<H, R> {
        Kernel {
            now: 0,
            rng: Rng::new(seed),
            coming: BinaryHeap::with_capacity(256),
            scheduled: 0,
            over: false,
            log: Log::new(seed, trace),
        }
    }

    /// Lets an event happen `after` nanoseconds, behind all others of that moment.
    pub fn schedule(&mut self, after: u64, happening: H) {
        self.scheduled += 1;
        let scheduled = Scheduled { at: self.now + after, order: self.scheduled, happening };
        self.coming.push(scheduled);
    }

    /// The coming events, in no order, each with its time.
    pub fn coming(&self) -> impl Iterator<Item = (Instant, &H)> {
        self.coming.iter().map(|scheduled| (scheduled.at, &scheduled.happening))
    }

    /// Ends the run after this event.
    pub fn end(&mut self) {
        self.over = true;
    }

    /// Counts a rare path.
    pub fn saw(&mut self, rare: R) {
        self.log.saw(rare);
    }

    /// Records that a promise is broken. Only the first breach counts.
    pub fn breaks(&mut self, promise: Promise, how: impl Into<String>) {
        self.log.breaks(promise, how);
    }

    /// Records the verdict of a checker.
    pub fn check(&mut self, verdict: Result<(), Breach>) {
        self.log.check(verdict);
    }

    /// Returns true if a promise was broken.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.log.is_broken()
    }

    /// Writes a line of the trace, if there is one.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        self.log.note(|| format!("{now:>14}   {}", line()));
    }

    /// Writes an event that checkers see into the trace, if there is one.
    pub fn note_event(&mut self, event: &impl Debug) {
        let now = self.now;
        self.log.note(|| format!("{now:>14} * {event:?}"));
    }

    fn next(&mut self) -> Option<H> {
        let Scheduled { at, happening, .. } = self.coming.pop()?;
        self.now = at;
        Some(happening)
    }
}

#[derive(Debug)]
struct Scheduled<H> {
    at: Instant,
    order: u64,
    happening: H,
}

impl<H> PartialEq for Scheduled<H> {
    fn eq(&self, other: &Scheduled<H>) -> bool {
        self.order == other.order
    }
}

impl<H> Eq for Scheduled<H> {}

impl<H> PartialOrd for Scheduled<H> {
    fn partial_cmp(&self, other: &Scheduled<H>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<H> Ord for Scheduled<H> {
    /// The heap returns the greatest first, and we want the earliest.
    fn cmp(&self, other: &Scheduled<H>) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// The timer of a process. Only the newest setting counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer {
    serial: u64,
    at: Option<Instant>,
}

impl Timer {
    /// Sets the timer. Returns the number of the setting if an event must be scheduled for it.
    pub fn set(&mut self, now: Instant, at: Option<Instant>) -> Option<u64> {
        if at == self.at && at.is_some_and(|at| at > now) {
            return None;
        }
        self.at = at;
        self.serial += 1;
        at.map(|_| self.serial)
    }

    /// Keeps the timer from firing.
    pub fn stop(&mut self) {
        self.serial += 1;
    }

    /// Forgets when the timer was to fire: the next setting is a new one.
    pub fn forget(&mut self) {
        self.at = None;
    }

    /// Returns true if this is the number of the newest setting.
    #[must_use]
    pub fn is_newest(&self, serial: u64) -> bool {
        self.serial == serial
    }
}

/// Counts the steps of a process at one moment: too many mean that it waits for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin {
    at: Instant,
    steps: u32,
}

impl Spin {
    /// Counts a step. Returns true if there were more than `most` at this moment.
    pub fn step(&mut self, now: Instant, most: u32) -> bool {
        let steps = if self.at == now { self.steps + 1 } else { 0 };
        *self = Spin { at: now, steps };
        steps > most
    }
}
