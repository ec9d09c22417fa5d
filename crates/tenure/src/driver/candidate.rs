//! One candidacy in the driver under the lease protocol: its machine and its registration.

use std::sync::Arc;

use super::participant::{Event, Io, Participant, Wants};
use super::publisher::{HandleMessage, Shared, StatusPublisher};
use super::registration::Registration;
use super::requests::{Answer, Request};
use crate::lease::floor::Laid;
use crate::lease::machine::{Input, Machine, Output, Seen, SeenFloor};
use crate::lease::record::{Record, RecordError, State};
use crate::protocol::{Farewell, Lease};
use crate::store::{Document, Durability, Write};
use crate::{Error, Key, Name, Protocol};

/// A candidacy that the lease protocol decides: its machine and its registration.
pub(crate) struct LeaseCandidate {
    key: Key,
    /// The key of its floor, if one is kept.
    floor: Option<Key>,
    machine: Machine,
    publisher: StatusPublisher,
    registration: Registration,
}

impl LeaseCandidate {
    pub(crate) fn new(
        name: &Name,
        key: Key,
        floor: Option<Key>,
        machine: Machine,
        shared: Arc<Shared>,
    ) -> LeaseCandidate {
        let registration = Registration::new(name, machine.candidate(), machine.timing());
        let publisher = StatusPublisher::new(shared);
        LeaseCandidate { key, floor, machine, publisher, registration }
    }

    fn hear(&mut self, message: HandleMessage) -> Input {
        match message {
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
        }
    }

    fn step(&mut self, input: Input, io: &mut Io<'_>) -> Wants {
        let now = io.parts.clock.now();
        let outputs = self.machine.step(now, input);
        outputs.into_iter().for_each(|output| self.carry_out(output, io));
        if let Some(request) = self.registration.next(now, io.parts.clock.wall()) {
            request.join(io.id, io.batch);
        }
        self.wants(io)
    }

    fn answer(&mut self, request: Request, answer: Answer, io: &mut Io<'_>) -> Wants {
        match (request, answer) {
            (Request::Machine(ask), Answer::Read(read)) => {
                self.publisher.note(read.as_ref().err());
                let read = read.map(|document| document.map(seen)).map_err(|error| error.fault);
                self.step(Input::Read(ask, read), io)
            }
            (Request::Floor(ask), Answer::Read(read)) => {
                self.publisher.note(read.as_ref().err());
                let read =
                    read.map(|document| document.map(seen_floor)).map_err(|error| error.fault);
                self.step(Input::ReadFloor(ask, read), io)
            }
            (Request::Machine(ask) | Request::Floor(ask), Answer::Write(put)) => {
                self.publisher.note(put.as_ref().err());
                self.step(Input::Wrote(ask, put.map_err(|error| error.fault)), io)
            }
            (Request::Registration, answer) => {
                self.registration.answer(io.parts.clock.now(), answer);
                self.step(Input::Tick, io)
            }
            (Request::Observation | Request::Opening, _) => self.wants(io),
        }
    }

    fn carry_out(&mut self, output: Output, io: &mut Io<'_>) {
        let (id, parts) = (io.id, io.parts);
        match output {
            Output::Read { ask } => io.batch.read(id, Request::Machine(ask), self.key.clone()),
            Output::Write { ask, expect, record, durability } => {
                let body = Some(stamped(record, parts.clock.wall()).encode());
                let write = Write { key: self.key.clone(), expect, body, durability };
                io.batch.write(id, Request::Machine(ask), write);
            }
            Output::ReadFloor { ask } => {
                if let Some(key) = self.floor.clone() {
                    io.batch.read(id, Request::Floor(ask), key);
                }
            }
            Output::WriteFloor { ask, expect, laid } => {
                if let Some(key) = self.floor.clone() {
                    let (body, durability) = (Some(laid.encode()), Durability::Lasting);
                    io.batch.write(
                        id,
                        Request::Floor(ask),
                        Write { key, expect, body, durability },
                    );
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

    fn wants(&self, io: &Io<'_>) -> Wants {
        let now = io.parts.clock.now();
        if self.publisher.is_over() && self.registration.is_settled() {
            return Wants { over: true, ..Wants::default() };
        }
        let wake = [self.machine.wake(now), self.registration.wake(now)];
        let death = self
            .machine
            .awaiting_death()
            .and_then(|(version, holder)| Some((version.clone(), holder.presence.clone()?)));
        Wants {
            wake: wake.into_iter().flatten().min(),
            watch: self.machine.watching().map(|seen| seen.cloned()),
            death,
            ..Wants::default()
        }
    }
}

impl Participant for LeaseCandidate {
    fn key(&self) -> &Key {
        &self.key
    }

    fn take(&mut self, event: Event, io: &mut Io<'_>) -> Wants {
        let input = match event {
            Event::Admitted { notified } => {
                self.publisher.admitted(io.id);
                Input::Notified(notified)
            }
            Event::Tick => Input::Tick,
            // A candidate decides by itself if it is near enough to its time.
            Event::Batch => Input::Batch,
            Event::Notified(notified) => Input::Notified(notified),
            Event::Message(message) => self.hear(message),
            Event::Answer(request, answer) => return self.answer(request, answer, io),
            Event::Changed => Input::Hint,
            Event::HolderGone(version) => Input::HolderGone(version),
            // These concern queues.
            Event::LookAlong
            | Event::Session
            | Event::Called(_)
            | Event::Looked(_)
            | Event::Left(..)
            | Event::Ended(_)
            | Event::Moved => return self.wants(io),
        };
        self.step(input, io)
    }

    fn goodbye(&mut self) -> Option<HandleMessage> {
        self.publisher.goodbye();
        Some(HandleMessage::Release(Farewell::Free))
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
