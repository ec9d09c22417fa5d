//! A process with one candidate, which steps the machine and works.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure::lease::machine::{Input, Machine, Output, Settings};
use tenure::lease::mutant::Mutant;
use tenure::lease::record::{Record, State};
use tenure::protocol::Holder;
use tenure::protocol::{Ask, Farewell, Lease, Loss, Outcome};
use tenure::{CandidateId, Expect, Mark, Reads, Version};

use super::Rare;
use super::clock::{LocalClock, nanos};
use super::network::{Kind, Request, Way};
use super::world::{Happening, World, holder_of};
use crate::checkers::Promise;
use crate::history::{Instant, Term, What, Who};

/// More steps than this at one moment mean that the machine waits for nothing.
const MOST_STEPS_AT_ONCE: u32 = 200;

/// One process.
pub(super) struct Node {
    pub(super) clock: LocalClock,
    pub(super) machine: Option<Machine>,
    pub(super) who: Who,
    /// Only the newest timer counts.
    pub(super) serial: u64,
    pub(super) timer: Option<Instant>,
    pub(super) paused: bool,
    /// Inputs that arrived during a pause.
    pub(super) inbox: Vec<Input>,
    pub(super) work: Work,
    /// No message gets out or in.
    pub(super) cut: bool,
    /// A watch is about to fire.
    pub(super) hinted: bool,
    pub(super) lease: Option<Term>,
    pub(super) leaving: Option<Instant>,
    /// The newest read, and when it is given up.
    reading: Option<(Ask, Instant)>,
    told: bool,
    led: bool,
    /// The version of the holder that is, or soon will be, reported dead to this node.
    pub(super) death: Option<Version>,
    busy: (Instant, u32),
}

/// The state of a candidate's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    None,
    Running { token: u64 },
    Stopping { token: u64, farewell: Option<Farewell> },
}

impl Node {
    pub(super) fn new(clock: LocalClock) -> Node {
        Node {
            clock,
            machine: None,
            who: Who::MAX,
            serial: 0,
            timer: None,
            paused: false,
            inbox: Vec::new(),
            work: Work::None,
            cut: false,
            hinted: false,
            lease: None,
            leaving: None,
            reading: None,
            told: false,
            led: false,
            death: None,
            busy: (0, 0),
        }
    }

    fn term(&self, lease: Lease) -> Term {
        Term {
            token: lease.token,
            until: self.clock.passed(lease.from, lease.window),
            grace: self.clock.real(lease.grace),
        }
    }
}

impl World {
    /// Starts a new candidacy in this process.
    pub(super) fn stand(&mut self, node: usize) {
        if self.nodes[node].machine.is_some() || self.nodes[node].paused {
            return;
        }
        let who = Who::try_from(self.crashed.len()).expect("few candidates stand");
        self.crashed.push(false);
        self.departed.push(false);
        let settings = Settings {
            candidate: Holder {
                id: CandidateId::from_bits(u128::from(who)),
                name: format!("c{who}").into(),
                value: Bytes::new(),
                presence: self.swarm.presence.then(|| Mark(Default::default())),
            },
            timing: self.swarm.timings[node],
            delay: self.swarm.delays[node],
            reads: self.swarm.reads,
            floor: self.swarm.block,
            seed: self.rng.next(),
        };
        let machine = Machine::new(settings).broken(self.mutant);
        let rate = self.nodes[node].clock.rate();
        let process = &mut self.nodes[node];
        *process = Node {
            machine: Some(machine),
            who,
            serial: process.serial + 1,
            cut: process.cut,
            ..Node::new(process.clock.clone())
        };
        self.tell(What::Stood { who, rate });
        let notified = self.swarm.notified;
        self.step(node, Input::Notified(notified));
    }

