//! One observer in the driver.
//!
//! It reads when the record may have changed, and reports the state.

use std::time::Duration;

use tokio::sync::watch;

use super::candidate::garbled;
use super::participant::{Event, Io, Participant, Wants};
use super::publisher::HandleMessage;
use super::requests::{Answer, Request};
use crate::clock::Moment;
use crate::lease::record::Record;
use crate::observer::{Seen, Standing};
use crate::store::{Document, StoreError, Version};
use crate::{Error, Key, Name, Timing};

/// An observer of an election, without a candidacy of its own.
pub(crate) struct LeaseObserver {
    name: Name,
    key: Key,
    timing: Timing,
    seen: watch::Sender<Option<Seen>>,
    state: Watching,
}

/// The knowledge of an observer.
#[derive(Default)]
struct Watching {
    view: Option<View>,
    reading: bool,
    stale: bool,
    last_read: Option<Moment>,
    notified: bool,
    gone: bool,
    failed: bool,
}

struct View {
    version: Option<Version>,
    record: Option<Record>,
    since: Moment,
}

impl LeaseObserver {
    pub(crate) fn new(
        name: Name,
        key: Key,
        timing: Timing,
        seen: watch::Sender<Option<Seen>>,
    ) -> LeaseObserver {
        LeaseObserver { name, key, timing, seen, state: Watching::default() }
    }

    /// Reads the record if that is due.
    fn step(&mut self, io: &mut Io<'_>) -> Wants {
        let now = io.parts.clock.now();
        let due = self.until_poll(now).is_zero();
        if !self.state.reading && (due || self.state.stale || self.state.view.is_none()) {
            self.state.reading = true;
            io.batch.read(io.id, Request::Observation, self.key.clone());
        }
        self.wants(now)
    }

    fn note_gone(&mut self, now: Moment, version: &Version) {
        let view = self.state.view.as_ref();
        if view.is_some_and(|view| view.version.as_ref() == Some(version)) {
            self.state.gone = true;
            self.publish(now);
        }
    }

    fn answer(&mut self, answer: Answer, io: &Io<'_>) -> Wants {
        let now = io.parts.clock.now();
        self.state.reading = false;
        self.state.last_read = Some(now);
        self.state.stale = false;
        self.state.failed = matches!(answer, Answer::Read(Err(_)));
        match answer {
            Answer::Read(Ok(document)) => self.adopt(now, document),
            Answer::Read(Err(error)) => self.report(error),
            Answer::Write(_) => {}
        }
        self.wants(now)
    }

    fn adopt(&mut self, now: Moment, document: Option<Document>) {
        let version = document.as_ref().map(|document| document.version.clone());
        if self.state.view.as_ref().is_some_and(|view| view.version == version) {
            return self.publish(now);
        }
        let record = match document.map(|document| Record::decode_lease(&document.body)).transpose()
        {
            Ok(record) => record,
            Err(source) => {
                self.state.view = Some(View { version, record: None, since: now });
                let error = garbled(self.name.clone(), source);
                self.seen.send_replace(Some(Err(error)));
                return;
            }
        };
        self.state.gone = false;
        self.state.view = Some(View { version, record, since: now });
        self.publish(now);
    }

    /// Reports the current state, if it differs from the last report.
    fn publish(&mut self, now: Moment) {
        let Some(view) = &self.state.view else { return };
        let lapsed =
            self.state.gone || self.until_lapse(now, view).is_some_and(|span| span.is_zero());
        let standing = Standing::of(&self.name, view.record.as_ref(), lapsed);
        self.seen.send_if_modified(|seen| {
            let same = matches!(seen, Some(Ok(told)) if told.is_like(&standing));
            // A renewal moves only `expire`: the value is kept current, but receivers are not
            // woken.
            *seen = Some(Ok(standing));
            !same
        });
    }

    fn report(&mut self, error: StoreError) {
        self.seen.send_replace(Some(Err(Error::Store(error))));
    }

    fn until_lapse(&self, now: Moment, view: &View) -> Option<Duration> {
        let record = view.record.as_ref()?;
        record.holder()?;
        Some(record.ttl.saturating_sub(now.at_least_since(view.since)))
    }

    fn until_poll(&self, now: Moment) -> Duration {
        let Some(read) = self.state.last_read else { return Duration::ZERO };
        // After a failure there is no watch: read again soon.
        let notified = self.state.notified && !self.state.failed;
        self.timing.poll(notified).saturating_sub(now.at_least_since(read))
    }

    fn wants(&self, now: Moment) -> Wants {
        let state = &self.state;
        if state.reading {
            return Wants::default();
        }
        let lapse = state.view.as_ref().and_then(|view| self.until_lapse(now, view));
        // Once the leader has lapsed, only a change matters.
        let lapse = lapse.filter(|span| !span.is_zero());
        let death = state.view.as_ref().filter(|_| !state.gone).and_then(|view| {
            let mark = view.record.as_ref()?.holder()?.presence.clone()?;
            Some((view.version.clone()?, mark))
        });
        Wants {
            over: self.seen.is_closed(),
            wake: Some(lapse.map_or(self.until_poll(now), |lapse| lapse.min(self.until_poll(now)))),
            watch: state.view.as_ref().filter(|_| !state.failed).map(|view| view.version.clone()),
            death,
            ..Wants::default()
        }
    }
}

impl Participant for LeaseObserver {
    fn key(&self) -> &Key {
        &self.key
    }

    fn take(&mut self, event: Event, io: &mut Io<'_>) -> Wants {
        if self.seen.is_closed() {
            return Wants { over: true, ..Wants::default() };
        }
        let now = io.parts.clock.now();
        match event {
            Event::Admitted { notified } | Event::Notified(notified) => {
                self.state.notified = notified;
            }
            Event::Tick => self.publish(now),
            Event::Changed => self.state.stale = true,
            Event::HolderGone(version) => self.note_gone(now, &version),
            Event::Answer(_, answer) => return self.answer(answer, io),
            Event::Batch
            | Event::LookAlong
            | Event::Session
            | Event::Message(_)
            | Event::Called(_)
            | Event::Looked(_)
            | Event::Left(..)
            | Event::Ended(_)
            | Event::Moved => {}
        }
        self.step(io)
    }

    fn goodbye(&mut self) -> Option<HandleMessage> {
        None
    }
}
