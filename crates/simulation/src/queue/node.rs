//! A process: its candidacies, of which one is current, and its work.

use bytes::Bytes;
use tenure::CandidateId;
use tenure::protocol::Holder;
use tenure::protocol::{Farewell, Lease, Loss, Outcome};
use tenure::queue::Pace;
use tenure::queue::machine::{Input, Machine, Output, Settings};
use tenure::queue::mutant::Mutant;

use super::Rare;
use super::client::{Arrival, Client};
use super::ensemble::Request;
use super::registry::RootState;
use super::servers::Served;
use super::world::{Happening, World};
use crate::history::{What, Who};
use crate::kernel::{LocalClock, Promise, Spin, Term, Timer};

/// More steps than this at one moment mean that the machine waits for nothing.
const MOST_STEPS_AT_ONCE: u32 = 300;

/// One process.
pub(super) struct Node {
    pub(super) clock: LocalClock,
    pub(super) client: Client,
    pub(super) served: Served,
    pub(super) machines: Vec<Standing>,
    /// The candidacy that a caller still waits for.
    pub(super) current: Option<Who>,
    pub(super) timer: Timer,
    pub(super) paused: bool,
    pub(super) inbox: Vec<(u64, Arrival)>,
    pub(super) cut: bool,
    pub(super) lease: Option<Term>,
    /// The token of the newest tenure.
    pub(super) led: Option<u64>,
    /// The highest token that this process has led with.
    pub(super) highest: u64,
    told: bool,
    pub(super) work: Work,
    spin: Spin,
}

/// A candidacy, until nothing of it is left.
pub(super) struct Standing {
    pub(super) who: Who,
    pub(super) machine: Machine,
    /// The newest transaction at which its backend has seen the line open.
    pub(super) looked: u64,
    /// Whether it stands beside the current candidacy.
    pub(super) companion: bool,
}

/// The state of a candidate's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    None,
    Running { who: Who, token: u64 },
    Stopping { who: Who, token: u64, farewell: Option<Farewell> },
}

impl Node {
    pub(super) fn new(clock: LocalClock, ttl: std::time::Duration, mutant: Option<Mutant>) -> Node {
        Node {
            clock,
            client: Client::new(ttl, mutant),
            served: Served::default(),
            machines: Vec::new(),
            current: None,
            timer: Timer::default(),
            paused: false,
            inbox: Vec::new(),
            cut: false,
            lease: None,
            led: None,
            highest: 0,
            told: false,
            work: Work::None,
            spin: Spin::default(),
        }
    }

    pub(super) fn whos(&self) -> Vec<Who> {
        self.machines.iter().map(|standing| standing.who).collect()
    }

    pub(super) fn is_companion(&self, who: Who) -> bool {
        self.machines.iter().any(|standing| standing.who == who && standing.companion)
    }

    pub(super) fn pace(&self) -> Pace {
        let paces = self.machines.iter().map(|standing| standing.machine.pace());
        paces.max().unwrap_or_default()
    }
}

impl World {
    /// Starts a new candidacy in this process.
    pub(super) fn stand(&mut self, node: usize) {
        let process = &self.nodes[node];
        if process.current.is_some() || process.paused || process.work != Work::None {
            return;
        }
        let who = self.whos;
        self.whos += 1;
        let candidate = Holder {
            id: CandidateId::from_bits(u128::from(who)),
            name: format!("c{who}").into(),
            value: Bytes::new(),
            presence: None,
        };
        let (delay, highest) = (self.swarm.delay, process.highest);
        let settings = Settings { candidate, grace: None, generation: None, delay, highest };
        let machine = Machine::new(settings).broken(self.mutant);
        let process = &mut self.nodes[node];
        process.machines.push(Standing { who, machine, looked: 0, companion: false });
        process.current = Some(who);
        let (rate, session) = (process.clock.rate(), process.client.told);
        self.tell(What::Stood { who, rate });
        self.step(node, who, Input::Session(session));
        self.stand_beside(node);
        self.set_timer(node);
        // Not drawn where it cannot happen: other worlds keep their seeds.
        if self.swarm.fickle > 0 && !self.healed && self.kernel.rng.permille(self.swarm.fickle) {
            self.withdraw(node);
            let connection = self.nodes[node].client.connection;
            let lost = self.kernel.rng.between(self.swarm.least, self.swarm.most * 4);
            self.kernel
                .schedule(lost, Happening::GiveUp { node, connection, unless_connected: false });
        }
    }

