//! The world: its parts, and the events that can happen in it.

use tenure::lease::floor::Laid;
use tenure::lease::machine::Input;
use tenure::lease::mutant::Mutant;
use tenure::store::{Expect, Version};

use super::healing::Healing;
use super::injection::{Errand, Wish};
use super::network::Request;
use super::node::Node;
use super::store::Document;
use super::swarm::Swarm;
use super::{Options, Rare};
use crate::checkers::{Check, Promises};
use crate::history::{Event, What, Who};
use crate::kernel::{self, Instant, Kernel, LocalClock};

/// The whole state of a simulation.
pub(super) struct World {
    pub(super) kernel: Kernel<Happening, Rare>,
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
    promises: Promises,
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

impl kernel::World for World {
    type Happening = Happening;
    type Rare = Rare;

    fn kernel(&mut self) -> &mut Kernel<Happening, Rare> {
        &mut self.kernel
    }

    fn is_outdated(&self, happening: &Happening) -> bool {
        let Happening::Tick { node, serial } = happening else { return false };
        !self.nodes[*node].timer.is_newest(*serial)
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
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> World {
        let mut kernel = Kernel::new(seed, options.trace);
        let swarm = Swarm::draw(&mut kernel.rng, options.rates, options.profile);
        let mut world = World {
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
            promises: Promises::of_leases(),
            kernel,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.kernel.note(|| format!("{:?}", self.swarm));
        for node in 0..self.swarm.nodes {
            let mut clock = LocalClock::draw(&mut self.kernel.rng, self.swarm.rates[node]);
            clock.set_wall(self.kernel.rng.below(1 << 45));
            self.nodes.push(Node::new(clock));
            let late = self.kernel.rng.below(self.swarm.active / 8);
            self.kernel.schedule(late, Happening::Stand { node });
        }
        let first = self.kernel.rng.below(self.swarm.pace * 2);
        self.kernel.schedule(first, Happening::FaultInjection);
        self.kernel.schedule(self.swarm.active, Happening::Heal);
    }

    /// The time of the last event in flight.
    ///
    /// Messages of candidates never end, so they count only if `messages` is true.
    pub(super) fn last_arrival(&self, messages: bool) -> Option<Instant> {
        let under_way = |happening: &Happening| match happening {
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
        let coming = self.kernel.coming().filter(|(_, happening)| under_way(happening));
        coming.map(|(at, _)| at).max()
    }

    /// Shows an event to the checkers.
    pub(super) fn tell(&mut self, what: What<'_>) {
        self.kernel.note_event(&what);
        let event = Event { at: self.kernel.now, what };
        self.kernel.check(self.promises.observe(&event));
    }

    pub(super) fn leader(&self) -> Option<Who> {
        self.promises.leader(self.kernel.now)
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
        if self.faults() && self.is_ended() && self.kernel.rng.permille(self.swarm.recreate) {
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
