//! A leader in the world: its machine, and the calls of it that are under way.

use std::sync::Arc;
use std::time::Duration;

use tenure::protocol::Ask;
use tenure::store::{Fault, Put, Reads, StoreError, Write};
use tenure::{CandidateId, Moment, Timing};
use tenure_cluster::documents::{Nodes, WakeUp};
use tenure_cluster::input::{InputError, Window};
use tenure_cluster::leader::{
    Answer, Input, Leader, Output, Over, Request, Settings, Shown, Wait, without,
};
use tenure_cluster::local_writes::{LocalWrites, LocalWritesReader};

use super::rare::Rare;
use super::store::{failure, one_in};
use super::users::{LISTED, is_refused, listed_id, order};
use super::world::{Cluster, Happening, LEAST_SLOTS};
use crate::kernel::{Promise, Timer};

/// A millisecond.
pub(super) const MS: u64 = 1_000_000;

/// A leader in one of the processes.
#[derive(Debug)]
pub(super) struct Seat {
    /// Distinguishes it from leaders before it.
    pub(super) number: u64,
    pub(super) local_writes: Arc<LocalWrites>,
    leader: Leader,
    reader: Option<LocalWritesReader>,
    timer: Timer,
    requests: u32,
}

impl Cluster {
    fn moment(&self) -> Moment {
        let since = Duration::from_secs(1) + Duration::from_nanos(self.kernel.now);
        Moment { boot: since, monotonic: since }
    }

    /// Lets a process without a leader lead, under the next token.
    pub(super) fn elect(&mut self) {
        self.token += 1;
        let leads = |local_writes: &Arc<LocalWrites>| {
            self.seats.iter().any(|seat| Arc::ptr_eq(&seat.local_writes, local_writes))
        };
        let free: Vec<_> = self.processes.iter().filter(|it| !leads(it)).cloned().collect();
        let local_writes = self.kernel.rng.pick(&free).clone();
        let settings = Settings {
            keys: self.keys.clone(),
            me: CandidateId::from_bits(u128::from(self.token)),
            token: self.token,
            timing: Timing::new(Duration::from_secs(6)).expect("a usable ttl"),
            reads: if self.plot.manner.weak { Reads::Weak } else { Reads::Linearizable },
            lists: true,
            least_slots: LEAST_SLOTS,
            ops: CandidateId::from_bits(1_000 + u128::from(self.token)),
        };
        self.list_node(settings.me.clone());
        let leader = Leader::new(settings, self.moment());
        let number = self.token;
        self.kernel.note(|| format!("leader {number} begins"));
        let (reader, timer) = (None, Timer::default());
        self.seats.push(Seat { number, local_writes, leader, reader, timer, requests: 0 });
        let notified = Input::Notified(self.plot.notifies);
        self.input(number, notified);
        self.input(number, Input::Time);
    }

    /// Cuts a leader off.
    pub(super) fn cut(&mut self) {
        let index = self.kernel.rng.below(self.seats.len() as u64) as usize;
        let seat = self.seats.swap_remove(index);
        self.kernel.note(|| format!("leader {} is cut off", seat.number));
        if seat.requests > 0 {
            self.kernel.saw(Rare::CutOff);
        }
    }

    /// Tells leaders that wait for any input.
    pub(super) fn wake(&mut self, input: fn() -> Input, is_told: impl Fn(&Seat) -> bool) {
        let rests = |seat: &&Seat| matches!(seat.leader.wait(), Wait::Any(_)) && is_told(seat);
        let told: Vec<u64> = self.seats.iter().filter(rests).map(|seat| seat.number).collect();
        told.into_iter().for_each(|number| self.input(number, input()));
    }

