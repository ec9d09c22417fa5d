//! How servers handle requests.
//!
//! There are streams between them, transactions, and sessions by the leader's clock.

use std::sync::Arc;

use bytes::Bytes;
use tenure::protocol::Holder;
use tenure::queue::mutant::Mutant;
use tenure::queue::{Entry, Freshness, Joined, Left, Line, Ticket};

use super::Rare;
use super::client::Arrival;
use super::moving::Step;
use super::registry::RootState;
use super::swarm::Dialect;
use super::world::{Happening, World};
use crate::checkers::Promise;
use crate::history::{Instant, Who};
use crate::simulator::clock::REAL_RATE;

/// A session as the servers know it.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) node: usize,
    pub(super) alive: bool,
    /// The transaction that closed it.
    closed: Option<u64>,
    /// The lease of the session's own key, and of every later entry (etcd).
    pub(super) lease: u64,
    /// The term in which the session moved to that lease.
    pub(super) moved: u64,
    /// The lease before that: entries may still be under it.
    pub(super) former: Option<u64>,
    /// The next lease, and the term in which it was asked for.
    pub(super) next: Option<(u64, u64)>,
    pub(super) expiry: Instant,
    checking: bool,
    /// The newest connection: requests of earlier ones are refused (ZooKeeper).
    owner: u64,
}

impl Session {
    /// All leases that the session's owner keeps alive (etcd).
    pub(super) fn leases(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.lease).chain(self.former).chain(self.next.map(|(next, _)| next))
    }
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) node: usize,
    pub(super) connection: u64,
    pub(super) session: usize,
    pub(super) id: u64,
    pub(super) request: Request,
}

/// A handshake in flight.
#[derive(Clone, Debug)]
pub(super) struct Greeting {
    pub(super) node: usize,
    pub(super) connection: u64,
    pub(super) session: Option<usize>,
    /// The newest transaction that the process has seen. It refuses a server that is behind.
    pub(super) seen: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Request {
    /// A heartbeat that any server answers.
    Beat,
    /// A heartbeat that a quorum answers.
    Touch,
    /// Answered by the leader, in the order of the streams.
    Sync,
    KeepAlive,
    Get,
    /// Takes one step towards another lease, in this term.
    Move(Step, u64),
    Join {
        who: Who,
        ticket: Ticket,
        holder: Arc<Holder>,
    },
    Line(Freshness),
    Begin(Entry),
    Note(Entry),
    Leave {
        entry: Entry,
        /// Whether the machine calls the tenure clean.
        clean: bool,
        /// Whether the backend takes back the record of the tenure in the same transaction.
        takes_back: bool,
    },
    End(u64),
    Publish {
        entry: Entry,
        value: Bytes,
    },
}

/// The answer to a request; lines are filled in when the answer leaves.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Done,
    KeptAlive {
        term: u64,
        alive: bool,
    },
    Got {
        session: usize,
        term: u64,
        /// Whether the key of the session exists.
        alive: bool,
        ours: Vec<(Entry, Ticket)>,
    },
    /// This step is done.
    Moved(Step),
    Joined(Joined),
    Line(Line),
    /// Whether the beginning of a tenure was recorded.
    Begun {
        token: u64,
        recorded: bool,
    },
    Noted,
    Left(Left),
    Ended,
    Published,
    /// The session is over: the server says so instead of answering.
    Expired,
    /// The session has moved to another connection.
    Elsewhere,
    /// One server refused this without asking the others. It read the line all the same.
    Refused {
        request: Request,
        line: Line,
    },
}

/// A message from another server to the leader.
#[derive(Clone, Debug)]
pub(super) enum Up {
    Pong { touched: Vec<usize> },
    Errand(Errand),
    Greeting(Greeting),
}

/// A message from the leader to another server.
#[derive(Clone, Debug)]
pub(super) enum Down {
    Ping,
    Commit { zxid: u64, answer: Option<(Errand, Answer)> },
    Answer { errand: Errand, answer: Answer },
    Welcome { greeting: Greeting, session: Option<usize> },
}

