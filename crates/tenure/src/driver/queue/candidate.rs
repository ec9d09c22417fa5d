//! One candidacy in the queue: its machine and its waits.

use std::sync::Arc;
use std::time::Duration;

use super::super::participant::{self, Event, Participant, Wants};
use super::super::publisher::{HandleMessage, Shared, StatusPublisher};
use super::super::requests::{Answer, Request};
use super::Io;
use super::calls::{self, Caller};
use super::waits::{Waits, Whose};
use crate::clock::Moment;
use crate::lease::record::{Record, State};
use crate::protocol::{Farewell, Holder, Lease, Outcome};
use crate::queue::machine::{Input, Machine, Output, Settings};
use crate::queue::{Entry, Freshness, Gone};
use crate::store::{Document, Fault, StoreError};
use crate::{Error, Key, Name, Protocol};

/// How long to wait before reading an unreadable or invalid record again.
const REST: Duration = Duration::from_millis(500);
/// The shortest wake-up time, so that a machine is not asked again at once.
const LEAST_WAKE: Duration = Duration::from_millis(1);

/// A candidacy that the queue protocol decides. Its lock delay is read from the record first.
pub(crate) struct QueueCandidate {
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
    /// The candidacy never stood in the queue.
    Over,
}

struct Opening {
    candidate: Holder,
    grace: Option<Duration>,
    reading: bool,
    failed: Option<Moment>,
}

impl QueueCandidate {
    pub(crate) fn new(
        name: Name,
        key: Key,
        candidate: Holder,
        grace: Option<Duration>,
        shared: Arc<Shared>,
    ) -> QueueCandidate {
        let opening = Opening { candidate, grace, reading: false, failed: None };
        QueueCandidate {
            name,
            key,
            stage: Stage::Opening(Box::new(opening)),
            publisher: StatusPublisher::new(shared),
            heard: 0,
            waits: Waits::default(),
            looks: false,
        }
    }

