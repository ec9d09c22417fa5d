//! A bounded model of the same machine, explored state by state.
//!
//! The simulator tries long and wild histories. This model tries *all* short ones: every order in
//! which the messages of a few candidates can arrive, or not arrive, at every tick of a coarse
//! clock. A message that is never delivered counts as lost.
//!
//! Candidate 0 has the slowest clock and every other candidate the fastest. With such clocks the
//! windows of two leaders come closest.

use std::time::Duration;

use bytes::Bytes;
use stateright::{Model, Property};
use tenure::lease::machine::{Input, Machine, Output, Seen, Settings};
use tenure::lease::mutant::Mutant;
use tenure::lease::record::Record;
use tenure::protocol::Ask;
use tenure::protocol::Holder;
use tenure::store::{Expect, Fault, Put, Reads, Version};
use tenure::{CandidateId, Moment, Timing};

/// One step of real time. A ttl of six ticks gives windows of 4.8 ticks, and waits at least as
/// long.
const TICK: Duration = Duration::from_millis(100);
const TTL: Duration = Duration::from_millis(600);
const HEARTBEAT: Duration = Duration::from_millis(200);

/// The size of the model to explore.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// How many candidates stand.
    pub count: usize,
    /// How many ticks the model runs.
    pub ticks: u32,
    /// How many messages can be in flight; when there are more, the oldest is lost.
    pub messages: usize,
    /// The rule that is broken, if any.
    pub mutant: Option<Mutant>,
}

/// The whole state at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Situation {
    ticks: u32,
    machines: Vec<Machine>,
    stored: Option<(Version, Record)>,
    versions: u64,
    under_way: Vec<Message>,
    highest_token: u64,
    tokens_rise: bool,
    elected: Vec<usize>,
}

/// A message in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// A read on its way to the store.
    Read(usize, Ask),
    /// A write on its way to the store.
    Write(usize, Ask, Expect, Box<Record>),
    /// The answer to a read.
    Found(usize, Ask, Option<(Version, Record)>),
    /// The answer to a write.
    Wrote(usize, Ask, Put),
}

/// The steps that can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time goes on by one tick, for all candidates.
    Tick,
    /// This message arrives.
    Arrive(usize),
}

impl Candidates {
    /// The time on a candidate's clock.
    fn moment(who: usize, ticks: u32) -> Moment {
        let real = TICK * ticks;
        let local = if who == 0 { real } else { real * 5 / 4 };
        let local = local + Duration::from_secs(1);
        Moment { boot: local, monotonic: local }
    }

    fn machine(&self, who: usize) -> Machine {
        let timing = Timing::new(TTL).and_then(|timing| timing.with_heartbeat(HEARTBEAT));
        let settings = Settings {
            candidate: Holder {
                id: CandidateId::from_bits(who as u128),
                name: format!("c{who}").into(),
                value: Bytes::new(),
                presence: None,
            },
            timing: timing.expect("600 ms leave room for every part"),
            delay: None,
            reads: Reads::Linearizable,
            // Nothing is ever deleted here.
            floor: None,
            seed: who as u64,
        };
        Machine::new(settings).broken(self.mutant)
    }

    fn step(&self, state: &mut Situation, who: usize, input: Input) {
        let now = Candidates::moment(who, state.ticks);
        let outputs = state.machines[who].step(now, input);
        let mut lost = false;
        for output in outputs {
            match output {
                Output::Read { ask } => {
                    forget_reads(state, who);
                    self.send(state, Message::Read(who, ask));
                }
                Output::Write { ask, expect, record, durability: _ } => {
                    forget_reads(state, who);
                    self.send(state, Message::Write(who, ask, expect, Box::new(record)));
                }
                Output::Elected(lease) => {
                    state.tokens_rise &= lease.token > state.highest_token;
                    state.highest_token = state.highest_token.max(lease.token);
                    if !state.elected.contains(&who) {
                        state.elected.push(who);
                    }
                }
                Output::Lost { .. } => lost = true,
                Output::ReadFloor { .. }
                | Output::WriteFloor { .. }
                | Output::Extended(_)
                | Output::MustStop
                | Output::Suspended
                | Output::Resumed
                | Output::Following(_)
                | Output::Garbled(_)
                | Output::Over(_) => {}
            }
        }
        if lost {
            // The work ends at once, and the candidate stands again.
            self.step(state, who, Input::WorkEnded);
        }
    }