/// Requests.
impl World {
    pub(super) fn at_server(&mut self, server: usize, errand: Errand) {
        let Errand { node, connection, session, id, ref request } = errand;
        if self.is_down() {
            return;
        }
        let client = &self.nodes[node].client;
        if client.connection == connection && client.is_connected() {
            self.nodes[node].served.slots.push_back((id, None));
        }
        let zookeeper = self.swarm.dialect == Dialect::Zookeeper;
        if zookeeper {
            if self.leader == Some(server) {
                self.touch(session);
            } else if !self.servers[server].touched.contains(&session) {
                self.servers[server].touched.push(session);
            }
        }
        if let Some(turn) = self.refuses(server, request) {
            return self.refuse(server, &errand, turn);
        }
        let local = match request {
            Request::Beat => Some(Answer::Done),
            Request::Line(Freshness::Session) if zookeeper => Some(Answer::Line(Line::Missing)),
            Request::Sync if self.servers[server].leads && self.leader != Some(server) => {
                self.saw(Rare::DeposedAnswered);
                Some(Answer::Done)
            }
            Request::KeepAlive if self.servers[server].leads && self.leader != Some(server) => {
                self.saw(Rare::DeposedAnswered);
                let alive = self.knows(session, server);
                self.count_again(session, server);
                Some(Answer::KeptAlive { term: self.servers[server].term, alive })
            }
            Request::KeepAlive
            | Request::Touch
            | Request::Sync
            | Request::Get
            | Request::Move(..)
            | Request::Join { .. }
            | Request::Line(_)
            | Request::Begin(_)
            | Request::Note(_)
            | Request::Leave { .. }
            | Request::Publish { .. }
            | Request::End(_) => None,
        };
        if let Some(answer) = local {
            self.ready(&errand, answer);
        } else if self.leader == Some(server) {
            let answer = self.serve(&errand);
            if is_write(&errand.request) {
                self.commit(None);
            }
            self.ready(&errand, answer);
        } else {
            self.at_server_again(server, errand);
        }
    }

    /// Forwards a request that needs the leader. A cut-off server of etcd holds it back.
    pub(super) fn at_server_again(&mut self, server: usize, errand: Errand) {
        if self.swarm.dialect == Dialect::Etcd && self.servers[server].isolated {
            self.servers[server].held.push(errand);
        } else {
            self.send_up(server, Up::Errand(errand));
        }
    }

    /// The leader carries out a request.
    fn serve(&mut self, errand: &Errand) -> Answer {
        let Errand { node, connection, session, ref request, .. } = *errand;
        let Session { alive, owner, .. } = self.sessions[session];
        match self.swarm.dialect {
            Dialect::Zookeeper if !alive => return Answer::Expired,
            Dialect::Zookeeper if owner != connection => return Answer::Elsewhere,
            Dialect::Zookeeper | Dialect::Etcd => {}
        }
        match request {
            Request::Beat | Request::Touch => {
                self.registry.tick();
                Answer::Done
            }
            Request::KeepAlive => {
                self.touch(session);
                Answer::KeptAlive { term: self.term, alive }
            }
            Request::Sync => Answer::Done,
            Request::Get => Answer::Got { session, term: 0, alive, ours: Vec::new() },
            Request::Move(..) if !alive => Answer::Expired,
            Request::Move(step, term) => {
                self.take_step(session, *step, *term);
                Answer::Moved(*step)
            }
            Request::Line(_) => {
                self.registry.tick();
                Answer::Line(Line::Missing)
            }
            Request::Join { who, ticket, holder } => {
                let root = self.registry.newest_root();
                let taken = self.registry.living().any(|item| item.session == session);
                let possible = match (root.state, self.swarm.dialect) {
                    (RootState::Missing, _) => false,
                    // A create cannot check whether the election has ended.
                    (RootState::Open | RootState::Ended, Dialect::Zookeeper) => true,
                    (RootState::Open, Dialect::Etcd) => !taken,
                    (RootState::Ended, Dialect::Etcd) => false,
                };
                if !alive {
                    return Answer::Expired;
                }
                let under = (session, self.sessions[session].lease);
                let entry =
                    possible.then(|| self.registry.enter(*who, node, under, ticket, holder));
                Answer::Joined(Joined { session: 0, entry, line: Line::Missing })
            }
            Request::Begin(entry) => {
                let token = entry.token;
                Answer::Begun { token, recorded: self.begin_tenure(token) }
            }
            Request::Note(entry) => {
                self.registry.note(entry.token);
                Answer::Noted
            }
            Request::Leave { entry, clean, takes_back } => {
                let deleted = self.registry.delete(entry.token, *takes_back);
                if deleted && *clean {
                    self.judge_release(entry.token);
                }
                Answer::Left(if deleted { Left::Deleted } else { Left::Absent })
            }
            Request::Publish { entry, value } => {
                // A late value would replace a newer one, and nothing is promised about that.
                if self.nodes[node].client.connection == connection {
                    self.registry.publish(entry.token, value);
                }
                Answer::Published
            }
            Request::End(generation) => {
                let root = self.registry.newest_root();
                if root.generation == *generation && root.state == RootState::Open {
                    self.end_election();
                }
                Answer::Ended
            }
        }
    }