    /// Gives an input to a leader, if it is there, and carries out its outputs.
    pub(super) fn input(&mut self, number: u64, input: Input) {
        let now = self.moment();
        let Some(seat) = self.seats.iter_mut().find(|seat| seat.number == number) else { return };
        let wall = 1_700_000_000_000 + self.kernel.now / MS;
        if let Some(reader) = seat.reader.as_ref().filter(|reader| !reader.is_silent()) {
            self.kernel.saw(Rare::Heard);
            seat.leader.step(now, wall, Input::Heard(reader.take()));
        }
        self.kernel.note(|| format!("{number} < {}", brief(&input)));
        let outputs = seat.leader.step(now, wall, input);
        for output in outputs {
            self.carry_out(number, output);
        }
        self.set_timer(number);
    }

    fn set_timer(&mut self, number: u64) {
        let Some(seat) = self.seats.iter_mut().find(|seat| seat.number == number) else { return };
        let until = match seat.leader.wait() {
            Wait::Answers => None,
            Wait::Time(until) | Wait::Offer(until) | Wait::Commits(until) | Wait::Any(until) => {
                Some(until.boot.saturating_sub(Duration::from_secs(1)))
            }
        };
        let at = until.map(|at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let at = at.map(|at| at.max(self.kernel.now));
        if let (Some(setting), Some(at)) = (seat.timer.set(self.kernel.now, at), at) {
            self.kernel.schedule(at - self.kernel.now, Happening::Timer(number, setting));
        }
    }

    pub(super) fn timer_fires(&mut self, number: u64, setting: u64) {
        if let Some(seat) = self.seats.iter_mut().find(|seat| seat.number == number)
            && seat.timer.is_newest(setting)
        {
            seat.timer.forget();
            self.input(number, Input::Time);
        }
    }

    fn carry_out(&mut self, number: u64, output: Output) {
        let Some(seat) = self.seats.iter_mut().find(|seat| seat.number == number) else { return };
        match output {
            Output::Request(ask, request) => {
                seat.requests += 1;
                self.kernel.note(|| format!("{number} > {request:?}").chars().take(300).collect());
                let delay = self.delay();
                self.kernel.schedule(delay, Happening::Arrives(number, ask, request, Vec::new()));
            }
            Output::Offer { position, max } => {
                let offered = self.offer(position, max);
                let delay = self.delay();
                self.kernel.schedule(delay, Happening::Offered(number, offered));
            }
            Output::Commit(task, _) => {
                let fails = !self.healed && one_in(&mut self.kernel.rng, 6);
                let delay = self.delay();
                let told = (!fails).then(|| task.id.clone());
                self.kernel.schedule(delay, Happening::Committed(number, task.serial, told));
            }
            Output::HoldsCursor(holds) => {
                seat.reader = None;
                seat.reader = holds.then(|| seat.local_writes.hear());
            }
            Output::Warn(warning) => {
                self.kernel.saw(Rare::Warned);
                self.kernel.note(|| format!("{number} warns: {warning:?}"));
            }
            Output::Removed(_) => self.kernel.saw(Rare::Removed),
            Output::Over(over) => self.over(number, over),
            Output::Filled(_)
            | Output::SawNodes(_)
            | Output::Watch(..)
            | Output::Unwatch
            | Output::Tell(_) => {}
        }
    }

    fn over(&mut self, number: u64, over: Over) {
        self.kernel.note(|| format!("leader {number} is over: {over:?}"));
        self.seats.retain(|seat| seat.number != number);
        let may_be = !self.healed && (self.plot.races || self.plot.manner.late > 0);
        match over {
            Over::Deposed(_) if may_be => self.kernel.saw(Rare::Deposed),
            Over::Deposed(_) | Over::Exhausted => {
                self.kernel.breaks(Promise::Counted, format!("a leader gave up: {over:?}"));
            }
        }
    }

    fn delay(&mut self) -> u64 {
        let rng = &mut self.kernel.rng;
        if rng.below(20) == 0 {
            rng.between(5 * MS, 200 * MS)
        } else {
            rng.between(MS / 10, 2 * MS)
        }
    }

    /// A request arrives at the store. Batches of writes may be carried out in parts.
    pub(super) fn arrives(
        &mut self,
        number: u64,
        ask: Ask,
        request: Request,
        mut outcomes: Vec<Result<Put, StoreError>>,
    ) {
        let rng = &mut self.kernel.rng;
        let arrives = self.store.arrives(rng);
        let unavailable = || failure(Fault::Unavailable);
        let answer = match request {
            Request::Write(mut writes) => {
                let rest = match writes.len() {
                    2.. if rng.below(8) == 0 => writes.split_off(1 + writes.len() / 2),
                    _ => Vec::new(),
                };
                for write in writes {
                    outcomes.push(self.store.try_put(rng, write));
                }
                if !rest.is_empty() {
                    self.part(number, ask, rest, outcomes);
                    return;
                }
                Answer::Wrote(outcomes)
            }
            Request::Read(keys) => Answer::Shown(if arrives {
                Ok(keys.iter().map(|key| Shown::Document(self.store.show(rng, key))).collect())
            } else {
                Err(unavailable())
            }),
            Request::Look(keys) => Answer::Shown(if arrives {
                Ok(keys.iter().map(|key| Shown::Document(self.store.show(rng, key))).collect())
            } else {
                Err(unavailable())
            }),
            Request::List { prefix, after, limit } => {
                Answer::Listed(Ok(self.store.list(&prefix, after.as_ref(), limit)))
            }
            // Users write pages in their order, so there are no gaps.
            Request::MendInbox(_) => Answer::Done(Ok(false)),
            Request::Ring if arrives => {
                self.ring(self.keys.wake_up());
                Answer::Done(Ok(true))
            }
            Request::RemoveMembers(members) if arrives => {
                let key = self.keys.nodes();
                let op = self.store.op();
                if let Some((_, nodes)) = self.store.read::<Nodes>(&key)
                    && let Some(after) = without(&nodes, &members, op)
                {
                    self.store.write(key, &after);
                }
                Answer::Done(Ok(true))
            }
            Request::Ring | Request::RemoveMembers(_) => Answer::Done(Err(unavailable().into())),
        };
        let delay = self.delay();
        self.kernel.schedule(delay, Happening::Answered(number, ask, answer));
    }

    fn part(
        &mut self,
        number: u64,
        ask: Ask,
        rest: Vec<Write>,
        outcomes: Vec<Result<Put, StoreError>>,
    ) {
        self.kernel.saw(Rare::Parted);
        let delay = self.delay();
        let request = Request::Write(rest);
        self.kernel.schedule(delay, Happening::Arrives(number, ask, request, outcomes));
    }

    pub(super) fn answered(&mut self, number: u64, ask: Ask, answer: Answer) {
        if let Some(seat) = self.seats.iter_mut().find(|seat| seat.number == number) {
            seat.requests -= 1;
        }
        self.input(number, Input::Answered(ask, answer));
    }

    /// Changes a wake-up document.
    pub(super) fn ring(&mut self, key: tenure::Key) {
        let rung = self.store.read::<WakeUp>(&key).map_or(0, |(_, wake_up)| wake_up.rung);
        let op = self.store.op();
        self.store.write(key, &WakeUp { rung: rung + 1, op });
    }

    fn offer(&mut self, position: Option<String>, max: usize) -> Result<Window, InputError> {
        if !self.healed && one_in(&mut self.kernel.rng, 10) {
            self.kernel.saw(Rare::SourceFailed);
            return Err(InputError("it fails now and then".into()));
        }
        let from: usize = position.map_or(0, |position| position.parse().expect("our own"));
        let to = (from + 1 + from % 5).min(from + max).min(LISTED);
        let orders = (from..to).map(|number| {
            let mut order = order(&listed_id(number));
            if is_refused(&order.id) {
                order.kind.clear();
            }
            order
        });
        let (orders, drained) = (orders.collect(), to == LISTED);
        Ok(Window { orders, position: Some(to.to_string()), drained })
    }
}

fn brief(input: &Input) -> String {
    format!("{input:?}").chars().take(300).collect()
}
