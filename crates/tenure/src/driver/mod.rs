//! The one loop that runs every machine of a backend.
//!
//! One task serves any number of elections. It collects the machines' reads and writes into
//! batches, waits for answers, hints and the earliest deadline, and steps the machines that they
//! concern. The driver decides nothing about leadership; only the machines do.

mod candidate;
mod hints;
mod observation;
mod participant;
mod publisher;
mod queue;
mod registration;
mod requests;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Abortable, BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use crate::clock::{Moment, Timer};
use crate::parts::Parts;

pub(crate) use candidate::LeaseCandidate;
use hints::Hint;
pub(crate) use observation::LeaseObserver;
use participant::Event;
pub(crate) use participant::Participant;
pub(crate) use publisher::{HandleMessage, Shared};
use queue::{Concerns, Sessions};
pub(crate) use queue::{QueueCandidate, QueueObserver};
use requests::{Answer, Batch, Done};
use slots::Slot;

/// The longest time by which a request may leave early to join a batch.
const LONGEST_LEAD: Duration = Duration::from_millis(500);

/// The longest time by which a queue is read early, when other slots read theirs anyway.
const LONGEST_LOOK_LEAD: Duration = Duration::from_secs(15);

/// The machine that a request or hint belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(u64);

/// A way to talk to a backend's driver.
///
/// The driver ends when the last handle is gone and every goodbye has been answered.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    // Unbounded, because goodbyes come from `Drop`; each candidacy sends a handful in its life.
    commands: mpsc::UnboundedSender<Command>,
}

pub(crate) enum Command {
    /// A candidacy or an observation begins.
    Admit(Box<dyn Participant>),
    Tell(Arc<Shared>, HandleMessage),
    Close(oneshot::Sender<()>),
}

impl Handle {
    pub(crate) fn is_alive(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Returns true if the driver will hear the command.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    pub(crate) async fn close(&self) {
        let (closed, done) = oneshot::channel();
        if self.send(Command::Close(closed)) {
            // An error means that the driver has stopped, and we wait for just that.
            let _ = done.await;
        }
    }
}

/// Starts a driver. It owns everything it spawns: dropping it drops its requests too.
pub(crate) fn start(runtime: &tokio::runtime::Handle, parts: Parts) -> Handle {
    let (sender, commands) = mpsc::unbounded_channel();
    runtime.spawn(async move {
        let timer = parts.clock.timer();
        Driver::new(parts, commands, timer).run().await;
    });
    Handle { commands: sender }
}

struct Driver {
    parts: Parts,
    commands: mpsc::UnboundedReceiver<Command>,
    /// No handle is left to send commands; the remaining slots say goodbye.
    deaf: bool,
    timer: Box<dyn Timer>,
    slots: BTreeMap<SlotId, Slot>,
    next_slot: u64,
    /// When each slot next needs a tick, soonest first.
    due: BTreeSet<(Duration, SlotId)>,
    batch: Batch,
    requests: FuturesUnordered<BoxFuture<'static, Done>>,
    hints: FuturesUnordered<Abortable<BoxFuture<'static, Hint>>>,
    notified: bool,
    /// The session of the backend's queue, where it has one.
    sessions: Option<Sessions>,
    /// How many slots have told their handles how it ended, and only clean up.
    lingering: usize,
    closing: Vec<oneshot::Sender<()>>,
    /// Since when no handle is left and only the clean-up goes on.
    alone_since: Option<Moment>,
}

impl Driver {
    fn new(
        parts: Parts,
        commands: mpsc::UnboundedReceiver<Command>,
        timer: Box<dyn Timer>,
    ) -> Driver {
        let notified = parts.store.notifies();
        let sessions = parts.queue.clone().map(Sessions::new);
        Driver {
            parts,
            commands,
            deaf: false,
            timer,
            slots: BTreeMap::new(),
            next_slot: 0,
            due: BTreeSet::new(),
            batch: Batch::default(),
            requests: FuturesUnordered::new(),
            hints: FuturesUnordered::new(),
            notified,
            sessions,
            lingering: 0,
            closing: Vec::new(),
            alone_since: None,
        }
    }

    async fn run(mut self) {
        loop {
            self.send_batches();
            // Lingering slots have told their handles how the candidacy ended, and the store has
            // not answered them for a ttl.
            if self.slots.len() == self.lingering {
                self.closing.drain(..).for_each(|closed| {
                    // The caller may have gone away since.
                    let _ = closed.send(());
                });
                if self.deaf && self.may_end() {
                    return;
                }
            }
            self.wait().await;
            self.drain();
            self.tick();
            self.gather();
        }
    }

    /// Returns true if nothing is left to clean up, or if the session must be over by now.
    fn may_end(&mut self) -> bool {
        let Some(sessions) = self.sessions.as_ref().filter(|_| self.lingering > 0) else {
            return true;
        };
        let (now, patience) = (self.parts.clock.now(), sessions.now.ttl * 2);
        let since = *self.alone_since.get_or_insert(now);
        now.at_least_since(since) >= patience
    }