    /// Makes the servers forget all sessions.
    pub(super) fn forget_sessions(&mut self) {
        for session in &mut self.sessions {
            (session.alive, session.closed) = (false, Some(0));
        }
    }

    fn begin_tenure(&mut self, token: u64) -> bool {
        let recorded = self.registry.highest(self.registry.zxid);
        let begun = self.registry.begin(token);
        if begun && token < recorded {
            let how = format!("the beginning of {token} is recorded in the place of {recorded}");
            self.breaks(Promise::Fencing, how);
        }
        if let Some(item) = self.registry.find(token).filter(|_| begun) {
            let (at, who) = (self.now, item.who);
            if let Err(breach) = self.judge.lock_delay.begun(at, who, token) {
                self.breaks(breach.promise, breach.how);
            }
        }
        begun
    }

    pub(super) fn end_election(&mut self) {
        self.registry.set_root(RootState::Ended);
        if self.mutant == Some(Mutant::EndDeletesOthers) {
            let all: Vec<u64> = self.registry.living().map(|item| item.entry.token).collect();
            for token in all {
                self.registry.delete(token, false);
            }
        }
    }

    /// Completes an answer with the state that the server has when it leaves.
    pub(super) fn finish(&self, answer: Answer, node: usize, zxid: u64, term: u64) -> Answer {
        match answer {
            Answer::Joined(joined) => {
                let session = self.nodes[node].client.number;
                Answer::Joined(Joined { session, line: self.registry.line(zxid, node), ..joined })
            }
            Answer::Line(_) => Answer::Line(self.registry.line(zxid, node)),
            Answer::Refused { request, .. } => {
                Answer::Refused { request, line: self.registry.line(zxid, node) }
            }
            Answer::Got { session, .. } => {
                let shown = self.registry.items.iter().filter(|item| {
                    item.session == session && self.registry.shows(item.entry.token, zxid)
                });
                let ours = shown.map(|item| (item.entry.clone(), item.ticket.clone())).collect();
                let closed = self.sessions[session].closed;
                let alive = closed.is_none_or(|closed| closed > zxid);
                Answer::Got { session, term, alive, ours }
            }
            Answer::Done
            | Answer::KeptAlive { .. }
            | Answer::Moved(_)
            | Answer::Begun { .. }
            | Answer::Noted
            | Answer::Left(_)
            | Answer::Ended
            | Answer::Published
            | Answer::Expired
            | Answer::Elsewhere => answer,
        }
    }

    /// Stores an answer. It leaves after all earlier answers.
    pub(super) fn ready(&mut self, errand: &Errand, answer: Answer) {
        let node = errand.node;
        if self.nodes[node].client.connection != errand.connection {
            let applied = match &answer {
                Answer::Joined(joined) if joined.entry.is_some() => Some(Rare::JoinAnswerLost),
                Answer::Left(Left::Deleted) => Some(Rare::LeaveAnswerLost),
                Answer::Begun { recorded: true, .. } => Some(Rare::BeginAnswerLost),
                Answer::Published => Some(Rare::PublishAnswerLost),
                Answer::Joined(_)
                | Answer::Begun { recorded: false, .. }
                | Answer::Noted
                | Answer::Left(Left::Absent)
                | Answer::Done
                | Answer::KeptAlive { .. }
                | Answer::Moved(_)
                | Answer::Got { .. }
                | Answer::Line(_)
                | Answer::Ended
                | Answer::Expired
                | Answer::Elsewhere
                | Answer::Refused { .. } => None,
            };
            if let Some(rare) = applied {
                self.saw(rare);
            }
            return;
        }
        let slots = &mut self.nodes[node].served.slots;
        if let Some(slot) = slots.iter_mut().find(|(id, _)| *id == errand.id) {
            slot.1 = Some(answer);
        }
        self.flush(node);
    }
}

