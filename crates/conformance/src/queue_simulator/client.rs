//! The simulated backend of a process: session, connections, and proofs of life.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure::protocol::Ask;
use tenure::queue::machine::Input;
use tenure::queue::mutant::Mutant;
use tenure::queue::window::{EtcdWindow, Kind, Voice, ZookeeperWindow};
use tenure::queue::{Entry, Freshness, Gone, Joined, Life, Line, Pace, Proof, Session};
use tenure::{Fault, Moment};

use super::Rare;
use super::ensemble::{Answer, Errand, Greeting, Request};
use super::moving::Step;
use super::swarm::Dialect;
use super::world::{Happening, World};
use crate::history::{Instant, Who};

/// A process's side of its session.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) connection: u64,
    pub(super) server: usize,
    state: State,
    session: Option<usize>,
    pub(super) number: u64,
    zookeeper: ZookeeperWindow,
    pub(super) etcd: EtcdWindow,
    /// The next step towards another lease, and the term known when the move began.
    pub(super) moving: Option<(Step, u64)>,
    pending: VecDeque<Pending>,
    ids: u64,
    seen: u64,
    /// When a server last answered.
    contact: Option<Moment>,
    /// The newest transaction when this connection was made.
    pub(super) connected_at: u64,
    up_free: u64,
    pub(super) down_free: u64,
    /// Nothing more arrives on this connection.
    pub(super) deaf: bool,
    /// Nothing more leaves on this connection.
    mute: bool,
    /// The notices on this connection: the candidate and the token; 0 means the end.
    pub(super) notified: Vec<(Who, u64)>,
    pub(super) told: Session,
    /// The tenures with a begin request, and whether it was answered (ZooKeeper).
    begun: BTreeMap<u64, Recorded>,
    /// The only kind of request that other users of this session send, and until when. They replace
    /// the heartbeats (ZooKeeper).
    pub(super) mood: Option<(Kind, Instant)>,
    ttl: Duration,
    pub(super) mutant: Option<Mutant>,
}

/// The backend's memory of the record of a tenure's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    Known,
    /// The answer was lost: the record itself shows it.
    Perhaps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down,
    Connecting,
    Connected,
}

#[derive(Clone, Debug)]
struct Pending {
    id: u64,
    sent: Moment,
    purpose: Purpose,
}

#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Heartbeat,
    Machine {
        who: Who,
        ask: Ask,
    },
    /// The caller was told that the outcome is unknown.
    Forgotten,
}

/// A message that reaches a process.
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    Welcome { session: Option<usize>, term: u64 },
    Answer { id: u64, answer: Answer, zxid: u64 },
    Notified { who: Who, notice: Notice },
    Fault { who: Who, input: Input },
}

/// A notice of a watch.
#[derive(Clone, Debug)]
pub(super) enum Notice {
    /// An entry is gone.
    Gone {
        entry: Entry,
        /// The transaction of the end that rewrote the entry. Its watch has reported it (etcd).
        touched: u64,
        /// The election had ended, as far as the server knew (ZooKeeper reports in order).
        over: bool,
    },
    /// The election may have ended.
    Over,
}

impl Client {
    pub(super) fn new(ttl: Duration, mutant: Option<Mutant>) -> Client {
        Client {
            connection: 0,
            server: 0,
            state: State::Down,
            session: None,
            number: 0,
            zookeeper: ZookeeperWindow::new(ttl).broken(mutant),
            etcd: EtcdWindow::new(ttl).broken(mutant),
            moving: None,
            pending: VecDeque::new(),
            ids: 0,
            seen: 0,
            contact: None,
            connected_at: 0,
            up_free: 0,
            down_free: 0,
            deaf: false,
            mute: false,
            notified: Vec::new(),
            told: Session { ttl, ..Session::none() },
            begun: BTreeMap::new(),
            mood: None,
            ttl,
            mutant,
        }
    }

    /// The client of the same process after a restart.
    pub(super) fn reborn(&self) -> Client {
        let (connection, number) = (self.connection + 1, self.number);
        let told = Session { number, ..Session::none() };
        Client { connection, number, told, ..Client::new(self.ttl, self.mutant) }
    }

