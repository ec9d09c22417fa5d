//! One candidacy in the driver: its machine, what the outside sees of it, and its registration.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::registration::Registration;
use super::requests::Queue;
use super::{Answer, Request, SlotId, Wants};
use crate::backend::Parts;
use crate::lease::machine::{Farewell, Input, Lease, Loss, Machine, Output, Seen};
use crate::lease::record::{Holder, Record, State};
use crate::mandate::Tenure;
use crate::status::{Leader, Role, Status};
use crate::store::{Document, StoreError, Write};
use crate::{Error, Key, Name};

/// A candidacy on its way to the driver.
pub(crate) struct Candidacy {
    pub(crate) name: Name,
    pub(crate) key: Key,
    pub(crate) machine: Machine,
    pub(crate) shared: Arc<Shared>,
}

/// What the candidate's handles and the driver share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) status: watch::Sender<Status>,
    state: Mutex<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    slot: Option<SlotId>,
    tenure: Option<Arc<Tenure>>,
    /// The handle has said goodbye: whatever is won from now on is nobody's.
    left: bool,
}

impl Shared {
    pub(crate) fn new(status: Status) -> Arc<Shared> {
        Arc::new(Shared { status: watch::Sender::new(status), state: Mutex::default() })
    }

    /// The tenure that was won last.
    pub(crate) fn tenure(&self) -> Option<Arc<Tenure>> {
        self.lock().tenure.clone()
    }

    pub(super) fn slot(&self) -> Option<SlotId> {
        self.lock().slot
    }

    /// Revokes every mandate at once, those yet to come included.
    pub(crate) fn leave(&self) {
        let tenure = {
            let mut state = self.lock();
            state.left = true;
            state.tenure.clone()
        };
        if let Some(tenure) = tenure {
            tenure.close(Loss::Resigned);
        }
    }

    fn elect(&self, tenure: Arc<Tenure>) {
        let mut state = self.lock();
        if state.left {
            tenure.close(Loss::Resigned);
        }
        state.tenure = Some(tenure);
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct CandidateSlot {
    key: Key,
    machine: Machine,
    shared: Arc<Shared>,
    registration: Registration,
    over: bool,
}

impl CandidateSlot {
    pub(super) fn new(candidacy: Candidacy, id: SlotId) -> CandidateSlot {
        let Candidacy { name, key, machine, shared } = candidacy;
        shared.lock().slot = Some(id);
        let registration = Registration::new(&name, machine.candidate(), machine.timing());
        CandidateSlot { key, machine, shared, registration, over: false }
    }

    /// What is said on behalf of a candidate whose handles are gone, or whose backend is closed.
    pub(super) fn goodbye(&mut self) -> Input {
        self.shared.leave();
        Input::Release(Farewell::Free)
    }

    pub(super) fn step(
        &mut self,
        id: SlotId,
        input: Input,
        parts: &Parts,
        queue: &mut Queue,
    ) -> Wants {
        if let Input::Publish(value) = &input {
            self.registration.publish(value.clone());
        }
        if matches!(input, Input::Release(_)) && !self.over {
            self.tell(|status| status.role = Role::Leaving);
        }
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
                self.note(read.as_ref().err());
                let read = read.map(|document| document.map(seen)).map_err(|error| error.fault);
                self.step(id, Input::Read(ask, read), parts, queue)
            }
            (Request::Machine(ask), Answer::Write(put)) => {
                self.note(put.as_ref().err());
                self.step(id, Input::Wrote(ask, put.map_err(|error| error.fault)), parts, queue)
            }
            (Request::Registration, answer) => {
                self.registration.answer(parts.clock.now(), answer);
                self.step(id, Input::Tick, parts, queue)
            }
            (Request::Observation, _) => self.wants(parts),
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
            Output::Elected(lease) => {
                self.shared.elect(Tenure::new(lease, parts.clock.clone()));
                self.tell(|status| {
                    status.role = Role::Leading { token: lease.token };
                    status.error = None;
                });
            }
            Output::Extended(lease) => self.with_tenure(|tenure| tenure.extend(lease)),
            Output::MustStop => {
                self.with_tenure(Tenure::stop);
                self.tell(|status| {
                    if let Some(token) = status.role.token() {
                        status.role = Role::Stopping { token };
                    }
                });
            }
            Output::Lost { token, loss } => {
                self.with_tenure(|tenure| tenure.close(loss.clone()));
                self.tell(|status| status.role = Role::Lost { token, loss: loss.clone() });
            }
            Output::Suspended => {
                let lease = self.machine.lease(parts.clock.now());
                let remaining = lease.map(|lease| Lease::remaining(&lease, parts.clock.now()));
                self.tell(|status| {
                    if let Role::Leading { token } = status.role {
                        let remaining = remaining.unwrap_or_default();
                        status.role = Role::Suspended { token, remaining };
                    }
                });
            }
            Output::Resumed => self.tell(|status| {
                if let Role::Suspended { token, .. } = status.role {
                    status.role = Role::Leading { token };
                }
                status.error = None;
            }),
            Output::Following(holder) => self.follow(holder.as_deref()),
            Output::Garbled(source) => {
                let name = self.registration.election().clone();
                self.tell(|status| status.error = Some(Error::Record { name, source }));
            }
            Output::Over(outcome) => {
                self.over = true;
                self.registration.remove();
                self.with_tenure(|tenure| tenure.close(Loss::Resigned));
                self.tell(|status| status.role = Role::Over(outcome));
            }
        }
    }

    fn follow(&mut self, holder: Option<&Holder>) {
        let leader = holder.map(Leader::from);
        self.tell(|status| {
            let before = std::mem::replace(&mut status.follows, leader);
            if before.is_some() {
                status.followed = before;
            }
        });
    }

    /// Keeps what last went wrong in the status, until something goes well.
    fn note(&mut self, error: Option<&StoreError>) {
        let known = self.shared.status.borrow().error.is_some();
        if error.is_some() || known {
            self.tell(|status| status.error = error.cloned().map(Error::Store));
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Status)) {
        self.shared.status.send_modify(change);
    }

    fn with_tenure(&self, change: impl FnOnce(&Tenure)) {
        if let Some(tenure) = self.shared.tenure() {
            change(&tenure);
        }
    }

    fn wants(&self, parts: &Parts) -> Wants {
        let now = parts.clock.now();
        if self.over && self.registration.is_settled() {
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

impl Drop for CandidateSlot {
    /// The driver may be dropped with its runtime: then nobody renews any more.
    fn drop(&mut self) {
        self.with_tenure(|tenure| tenure.close(Loss::Stopped));
        self.shared.lock().slot = None;
        if !self.over {
            self.tell(|status| {
                status.error = Some(Error::Stopped);
                status.role = Role::Over(crate::lease::machine::Outcome::AlreadyLost);
            });
        }
    }
}

fn seen(document: Document) -> Seen {
    Seen { version: document.version, record: Record::decode(&document.body) }
}

/// Fills in when the lease ends, as people read it.
fn stamped(record: Record, wall: u64) -> Record {
    match record.state {
        State::Held(_) => {
            let ttl = u64::try_from(record.ttl.as_millis()).unwrap_or(u64::MAX);
            Record { expire: wall.saturating_add(ttl), ..record }
        }
        State::Free { .. } | State::Ended { .. } => record,
    }
}