/// Handshakes.
impl World {
    pub(super) fn handshake(&mut self, server: usize, greeting: Greeting) {
        let etcd = self.swarm.dialect == Dialect::Etcd;
        if self.is_down() || !etcd && self.servers[server].applied < greeting.seen {
            return;
        }
        if self.leader == Some(server) {
            let session = self.greet(&greeting);
            self.welcome(&greeting, session);
        } else if let Some(session) = greeting.session
            && (etcd || self.servers[server].leads && self.knows(session, server))
        {
            if !etcd {
                self.saw(Rare::DeposedAnswered);
            }
            self.welcome(&greeting, Some(session));
        } else if !self.servers[server].leads {
            self.send_up(server, Up::Greeting(greeting));
        }
    }

    /// The leader begins or continues a session.
    fn greet(&mut self, greeting: &Greeting) -> Option<usize> {
        let etcd = self.swarm.dialect == Dialect::Etcd;
        match greeting.session {
            None => {
                self.registry.tick();
                let (session, lease) = (self.sessions.len(), self.fresh_lease());
                self.sessions.push(Session {
                    node: greeting.node,
                    alive: true,
                    closed: None,
                    lease,
                    moved: 0,
                    former: None,
                    next: None,
                    expiry: 0,
                    checking: false,
                    owner: greeting.connection,
                });
                self.touch(session);
                self.commit(None);
                Some(session)
            }
            Some(session) if self.sessions[session].alive || etcd => {
                if !etcd {
                    self.touch(session);
                }
                self.sessions[session].owner = greeting.connection;
                Some(session)
            }
            Some(_) => None,
        }
    }

    /// The number of a new lease.
    pub(super) fn fresh_lease(&mut self) -> u64 {
        self.leases += 1;
        self.leases
    }

    /// An old leader extends the leases that are kept alive at it.
    fn count_again(&mut self, session: usize, server: usize) {
        let keeps = self.ttl() * REAL_RATE / self.swarm.server_rates[server];
        let until = self.now + keeps;
        let session = &self.sessions[session];
        let leases: Vec<u64> = session.leases().collect();
        let counts = &mut self.servers[server].counts;
        let kept = counts.iter_mut().filter(|(known, _)| leases.contains(known));
        kept.for_each(|(_, at)| *at = until);
    }

    fn welcome(&mut self, greeting: &Greeting, session: Option<usize>) {
        if self.nodes[greeting.node].client.connection == greeting.connection {
            // For a session that exists already the term of its beginning does not matter.
            let term = self.term;
            self.send_client(greeting.node, Arrival::Welcome { session, term });
        }
    }

    /// Returns true if this server, as far as it has seen, knows the session as alive.
    fn knows(&self, session: usize, server: usize) -> bool {
        self.sessions[session].closed.is_none_or(|closed| closed > self.servers[server].applied)
    }
}

/// Streams between servers.
impl World {
    fn send_up(&mut self, from: usize, message: Up) {
        if self.servers[from].isolated || self.leader.is_none() {
            return;
        }
        let delay = self.delay(self.swarm.slow_server);
        let server = &mut self.servers[from];
        let at = (self.now + delay).max(server.up_free);
        server.up_free = at;
        let streams = self.streams;
        self.schedule(at - self.now, Happening::Up { from, streams, message });
    }

    fn send_down(&mut self, to: usize, message: Down) {
        if self.servers[to].isolated || self.leader.is_none() {
            return;
        }
        let delay = self.delay(self.swarm.slow_server);
        let server = &mut self.servers[to];
        let at = (self.now + delay).max(server.down_free);
        server.down_free = at;
        let streams = self.streams;
        self.schedule(at - self.now, Happening::Down { to, streams, message });
    }

    pub(super) fn up(&mut self, from: usize, streams: u64, message: Up) {
        if streams != self.streams || self.servers[from].isolated || self.leader.is_none() {
            return;
        }
        match message {
            Up::Pong { touched } => {
                for session in touched {
                    self.touch(session);
                }
            }
            Up::Errand(errand) => {
                let answer = self.serve(&errand);
                if is_write(&errand.request) {
                    self.commit(Some((from, errand, answer)));
                } else {
                    self.send_down(from, Down::Answer { errand, answer });
                }
            }
            Up::Greeting(greeting) => {
                let session = self.greet(&greeting);
                self.send_down(from, Down::Welcome { greeting, session });
            }
        }
    }