    /// Hands an input to a candidate, now or when its process goes on.
    pub(super) fn step(&mut self, node: usize, input: Input) {
        let process = &mut self.nodes[node];
        if process.paused {
            process.inbox.push(input);
            return;
        }
        let Some(mut machine) = process.machine.take() else { return };
        let now = process.clock.now(self.now);
        process.busy =
            if process.busy.0 == self.now { (self.now, process.busy.1 + 1) } else { (self.now, 0) };
        if process.busy.1 > MOST_STEPS_AT_ONCE {
            let who = process.who;
            self.breaks(Promise::Wakefulness, format!("candidate {who} spins"));
            return;
        }
        machine.set_wall(self.nodes[node].clock.wall(self.now));
        self.note(|| format!("n{node} {input:?}"));
        let by_read = matches!(input, Input::Read(..));
        self.learn(node, &input);
        let outputs = machine.step(now, input);
        let over = machine.is_over();
        let is_grant = |output: &Output| matches!(output, Output::Elected(_) | Output::Extended(_));
        let granted = outputs.iter().any(is_grant);
        for output in outputs {
            self.note(|| format!("n{node}   -> {output:?}"));
            self.do_output(node, &machine, output, by_read);
        }
        self.settle(node, &machine);
        if by_read && granted && self.faults() && self.rng.permille(self.swarm.cut_after_read) {
            let ttl = nanos(self.swarm.timings[node].ttl());
            self.partition(node, ttl);
        }
        if over || self.is_broken() {
            return;
        }
        self.set_timer(node, &machine);
        self.nodes[node].machine = Some(machine);
        self.watch(node);
        self.watch_death(node);
    }

    /// Records the proof that a read gives to a candidate that still waits for it.
    fn learn(&mut self, node: usize, input: &Input) {
        let process = &self.nodes[node];
        if let Input::Read(ask, Ok(Some(seen))) = input
            && self.swarm.reads == Reads::Linearizable
            && process.reading.is_some_and(|(asked, until)| asked == *ask && self.now < until)
            && let Ok(record) = &seen.record
        {
            let (who, token) = (process.who, record.token);
            self.tell(What::Learned { who, token });
        }
    }

    fn do_output(&mut self, node: usize, machine: &Machine, output: Output, by_read: bool) {
        let who = self.nodes[node].who;
        match output {
            Output::Read { ask } => {
                let given_up = self.give_up(node);
                self.nodes[node].reading = Some((ask, given_up));
                self.send(node, Request { ask, given_up, kind: Kind::Read });
            }
            Output::Write { ask, expect, record, durability } => {
                let record = self.about_to_write(node, &expect, record);
                let given_up = self.give_up(node);
                let kind = Kind::Write { expect, record: Box::new(record), durability };
                self.send(node, Request { ask, given_up, kind });
            }
            Output::ReadFloor { ask } => {
                let given_up = self.give_up(node);
                self.send(node, Request { ask, given_up, kind: Kind::ReadFloor });
            }
            Output::WriteFloor { ask, expect, laid } => {
                let given_up = self.give_up(node);
                let kind = Kind::WriteFloor { expect, laid: Box::new(laid) };
                self.send(node, Request { ask, given_up, kind });
            }
            Output::Elected(lease) => self.elected(node, machine, lease, by_read),
            Output::Extended(lease) => {
                if by_read {
                    self.saw(Rare::GrantByRead);
                }
                let lease = self.nodes[node].term(lease);
                self.nodes[node].lease = Some(lease);
                self.tell(What::Extended { who, lease });
            }
            Output::MustStop => {
                self.nodes[node].told = true;
                self.tell(What::MustStop { who });
                self.stop_work(node, None);
            }
            Output::Lost { token, loss } => {
                self.nodes[node].lease = None;
                if loss == Loss::Deposed {
                    self.saw(Rare::Deposed);
                }
                self.tell(What::Lost { who, token, loss: &loss });
                self.stop_work(node, None);
            }
            Output::Resumed => {
                if self.nodes[node].told {
                    self.saw(Rare::ResumedAfterMustStop);
                }
            }
            Output::Suspended | Output::Following(_) | Output::Garbled(_) => {}
            Output::Over(outcome) => self.over(node, &outcome),
        }
    }

