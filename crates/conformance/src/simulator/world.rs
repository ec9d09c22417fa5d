//! The world: its queue of happenings, and the loop that runs them.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tenure::lease::floor::Laid;
use tenure::lease::machine::Input;
use tenure::lease::mutant::Mutant;
use tenure::store::{Expect, Version};

use super::clock::LocalClock;
use super::healing::Healing;
use super::injection::{Errand, Wish};
use super::network::Request;
use super::node::Node;
use super::store::Document;
use super::swarm::Swarm;
use super::{Options, Rare, Run, Sometimes};
use crate::checkers::{Breach, Check, Promise, Promises};
use crate::history::{Event, Instant, What, Who};
use crate::rng::Rng;

/// A world that is still busy after this many events runs in circles.
const MOST_EVENTS: u64 = 400_000;

/// The whole state of a simulation.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) rng: Rng,
    pub(super) swarm: Swarm,
    pub(super) mutant: Option<Mutant>,
    pub(super) nodes: Vec<Node>,
    pub(super) document: Document,
    pub(super) floor: Document<Laid>,
    pub(super) outage: bool,
    pub(super) healing: Option<Healing>,
    /// The candidacies that ended with their process.
    pub(super) crashed: Vec<bool>,
    /// The candidacies that reported that none of their writes can still arrive.
    pub(super) departed: Vec<bool>,
    /// The newest tenure: its candidate, and whether it was given up cleanly.
    pub(super) last_tenure: Option<(Who, bool)>,
    pub(super) errands: u64,
    /// The nodes whose requests for the record all go to the isolated primary. The floor has
    /// another.
    pub(super) bound: Option<Vec<bool>>,
    pub(super) sometimes: Sometimes,
    queue: BinaryHeap<Scheduled>,
    scheduled: u64,
    promises: Promises,
    breach: Option<Breach>,
    seed: u64,
    events: u64,
    trace: Option<Vec<String>>,
}

/// The scheduled events.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A candidate's timer fires.
    Tick {
        node: usize,
        serial: u64,
    },
    /// A request reaches the store.
    Arrive {
        node: usize,
        who: Who,
        request: Request,
    },
    /// A candidate receives an input.
    Deliver {
        node: usize,
        who: Who,
        input: Input,
    },
    /// A candidate's watch fires.
    Hint {
        node: usize,
        who: Who,
    },
    /// The work of a tenure has ended.
    WorkDone {
        node: usize,
        who: Who,
        token: u64,
    },
    /// A paused process goes on.
    Resume {
        node: usize,
    },
    /// A process starts, or stands again.
    Stand {
        node: usize,
    },
    /// A partition is over.
    Reconnect {
        node: usize,
    },
    OutageOver,
    /// A garbled record is repaired.
    Mend,
    /// The isolated primary is back.
    Rejoin,
    /// A fault begins.
    FaultInjection,
    /// An outsider's read reaches the store.
    OutsiderReads {
        errand: Errand,
    },
    /// An outsider's write reaches the store.
    OutsiderWrites {
        errand: Errand,
        expect: Expect,
        record: tenure::lease::record::Record,
    },
    /// Faults stop.
    Heal,
    /// All activity from before the end of the faults is over.
    Quiet,
    /// By now a candidate must lead.
    Deadline,
    /// The run is over.
    End,
}

