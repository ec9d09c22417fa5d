//! One candidacy in line: its machine and its waits.

use std::sync::Arc;
use std::time::Duration;

use super::super::publisher::{HandleMessage, Shared, StatusPublisher};
use super::super::{Request, SlotId};
use super::Io;
use super::calls::{Answer, Caller};
use super::waits::{Waits, Whose};
use crate::clock::Moment;
use crate::lease::record::{Record, State};
use crate::protocol::Holder;
use crate::protocol::{Farewell, Lease, Outcome};
use crate::queue::machine::{Input, Machine, Output, Settings};
use crate::queue::{Entry, Freshness, Gone, Pace};
use crate::store::{Document, Fault, StoreError};
use crate::{Error, Key, Name, Protocol};

/// How long to wait before reading an unreadable or invalid record again.
const REST: Duration = Duration::from_millis(500);
/// The shortest wake-up time, so that a machine is not asked again at once.
const LEAST_WAKE: Duration = Duration::from_millis(1);

/// A candidacy on its way to the driver. Its lock delay is read from the record first.
pub(crate) struct Entrant {
    pub(crate) name: Name,
    pub(crate) key: Key,
    pub(crate) candidate: Holder,
    pub(crate) grace: Option<Duration>,
    pub(crate) shared: Arc<Shared>,
}

/// The wishes of a slot in line after a step.
#[derive(Default)]
pub(in crate::driver) struct LineWants {
    /// Nothing of the candidacy is left in the store.
    pub(in crate::driver) settled: bool,
    /// The handles were told how the candidacy ended. A clean-up may still go on.
    pub(in crate::driver) over: bool,
    pub(in crate::driver) wake: Option<Duration>,
    pub(in crate::driver) pace: Pace,
    /// The machine reads the line without having heard of a change.
    pub(in crate::driver) looks: bool,
}

pub(in crate::driver) struct LineSlot {
    name: Name,
    key: Key,
    stage: Stage,
    publisher: StatusPublisher,
    /// The version of the session that the machine was told last.
    heard: u64,
    waits: Waits,
    looks: bool,
}

enum Stage {
    /// The record must be read first: it says whether this is a queue, and its lock delay.
    Opening(Box<Opening>),
    Standing(Box<Machine>),
    /// The candidacy never stood in line.
    Over,
}

struct Opening {
    candidate: Holder,
    grace: Option<Duration>,
    reading: bool,
    failed: Option<Moment>,
}

impl LineSlot {
    pub(in crate::driver) fn new(entrant: Entrant, id: SlotId) -> LineSlot {
        let Entrant { name, key, candidate, grace, shared } = entrant;
        let opening = Opening { candidate, grace, reading: false, failed: None };
        LineSlot {
            name,
            key,
            stage: Stage::Opening(Box::new(opening)),
            publisher: StatusPublisher::new(shared, id),
            heard: 0,
            waits: Waits::default(),
            looks: false,
        }
    }

    /// The farewell for a candidate without handles, or with a closed backend.
    pub(in crate::driver) fn goodbye(&mut self) -> HandleMessage {
        self.publisher.goodbye();
        HandleMessage::Release(Farewell::Free)
    }

    pub(in crate::driver) fn hear(
        &mut self,
        id: SlotId,
        message: HandleMessage,
        io: &mut Io<'_>,
    ) -> LineWants {
        if let Stage::Opening(opening) = &mut self.stage {
            match message {
                HandleMessage::Publish(value) => opening.candidate.value = value,
                // Nothing of the candidacy has reached the line yet.
                HandleMessage::Release(_) | HandleMessage::Abandon => {
                    self.refuse(Outcome::Withdrawn)
                }
                HandleMessage::WorkEnded => {}
                #[cfg(feature = "test-util")]
                HandleMessage::ForceLoss => {}
            }
            return self.step(id, None, io);
        }
        let input = match message {
            HandleMessage::WorkEnded => Input::WorkEnded,
            HandleMessage::Release(farewell) => {
                self.publisher.leaving();
                Input::Release(farewell)
            }
            HandleMessage::Abandon => Input::Abandon,
            HandleMessage::Publish(value) => Input::Publish(value),
            #[cfg(feature = "test-util")]
            HandleMessage::ForceLoss => Input::ForceLoss,
        };
        self.step(id, Some(input), io)
    }