    fn give_up(&self, node: usize) -> Instant {
        self.now + self.nodes[node].clock.real(self.swarm.timings[node].request())
    }

    fn about_to_write(&mut self, node: usize, expect: &Expect, mut record: Record) -> Record {
        let process = &self.nodes[node];
        let (who, leaving) = (process.who, process.leaving.is_some());
        let mine = holder_of(&record) == Some(who);
        if mine {
            let ttl = u64::try_from(record.ttl.as_millis()).unwrap_or(0);
            record.expire = process.clock.wall(self.now) + ttl;
        }
        let base = match expect {
            Expect::At(version) => Some(version),
            Expect::Absent => None,
        };
        let held = base
            .and_then(|version| self.document.find(version))
            .is_some_and(|stored| holder_of(&stored.record) == Some(who));
        let gives_up = held && !mine;
        if mine && base.is_some() && base == self.nodes[node].death.as_ref() {
            self.saw(Rare::ClaimAfterDeath);
        }
        if !mine && !gives_up {
            self.saw(if leaving { Rare::FenceWrite } else { Rare::ConfirmWrite });
        }
        self.tell(What::Sent { who, record: &record, gives_up });
        record
    }

    fn elected(&mut self, node: usize, machine: &Machine, lease: Lease, by_read: bool) {
        let who = self.nodes[node].who;
        self.exactly(node, machine, lease);
        let lease = self.nodes[node].term(lease);
        if by_read {
            self.saw(Rare::GrantByRead);
        }
        if self.nodes[node].led {
            self.saw(Rare::ReclaimedAfterLapse);
        }
        if let Some((last, clean)) = self.last_tenure
            && last != who
        {
            self.saw(Rare::TookOver);
            if !clean && self.swarm.delays.iter().any(Option::is_some) {
                self.saw(Rare::DelayWaited);
            }
        }
        self.last_tenure = Some((who, false));
        let process = &mut self.nodes[node];
        process.lease = Some(lease);
        process.told = false;
        process.led = true;
        process.work = Work::Running { token: lease.token };
        self.tell(What::Elected { who, lease });
    }

    /// Checks that the machine and the checkers have exactly the same window.
    fn exactly(&mut self, node: usize, machine: &Machine, lease: Lease) {
        let until = self.nodes[node].clock.passed(lease.from, lease.window);
        let believes = |at: Instant| machine.lease(self.nodes[node].clock.now(at)).is_some();
        // A machine may lose its lease in the same step; then there is nothing to compare.
        if until > self.now && believes(self.now) {
            assert!(believes(until - 1) && !believes(until), "the window ends at {until}");
        }
    }

    /// After a step: a lease that ended without an output was given up.
    fn settle(&mut self, node: usize, machine: &Machine) {
        let believes = machine.lease(self.nodes[node].clock.now(self.now)).is_some();
        if self.nodes[node].lease.is_some() && !believes {
            self.nodes[node].lease = None;
            let who = self.nodes[node].who;
            self.last_tenure = Some((who, true));
            self.tell(What::GaveUp { who });
        }
    }

    fn set_timer(&mut self, node: usize, machine: &Machine) {
        let process = &mut self.nodes[node];
        let wake = machine.wake(process.clock.now(self.now));
        let asleep = wake.is_none() && matches!(process.work, Work::None);
        if asleep {
            let who = process.who;
            return self.breaks(Promise::Wakefulness, format!("candidate {who} sleeps for ever"));
        }
        let at = wake.map(|span| self.now + process.clock.real(span));
        if at == process.timer && at.is_some_and(|at| at > self.now) {
            return;
        }
        process.timer = at;
        process.serial += 1;
        let serial = process.serial;
        if let Some(at) = at {
            let mut after = at - self.now;
            // A timer may fire early; the machine must then simply go on waiting.
            if after > 1000 && self.rng.permille(self.swarm.early_ticks) {
                after = self.rng.between(after / 2, after);
                self.nodes[node].timer = None;
            }
            self.schedule(after, Happening::Tick { node, serial });
        }
    }