    fn send(&self, state: &mut Situation, message: Message) {
        if state.under_way.len() == self.messages {
            state.under_way.remove(0);
        }
        state.under_way.push(message);
    }

    fn arrive(&self, state: &mut Situation, message: Message) {
        match message {
            Message::Read(who, ask) => {
                let found = state.stored.clone();
                self.send(state, Message::Found(who, ask, found));
            }
            Message::Write(who, ask, expect, record) => {
                let put = apply(state, &expect, *record);
                self.send(state, Message::Wrote(who, ask, put));
            }
            Message::Found(who, ask, found) => {
                let seen = found.map(|(version, record)| Seen { version, record: Ok(record) });
                self.step(state, who, Input::Read(ask, Ok(seen)));
            }
            Message::Wrote(who, ask, put) => {
                self.step(state, who, Input::Wrote(ask, Ok::<_, Fault>(put)));
            }
        }
    }
}

/// Drops the reads of a candidate that sends a new request.
///
/// A new request means that the last one was answered or given up. A read that was given up has no
/// effect any more; a write may still arrive.
fn forget_reads(state: &mut Situation, who: usize) {
    state.under_way.retain(|message| match message {
        Message::Read(whose, _) | Message::Found(whose, _, _) => *whose != who,
        Message::Write(..) | Message::Wrote(..) => true,
    });
}

fn apply(state: &mut Situation, expect: &Expect, record: Record) -> Put {
    let holds = match (expect, &state.stored) {
        (Expect::Absent, None) => true,
        (Expect::At(version), Some((current, _))) => version == current,
        (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
    };
    if !holds {
        return Put::Conflict;
    }
    state.versions += 1;
    let version = Version::new(state.versions.to_string());
    state.stored = Some((version.clone(), record));
    Put::Stored(version)
}

impl Model for Candidates {
    type State = Situation;
    type Action = Action;

    fn init_states(&self) -> Vec<Situation> {
        let mut state = Situation {
            ticks: 0,
            machines: (0..self.count).map(|who| self.machine(who)).collect(),
            stored: None,
            versions: 0,
            under_way: Vec::new(),
            highest_token: 0,
            tokens_rise: true,
            elected: Vec::new(),
        };
        for who in 0..self.count {
            // Notifications make polls unnecessary: fewer messages, and the same claims.
            self.step(&mut state, who, Input::Notified(true));
        }
        vec![state]
    }

    fn actions(&self, state: &Situation, actions: &mut Vec<Action>) {
        if state.ticks < self.ticks {
            actions.push(Action::Tick);
        }
        actions.extend((0..state.under_way.len()).map(Action::Arrive));
    }

    fn next_state(&self, last: &Situation, action: Action) -> Option<Situation> {
        let mut state = last.clone();
        match action {
            Action::Tick => {
                state.ticks += 1;
                for who in 0..self.count {
                    self.step(&mut state, who, Input::Tick);
                }
            }
            Action::Arrive(at) => {
                let message = state.under_way.remove(at);
                self.arrive(&mut state, message);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one leader", |_, state: &Situation| leaders(state) <= 1),
            Property::always("tokens rise", |_, state: &Situation| state.tokens_rise),
            Property::sometimes("somebody leads", |_, state: &Situation| leaders(state) == 1),
            Property::sometimes("somebody takes over", |_, state: &Situation| {
                state.elected.len() > 1
            }),
        ]
    }
}

fn leaders(state: &Situation) -> usize {
    let leads = |(who, machine): &(usize, &Machine)| {
        machine.lease(Candidates::moment(*who, state.ticks)).is_some()
    };
    state.machines.iter().enumerate().filter(leads).count()
}
