//! One candidacy in the driver under the lease protocol: its machine and its registration.

use std::sync::Arc;

use super::publisher::{HandleMessage, Shared, StatusPublisher};
use super::registration::Registration;
use super::requests::Queue;
use super::{Answer, Request, SlotId, Wants};
use crate::lease::floor::Laid;
use crate::lease::machine::{Input, Machine, Output, Seen, SeenFloor};
use crate::lease::record::{Record, RecordError, State};
use crate::parts::Parts;
use crate::protocol::{Farewell, Lease};
use crate::store::{Document, Durability, Write};
use crate::{Error, Key, Name, Protocol};

/// A candidacy on its way to the driver.
pub(crate) struct Candidacy {
    pub(crate) name: Name,
    pub(crate) key: Key,
    /// The key of its floor, if a floor is kept.
    pub(crate) floor: Option<Key>,
    pub(crate) machine: Machine,
    pub(crate) shared: Arc<Shared>,
}

pub(super) struct CandidateSlot {
    key: Key,
    floor: Option<Key>,
    machine: Machine,
    publisher: StatusPublisher,
    registration: Registration,
}

impl CandidateSlot {
    pub(super) fn new(candidacy: Candidacy, id: SlotId) -> CandidateSlot {
        let Candidacy { name, key, floor, machine, shared } = candidacy;
        let registration = Registration::new(&name, machine.candidate(), machine.timing());
        let publisher = StatusPublisher::new(shared, id);
        CandidateSlot { key, floor, machine, publisher, registration }
    }

    /// The farewell for a candidate without handles, or with a closed backend.
    pub(super) fn goodbye(&mut self) -> HandleMessage {
        self.publisher.goodbye();
        HandleMessage::Release(Farewell::Free)
    }

    pub(super) fn hear(
        &mut self,
        id: SlotId,
        message: HandleMessage,
        parts: &Parts,
        queue: &mut Queue,
    ) -> Wants {
        let input = match message {
            HandleMessage::WorkEnded => Input::WorkEnded,
            HandleMessage::Release(farewell) => {
                self.publisher.leaving();
                Input::Release(farewell)
            }
            HandleMessage::Abandon => Input::Abandon,
            HandleMessage::Publish(value) => {
                self.registration.publish(value.clone());
                Input::Publish(value)
            }
            #[cfg(feature = "test-util")]
            HandleMessage::ForceLoss => Input::ForceLoss,
        };
        self.step(id, input, parts, queue)
    }

    pub(super) fn step(
        &mut self,
        id: SlotId,
        input: Input,
        parts: &Parts,
        queue: &mut Queue,
    ) -> Wants {
        let now = parts.clock.now();
        let outputs = self.machine.step(now, input);
        outputs.into_iter().for_each(|output| self.carry_out(id, output, parts, queue));
        if let Some(request) = self.registration.next(now, parts.clock.wall()) {
            request.queue(id, queue);
        }
        self.wants(parts)
    }

    pub(super) fn answer(
        &mut self,
        id: SlotId,
        request: Request,
        answer: Answer,
        parts: &Parts,
        queue: &mut Queue,
    ) -> Wants {
        match (request, answer) {
            (Request::Machine(ask), Answer::Read(read)) => {
                self.publisher.note(read.as_ref().err());
                let read = read.map(|document| document.map(seen)).map_err(|error| error.fault);
                self.step(id, Input::Read(ask, read), parts, queue)
            }
            (Request::Floor(ask), Answer::Read(read)) => {
                self.publisher.note(read.as_ref().err());
                let read =
                    read.map(|document| document.map(seen_floor)).map_err(|error| error.fault);
                self.step(id, Input::ReadFloor(ask, read), parts, queue)
            }
            (Request::Machine(ask) | Request::Floor(ask), Answer::Write(put)) => {
                self.publisher.note(put.as_ref().err());
                self.step(id, Input::Wrote(ask, put.map_err(|error| error.fault)), parts, queue)
            }
            (Request::Registration, answer) => {
                self.registration.answer(parts.clock.now(), answer);
                self.step(id, Input::Tick, parts, queue)
            }
            (Request::Observation | Request::Opening, _) => self.wants(parts),
        }
    }

