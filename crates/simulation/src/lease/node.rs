//! A process with one candidate, which steps the machine and works.

mod leaving;
mod outputs;

use std::sync::Arc;

use bytes::Bytes;
use tenure::CandidateId;
use tenure::lease::machine::{Input, Machine, Output, Settings};
use tenure::lease::mutant::Mutant;
use tenure::lease::record::State;
use tenure::protocol::{Ask, Farewell, Holder};
use tenure::store::{Mark, Reads, Version};

use super::Rare;
use super::network::Way;
use super::world::{Happening, World};
use crate::history::{What, Who};
use crate::kernel::{Instant, LocalClock, Promise, Spin, Term, Timer, nanos};

/// More steps than this at one moment mean that the machine waits for nothing.
const MOST_STEPS_AT_ONCE: u32 = 200;

/// One process.
pub(super) struct Node {
    pub(super) clock: LocalClock,
    pub(super) machine: Option<Machine>,
    pub(super) who: Who,
    pub(super) timer: Timer,
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
    spin: Spin,
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
            timer: Timer::default(),
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
            spin: Spin::default(),
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
            seed: self.kernel.rng.next(),
        };
        let machine = Machine::new(settings).broken(self.mutant);
        let rate = self.nodes[node].clock.rate();
        let process = &mut self.nodes[node];
        process.timer.stop();
        process.timer.forget();
        *process = Node {
            machine: Some(machine),
            who,
            timer: process.timer,
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
        let now = process.clock.now(self.kernel.now);
        if process.spin.step(self.kernel.now, MOST_STEPS_AT_ONCE) {
            let who = process.who;
            self.kernel.breaks(Promise::Wakefulness, format!("candidate {who} spins"));
            return;
        }
        machine.set_wall(self.nodes[node].clock.wall(self.kernel.now));
        self.kernel.note(|| format!("n{node} {input:?}"));
        let by_read = matches!(input, Input::Read(..));
        self.learn(node, &input);
        let outputs = machine.step(now, input);
        let over = machine.is_over();
        let is_grant = |output: &Output| matches!(output, Output::Elected(_) | Output::Extended(_));
        let granted = outputs.iter().any(is_grant);
        for output in outputs {
            self.kernel.note(|| format!("n{node}   -> {output:?}"));
            self.do_output(node, &machine, output, by_read);
        }
        self.settle(node, &machine);
        if by_read
            && granted
            && self.faults()
            && self.kernel.rng.permille(self.swarm.cut_after_read)
        {
            let ttl = nanos(self.swarm.timings[node].ttl());
            self.partition(node, ttl);
        }
        if over || self.kernel.is_broken() {
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
            && process
                .reading
                .is_some_and(|(asked, until)| asked == *ask && self.kernel.now < until)
            && let Ok(record) = &seen.record
        {
            let (who, token) = (process.who, record.token);
            self.tell(What::Learned { who, token });
        }
    }

    /// After a step: a lease that ended without an output was given up.
    fn settle(&mut self, node: usize, machine: &Machine) {
        let believes = machine.lease(self.nodes[node].clock.now(self.kernel.now)).is_some();
        if self.nodes[node].lease.is_some() && !believes {
            self.nodes[node].lease = None;
            let who = self.nodes[node].who;
            self.last_tenure = Some((who, true));
            self.tell(What::GaveUp { who });
        }
    }

    fn set_timer(&mut self, node: usize, machine: &Machine) {
        let process = &mut self.nodes[node];
        let wake = machine.wake(process.clock.now(self.kernel.now));
        let asleep = wake.is_none() && matches!(process.work, Work::None);
        if asleep {
            let who = process.who;
            return self
                .kernel
                .breaks(Promise::Wakefulness, format!("candidate {who} sleeps for ever"));
        }
        let at = wake.map(|span| self.kernel.now + process.clock.real(span));
        if let (Some(at), Some(serial)) = (at, process.timer.set(self.kernel.now, at)) {
            let mut after = at - self.kernel.now;
            // A timer may fire early; the machine must then simply go on waiting.
            if after > 1000 && self.kernel.rng.permille(self.swarm.early_ticks) {
                after = self.kernel.rng.between(after / 2, after);
                self.nodes[node].timer.forget();
            }
            self.kernel.schedule(after, Happening::Tick { node, serial });
        }
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
        self.kernel.schedule(delay, Happening::Deliver { node, who, input });
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
        process.clock.wake_up(self.kernel.now);
        let who = process.who;
        let inputs = std::mem::take(&mut process.inbox);
        if process.lease.is_some_and(|lease| lease.until <= self.kernel.now) {
            self.kernel.saw(Rare::PausedBeyondWindow);
        }
        self.tell(What::Paused { who });
        for input in inputs {
            self.step(node, input);
        }
        self.step(node, Input::Tick);
        if self.nodes[node].machine.is_none() {
            self.kernel.schedule(0, Happening::Stand { node });
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
        process.clock.wake_up(self.kernel.now);
        process.inbox.clear();
        process.timer.stop();
        self.tell(What::Crashed { who });
        for other in 0..self.nodes.len() {
            self.watch_death(other);
        }
        let ttl = nanos(self.swarm.timings[node].ttl());
        let after = self.kernel.rng.between(ttl / 10, 3 * ttl);
        self.kernel.schedule(after, Happening::Stand { node });
    }

    /// Returns true if the record is an ended one, which candidates leave.
    pub(super) fn is_ended(&self) -> bool {
        self.document
            .current()
            .is_some_and(|stored| matches!(stored.record.state, State::Ended { .. }))
    }
}