    pub(super) fn down(&mut self, to: usize, streams: u64, message: Down) {
        if streams != self.streams || self.servers[to].isolated {
            return;
        }
        match message {
            Down::Ping => {
                let touched = std::mem::take(&mut self.servers[to].touched);
                if std::mem::take(&mut self.servers[to].sticks) && !self.healed {
                    self.servers[to].up_free = self.now + self.ttl() * 3 / 2;
                }
                self.send_up(to, Up::Pong { touched });
            }
            Down::Commit { zxid, answer } => {
                self.applied(to, zxid);
                if let Some((errand, answer)) = answer {
                    self.ready(&errand, answer);
                }
            }
            Down::Answer { errand, answer } => self.ready(&errand, answer),
            Down::Welcome { greeting, session } => self.welcome(&greeting, session),
        }
    }

    /// Sends the newest transaction to all servers.
    ///
    /// The answer goes with it to the server of the request.
    pub(super) fn commit(&mut self, answer: Option<(usize, Errand, Answer)>) {
        let zxid = self.registry.zxid;
        let Some(leader) = self.leader else { return };
        self.applied(leader, zxid);
        let mut answer = answer;
        for server in 0..self.servers.len() {
            if server == leader {
                continue;
            }
            let mine = answer.take_if(|(from, _, _)| *from == server);
            let answer = mine.map(|(_, errand, answer)| (errand, answer));
            self.send_down(server, Down::Commit { zxid, answer });
        }
    }

    fn applied(&mut self, server: usize, zxid: u64) {
        self.servers[server].applied = self.servers[server].applied.max(zxid);
        for node in 0..self.nodes.len() {
            if self.nodes[node].client.server == server {
                self.fire_watches(node);
                self.close_expired(node, zxid);
            }
        }
    }

    /// A server closes the connections of sessions that it knows are over (ZooKeeper).
    fn close_expired(&mut self, node: usize, zxid: u64) {
        let client = &self.nodes[node].client;
        let closed = client.session().and_then(|session| self.sessions[session].closed);
        let zookeeper = self.swarm.dialect == Dialect::Zookeeper;
        if zookeeper && client.is_connected() && !client.deaf && closed.is_some_and(|at| at <= zxid)
        {
            self.server_closes(node);
        }
    }

    pub(super) fn ping(&mut self, term: u64) {
        if self.term != term || self.swarm.dialect == Dialect::Etcd {
            return;
        }
        if let Some(leader) = self.leader {
            for server in (0..self.servers.len()).filter(|server| *server != leader) {
                self.send_down(server, Down::Ping);
            }
            // Half a tick of the leader, which is a quarter of the shortest session.
            let every = self.ttl() / 4 * REAL_RATE / self.swarm.server_rates[leader];
            self.schedule(every, Happening::Ping { term });
        }
    }
}

/// Sessions by the leader's clock.
impl World {
    pub(super) fn touch(&mut self, session: usize) {
        let Some(leader) = self.leader else { return };
        if !self.sessions[session].alive {
            return;
        }
        let keeps = self.ttl() * REAL_RATE / self.swarm.server_rates[leader];
        let extra = self.rng.below(self.swarm.tick + 1);
        let expiry = self.now + keeps + extra;
        let known = &mut self.sessions[session];
        known.expiry = expiry;
        if !known.checking {
            known.checking = true;
            self.schedule(keeps + extra, Happening::Expiry { session });
        }
    }

    pub(super) fn expiry(&mut self, session: usize) {
        let Session { alive, expiry, .. } = self.sessions[session];
        if !alive || self.leader.is_none() {
            self.sessions[session].checking = false;
            return;
        }
        if self.now < expiry {
            return self.schedule(expiry - self.now, Happening::Expiry { session });
        }
        self.note(|| format!("session {session} expires"));
        self.close_session(session);
    }

    /// Ends a session and its entries.
    pub(super) fn close_session(&mut self, session: usize) {
        self.saw(Rare::SessionExpired);
        self.judge_window(session);
        let node = self.sessions[session].node;
        let held =
            |token: u64| self.registry.find(token).is_some_and(|item| item.session == session);
        if self.nodes[node].led.is_some_and(held) {
            self.saw(Rare::LeaderExpired);
        }
        self.registry.close(session);
        self.sessions[session].alive = false;
        self.sessions[session].closed = Some(self.registry.zxid);
        self.commit(None);
    }
}

fn is_write(request: &Request) -> bool {
    match request {
        Request::Beat | Request::Sync | Request::KeepAlive | Request::Get => false,
        Request::Touch
        | Request::Move(..)
        | Request::Join { .. }
        | Request::Line(_)
        | Request::Begin(_)
        | Request::Note(_)
        | Request::Leave { .. }
        | Request::Publish { .. }
        | Request::End(_) => true,
    }
}
