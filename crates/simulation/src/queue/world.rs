//! The world: its parts, and the events that can happen in it.

use tenure::queue::mutant::Mutant;

use super::client::Arrival;
use super::ensemble::{Down, Errand, Greeting, Session, Up};
use super::node::Node;
use super::registry::Registry;
use super::servers::Server;
use super::swarm::Swarm;
use super::{Options, Rare};
use crate::checkers::{Check, Promises};
use crate::history::{Event, What, Who};
use crate::kernel::{self, Instant, Kernel, LocalClock, nanos};

/// The whole state of a simulation.
pub(super) struct World {
    pub(super) kernel: Kernel<Happening, Rare>,
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
    pub(super) promises: Promises,
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
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> World {
        let mut kernel = Kernel::new(seed, options.trace);
        let swarm = Swarm::draw(&mut kernel.rng, &options);
        let mut world = World {
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
            promises: Promises::of_a_queue(swarm.delay),
            swarm,
            mutant: options.mutant,
            kernel,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.kernel.note(|| format!("{:?}", self.swarm));
        self.servers[0].leads = true;
        for node in 0..self.swarm.nodes {
            let clock = LocalClock::draw(&mut self.kernel.rng, self.swarm.rates[node]);
            self.nodes.push(Node::new(clock, self.swarm.ttl, self.mutant));
            self.kernel.schedule(0, Happening::Connect { node, connection: 0 });
            let late = self.kernel.rng.below(self.swarm.active / 8);
            self.kernel.schedule(late, Happening::Stand { node });
        }
        self.kernel.schedule(0, Happening::Ping { term: 1 });
        let first = self.kernel.rng.below(self.swarm.pace * 2);
        self.kernel.schedule(first, Happening::FaultInjection);
        self.kernel.schedule(self.swarm.active, Happening::Heal);
    }

    /// Shows an event to the checkers.
    pub(super) fn tell(&mut self, what: What<'_>) {
        self.kernel.note_event(&what);
        let event = Event { at: self.kernel.now, what };
        self.kernel.check(self.promises.observe(&event));
    }

    pub(super) fn is_down(&self) -> bool {
        self.kernel.now < self.down_until
    }

    pub(super) fn ttl(&self) -> u64 {
        nanos(self.swarm.ttl)
    }

    /// The time that a message takes.
    pub(super) fn delay(&mut self, slow: u32) -> u64 {
        let usual = self.kernel.rng.between(self.swarm.least, self.swarm.most);
        if !self.healed && self.kernel.rng.permille(slow) {
            let ttl = self.ttl();
            let most = if self.kernel.rng.permille(300) { ttl } else { ttl / 6 };
            return self.kernel.rng.between(usual, most);
        }
        usual
    }
}