    fn hear(&mut self, message: HandleMessage, io: &mut Io<'_>) -> Wants {
        if let Stage::Opening(opening) = &mut self.stage {
            match message {
                HandleMessage::Publish(value) => opening.candidate.value = value,
                // Nothing of the candidacy has reached the queue yet.
                HandleMessage::Release(_) | HandleMessage::Abandon => {
                    self.refuse(Outcome::Withdrawn)
                }
                HandleMessage::WorkEnded => {}
                #[cfg(feature = "test-util")]
                HandleMessage::ForceLoss => {}
            }
            return self.step(None, io);
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
        self.step(Some(input), io)
    }

    /// Takes an answer of the queue.
    fn answer(&mut self, answer: calls::Answer, io: &mut Io<'_>) -> Wants {
        self.publisher.note(answer.error());
        if answer.is_look() {
            self.waits.renew();
        }
        self.step(Some(answer.into_input()), io)
    }

    /// Notes that a watched entry may be gone.
    fn left(&mut self, whose: Whose, entry: Entry, gone: Gone, io: &mut Io<'_>) -> Wants {
        self.waits.fired(whose, &entry);
        self.step(Some(Input::Gone(entry, gone)), io)
    }

    /// Notes that the election may have ended.
    fn ended(&mut self, generation: u64, io: &mut Io<'_>) -> Wants {
        self.waits.end_fired(generation);
        self.step(Some(Input::Hint), io)
    }

    /// Takes the record that was read.
    fn opened(&mut self, read: Result<Option<Document>, StoreError>, io: &mut Io<'_>) -> Wants {
        let Stage::Opening(opening) = &mut self.stage else { return self.step(None, io) };
        opening.reading = false;
        opening.failed = Some(io.parts.clock.now());
        let document = match read {
            Ok(document) => document,
            Err(error) => {
                self.publisher.note(Some(&error));
                return self.step(None, io);
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
        self.step(None, io)
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

    fn step(&mut self, input: Option<Input>, io: &mut Io<'_>) -> Wants {
        self.looks = false;
        match &mut self.stage {
            Stage::Opening(opening) => {
                let now = io.parts.clock.now();
                if !opening.reading && opening.rest(now).is_zero() {
                    opening.reading = true;
                    io.batch.read(io.id, Request::Opening, self.key.clone());
                }
            }
            Stage::Standing(_) => {
                if self.heard != io.version {
                    self.heard = io.version;
                    self.warn_of(io);
                    self.advance(Input::Session(io.session), io);
                }
                if let Some(input) = input {
                    self.advance(input, io);
                }
            }
            Stage::Over => {}
        }
        self.wants(io)
    }

    /// Reports that the candidate waits for a connection, with the reason if it is known.
    fn warn_of(&self, io: &Io<'_>) {
        if io.session.is_live() {
            return;
        }
        let error = io.queue.trouble().or_else(|| {
            // Before the first session there is none to lose: it is about to begin.
            let says = "the session is not connected";
            let lost = || StoreError::new(Fault::Unavailable, "queue", "keeping the session", says);
            (io.session.number > 0).then(lost)
        });
        if let Some(error) = error {
            self.publisher.note(Some(&error));
        }
    }

    fn advance(&mut self, input: Input, io: &mut Io<'_>) {
        let Stage::Standing(machine) = &mut self.stage else { return };
        let outputs = machine.step(io.parts.clock.now(), input);
        outputs.into_iter().for_each(|output| self.carry_out(output, io));
    }

    fn carry_out(&mut self, output: Output, io: &mut Io<'_>) {
        let caller = Caller { id: io.id, queue: io.queue, key: &self.key };
        let call = match output {
            Output::Join { ask, ticket, holder } => caller.join(ask, ticket, holder),
            Output::Read { ask, ticket, freshness } => {
                self.looks |= freshness == Freshness::Session;
                caller.read(ask, ticket, freshness)
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

    fn wants(&mut self, io: &Io<'_>) -> Wants {
        let now = io.parts.clock.now();
        let over = self.publisher.is_over();
        match &self.stage {
            Stage::Over => Wants { over: true, ..Wants::default() },
            Stage::Opening(opening) => {
                Wants { wake: (!opening.reading).then(|| opening.rest(now)), ..Wants::default() }
            }
            Stage::Standing(machine) => {
                let (entries, end) = (machine.watching(), machine.awaiting_end());
                self.waits.set(io.id, &self.key, entries, end, io);
                Wants {
                    over: machine.is_settled(),
                    lingers: over,
                    wake: machine.wake(now).map(|span| span.max(LEAST_WAKE)),
                    pace: machine.pace(),
                    looks: self.looks,
                    ..Wants::default()
                }
            }
        }
    }
}

impl Participant for QueueCandidate {
    fn key(&self) -> &Key {
        &self.key
    }

    fn take(&mut self, event: Event, io: &mut participant::Io<'_>) -> Wants {
        let Some(mut io) = Io::of(io) else { return Wants { over: true, ..Wants::default() } };
        let io = &mut io;
        match event {
            Event::Admitted { .. } => {
                self.publisher.admitted(io.id);
                self.step(Some(Input::Tick), io)
            }
            Event::Tick => self.step(Some(Input::Tick), io),
            Event::LookAlong => self.step(Some(Input::Hint), io),
            Event::Session => self.step(None, io),
            Event::Message(message) => self.hear(message, io),
            Event::Answer(_, Answer::Read(read)) => self.opened(read, io),
            Event::Called(answer) => self.answer(answer, io),
            Event::Left(whose, entry, gone) => self.left(whose, entry, gone, io),
            Event::Ended(generation) => self.ended(generation, io),
            // These concern leases and observers.
            Event::Batch
            | Event::Notified(_)
            | Event::Answer(_, Answer::Write(_))
            | Event::Looked(_)
            | Event::Changed
            | Event::HolderGone(_)
            | Event::Moved => {
                self.looks = false;
                self.wants(io)
            }
        }
    }

    fn goodbye(&mut self) -> Option<HandleMessage> {
        self.publisher.goodbye();
        Some(HandleMessage::Release(Farewell::Free))
    }
}

impl Opening {
    /// How long until the record is read again.
    fn rest(&self, now: Moment) -> Duration {
        self.failed.map_or(Duration::ZERO, |failed| REST.saturating_sub(now.at_least_since(failed)))
    }
}