    /// Hands an input to a candidacy.
    pub(super) fn step(&mut self, node: usize, who: Who, input: Input) {
        let process = &mut self.nodes[node];
        let Some(at) = process.machines.iter().position(|standing| standing.who == who) else {
            return;
        };
        let now = process.clock.now(self.kernel.now);
        if process.spin.step(self.kernel.now, MOST_STEPS_AT_ONCE) {
            return self.kernel.breaks(Promise::Wakefulness, format!("candidate {who} spins"));
        }
        self.kernel.note(|| format!("n{node} c{who} {input:?}"));
        let by_notice = matches!(input, Input::Gone(..));
        let machine = &mut self.nodes[node].machines[at].machine;
        let over = machine.is_over();
        let found_by_line = matches!(input, Input::Line(..)) && machine.watching()[0].is_none();
        let outputs = machine.step(now, input);
        if found_by_line && machine.watching()[0].is_some() {
            self.kernel.saw(Rare::JoinFound);
        }
        for output in outputs {
            self.kernel.note(|| format!("n{node} c{who}   -> {output:?}"));
            self.do_output(node, who, output, by_notice);
        }
        if self.kernel.is_broken() {
            return;
        }
        let process = &mut self.nodes[node];
        let Some(at) = process.machines.iter().position(|standing| standing.who == who) else {
            return;
        };
        let machine = &process.machines[at].machine;
        let believes = machine.lease(now).is_some();
        if machine.is_settled() {
            process.machines.remove(at);
            if over {
                self.kernel.saw(Rare::ZombieReaped);
            }
        }
        if self.nodes[node].lease.is_some() && self.nodes[node].current == Some(who) && !believes {
            self.nodes[node].lease = None;
            self.tell(What::GaveUp { who });
        }
        if believes {
            self.dismiss(node, who);
        }
        self.fire_watches(node);
    }

    fn do_output(&mut self, node: usize, who: Who, output: Output, by_notice: bool) {
        if self.is_of_a_companion(node, who, &output) {
            return;
        }
        match output {
            Output::Join { ask, ticket, holder } => {
                self.request(node, who, ask, Request::Join { who, ticket, holder });
            }
            Output::Line { ask, freshness, .. } => {
                self.request(node, who, ask, Request::Line(freshness));
                self.hiccup(node);
            }
            Output::Begin { ask, entry } => {
                let mark = self.registry.mark(self.registry.zxid);
                if mark.is_some_and(|token| token != entry.token) {
                    self.kernel.saw(Rare::WaitedTheDelay);
                }
                self.request(node, who, ask, Request::Begin(entry));
            }
            Output::Note { ask, entry } => self.request(node, who, ask, Request::Note(entry)),
            Output::Leave { ask, entry, clean } => {
                if self.nodes[node].led == Some(entry.token) {
                    self.tell(What::Leaves { who });
                    if !clean {
                        self.kernel.saw(Rare::LeftUncleanly);
                    }
                    if matches!(self.nodes[node].work, Work::Running { .. } | Work::Stopping { .. })
                    {
                        self.kernel.saw(Rare::StuckWorkLostEntry);
                    }
                }
                let request = Request::Leave { entry, clean, takes_back: clean };
                self.request(node, who, ask, request);
            }
            Output::End { ask, generation } => {
                self.request(node, who, ask, Request::End(generation));
            }
            Output::Publish { ask, entry, value } => {
                self.request(node, who, ask, Request::Publish { entry, value });
            }
            Output::Following(_) | Output::Suspended => {}
            Output::Elected(lease) => self.elected(node, who, lease, by_notice),
            Output::Extended(lease) => {
                self.judge_extension(node, lease.token);
                self.judge_life(lease.token);
                if self.nodes[node].told {
                    self.kernel.saw(Rare::ExtendedAfterMustStop);
                }
                let lease = self.nodes[node].clock.term(lease);
                self.nodes[node].lease = Some(lease);
                self.tell(What::Extended { who, lease });
            }
            Output::MustStop => {
                self.nodes[node].told = true;
                self.tell(What::MustStop { who });
                self.stop_work(node, None);
            }
            Output::Lost { token, loss } => self.lost(node, who, token, &loss),
            Output::Resumed => {
                self.kernel.saw(Rare::Resumed);
                if let Some(token) = self.nodes[node].led {
                    self.judge_extension(node, token);
                }
            }
            Output::Over(outcome) => self.over(node, who, &outcome),
        }
    }