    pub(super) fn session(&self) -> Option<usize> {
        self.session
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// Returns true if leaving this entry cleanly takes back the record of its tenure.
    ///
    /// etcd's transaction compares the record itself. ZooKeeper's cannot, and relies on the
    /// backend's memory, or on a read.
    fn takes_back(&self, token: u64, clean: bool, dialect: Dialect) -> bool {
        let forgotten = self.mutant == Some(Mutant::LostBeginForgotten);
        clean
            && match (dialect, self.begun.get(&token)) {
                (Dialect::Etcd, _) | (Dialect::Zookeeper, Some(Recorded::Known)) => true,
                (Dialect::Zookeeper, Some(Recorded::Perhaps)) => !forgotten,
                (Dialect::Zookeeper, None) => false,
            }
    }

    fn proof(&self, dialect: Dialect) -> Option<Proof> {
        match dialect {
            Dialect::Zookeeper => self.zookeeper.proof(),
            Dialect::Etcd => self.etcd.proof(),
        }
    }

    fn life(&self, dialect: Dialect) -> Life {
        let proof = self.session.and_then(|_| self.proof(dialect));
        match self.state {
            State::Connected => Life::Live { proof },
            State::Down | State::Connecting => Life::Suspended { proof },
        }
    }

    /// Returns true if every server has dropped the silent session (ZooKeeper).
    fn is_forgotten(&self, now: Moment, dialect: Dialect) -> bool {
        let since = self.contact.filter(|_| self.session.is_some());
        let silent = since.is_some_and(|since| now.at_least_since(since) >= self.ttl * 5 / 4);
        silent && dialect == Dialect::Zookeeper
    }

    /// How long until this client must act.
    pub(super) fn wake(&self, now: Moment, dialect: Dialect, pace: Pace) -> Option<Duration> {
        if !self.is_connected() {
            return None;
        }
        let beat = self.until_beat(now, dialect, pace);
        beat.into_iter().chain(self.until_overdue(now, dialect)).min()
    }

    fn until_beat(&self, now: Moment, dialect: Dialect, pace: Pace) -> Option<Duration> {
        match dialect {
            Dialect::Zookeeper => Some(self.zookeeper.until_heartbeat(now, pace)),
            Dialect::Etcd => self.etcd.until_heartbeat(now),
        }
    }

    fn until_overdue(&self, now: Moment, dialect: Dialect) -> Option<Duration> {
        match dialect {
            Dialect::Zookeeper if self.mutant == Some(Mutant::SilentConnectionCounts) => {
                let oldest = self.pending.front()?;
                Some((self.ttl).saturating_sub(now.at_most_since(oldest.sent)))
            }
            Dialect::Zookeeper => self.zookeeper.until_overdue(now),
            Dialect::Etcd => {
                let oldest = self.pending.front()?;
                Some(self.etcd.request().saturating_sub(now.at_most_since(oldest.sent)))
            }
        }
    }
}

/// Connections.
impl World {
    pub(super) fn connect(&mut self, node: usize, connection: u64) {
        if self.nodes[node].client.connection != connection {
            return;
        }
        if self.nodes[node].paused {
            let again = self.ttl() / 50;
            return self.schedule(again, Happening::Connect { node, connection });
        }
        let server = usize::try_from(self.rng.below(self.servers.len() as u64)).unwrap_or(0);
        let now = self.nodes[node].clock.now(self.now);
        if self.nodes[node].client.is_forgotten(now, self.swarm.dialect) {
            // No server keeps the session any more, and perhaps none has seen the transactions that
            // we saw.
            self.saw(Rare::GaveUpSession);
            return self.session_over(node);
        }
        let process = &mut self.nodes[node];
        process.served.slots.clear();
        let client = &mut process.client;
        client.connection += 1;
        client.server = server;
        client.state = State::Connecting;
        client.deaf = process.cut;
        client.mute = process.cut;
        client.notified.clear();
        client.pending.clear();
        if client.session.is_none() {
            client.zookeeper = ZookeeperWindow::new(client.ttl).broken(client.mutant);
            client.etcd = EtcdWindow::new(client.ttl).broken(client.mutant);
            client.moving = None;
        }
        client.zookeeper.connecting(now);
        let (connection, session, seen) = (client.connection, client.session, client.seen);
        let greeting = Greeting { node, connection, session, seen };
        if !process.cut {
            let delay = self.delay(self.swarm.slow);
            let client = &mut self.nodes[node].client;
            let at = self.now + delay;
            (client.up_free, client.down_free) = (at, at);
            self.schedule(delay, Happening::Handshake { server, greeting });
        }
        let patience = self.ttl() / 5;
        self.schedule(patience, Happening::GiveUp { node, connection, unless_connected: true });
    }

