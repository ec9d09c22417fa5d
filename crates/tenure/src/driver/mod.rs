//! The one loop that runs every machine of a backend.
//!
//! However many elections there are, one task serves them: it collects what the machines want to read
//! and write into batches, waits for answers, hints and the earliest deadline, and steps the machines
//! they concern. Nothing here decides anything about leadership; that is the machines' business.

mod candidate;
mod observation;
mod registration;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use crate::backend::Parts;
use crate::clock::{Moment, Timer};
use crate::lease::machine::Input;
use crate::store::{Document, Put, StoreError, Version};
use crate::{Key, Mark};

pub(crate) use candidate::Candidacy;
use candidate::CandidateSlot;
pub(crate) use candidate::Shared;
pub(crate) use observation::{Observation, Watching};
pub(crate) use registration::REFRESH_TTLS;
use requests::{Done, Queue};

/// Nothing leaves earlier than this before its time, however large the batch it could join.
const LONGEST_LEAD: Duration = Duration::from_millis(500);

/// Which machine a request or hint belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(u64);

/// A way to talk to a backend's driver. The driver ends when the last of them is gone and every
/// goodbye has been answered.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    // Unbounded, since goodbyes come from `Drop`; each candidacy sends a handful in its life.
    commands: mpsc::UnboundedSender<Command>,
}

pub(crate) enum Command {
    Stand(Box<Candidacy>),
    Tell(Arc<Shared>, Input),
    Observe(Observation),
    Close(oneshot::Sender<()>),
}

impl Handle {
    pub(crate) fn is_alive(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Whether the driver will hear it.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    pub(crate) async fn close(&self) {
        let (closed, done) = oneshot::channel();
        if self.send(Command::Close(closed)) {
            // An error means that the driver has stopped, which is what we wait for.
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
    /// Nobody can send any more; what is left says goodbye.
    deaf: bool,
    timer: Box<dyn Timer>,
    slots: BTreeMap<SlotId, Slot>,
    next_slot: u64,
    /// When each slot next needs a tick, soonest first.
    due: BTreeSet<(Duration, SlotId)>,
    queue: Queue,
    requests: FuturesUnordered<BoxFuture<'static, Done>>,
    hints: FuturesUnordered<Abortable<BoxFuture<'static, Hint>>>,
    notified: bool,
    closing: Vec<oneshot::Sender<()>>,
}

struct Slot {
    key: Key,
    kind: Kind,
    due: Option<Duration>,
    watch: Option<Armed<Option<Version>>>,
    death: Option<Armed<Version>>,
}

enum Kind {
    Candidate(Box<CandidateSlot>),
    Observer(Box<Observation>),
}

/// A wait for something, cancelled when the slot no longer wants it.
struct Armed<T> {
    on: T,
    abort: AbortHandle,
}

impl<T> Drop for Armed<T> {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

enum Hint {
    Changed(SlotId),
    Gone(SlotId, Version),
}

/// What a slot wants done after a step.
#[derive(Default)]
struct Wants {
    over: bool,
    wake: Option<Duration>,
    watch: Option<Option<Version>>,
    death: Option<(Version, Mark)>,
}

impl Driver {
    fn new(
        parts: Parts,
        commands: mpsc::UnboundedReceiver<Command>,
        timer: Box<dyn Timer>,
    ) -> Driver {
        let notified = parts.store.notifies();
        Driver {
            parts,
            commands,
            deaf: false,
            timer,
            slots: BTreeMap::new(),
            next_slot: 0,
            due: BTreeSet::new(),
            queue: Queue::default(),
            requests: FuturesUnordered::new(),
            hints: FuturesUnordered::new(),
            notified,
            closing: Vec::new(),
        }
    }

    async fn run(mut self) {
        loop {
            self.send_batches();
            if self.slots.is_empty() {
                self.closing.drain(..).for_each(|closed| {
                    // Whoever asked may have gone away since.
                    let _ = closed.send(());
                });
                if self.deaf {
                    return;
                }
            }
            self.wait().await;
            self.drain();
            self.tick();
            self.gather();
        }
    }

    /// Waits for the next thing to happen, and takes it.
    async fn wait(&mut self) {
        let wake = self.due.first().map(|(boot, _)| Moment { boot: *boot, ..Moment::default() });
        let (timer, clock) = (&mut self.timer, &self.parts.clock);
        let sleep = async {
            match wake {
                // A clock that does not count sleep may be behind: then this wakes early, no harm.
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
            Some(hint) = self.hints.next(), if !self.hints.is_empty() => {
                if let Ok(hint) = hint {
                    self.take_hint(hint);
                }
            }
            () = sleep => {}
        }
    }

    /// Takes everything else that is already there, so that its requests leave in one batch.
    fn drain(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.take_command(command);
        }
        while let Some(Some(done)) = self.requests.next().now_or_never() {
            self.take_done(done);
        }
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
            all.into_iter().for_each(|id| self.step(id, Input::Notified(notified)));
        }
        let now = self.parts.clock.now().boot;
        while let Some((due, id)) = self.due.first().copied()
            && due <= now
        {
            self.step(id, Input::Tick);
        }
    }

    /// When something leaves anyway, lets what is due soon go along.
    fn gather(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let soon = self.parts.clock.now().boot.saturating_add(LONGEST_LEAD);
        let near = self.due.range(..(soon, SlotId(0))).map(|(_, id)| *id);
        // A candidate decides by itself whether it is near enough to its time.
        let near: Vec<SlotId> = near.collect();
        near.into_iter().for_each(|id| self.step(id, Input::Batch));
    }

    fn take_command(&mut self, command: Command) {
        match command {
            Command::Stand(candidacy) => self.admit(candidacy.key.clone(), |id| {
                Kind::Candidate(Box::new(CandidateSlot::new(*candidacy, id)))
            }),
            Command::Observe(observation) => {
                self.admit(observation.key.clone(), |_| Kind::Observer(Box::new(observation)));
            }
            Command::Tell(shared, input) => {
                if let Some(id) = shared.slot() {
                    self.step(id, input);
                }
            }
            Command::Close(closed) => {
                self.closing.push(closed);
                self.say_goodbye();
            }
        }
    }

    fn admit(&mut self, key: Key, kind: impl FnOnce(SlotId) -> Kind) {
        let id = SlotId(self.next_slot);
        self.next_slot += 1;
        let slot = Slot { key, kind: kind(id), due: None, watch: None, death: None };
        self.slots.insert(id, slot);
        self.step(id, Input::Notified(self.notified));
    }

    /// Every guard is gone: nobody would take part in what is left.
    fn part(&mut self) {
        self.deaf = true;
        self.say_goodbye();
    }

    fn say_goodbye(&mut self) {
        let all: Vec<SlotId> = self.slots.keys().copied().collect();
        for id in all {
            match self.slots.get_mut(&id).map(|slot| &mut slot.kind) {
                Some(Kind::Candidate(candidate)) => {
                    let farewell = candidate.goodbye();
                    self.step(id, farewell);
                }
                Some(Kind::Observer(_)) => self.forget(id),
                None => {}
            }
        }
    }

    fn take_done(&mut self, done: Done) {
        match done {
            Done::Reads(asked, Ok(documents)) => {
                for ((id, ask), document) in asked.into_iter().zip(documents) {
                    self.answer(id, ask, Answer::Read(Ok(document)));
                }
            }
            Done::Reads(asked, Err(error)) => {
                for (id, ask) in asked {
                    self.answer(id, ask, Answer::Read(Err(error.clone())));
                }
            }
            Done::Writes(asked, outcomes) => {
                for ((id, ask), outcome) in asked.into_iter().zip(outcomes) {
                    self.answer(id, ask, Answer::Write(outcome));
                }
            }
        }
    }

    fn take_hint(&mut self, hint: Hint) {
        match hint {
            Hint::Changed(id) => {
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.watch = None;
                }
                self.step(id, Input::Hint);
            }
            Hint::Gone(id, version) => {
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.death = None;
                }
                self.step(id, Input::HolderGone(version));
            }
        }
    }

    fn step(&mut self, id: SlotId, input: Input) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let wants = match &mut slot.kind {
            Kind::Candidate(candidate) => candidate.step(id, input, &self.parts, &mut self.queue),
            Kind::Observer(observation) => {
                observation.step(id, input, &self.parts, &mut self.queue)
            }
        };
        self.arrange(id, wants);
    }