    fn carry_out(&mut self, id: SlotId, output: Output, parts: &Parts, queue: &mut Queue) {
        match output {
            Output::Read { ask } => queue.read(id, Request::Machine(ask), self.key.clone()),
            Output::Write { ask, expect, record, durability } => {
                let body = Some(stamped(record, parts.clock.wall()).encode());
                let write = Write { key: self.key.clone(), expect, body, durability };
                queue.write(id, Request::Machine(ask), write);
            }
            Output::ReadFloor { ask } => {
                if let Some(key) = self.floor.clone() {
                    queue.read(id, Request::Floor(ask), key);
                }
            }
            Output::WriteFloor { ask, expect, laid } => {
                if let Some(key) = self.floor.clone() {
                    let (body, durability) = (Some(laid.encode()), Durability::Lasting);
                    queue.write(id, Request::Floor(ask), Write { key, expect, body, durability });
                }
            }
            Output::Elected(lease) => self.publisher.elect(lease, &parts.clock),
            Output::Extended(lease) => self.publisher.extend(lease),
            Output::MustStop => self.publisher.must_stop(),
            Output::Lost { token, loss } => self.publisher.lose(token, &loss),
            Output::Suspended => {
                let lease = self.machine.lease(parts.clock.now());
                let remaining = lease.map(|lease| Lease::remaining(&lease, parts.clock.now()));
                self.publisher.suspend(remaining.unwrap_or_default());
            }
            Output::Resumed => self.publisher.resume(),
            Output::Following(holder) => self.publisher.follow(holder.as_deref()),
            Output::Garbled(source) => {
                let name = self.registration.election().clone();
                self.publisher.warn(garbled(name, source));
            }
            Output::Over(outcome) => {
                self.registration.remove();
                self.publisher.finish(outcome);
            }
        }
    }

    fn wants(&self, parts: &Parts) -> Wants {
        let now = parts.clock.now();
        if self.publisher.is_over() && self.registration.is_settled() {
            return Wants { over: true, ..Wants::default() };
        }
        let wake = [self.machine.wake(now), self.registration.wake(now)];
        let death = self
            .machine
            .awaiting_death()
            .and_then(|(version, holder)| Some((version.clone(), holder.presence.clone()?)));
        Wants {
            over: false,
            wake: wake.into_iter().flatten().min(),
            watch: self.machine.watching().map(|seen| seen.cloned()),
            death,
        }
    }
}

fn seen(document: Document) -> Seen {
    Seen { version: document.version, record: Record::decode_lease(&document.body) }
}

fn seen_floor(document: Document) -> SeenFloor {
    SeenFloor { version: document.version, laid: Laid::decode(&document.body) }
}

/// The error for a document that is not a valid record, or a record of the other protocol.
pub(super) fn garbled(name: Name, source: RecordError) -> Error {
    match source {
        RecordError::Queue => {
            Error::Protocol { name, recorded: Protocol::Queue, wanted: Protocol::Lease }
        }
        RecordError::TooLong { .. }
        | RecordError::NotARecord { .. }
        | RecordError::OutOfRange { .. }
        | RecordError::Field { .. } => Error::Record { name, source },
    }
}

/// Fills in when the lease ends by the wall clock, for people.
fn stamped(record: Record, wall: u64) -> Record {
    match record.state {
        State::Held(_) => {
            let ttl = u64::try_from(record.ttl.as_millis()).unwrap_or(u64::MAX);
            Record { expire: wall.saturating_add(ttl), ..record }
        }
        State::Free { .. } | State::Ended { .. } => record,
    }
}