    pub(super) fn give_up(&mut self, node: usize, connection: u64, unless_connected: bool) {
        let client = &self.nodes[node].client;
        if client.connection != connection || unless_connected && client.is_connected() {
            return;
        }
        if self.nodes[node].paused {
            let again = self.ttl() / 50;
            return self.schedule(again, Happening::GiveUp { node, connection, unless_connected });
        }
        self.disconnect(node);
    }

    pub(super) fn disconnect(&mut self, node: usize) {
        let client = &mut self.nodes[node].client;
        client.connection += 1;
        client.state = State::Down;
        client.pending.clear();
        client.zookeeper.disconnected();
        client.etcd.abandoned();
        let connection = client.connection;
        let mut after = self.rng.between(1000, self.ttl() / 20);
        if let Some(lease) = self.nodes[node].lease
            && !self.healed
            && self.rng.permille(self.swarm.hiccup)
        {
            // Reconnect when hardly any of the lease is left.
            let least = self.rng.between(self.ttl() / 40, self.ttl() / 10);
            after = lease.until.saturating_sub(self.now).saturating_sub(least).max(1000);
            self.schedule(after, Happening::Reconnect { node });
        }
        self.schedule(after, Happening::Connect { node, connection });
        self.tell_session(node);
    }

    /// Tells every candidacy of this process about the session, if that has changed.
    pub(super) fn tell_session(&mut self, node: usize) {
        let client = &mut self.nodes[node].client;
        let connection =
            if client.is_connected() { client.connection } else { client.told.connection };
        let life = client.life(self.swarm.dialect);
        let session = Session { number: client.number, connection, ttl: client.ttl, life };
        self.tell_this(node, session);
    }

    fn tell_this(&mut self, node: usize, session: Session) {
        if self.nodes[node].client.told == session {
            return;
        }
        self.nodes[node].client.told = session;
        for who in self.nodes[node].whos() {
            self.step(node, who, Input::Session(session));
        }
        self.set_timer(node);
    }

    /// Handles the server's message that the session is over.
    fn session_over(&mut self, node: usize) {
        let client = &mut self.nodes[node].client;
        client.session = None;
        client.seen = 0;
        let over = Session { life: Life::Over, ..client.told };
        // A value that is replaced at once is never seen.
        if self.rng.permille(700) {
            self.tell_this(node, over);
        }
        self.disconnect(node);
    }
}

/// Requests and answers.
impl World {
    /// Sends a heartbeat that is due. A request that waited too long ends the connection.
    pub(super) fn pulse(&mut self, node: usize) {
        let dialect = self.swarm.dialect;
        let process = &self.nodes[node];
        let (client, now) = (&process.client, process.clock.now(self.now));
        if !client.is_connected() {
            return;
        }
        if client.until_overdue(now, dialect).is_some_and(|left| left.is_zero()) {
            return self.disconnect(node);
        }
        if client.until_beat(now, dialect, process.pace()) != Some(Duration::ZERO) {
            return;
        }
        let request = match dialect {
            Dialect::Zookeeper => {
                let mood = client.mood.filter(|(_, until)| *until > self.now && !self.healed);
                let pace = process.pace();
                let due = self.nodes[node].client.zookeeper.beat(now, pace);
                let request = heartbeat(mood.map_or(due, |(kind, _)| kind));
                if !self.healed && self.rng.permille(self.swarm.burst) {
                    // Another user of the session sends a request at the same moment.
                    let other = *self.rng.pick(&[Kind::Sync, Kind::Write]);
                    self.send(node, heartbeat(other), Purpose::Heartbeat, 0);
                }
                request
            }
            Dialect::Etcd => {
                self.nodes[node].client.etcd.keep_alive_sent(now);
                Request::KeepAlive
            }
        };
        self.send(node, request, Purpose::Heartbeat, 0);
    }