    /// Tells the work to stop. It takes its time, mostly within its budget.
    pub(super) fn stop_work(&mut self, node: usize, farewell: Option<Farewell>) {
        let Work::Running { token } = self.nodes[node].work else { return };
        self.nodes[node].work = Work::Stopping { token, farewell };
        let timing = &self.swarm.timings[node];
        let most = if self.faults() && self.rng.permille(self.swarm.slow_stop) {
            nanos(timing.ttl()) * 3 / 2
        } else {
            self.nodes[node].clock.real(timing.grace())
        };
        let takes = self.rng.below(most);
        let who = self.nodes[node].who;
        self.schedule(takes, Happening::WorkDone { node, who, token });
    }

    pub(super) fn work_done(&mut self, node: usize, who: Who, done: u64) {
        let process = &mut self.nodes[node];
        let Work::Stopping { token, farewell } = process.work else { return };
        if process.who != who || token != done {
            return;
        }
        if process.paused {
            // The work is paused together with its process.
            self.schedule(1_000_000, Happening::WorkDone { node, who, token });
            return;
        }
        process.work = Work::None;
        self.tell(What::WorkEnded { who });
        if self.nodes[node].lease.is_none() {
            self.saw(Rare::WorkOutlivedLease);
        }
        if self.nodes[node].machine.is_none() {
            return self.stand_again(node);
        }
        match farewell {
            Some(farewell) => self.release(node, farewell),
            // The work stopped in time: give up the lease, so that another candidate may lead.
            None if self.nodes[node].lease.is_some() => self.release(node, Farewell::Free),
            None => self.step(node, Input::WorkEnded),
        }
    }

    pub(super) fn release(&mut self, node: usize, farewell: Farewell) {
        let now = self.now;
        self.nodes[node].leaving.get_or_insert(now);
        self.nodes[node].reading = None;
        self.step(node, Input::Release(farewell));
    }

    // The enum may grow; other outcomes are not counted.
    #[allow(clippy::wildcard_enum_match_arm)]
    fn over(&mut self, node: usize, outcome: &Outcome) {
        let who = self.nodes[node].who;
        match outcome {
            Outcome::Released => self.saw(Rare::Released),
            Outcome::Unknown { .. } => self.saw(Rare::ReleaseUnknown),
            Outcome::Ended => self.saw(Rare::Ended),
            Outcome::Regressed { .. } => self.saw(Rare::Regressed),
            Outcome::Vanished => self.saw(Rare::Vanished),
            _ => {}
        }
        self.tell(What::Over { who, outcome });
        self.depart(node, outcome);
        self.stop_work(node, None);
        let process = &mut self.nodes[node];
        process.leaving = None;
        process.serial += 1;
        if matches!(self.nodes[node].work, Work::None) {
            self.stand_again(node);
        }
    }

    /// Marks a candidacy as departed, if none of its writes can still arrive.
    ///
    /// It must have had the time to make sure of that.
    fn depart(&mut self, node: usize, outcome: &Outcome) {
        let process = &self.nodes[node];
        let in_time = process.leaving.is_some_and(|since| {
            // Clocks count whole nanoseconds: no candidate leaves in the last of them.
            self.now + 1000 < since + process.clock.real(self.swarm.timings[node].ttl())
        });
        let sure = matches!(outcome, Outcome::Released | Outcome::AlreadyLost | Outcome::Withdrawn);
        // A candidate that the store refuses cannot find out.
        if in_time && sure && self.swarm.network.denied == 0 {
            let at = usize::try_from(process.who).ok();
            if let Some(departed) = at.and_then(|at| self.departed.get_mut(at)) {
                *departed = true;
            }
        }
    }

