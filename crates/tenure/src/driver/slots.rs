//! The slots of the driver: it admits participants, steps them, and arranges their wishes.

use std::time::Duration;

use futures_util::future::FutureExt;

use super::hints::{Armed, Hint, arm};
use super::participant::{Event, Io, Participant, Wants};
use super::{Driver, SlotId};
use crate::Key;
use crate::queue::Pace;
use crate::store::Version;

pub(super) struct Slot {
    participant: Box<dyn Participant>,
    key: Key,
    due: Option<Duration>,
    lingers: bool,
    pub(super) watch: Option<Armed<Option<Version>>>,
    pub(super) death: Option<Armed<Version>>,
}

impl Driver {
    pub(super) fn admit(&mut self, participant: Box<dyn Participant>) {
        let id = SlotId(self.next_slot);
        self.next_slot += 1;
        let key = participant.key().clone();
        let (due, lingers, watch, death) = (None, false, None, None);
        self.slots.insert(id, Slot { participant, key, due, lingers, watch, death });
        self.step(id, Event::Admitted { notified: self.notified });
    }

    pub(super) fn say_goodbye(&mut self) {
        let all: Vec<SlotId> = self.slots.keys().copied().collect();
        for id in all {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            match slot.participant.goodbye() {
                Some(farewell) => {
                    self.step(id, Event::Message(farewell));
                }
                None => self.forget(id),
            }
        }
    }

    /// Hands an event to a participant, and arranges its wishes.
    ///
    /// Returns true if it reads its queue without having heard of a change.
    pub(super) fn step(&mut self, id: SlotId, event: Event) -> bool {
        let Some(slot) = self.slots.get_mut(&id) else { return false };
        let mut io = Io {
            id,
            parts: &self.parts,
            sessions: self.sessions.as_ref(),
            batch: &mut self.batch,
            requests: &self.requests,
            hints: &self.hints,
        };
        let wants = slot.participant.take(event, &mut io);
        let looks = wants.looks;
        self.arrange(id, wants);
        looks
    }

    /// Sets the slot's alarm and its waits to its current wishes.
    fn arrange(&mut self, id: SlotId, wants: Wants) {
        if let Some(sessions) = &mut self.sessions {
            sessions.note(id, wants.pace);
        }
        if wants.over {
            return self.forget(id);
        }
        if let Some(slot) = self.slots.get_mut(&id)
            && wants.lingers
            && !slot.lingers
        {
            slot.lingers = true;
            self.lingering += 1;
        }
        self.set_alarm(id, wants.wake);
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if slot.watch.as_ref().map(|armed| &armed.on) != wants.watch.as_ref() {
            slot.watch = wants.watch.map(|seen| {
                let (store, key) = (self.parts.store.clone(), slot.key.clone());
                let on = seen.clone();
                let wait = async move {
                    store.changed(&key, seen.as_ref()).await;
                    Hint::Changed(id)
                };
                arm(&self.hints, on, wait.boxed())
            });
        }
        let Some(presence) = &self.parts.presence else { return };
        if slot.death.as_ref().map(|armed| &armed.on)
            != wants.death.as_ref().map(|(version, _)| version)
        {
            slot.death = wants.death.map(|(version, mark)| {
                let (presence, on) = (presence.clone(), version.clone());
                let wait = async move {
                    presence.gone(&mark).await;
                    Hint::Gone(id, version)
                };
                arm(&self.hints, on, wait.boxed())
            });
        }
    }

    fn set_alarm(&mut self, id: SlotId, wake: Option<Duration>) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let due = wake.map(|span| self.parts.clock.now().boot.saturating_add(span));
        if slot.due != due {
            slot.due.map(|old| self.due.remove(&(old, id)));
            due.map(|new| self.due.insert((new, id)));
            slot.due = due;
        }
    }

    fn forget(&mut self, id: SlotId) {
        if let Some(slot) = self.slots.remove(&id) {
            slot.due.map(|due| self.due.remove(&(due, id)));
            self.lingering -= usize::from(slot.lingers);
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.note(id, Pace::Waiting);
        }
    }
}