    pub(super) fn send(&mut self, node: usize, request: Request, purpose: Purpose, late: u64) {
        let process = &mut self.nodes[node];
        let now = process.clock.now(self.now);
        let Some(session) = process.client.session else { return };
        let client = &mut process.client;
        client.ids += 1;
        let id = client.ids;
        client.pending.push_back(Pending { id, sent: now, purpose });
        let kind = match &request {
            Request::Beat | Request::Line(Freshness::Session) => Kind::Read,
            Request::Sync => Kind::Sync,
            Request::KeepAlive
            | Request::Get
            | Request::Move(..)
            | Request::Touch
            | Request::Join { .. }
            | Request::Line(_)
            | Request::Begin(_)
            | Request::Note(_)
            | Request::Leave { .. }
            | Request::Publish { .. }
            | Request::End(_) => Kind::Write,
        };
        client.zookeeper.sent(now, kind);
        client.mute |= process.cut;
        if !self.healed && self.rng.permille(self.swarm.break_up) {
            self.nodes[node].client.mute = true;
        }
        if self.nodes[node].client.mute {
            return;
        }
        let delay = self.delay(self.swarm.slow);
        let client = &mut self.nodes[node].client;
        let at = (self.now + delay).max(client.up_free);
        client.up_free = at;
        let (server, connection) = (client.server, client.connection);
        let errand = Errand { node, connection, session, id, request };
        self.schedule(at + late - self.now, Happening::AtServer { server, errand });
    }

    /// Sends a machine's request. On etcd it may be reported as unknown on a live connection.
    pub(super) fn request(&mut self, node: usize, who: Who, ask: Ask, mut request: Request) {
        let (dialect, client) = (self.swarm.dialect, &mut self.nodes[node].client);
        if !client.is_connected() {
            return;
        }
        match &mut request {
            Request::Begin(entry) => {
                client.begun.entry(entry.token).or_insert(Recorded::Perhaps);
            }
            Request::Leave { entry, clean, takes_back } => {
                *takes_back = client.takes_back(entry.token, *clean, dialect);
            }
            Request::Beat
            | Request::Touch
            | Request::Sync
            | Request::KeepAlive
            | Request::Get
            | Request::Move(..)
            | Request::Join { .. }
            | Request::Line(_)
            | Request::Note(_)
            | Request::End(_)
            | Request::Publish { .. } => {}
        }
        let doubtful = self.swarm.dialect == Dialect::Etcd && !self.healed;
        if doubtful && self.rng.permille(self.swarm.indeterminate) {
            let fault =
                if self.rng.permille(300) { Fault::Unavailable } else { Fault::Indeterminate };
            let input = failure(&request, ask, fault);
            // A late value would replace a newer one, and nothing is promised about that.
            let late = !matches!(request, Request::Publish { .. });
            if late && fault == Fault::Indeterminate && self.rng.permille(600) {
                self.send_later(node, request);
            }
            let client = &self.nodes[node].client;
            let (connection, arrival) = (client.connection, Arrival::Fault { who, input });
            let after = self.delay(0);
            return self.schedule(after, Happening::AtClient { node, connection, arrival });
        }
        self.send(node, request, Purpose::Machine { who, ask }, 0);
    }

    /// Sends a request on a stream of its own, which its sender has given up.
    fn send_later(&mut self, node: usize, request: Request) {
        let client = &mut self.nodes[node].client;
        let Some(session) = client.session else { return };
        client.ids += 1;
        // No connection waits for the answer.
        let (id, connection, server) = (client.ids, u64::MAX, client.server);
        let after = self.rng.between(1000, self.ttl());
        let errand = Errand { node, connection, session, id, request };
        self.schedule(after, Happening::AtServer { server, errand });
    }