    /// Takes an answer of the queue.
    pub(in crate::driver) fn answer(
        &mut self,
        id: SlotId,
        answer: Answer,
        io: &mut Io<'_>,
    ) -> LineWants {
        self.publisher.note(answer.error());
        if answer.is_look() {
            self.waits.renew();
        }
        self.step(id, Some(answer.into_input()), io)
    }

    /// Notes that a watched entry may be gone.
    pub(in crate::driver) fn left(
        &mut self,
        id: SlotId,
        whose: Whose,
        entry: Entry,
        gone: Gone,
        io: &mut Io<'_>,
    ) -> LineWants {
        self.waits.fired(whose, &entry);
        self.step(id, Some(Input::Gone(entry, gone)), io)
    }

    /// Notes that the election may have ended.
    pub(in crate::driver) fn ended(
        &mut self,
        id: SlotId,
        generation: u64,
        io: &mut Io<'_>,
    ) -> LineWants {
        self.waits.end_fired(generation);
        self.step(id, Some(Input::Hint), io)
    }

    /// Takes the record that was read.
    pub(in crate::driver) fn opened(
        &mut self,
        id: SlotId,
        read: Result<Option<Document>, StoreError>,
        io: &mut Io<'_>,
    ) -> LineWants {
        let Stage::Opening(opening) = &mut self.stage else { return self.step(id, None, io) };
        opening.reading = false;
        opening.failed = Some(io.parts.clock.now());
        let document = match read {
            Ok(document) => document,
            Err(error) => {
                self.publisher.note(Some(&error));
                return self.step(id, None, io);
            }
        };
        match self.judge(document) {
            Ok(delay) => {
                self.publisher.note(None);
                self.begin(delay, io.parts.highest(&self.key));
            }
            // An operator may mend the record.
            Err(error @ Error::Record { .. }) => self.publisher.warn(error),
            // The election was deleted, so it has ended.
            Err(Error::Ended { .. }) => self.refuse(Outcome::Ended),
            Err(error) => {
                self.publisher.warn(error);
                self.refuse(Outcome::Refused(Fault::Permanent));
            }
        }
        self.step(id, None, io)
    }

    /// The lock delay of this election, if it is a queue.
    fn judge(&self, document: Option<Document>) -> Result<Duration, Error> {
        let missing = || Error::Missing { name: self.name.clone() };
        let document = document.ok_or_else(missing)?;
        let record = Record::decode(&document.body)
            .map_err(|source| Error::Record { name: self.name.clone(), source })?;
        match (record.protocol, &record.state) {
            (_, State::Ended { deleted: true, .. }) => {
                Err(Error::Ended { name: self.name.clone() })
            }
            (Protocol::Queue, _) => Ok(record.delay),
            (Protocol::Lease, _) => Err(Error::Protocol {
                name: self.name.clone(),
                recorded: Protocol::Lease,
                wanted: Protocol::Queue,
            }),
        }
    }