    /// Waits for the next event, and takes it.
    async fn wait(&mut self) {
        let due = self.due.first().map(|(boot, _)| *boot);
        let patience = self.sessions.as_ref().map_or(Duration::ZERO, |known| known.now.ttl * 2);
        let end = self.alone_since.map(|since| since.boot.saturating_add(patience));
        let wake = due.into_iter().chain(end).min();
        let wake = wake.map(|boot| Moment { boot, ..Moment::default() });
        let (timer, clock) = (&mut self.timer, &self.parts.clock);
        let sessions = &mut self.sessions;
        let session = async {
            match sessions {
                Some(sessions) => sessions.changed().await,
                None => std::future::pending().await,
            }
        };
        let sleep = async {
            match wake {
                // The clock without sleep may be behind. Then this wakes early, which does no harm.
                Some(wake) => {
                    timer.until(Moment { monotonic: clock.now().monotonic, ..wake }).await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            command = self.commands.recv(), if !self.deaf => match command {
                Some(command) => self.take_command(command),
                None => self.part(),
            },
            Some(done) = self.requests.next(), if !self.requests.is_empty() => self.take_done(done),
            // Before the hints: the end of a session explains the deletion of all its entries.
            () = session => self.take_session(),
            Some(hint) = self.hints.next(), if !self.hints.is_empty() => {
                if let Ok(hint) = hint {
                    self.take_hint(hint);
                }
            }
            () = sleep => {}
        }
    }

    /// Takes all other pending events, so that their requests leave in one batch.
    fn drain(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.take_command(command);
        }
        while let Some(Some(done)) = self.requests.next().now_or_never() {
            self.take_done(done);
        }
        self.take_session();
        while let Some(Some(hint)) = self.hints.next().now_or_never() {
            if let Ok(hint) = hint {
                self.take_hint(hint);
            }
        }
    }

    fn tick(&mut self) {
        let notified = self.parts.store.notifies();
        if notified != self.notified {
            self.notified = notified;
            let all: Vec<SlotId> = self.slots.keys().copied().collect();
            all.into_iter().for_each(|id| {
                self.step(id, Event::Notified(notified));
            });
        }
        let now = self.parts.clock.now().boot;
        let mut looked = false;
        while let Some((due, id)) = self.due.first().copied()
            && due <= now
        {
            looked |= self.step(id, Event::Tick);
        }
        if looked {
            self.look_together(now);
        }
    }

    /// Makes all slots look that would do so soon, when one looks without having heard of a change.
    ///
    /// So a process with thousands of idle followers has one busy moment in half a minute, not one
    /// every few milliseconds.
    fn look_together(&mut self, now: Duration) {
        let ttl = self.sessions.as_ref().map_or(Duration::ZERO, |sessions| sessions.now.ttl);
        let soon = now.saturating_add(ttl.min(LONGEST_LOOK_LEAD));
        let near = self.due.range(..(soon, SlotId(0))).map(|(_, id)| *id);
        let near: Vec<SlotId> = near.collect();
        for id in near {
            self.step(id, Event::LookAlong);
        }
    }

    fn take_session(&mut self) {
        let Some(concerns) = self.sessions.as_mut().and_then(Sessions::take) else { return };
        let whom = match concerns {
            Concerns::Everybody => self.slots.keys().copied().collect(),
            Concerns::These(near) => near,
        };
        for id in whom {
            self.step(id, Event::Session);
        }
    }

    /// When a request leaves anyway, lets requests that are due soon go along.
    fn gather(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let soon = self.parts.clock.now().boot.saturating_add(LONGEST_LEAD);
        let near = self.due.range(..(soon, SlotId(0))).map(|(_, id)| *id);
        // Each candidate decides by itself whether it is near enough to its time.
        let near: Vec<SlotId> = near.collect();
        for id in near {
            self.step(id, Event::Batch);
        }
    }

    fn take_command(&mut self, command: Command) {
        match command {
            Command::Admit(participant) => self.admit(participant),
            Command::Tell(shared, message) => {
                if let Some(id) = shared.slot() {
                    self.step(id, Event::Message(message));
                }
            }
            Command::Close(closed) => {
                self.closing.push(closed);
                self.say_goodbye();
            }
        }
    }

    /// Handles the end of all handles: no process would take part in the elections any more.
    fn part(&mut self) {
        self.deaf = true;
        self.say_goodbye();
    }

    fn take_done(&mut self, done: Done) {
        match done {
            Done::Reads(asked, Ok(documents)) => {
                for ((id, ask), document) in asked.into_iter().zip(documents) {
                    self.step(id, Event::Answer(ask, Answer::Read(Ok(document))));
                }
            }
            Done::Reads(asked, Err(error)) => {
                for (id, ask) in asked {
                    self.step(id, Event::Answer(ask, Answer::Read(Err(error.clone()))));
                }
            }
            Done::Writes(asked, outcomes) => {
                for ((id, ask), outcome) in asked.into_iter().zip(outcomes) {
                    self.step(id, Event::Answer(ask, Answer::Write(outcome)));
                }
            }
            Done::Queue(id, answer) => {
                self.step(id, Event::Called(answer));
            }
            Done::Looked(id, looked) => {
                self.step(id, Event::Looked(looked));
            }
        }
    }

    fn take_hint(&mut self, hint: Hint) {
        let (id, event) = match hint {
            Hint::Changed(id) => {
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.watch = None;
                }
                (id, Event::Changed)
            }
            Hint::Gone(id, version) => {
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.death = None;
                }
                (id, Event::HolderGone(version))
            }
            Hint::Left(id, whose, entry, gone) => (id, Event::Left(whose, entry, gone)),
            Hint::Ended(id, generation) => (id, Event::Ended(generation)),
            Hint::Moved(id) => (id, Event::Moved),
        };
        self.step(id, event);
    }

    fn send_batches(&mut self) {
        for request in self.batch.batches(&self.parts.store) {
            self.requests.push(request);
        }
    }
}