    pub(super) fn at_client(&mut self, node: usize, connection: u64, arrival: Arrival) {
        if self.nodes[node].paused {
            self.nodes[node].inbox.push((connection, arrival));
            return;
        }
        if self.nodes[node].client.connection != connection {
            return;
        }
        self.note(|| format!("n{node} hears {arrival:?}"));
        match arrival {
            Arrival::Welcome { session: None, .. } => self.session_over(node),
            Arrival::Welcome { session: Some(session), term } => self.welcomed(node, session, term),
            Arrival::Answer { id, answer, zxid } => self.answered(node, id, answer, zxid),
            Arrival::Notified { who, notice } => {
                let input = self.input_of(node, who, notice);
                self.step(node, who, input);
            }
            Arrival::Fault { who, input } => self.step(node, who, input),
        }
        self.set_timer(node);
    }

    /// Turns a notice into an input, as the backend does.
    fn input_of(&mut self, node: usize, who: Who, notice: Notice) -> Input {
        let Notice::Gone { entry, touched, over } = notice else { return Input::Hint };
        let mut machines = self.nodes[node].machines.iter();
        let looked = machines.find(|standing| standing.who == who).map_or(0, |found| found.looked);
        let in_time = match self.swarm.dialect {
            Dialect::Zookeeper => !over,
            Dialect::Etcd => touched <= looked,
        };
        if !in_time {
            self.saw(Rare::DeletedAfterEnd);
        }
        let session = self.nodes[node].client.session;
        let own = self.registry.find(entry.token).is_some_and(|item| Some(item.session) == session);
        let in_time = in_time || own && self.mutant == Some(Mutant::OwnDeletionAfterEndCounts);
        let gone = if self.rng.permille(50) {
            Gone::Perhaps
        } else if in_time {
            Gone::Deleted
        } else {
            Gone::DeletedMaybeEnded
        };
        Input::Gone(entry, gone)
    }

    fn welcomed(&mut self, node: usize, session: usize, term: u64) {
        let (zxid, now) = (self.registry.zxid, self.nodes[node].clock.now(self.now));
        let client = &mut self.nodes[node].client;
        if client.state != State::Connecting {
            return;
        }
        client.state = State::Connected;
        client.contact = Some(now);
        client.connected_at = zxid;
        if client.session != Some(session) {
            client.session = Some(session);
            client.number += 1;
            client.etcd.leased(term);
        }
        self.pulse(node);
        self.tell_session(node);
    }

    fn answered(&mut self, node: usize, id: u64, answer: Answer, zxid: u64) {
        let now = self.nodes[node].clock.now(self.now);
        let dialect = self.swarm.dialect;
        let client = &mut self.nodes[node].client;
        if client.until_overdue(now, dialect).is_some_and(|left| left.is_zero()) {
            return self.disconnect(node);
        }
        let Some(place) = client.pending.iter().position(|pending| pending.id == id) else {
            return;
        };
        let refused = matches!(answer, Answer::Refused { .. });
        assert!(place == 0 || refused, "answers come in the order of their requests");
        let Some(pending) = client.pending.remove(place) else { return };
        client.seen = client.seen.max(zxid);
        client.contact = Some(now);
        match &answer {
            Answer::KeptAlive { alive: false, .. } | Answer::Expired => {
                return self.session_over(node);
            }
            Answer::Elsewhere => return self.disconnect(node),
            Answer::KeptAlive { term, alive: true } => {
                client.etcd.keep_alive_answered(*term, client.ttl);
                client.etcd.get_sent();
                self.send(node, Request::Get, Purpose::Heartbeat, 0);
            }
            Answer::Got { alive: false, .. } => return self.session_over(node),
            Answer::Got { term, alive: true, ours, .. } => {
                client.etcd.get_answered(*term, true);
                if let Some(term) = client.etcd.outdated() {
                    // A lease that was granted before still counts in the term that was known then.
                    let (step, term) = *client.moving.get_or_insert((Step::Grant, term));
                    self.take_step_on(node, step, term);
                }
                self.reap(node, ours);
            }
            Answer::Moved(step) => self.moved(node, *step),
            Answer::Done
            | Answer::Joined(_)
            | Answer::Line(_)
            | Answer::Begun { .. }
            | Answer::Noted
            | Answer::Left(_)
            | Answer::Published
            | Answer::Ended
            | Answer::Refused { .. } => {}
        }
        // Only a request that the server has carried out proves anything: "expired" and "moved" do
        // not.
        let client = &mut self.nodes[node].client;
        match (place, refused) {
            (0, true) => client.zookeeper.answered(now, Voice::OneServer),
            (0, false) => client.zookeeper.answered(now, Voice::Ensemble),
            (place, _) => client.zookeeper.overtaken(place),
        }
        if !self.healed && self.rng.permille(self.swarm.chatter) {
            let request = if self.rng.permille(500) { Request::Touch } else { Request::Beat };
            self.send(node, request, Purpose::Heartbeat, 0);
        }
        // The machine may learn of the session or of the answer first.
        let session_first = self.rng.permille(500);
        if session_first {
            self.tell_session(node);
        }
        if let Purpose::Machine { who, ask } = pending.purpose {
            if let Answer::Begun { token, recorded: true } = answer {
                self.nodes[node].client.begun.insert(token, Recorded::Known);
            }
            self.remember_look(node, who, &answer, zxid);
            self.deliver(node, who, ask, answer);
        }
        if !session_first {
            self.tell_session(node);
        }
        self.hiccup(node);
    }

