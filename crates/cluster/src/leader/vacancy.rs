//! Finds slots that may be filled.

use std::sync::Arc;

use tenure::store::{Expect, Put};

use super::apply::nothing;
use super::look::{Look, Sight};
use super::request::{Answer, Common, Next, Request, put};
use crate::documents::{Progress, Slot};
use crate::mutant::ClusterMutant;

/// Free slots, some of which are being written to prove that they are free.
#[derive(Debug)]
pub(super) struct Vacating {
    free: Vec<usize>,
    vacant: Vec<(usize, Slot)>,
}

/// The free slots.
///
/// On a weak store a slot may only look free while a node works on its task, and an intent would
/// overwrite that task. So there a slot is free only once a write of ours has made it so.
pub(super) fn free(common: &mut Common, look: &Look) -> Next<Vacating, Vec<usize>> {
    let free = look.free();
    if !common.is_weak() || ClusterMutant::WeakFills.is_on() {
        return Next::Done(free);
    }
    let (mut writes, mut vacant) = (Vec::new(), Vec::new());
    for &number in free.iter().filter(|number| !look.is_acknowledged(**number)) {
        let (expect, slot) = match &look.slots[number] {
            Sight::Found(version, slot) => {
                let again = slot.following(common.op(), slot.progress.clone());
                (Expect::At(version.clone()), again)
            }
            Sight::Absent => (Expect::Absent, never_used(common)),
            Sight::Garbled(..) | Sight::Unreadable => continue,
        };
        writes.push(put(common.settings.keys.slot(number), expect, &slot));
        vacant.push((number, slot));
    }
    if writes.is_empty() {
        return Next::Done(free);
    }
    Next::Ask(Vacating { free, vacant }, Request::Write(writes))
}

impl Vacating {
    pub(super) fn answer(self, look: &mut Look, answer: Answer) -> Vec<usize> {
        for ((number, slot), outcome) in self.vacant.into_iter().zip(answer.wrote()) {
            if let Ok(Put::Stored(version)) = outcome {
                look.stored(number, version, Arc::new(slot));
            } else {
                look.is_outdated = true;
            }
        }
        self.free.into_iter().filter(|number| look.is_acknowledged(*number)).collect()
    }
}

/// A slot that never held a task.
fn never_used(common: &mut Common) -> Slot {
    Slot {
        task: Arc::new(nothing(0)),
        progress: Progress::Vacant,
        cancel: false,
        token: 0,
        attempt: 0,
        ttl: common.settings.timing.ttl(),
        revision: 1,
        op: common.op(),
    }
}