struct Scheduled {
    at: Instant,
    order: u64,
    happening: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// The heap returns the greatest first, and we want the earliest.
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> World {
        let mut rng = Rng::new(seed);
        let swarm = Swarm::draw(&mut rng, options.rates, options.profile);
        let mut world = World {
            now: 0,
            nodes: Vec::with_capacity(swarm.nodes),
            swarm,
            mutant: options.mutant,
            document: Document::default(),
            floor: Document::default(),
            outage: false,
            healing: None,
            crashed: Vec::new(),
            departed: Vec::new(),
            last_tenure: None,
            errands: 0,
            bound: None,
            sometimes: Sometimes::default(),
            queue: BinaryHeap::with_capacity(256),
            scheduled: 0,
            promises: Promises::default(),
            breach: None,
            seed,
            events: 0,
            trace: options.trace.then(Vec::new),
            rng,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        if self.trace.is_some() {
            let line = format!("{:?}", self.swarm);
            self.note(|| line);
        }
        for node in 0..self.swarm.nodes {
            let (base, wall) = (self.rng.below(1 << 40), self.rng.below(1 << 45));
            self.nodes.push(Node::new(LocalClock::new(self.swarm.rates[node], base, wall)));
            let late = self.rng.below(self.swarm.active / 8);
            self.schedule(late, Happening::Stand { node });
        }
        let first = self.rng.below(self.swarm.pace * 2);
        self.schedule(first, Happening::FaultInjection);
        self.schedule(self.swarm.active, Happening::Heal);
    }

    pub(super) fn run(mut self) -> Run {
        while let Some(Scheduled { at, happening, .. }) = self.queue.pop() {
            self.now = at;
            if let Happening::Tick { node, serial } = happening
                && self.nodes[node].serial != serial
            {
                continue;
            }
            self.events += 1;
            let is_end = matches!(happening, Happening::End);
            if self.events > MOST_EVENTS {
                self.breaks(Promise::Wakefulness, "the world never comes to rest".to_owned());
            }
            self.happen(happening);
            if is_end || self.breach.is_some() {
                break;
            }
        }
        if let Some(breach) = self.breach.clone() {
            self.note(|| format!("BROKEN {breach}"));
        }
        Run {
            seed: self.seed,
            breach: self.breach,
            sometimes: self.sometimes,
            events: self.events,
            trace: self.trace.unwrap_or_default(),
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick { node, .. } => self.step(node, Input::Tick),
            Happening::Arrive { node, who, request } => self.arrive(node, who, request),
            Happening::Deliver { node, who, input } => {
                if self.nodes[node].who == who {
                    self.step(node, input);
                }
            }
            Happening::Hint { node, who } => {
                if self.nodes[node].who == who {
                    self.nodes[node].hinted = false;
                    self.step(node, Input::Hint);
                }
            }
            Happening::WorkDone { node, who, token } => self.work_done(node, who, token),
            Happening::Resume { node } => self.resume(node),
            Happening::Stand { node } => self.stand(node),
            Happening::Reconnect { node } => self.nodes[node].cut = false,
            Happening::OutageOver => self.outage = false,
            Happening::Mend => self.mend(),
            Happening::Rejoin => self.rejoin(),
            Happening::FaultInjection => self.injection(),
            Happening::OutsiderReads { errand } => self.outsider_reads(errand),
            Happening::OutsiderWrites { errand, expect, record } => {
                self.outsider_writes(errand, &expect, record);
            }
            Happening::Heal => self.heal(),
            Happening::Quiet => self.quiet(),
            Happening::Deadline => self.deadline(),
            Happening::End => self.end(),
        }
    }

    pub(super) fn schedule(&mut self, after: u64, happening: Happening) {
        self.scheduled += 1;
        let scheduled = Scheduled { at: self.now + after, order: self.scheduled, happening };
        self.queue.push(scheduled);
    }

    /// The time of the last event in flight.
    ///
    /// Messages of candidates never end, so they count only if `messages` is true.
    pub(super) fn last_arrival(&self, messages: bool) -> Option<Instant> {
        let under_way = |scheduled: &&Scheduled| match scheduled.happening {
            Happening::Arrive { .. } | Happening::Deliver { .. } => messages,
            Happening::WorkDone { .. }
            | Happening::OutsiderReads { .. }
            | Happening::OutsiderWrites { .. }
            | Happening::Stand { .. } => true,
            Happening::Tick { .. }
            | Happening::Hint { .. }
            | Happening::Resume { .. }
            | Happening::Reconnect { .. }
            | Happening::OutageOver
            | Happening::Mend
            | Happening::Rejoin
            | Happening::FaultInjection
            | Happening::Heal
            | Happening::Quiet
            | Happening::Deadline
            | Happening::End => false,
        };
        self.queue.iter().filter(under_way).map(|scheduled| scheduled.at).max()
    }

    /// Shows an event to the checkers.
    pub(super) fn tell(&mut self, what: What<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>14} * {what:?}", self.now));
        }
        let event = Event { at: self.now, what };
        if let Err(breach) = self.promises.observe(&event)
            && self.breach.is_none()
        {
            self.breach = Some(breach);
        }
    }

    pub(super) fn leader(&self) -> Option<Who> {
        self.promises.leader(self.now)
    }

    pub(super) fn breaks(&mut self, promise: Promise, how: String) {
        if self.breach.is_none() {
            self.breach = Some(Breach::new(promise, how));
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.breach.is_some()
    }

    /// Writes a line of the trace, if there is one.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>14}   {}", self.now, line()));
        }
    }

    pub(super) fn saw(&mut self, rare: Rare) {
        self.sometimes.saw(rare);
    }

    /// Shows the new record to the checkers, and to the watching nodes.
    pub(super) fn committed(&mut self) {
        let current = self.document.current().cloned();
        let holder = current.as_ref().and_then(|stored| holder_of(&stored.record));
        let by = current.as_ref().and_then(|stored| stored.by);
        self.tell(What::Committed { by, holder, record: current.as_ref().map(|s| &s.record) });
        for node in 0..self.nodes.len() {
            self.watch(node);
        }
        if self.faults() && self.is_ended() && self.rng.permille(self.swarm.recreate) {
            self.send_outsider(Wish::Create);
        }
    }

    pub(super) fn shows(&self, version: Option<&Version>) -> bool {
        self.document.version() == version
    }
}

/// The candidacy that holds a record. Its id is a small number, easy to read in a trace.
pub(super) fn holder_of(record: &tenure::lease::record::Record) -> Option<Who> {
    record.holder().and_then(|holder| Who::from_str_radix(holder.id.as_str(), 16).ok())
}