    /// Remembers the transaction of the last open line.
    fn remember_look(&mut self, node: usize, who: Who, answer: &Answer, zxid: u64) {
        let (Answer::Line(line) | Answer::Joined(Joined { line, .. })) = answer else { return };
        let standing = self.nodes[node].machines.iter_mut().find(|standing| standing.who == who);
        if let (Line::Open { .. }, Some(standing)) = (line, standing) {
            standing.looked = zxid;
        }
    }

    fn deliver(&mut self, node: usize, who: Who, ask: Ask, answer: Answer) {
        let input = match answer {
            Answer::Joined(joined) => Input::Joined(ask, Ok(joined)),
            Answer::Line(line) => Input::Line(ask, Ok(line)),
            Answer::Begun { recorded: true, .. } => Input::Begun(ask, Ok(())),
            // The entry is gone.
            Answer::Begun { recorded: false, .. } => Input::Begun(ask, Err(Fault::Unavailable)),
            Answer::Noted => Input::Noted(ask, Ok(())),
            Answer::Left(left) => Input::Left(ask, Ok(left)),
            Answer::Ended => Input::Ended(ask, Ok(())),
            Answer::Published => Input::Published(ask, Ok(())),
            Answer::Refused { request: Request::Line(_), line }
                if self.mutant == Some(Mutant::RefusedBarrierCounts) =>
            {
                Input::Line(ask, Ok(line))
            }
            Answer::Refused { request, .. } => failure(&request, ask, Fault::Unavailable),
            Answer::Done
            | Answer::KeptAlive { .. }
            | Answer::Moved(_)
            | Answer::Got { .. }
            | Answer::Expired
            | Answer::Elsewhere => return,
        };
        self.step(node, who, input);
    }

    /// Deletes entries of our lease that no candidacy claims (etcd).
    fn reap(&mut self, node: usize, ours: &[(Entry, tenure::queue::Ticket)]) {
        for (entry, ticket) in ours {
            let claimed = self.nodes[node]
                .machines
                .iter()
                .any(|standing| standing.machine.claims(entry, ticket));
            if !claimed {
                self.saw(Rare::LateJoinReaped);
                let entry = entry.clone();
                let request = Request::Leave { entry, clean: false, takes_back: false };
                self.send(node, request, Purpose::Forgotten, 0);
            }
        }
    }
}

/// The input that tells a machine of a failed request.
fn failure(request: &Request, ask: Ask, fault: Fault) -> Input {
    match request {
        Request::Join { .. } => Input::Joined(ask, Err(fault)),
        Request::Begin(_) => Input::Begun(ask, Err(fault)),
        Request::Note(_) => Input::Noted(ask, Err(fault)),
        Request::Leave { .. } => Input::Left(ask, Err(fault)),
        Request::End(_) => Input::Ended(ask, Err(fault)),
        Request::Publish { .. } => Input::Published(ask, Err(fault)),
        Request::Line(_)
        | Request::Beat
        | Request::Touch
        | Request::Sync
        | Request::KeepAlive
        | Request::Move(..)
        | Request::Get => Input::Line(ask, Err(fault)),
    }
}

fn heartbeat(kind: Kind) -> Request {
    match kind {
        Kind::Read => Request::Beat,
        Kind::Sync => Request::Sync,
        Kind::Write => Request::Touch,
    }
}
