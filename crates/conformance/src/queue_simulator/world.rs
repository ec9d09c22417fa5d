//! The world: its queue of happenings, and the loop that runs them.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tenure::queue::mutant::Mutant;

use super::client::Arrival;
use super::ensemble::{Down, Errand, Greeting, Session, Up};
use super::judge::Judge;
use super::node::Node;
use super::registry::Registry;
use super::servers::Server;
use super::swarm::Swarm;
use super::{Options, Rare, Run, Sometimes};
use crate::checkers::{Breach, Promise};
use crate::history::{Event, Instant, What, Who};
use crate::rng::Rng;
use crate::simulator::clock::{LocalClock, nanos};

/// A world that is still busy after this many events runs in circles.
const MOST_EVENTS: u64 = 600_000;

/// The whole state of a simulation.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) rng: Rng,
    pub(super) swarm: Swarm,
    pub(super) mutant: Option<Mutant>,
    pub(super) nodes: Vec<Node>,
    pub(super) servers: Vec<Server>,
    /// The server that a quorum follows.
    pub(super) leader: Option<usize>,
    pub(super) term: u64,
    /// Streams between servers of an earlier epoch are broken.
    pub(super) streams: u64,
    pub(super) sessions: Vec<Session>,
    /// The number of leases so far (etcd).
    pub(super) leases: u64,
    pub(super) registry: Registry,
    /// All servers are down until then.
    pub(super) down_until: Instant,
    /// The newest transaction of the servers that were replaced; 0 if none were.
    pub(super) top: u64,
    pub(super) healed: bool,
    pub(super) whos: Who,
    pub(super) last_leader: Option<Who>,
    pub(super) sometimes: Sometimes,
    pub(super) judge: Judge,
    queue: BinaryHeap<Scheduled>,
    scheduled: u64,
    breach: Option<Breach>,
    seed: u64,
    events: u64,
    trace: Option<Vec<String>>,
}

/// The scheduled events.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A process's timer fires.
    Tick {
        node: usize,
        serial: u64,
    },
    /// A request reaches a server.
    AtServer {
        server: usize,
        errand: Errand,
    },
    /// A handshake reaches a server.
    Handshake {
        server: usize,
        greeting: Greeting,
    },
    /// A message reaches a process.
    AtClient {
        node: usize,
        connection: u64,
        arrival: Arrival,
    },
    /// A connection is tried.
    Connect {
        node: usize,
        connection: u64,
    },
    /// An attempt to connect is given up, or a connection is found closed.
    GiveUp {
        node: usize,
        connection: u64,
        unless_connected: bool,
    },
    /// From another server to the leader.
    Up {
        from: usize,
        streams: u64,
        message: Up,
    },
    /// From the leader to another server.
    Down {
        to: usize,
        streams: u64,
        message: Down,
    },
    /// The leader sends its pings.
    Ping {
        term: u64,
    },
    /// The leader checks whether a session has expired.
    Expiry {
        session: usize,
    },
    /// The remaining servers choose a leader.
    Elect {
        term: u64,
    },
    /// A server that was cut off is back.
    Rejoin {
        server: usize,
    },
    /// The work of a tenure has ended.
    WorkDone {
        node: usize,
        who: Who,
        token: u64,
    },
    Resume {
        node: usize,
    },
    Stand {
        node: usize,
    },
    Reconnect {
        node: usize,
    },
    Cut {
        node: usize,
    },
    /// An operator deletes this entry.
    Delete {
        token: u64,
    },
    Recreate,
    FaultInjection,
    Heal,
    Deadline,
    Successor,
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
        let swarm = Swarm::draw(&mut rng, &options);
        let mut world = World {
            now: 0,
            nodes: Vec::with_capacity(swarm.nodes),
            servers: (0..swarm.servers).map(|_| Server::new()).collect(),
            leader: Some(0),
            term: 1,
            streams: 0,
            sessions: Vec::new(),
            leases: 0,
            registry: Registry::new(),
            healed: false,
            down_until: 0,
            top: 0,
            whos: 0,
            last_leader: None,
            judge: Judge::new(swarm.delay),
            swarm,
            mutant: options.mutant,
            sometimes: Sometimes::default(),
            queue: BinaryHeap::with_capacity(256),
            scheduled: 0,
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
        self.servers[0].leads = true;
        for node in 0..self.swarm.nodes {
            let base = self.rng.below(1 << 40);
            let clock = LocalClock::new(self.swarm.rates[node], base, 0);
            self.nodes.push(Node::new(clock, self.swarm.ttl, self.mutant));
            self.schedule(0, Happening::Connect { node, connection: 0 });
            let late = self.rng.below(self.swarm.active / 8);
            self.schedule(late, Happening::Stand { node });
        }
        self.schedule(0, Happening::Ping { term: 1 });
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
            Happening::Tick { node, .. } => self.tick(node),
            Happening::AtServer { server, errand } => self.at_server(server, errand),
            Happening::Handshake { server, greeting } => self.handshake(server, greeting),
            Happening::AtClient { node, connection, arrival } => {
                self.at_client(node, connection, arrival);
            }
            Happening::Connect { node, connection } => self.connect(node, connection),
            Happening::GiveUp { node, connection, unless_connected } => {
                self.give_up(node, connection, unless_connected);
            }
            Happening::Up { from, streams, message } => self.up(from, streams, message),
            Happening::Down { to, streams, message } => self.down(to, streams, message),
            Happening::Ping { term } => self.ping(term),
            Happening::Expiry { session } => self.expiry(session),
            Happening::Elect { term } => self.elect(term),
            Happening::Rejoin { server } => self.rejoin(server),
            Happening::WorkDone { node, who, token } => self.work_done(node, who, token),
            Happening::Resume { node } => self.resume(node),
            Happening::Stand { node } => self.stand(node),
            Happening::Reconnect { node } => self.nodes[node].cut = false,
            Happening::Cut { node } => self.cut(node),
            Happening::Delete { token } => self.delete_by_hand(token),
            Happening::Recreate => self.outsider_creates(),
            Happening::FaultInjection => self.injection(),
            Happening::Heal => self.heal(),
            Happening::Deadline => self.deadline(),
            Happening::Successor => self.successor(),
            Happening::End => self.end(),
        }
    }

    pub(super) fn schedule(&mut self, after: u64, happening: Happening) {
        self.scheduled += 1;
        let scheduled = Scheduled { at: self.now + after, order: self.scheduled, happening };
        self.queue.push(scheduled);
    }

    /// Shows an event to the checkers.
    pub(super) fn tell(&mut self, what: What<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>14} * {what:?}", self.now));
        }
        let event = Event { at: self.now, what };
        if let Err(breach) = self.judge.observe(&event)
            && self.breach.is_none()
        {
            self.breach = Some(breach);
        }
    }

    pub(super) fn breaks(&mut self, promise: Promise, how: String) {
        if self.breach.is_none() {
            self.breach = Some(Breach::new(promise, how));
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.now < self.down_until
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

    pub(super) fn ttl(&self) -> u64 {
        nanos(self.swarm.ttl)
    }

    /// The time that a message takes.
    pub(super) fn delay(&mut self, slow: u32) -> u64 {
        let usual = self.rng.between(self.swarm.least, self.swarm.most);
        if !self.healed && self.rng.permille(slow) {
            let ttl = self.ttl();
            let most = if self.rng.permille(300) { ttl } else { ttl / 6 };
            return self.rng.between(usual, most);
        }
        usual
    }
}
