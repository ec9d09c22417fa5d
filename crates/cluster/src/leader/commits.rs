//! Tells a source which of its items have ended, without delaying the rounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure::Moment;

use super::Output;
use super::collect::Ended;
use super::request::Common;
use crate::documents::{Progress, Slot};
use crate::input::{End, InputError};

/// How many calls are under way at once.
const MOST_FLYING: usize = 64;
/// How long a round waits for calls that it has just begun.
const GRACE: Duration = Duration::from_millis(20);

/// Calls of [`Windowed::commit`](crate::input::Windowed::commit).
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// The serials of the calls in flight.
    begun: BTreeSet<u64>,
    /// Serials that the source was told of, and that are not counted yet.
    told: BTreeSet<u64>,
    /// Serials of failed calls, and when they may be tried again.
    failed: BTreeMap<u64, Moment>,
}

/// A round that waits for the source to take note of its ended items.
#[derive(Debug)]
pub(super) struct Settling {
    ended: Vec<Ended>,
    untold: VecDeque<Arc<Slot>>,
    /// The round goes on at this time without the others.
    pub(super) until: Moment,
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

    /// Begins to tell the source of these tasks. Returns them at once if it knows of all that it
    /// need know of.
    pub(super) fn settle(
        &mut self,
        common: &mut Common,
        ended: Vec<Ended>,
    ) -> Result<Vec<Ended>, Settling> {
        if !common.settings.lists {
            return Ok(ended);
        }
        let is_untold = |ended: &&Ended| {
            is_from_source(&ended.slot) && !self.told.contains(&ended.report.serial)
        };
        let untold: VecDeque<Arc<Slot>> =
            ended.iter().filter(is_untold).map(|ended| ended.slot.clone()).collect();
        let settling = Settling { ended, untold, until: common.now + GRACE };
        if settling.untold.is_empty() {
            return Ok(self.settled(settling));
        }
        self.go_on(common, settling)
    }

    /// Begins more calls. Returns the tasks that may be counted once no call is under way.
    pub(super) fn go_on(
        &mut self,
        common: &mut Common,
        mut settling: Settling,
    ) -> Result<Vec<Ended>, Settling> {
        while self.begun.len() < MOST_FLYING
            && let Some(slot) = settling.untold.pop_front()
        {
            self.begun.insert(slot.task.serial);
            let end = end(&slot);
            common.outputs.push(Output::Commit(slot.task.clone(), end));
        }
        if self.begun.is_empty() { Ok(self.settled(settling)) } else { Err(settling) }
    }

    /// The tasks that the source was told of, or need not be. The others stay in their slots for
    /// another round.
    pub(super) fn settled(&self, settling: Settling) -> Vec<Ended> {
        let is_settled = |ended: &Ended| {
            !is_from_source(&ended.slot) || self.told.contains(&ended.report.serial)
        };
        settling.ended.into_iter().filter(is_settled).collect()
    }

    /// Takes in the result of a call.
    pub(super) fn take(
        &mut self,
        common: &mut Common,
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
                let says = "the source took no note of an item; it is told again";
                common.warn_of(says, serial, &error);
                self.failed.insert(serial, common.now + common.settings.timing.ttl());
            }
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

fn end(slot: &Slot) -> End {
    match &slot.progress {
        Progress::Dead { .. } if slot.cancel => End::Cancelled,
        Progress::Dead { .. } => End::Dead,
        Progress::Vacant
        | Progress::Outstanding { .. }
        | Progress::Held(_)
        | Progress::Done { .. } => End::Done,
    }
}