    fn elected(&mut self, node: usize, who: Who, lease: Lease, by_notice: bool) {
        self.judge_order(lease.token);
        self.judge_token(node, lease.token);
        self.judge_turn(node, who, lease.token);
        self.judge_extension(node, lease.token);
        self.judge_life(lease.token);
        if by_notice {
            self.kernel.saw(Rare::LedAtOnce);
        }
        if self.last_leader.replace(who).is_some_and(|last| last != who) {
            self.kernel.saw(Rare::TookOver);
        }
        let lease = self.nodes[node].clock.term(lease);
        let process = &mut self.nodes[node];
        process.lease = Some(lease);
        process.led = Some(lease.token);
        process.highest = process.highest.max(lease.token);
        process.told = false;
        process.work = Work::Running { who, token: lease.token };
        self.tell(What::Elected { who, lease });
    }

    fn lost(&mut self, node: usize, who: Who, token: u64, loss: &Loss) {
        self.nodes[node].lease = None;
        let alive = self.registry.find(token).is_some_and(|item| item.gone.is_none());
        if *loss == Loss::Expired && alive {
            self.kernel.saw(Rare::LostWhileSessionLives);
        }
        if *loss == Loss::Ended {
            self.judge_end(who);
        }
        self.tell(What::Lost { who, token, loss });
        self.stop_work(node, None);
    }

    // The enum may grow; other outcomes are not counted.
    #[allow(clippy::wildcard_enum_match_arm)]
    fn over(&mut self, node: usize, who: Who, outcome: &Outcome) {
        match outcome {
            Outcome::Released => {
                // A late join on etcd may have left another entry; the backend deletes that.
                let led = self.nodes[node].led;
                if self.registry.living().any(|item| Some(item.entry.token) == led) {
                    let how = format!("candidate {who} reports a release, and stands in line");
                    self.kernel.breaks(Promise::TruthfulOutcome, how);
                }
            }
            Outcome::Unknown { .. } => self.kernel.saw(Rare::ReleaseUnknown),
            Outcome::Regressed { .. } => {
                self.kernel.saw(Rare::Regressed);
                if self.top == 0 {
                    let how = format!("candidate {who} is told of a regression that never was");
                    self.kernel.breaks(Promise::TruthfulOutcome, how);
                }
            }
            Outcome::Ended => {
                self.judge_end(who);
                let root = self.registry.newest_root();
                self.kernel.saw(if root.state == RootState::Open {
                    Rare::OtherGeneration
                } else {
                    Rare::Ended
                });
            }
            _ => {}
        }
        self.tell(What::Over { who, outcome });
        if self.nodes[node].current == Some(who) {
            self.nodes[node].current = None;
            self.stop_work(node, None);
            if self.nodes[node].work == Work::None {
                self.stand_again(node);
            }
        }
    }