    fn begin(&mut self, delay: Duration, highest: u64) {
        let Stage::Opening(opening) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return;
        };
        let Opening { candidate, grace, .. } = *opening;
        let settings = Settings { candidate, grace, generation: None, delay, highest };
        self.stage = Stage::Standing(Box::new(Machine::new(settings)));
    }

    fn refuse(&mut self, outcome: Outcome) {
        self.stage = Stage::Over;
        self.publisher.finish(outcome);
    }

    pub(in crate::driver) fn step(
        &mut self,
        id: SlotId,
        input: Option<Input>,
        io: &mut Io<'_>,
    ) -> LineWants {
        self.looks = false;
        match &mut self.stage {
            Stage::Opening(opening) => {
                let now = io.parts.clock.now();
                if !opening.reading && opening.rest(now).is_zero() {
                    opening.reading = true;
                    io.batch.read(id, Request::Opening, self.key.clone());
                }
            }
            Stage::Standing(_) => {
                if self.heard != io.version {
                    self.heard = io.version;
                    self.warn_of(io);
                    self.advance(id, Input::Session(io.session), io);
                }
                if let Some(input) = input {
                    self.advance(id, input, io);
                }
            }
            Stage::Over => {}
        }
        self.wants(id, io)
    }

    /// Reports that the candidate waits for a connection, with the reason if it is known.
    fn warn_of(&self, io: &Io<'_>) {
        if io.session.is_live() {
            return;
        }
        let error = io.line.trouble().or_else(|| {
            // Before the first session there is none to lose: it is about to begin.
            let says = "the session is not connected";
            let lost = || StoreError::new(Fault::Unavailable, "queue", "keeping the session", says);
            (io.session.number > 0).then(lost)
        });
        if let Some(error) = error {
            self.publisher.note(Some(&error));
        }
    }

    fn advance(&mut self, id: SlotId, input: Input, io: &mut Io<'_>) {
        let Stage::Standing(machine) = &mut self.stage else { return };
        let outputs = machine.step(io.parts.clock.now(), input);
        outputs.into_iter().for_each(|output| self.carry_out(id, output, io));
    }

    fn carry_out(&mut self, id: SlotId, output: Output, io: &mut Io<'_>) {
        let caller = Caller { id, line: io.line, key: &self.key };
        let call = match output {
            Output::Join { ask, ticket, holder } => caller.join(ask, ticket, holder),
            Output::Line { ask, ticket, freshness } => {
                self.looks |= freshness == Freshness::Session;
                caller.line(ask, ticket, freshness)
            }
            Output::Begin { ask, entry } => caller.begin(ask, entry),
            Output::Note { ask, entry } => caller.note(ask, entry),
            Output::Leave { ask, entry, clean } => caller.leave(ask, entry, clean),
            Output::End { ask, generation } => caller.end(ask, generation),
            Output::Publish { ask, entry, value } => caller.publish(ask, entry, value),
            Output::Elected(lease) => {
                io.parts.remember(&self.key, lease.token);
                return self.publisher.elect(lease, &io.parts.clock);
            }
            Output::Extended(lease) => return self.publisher.extend(lease),
            Output::MustStop => return self.publisher.must_stop(),
            Output::Lost { token, loss } => return self.publisher.lose(token, &loss),
            Output::Suspended => return self.publisher.suspend(self.remaining(io)),
            Output::Resumed => return self.publisher.resume(),
            Output::Following(holder) => return self.publisher.follow(holder.as_deref()),
            Output::Over(outcome) => return self.publisher.finish(outcome),
        };
        io.requests.push(call);
    }

    fn remaining(&self, io: &Io<'_>) -> Duration {
        let now = io.parts.clock.now();
        match &self.stage {
            Stage::Standing(machine) => {
                machine.lease(now).map(|lease| Lease::remaining(&lease, now))
            }
            Stage::Opening(_) | Stage::Over => None,
        }
        .unwrap_or_default()
    }

    fn wants(&mut self, id: SlotId, io: &Io<'_>) -> LineWants {
        let now = io.parts.clock.now();
        let over = self.publisher.is_over();
        match &self.stage {
            Stage::Over => LineWants { settled: true, over: true, ..LineWants::default() },
            Stage::Opening(opening) => LineWants {
                wake: (!opening.reading).then(|| opening.rest(now)),
                ..LineWants::default()
            },
            Stage::Standing(machine) => {
                let (entries, end) = (machine.watching(), machine.awaiting_end());
                self.waits.set(id, &self.key, entries, end, io);
                LineWants {
                    settled: machine.is_settled(),
                    over,
                    wake: machine.wake(now).map(|span| span.max(LEAST_WAKE)),
                    pace: machine.pace(),
                    looks: self.looks,
                }
            }
        }
    }
}

impl Opening {
    /// How long until the record is read again.
    fn rest(&self, now: Moment) -> Duration {
        self.failed.map_or(Duration::ZERO, |failed| REST.saturating_sub(now.at_least_since(failed)))
    }
}
