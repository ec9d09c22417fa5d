//! One observer of a queue: it reads when the queue may have moved, and reports the state.

use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::sync::watch;

use super::super::hints::{Armed, Hint, arm};
use super::super::participant::{self, Event, Participant, Wants};
use super::super::publisher::HandleMessage;
use super::super::requests::{Done, LONGEST_CALL};
use super::Io;
use crate::clock::Moment;
use crate::observer::Seen;
use crate::observer::queue::{self, View};
use crate::queue::{Entry, Freshness};
use crate::store::{Fault, StoreError};
use crate::{Error, Key, Name};

/// The longest time between two reads of a queue without any notification.
const LONGEST_POLL: Duration = Duration::from_secs(30);
/// The time until the next read after a failure. It is short, because there is no watch meanwhile.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The result of reading a queue.
pub(crate) type Looked = Result<View, Error>;

/// An observer of a queue, without an entry of its own.
pub(crate) struct QueueObserver {
    name: Name,
    key: Key,
    seen: watch::Sender<Option<Seen>>,
    state: State,
}

#[derive(Default)]
struct State {
    looking: bool,
    stale: bool,
    failed: bool,
    last: Option<Moment>,
    /// The first entry in the queue, once a read has shown it.
    first: Option<Option<Entry>>,
    moved: Option<Armed<Option<Entry>>>,
    /// The queue may have moved before the current wait began: read once more.
    confirm: bool,
}

impl QueueObserver {
    pub(crate) fn new(name: Name, key: Key, seen: watch::Sender<Option<Seen>>) -> QueueObserver {
        QueueObserver { name, key, seen, state: State::default() }
    }

    /// Notes that the queue may have moved.
    fn moved(&mut self) {
        self.state.moved = None;
        self.state.stale = true;
    }

    fn looked(&mut self, looked: Looked, io: &Io<'_>) {
        self.state.looking = false;
        self.state.last = Some(io.parts.clock.now());
        self.state.failed = looked.is_err();
        let told = match looked {
            Ok(View { standing, first }) => {
                self.state.first = Some(first);
                Ok(standing)
            }
            Err(error) => Err(error),
        };
        self.seen.send_if_modified(|seen| {
            let same = matches!((&*seen, &told), (Some(Ok(before)), Ok(now)) if before == now);
            *seen = Some(told);
            !same
        });
    }

    /// Reads the queue if that is due. Returns the time until the next wake-up.
    fn step(&mut self, io: &Io<'_>) -> Option<Duration> {
        let id = io.id;
        let left = self.until_poll(io);
        let state = &mut self.state;
        if !state.looking && (state.stale || state.confirm || left.is_zero()) {
            state.looking = true;
            state.stale = false;
            state.confirm = false;
            let (parts, name, key) = (io.parts.clone(), self.name.clone(), self.key.clone());
            let queue = io.queue.clone();
            let look = async move {
                let looking = queue::look(&parts.store, &queue, &name, &key, Freshness::Session);
                let looked = tokio::time::timeout(LONGEST_CALL, looking).await;
                Done::Looked(id, looked.unwrap_or_else(|_| Err(overdue(&name))))
            };
            io.requests.push(look.boxed());
        }
        if state.looking {
            return None;
        }
        // After a failure, a backend that cannot tell would wake at once, again and again.
        let first = state.first.clone().filter(|_| !state.failed);
        if state.moved.as_ref().map(|armed| &armed.on) != first.as_ref() {
            state.confirm = first.is_some();
            state.moved = first.map(|first| {
                let (queue, key, on) = (io.queue.clone(), self.key.clone(), first.clone());
                let wait = async move {
                    queue.moved(&key, first.as_ref()).await;
                    Hint::Moved(id)
                };
                arm(io.hints, on, wait.boxed())
            });
        }
        let wake = if state.confirm { Duration::ZERO } else { self.until_poll(io) };
        Some(wake)
    }

    fn until_poll(&self, io: &Io<'_>) -> Duration {
        let Some(last) = self.state.last else { return Duration::ZERO };
        let poll = match self.state.failed {
            true => AFTER_FAILURE,
            false => (io.session.ttl * 2).min(LONGEST_POLL),
        };
        poll.saturating_sub(io.parts.clock.now().at_least_since(last))
    }
}

impl Participant for QueueObserver {
    fn key(&self) -> &Key {
        &self.key
    }

    fn take(&mut self, event: Event, io: &mut participant::Io<'_>) -> Wants {
        let over = Wants { over: true, ..Wants::default() };
        let Some(io) = Io::of(io).filter(|_| !self.seen.is_closed()) else { return over };
        match event {
            Event::Looked(looked) => self.looked(looked, &io),
            Event::Moved => self.moved(),
            Event::Admitted { .. }
            | Event::Tick
            | Event::Batch
            | Event::LookAlong
            | Event::Notified(_)
            | Event::Session
            | Event::Message(_)
            | Event::Answer(..)
            | Event::Called(_)
            | Event::Changed
            | Event::HolderGone(_)
            | Event::Left(..)
            | Event::Ended(_) => {}
        }
        Wants { wake: self.step(&io), ..Wants::default() }
    }

    fn goodbye(&mut self) -> Option<HandleMessage> {
        None
    }
}

fn overdue(name: &Name) -> Error {
    let says = "the backend did not end its call";
    let doing = format!("looking at the queue of {name}");
    Error::Store(StoreError::new(Fault::Indeterminate, "queue", doing, says))
}