    /// Checks that a candidate is told of an end only if there was one.
    fn judge_end(&mut self, who: Who) {
        let root = self.registry.newest_root();
        if root.generation == 1 && root.state == RootState::Open {
            let how = format!("candidate {who} is told of an end that never was");
            self.kernel.breaks(Promise::EndedIsTerminal, how);
        }
    }

    pub(super) fn stand_again(&mut self, node: usize) {
        let open = self.registry.newest_root().state == RootState::Open;
        if self.healed && !open {
            return;
        }
        let ttl = self.ttl();
        let least = if open { 0 } else { ttl / 2 };
        let most = if self.healed { ttl / 50 } else { ttl };
        let after = least + self.kernel.rng.below(most);
        self.kernel.schedule(after, Happening::Stand { node });
    }

    /// Tells the work to stop. It takes its time, mostly within its budget.
    pub(super) fn stop_work(&mut self, node: usize, farewell: Option<Farewell>) {
        let Work::Running { who, token } = self.nodes[node].work else { return };
        self.nodes[node].work = Work::Stopping { who, token, farewell };
        if self.swarm.stuck && node == 0 {
            return;
        }
        let ttl = self.ttl();
        let slow = !self.healed && self.kernel.rng.permille(self.swarm.slow_stop);
        let most = if slow { ttl * 3 } else { ttl / 10 };
        let takes = self.kernel.rng.below(most);
        self.kernel.schedule(takes, Happening::WorkDone { node, who, token });
    }

    pub(super) fn work_done(&mut self, node: usize, done: Who, done_token: u64) {
        let Work::Stopping { who, token, farewell } = self.nodes[node].work else { return };
        if who != done || token != done_token {
            return;
        }
        if self.nodes[node].paused {
            // The work is paused together with its process.
            return self.kernel.schedule(1_000_000, Happening::WorkDone { node, who, token });
        }
        self.nodes[node].work = Work::None;
        self.tell(What::WorkEnded { who });
        if self.nodes[node].lease.is_none() {
            self.kernel.saw(Rare::WorkOutlivedLease);
        }
        let current = self.nodes[node].current == Some(who);
        match farewell {
            Some(farewell) if current => self.step(node, who, Input::Release(farewell)),
            None if current
                && self.nodes[node].lease.is_some()
                && self.kernel.rng.permille(500) =>
            {
                self.step(node, who, Input::Release(Farewell::Free));
            }
            Some(_) | None => self.step(node, who, Input::WorkEnded),
        }
        if self.nodes[node].current.is_none() {
            self.stand_again(node);
        }
        self.set_timer(node);
    }

    pub(super) fn tick(&mut self, node: usize) {
        if self.nodes[node].paused {
            return;
        }
        self.nodes[node].timer.forget();
        for who in self.nodes[node].whos() {
            let process = &self.nodes[node];
            let now = process.clock.now(self.kernel.now);
            let due = process.machines.iter().any(|standing| {
                standing.who == who && standing.machine.wake(now).is_some_and(|span| span.is_zero())
            });
            if due {
                self.step(node, who, Input::Tick);
            }
        }
        self.pulse(node);
        self.set_timer(node);
    }

    pub(super) fn set_timer(&mut self, node: usize) {
        let process = &mut self.nodes[node];
        let now = process.clock.now(self.kernel.now);
        let client = process.client.wake(now, self.swarm.dialect, process.pace());
        let machines = process.machines.iter().filter_map(|standing| standing.machine.wake(now));
        let at =
            machines.chain(client).min().map(|span| self.kernel.now + process.clock.real(span));
        if let (Some(at), Some(serial)) = (at, process.timer.set(self.kernel.now, at)) {
            self.kernel.schedule(at - self.kernel.now, Happening::Tick { node, serial });
        }
    }
}