    fn answer(&mut self, id: SlotId, ask: Request, answer: Answer) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let wants = match &mut slot.kind {
            Kind::Candidate(candidate) => {
                candidate.answer(id, ask, answer, &self.parts, &mut self.queue)
            }
            Kind::Observer(observation) => observation.answer(answer, &self.parts),
        };
        self.arrange(id, wants);
    }

    /// Sets the slot's alarm and its waits to what it wants now.
    fn arrange(&mut self, id: SlotId, wants: Wants) {
        if wants.over {
            return self.forget(id);
        }
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let due = wants.wake.map(|span| self.parts.clock.now().boot.saturating_add(span));
        if slot.due != due {
            slot.due.map(|old| self.due.remove(&(old, id)));
            due.map(|new| self.due.insert((new, id)));
            slot.due = due;
        }
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

    fn forget(&mut self, id: SlotId) {
        if let Some(slot) = self.slots.remove(&id) {
            slot.due.map(|due| self.due.remove(&(due, id)));
        }
    }

    fn send_batches(&mut self) {
        for request in self.queue.batches(&self.parts.store) {
            self.requests.push(request);
        }
    }
}

fn arm<T>(
    hints: &FuturesUnordered<Abortable<BoxFuture<'static, Hint>>>,
    on: T,
    wait: BoxFuture<'static, Hint>,
) -> Armed<T> {
    let (abort, registration) = AbortHandle::new_pair();
    hints.push(Abortable::new(wait, registration));
    Armed { on, abort }
}

/// Whose answer it is: a machine's, or the registration's beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Machine(crate::lease::machine::Ask),
    Registration,
    Observation,
}

/// What the store answered to one request of a batch.
pub(crate) enum Answer {
    Read(Result<Option<Document>, StoreError>),
    Write(Result<Put, StoreError>),
}