    /// Lets the process stand again, as a new candidacy. Its earlier work has ended.
    fn stand_again(&mut self, node: usize) {
        if !self.faults() && self.is_ended() {
            return;
        }
        let ttl = nanos(self.swarm.timings[node].ttl());
        let most = if self.faults() { self.swarm.away } else { ttl / 50 };
        // Standing again and again in an ended election tests nothing.
        let least = if self.faults() && self.is_ended() { ttl / 2 } else { 0 };
        let after = least + self.rng.below(most);
        self.schedule(after, Happening::Stand { node });
    }

    /// Tells a waiting candidate of the holder's death, if there is a presence.
    pub(super) fn watch_death(&mut self, node: usize) {
        if !self.swarm.presence {
            return;
        }
        let Some(machine) = &self.nodes[node].machine else { return };
        let Some((version, holder)) = machine.awaiting_death() else { return };
        if self.nodes[node].death.as_ref() == Some(version) || !self.is_gone(holder) {
            return;
        }
        let version = version.clone();
        self.nodes[node].death = Some(version.clone());
        let who = self.nodes[node].who;
        let delay = self.delay(node, Way::Answer);
        let input = Input::HolderGone(version);
        self.schedule(delay, Happening::Deliver { node, who, input });
    }

    fn is_gone(&self, holder: &Arc<Holder>) -> bool {
        let Ok(who) = Who::from_str_radix(holder.id.as_str(), 16) else { return false };
        let dead = usize::try_from(who).ok().and_then(|at| self.crashed.get(at)).copied();
        let hung = |process: &Node| process.who == who && process.paused;
        dead.unwrap_or(false)
            || (self.mutant == Some(Mutant::HungMeansGone) && self.nodes.iter().any(hung))
    }

    pub(super) fn resume(&mut self, node: usize) {
        let process = &mut self.nodes[node];
        if !process.paused {
            return;
        }
        process.paused = false;
        process.clock.wake_up(self.now);
        let who = process.who;
        let inputs = std::mem::take(&mut process.inbox);
        if process.lease.is_some_and(|lease| lease.until <= self.now) {
            self.saw(Rare::PausedBeyondWindow);
        }
        self.tell(What::Paused { who });
        for input in inputs {
            self.step(node, input);
        }
        self.step(node, Input::Tick);
        if self.nodes[node].machine.is_none() {
            self.schedule(0, Happening::Stand { node });
        }
    }

    pub(super) fn crash(&mut self, node: usize) {
        if self.nodes[node].machine.is_none() {
            return;
        }
        let who = self.nodes[node].who;
        if let Some(crashed) = usize::try_from(who).ok().and_then(|at| self.crashed.get_mut(at)) {
            *crashed = true;
        }
        let process = &mut self.nodes[node];
        process.machine = None;
        process.lease = None;
        process.work = Work::None;
        process.leaving = None;
        process.paused = false;
        process.clock.wake_up(self.now);
        process.inbox.clear();
        process.serial += 1;
        self.tell(What::Crashed { who });
        for other in 0..self.nodes.len() {
            self.watch_death(other);
        }
        let ttl = nanos(self.swarm.timings[node].ttl());
        let after = self.rng.between(ttl / 10, 3 * ttl);
        self.schedule(after, Happening::Stand { node });
    }

    /// The longest time that leaving may take, in real time.
    pub(super) fn longest_leave(&self, node: usize) -> u64 {
        nanos(self.swarm.timings[node].ttl() + Duration::from_millis(1))
    }

    /// Returns true if the record is an ended one, which candidates leave.
    pub(super) fn is_ended(&self) -> bool {
        self.document
            .current()
            .is_some_and(|stored| matches!(stored.record.state, State::Ended { .. }))
    }
}
