//! The state of a session: requests to send, requests in flight, and the proof. No I/O in here.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure::Moment;
use tenure::queue::window::{Kind, Voice, ZookeeperWindow};
use tenure::queue::{Life, Pace, Proof, Session};
use tokio::sync::oneshot;

use super::super::wire::{self, Code, Head, Malformed, NOTIFICATION, Reader, Request, Stat};
use super::MOST_BYTES;
use super::error::Error;
use super::voice::{overtakes, voice};
use super::watches::Watches;

/// How much work may be in flight: at least, at first and at most.
///
/// A server can answer this well within the time that an answer may take. With more, our own load
/// would end the connection.
const FEWEST_FLYING: usize = 48;
const FIRST_FLYING: usize = 128;
const MOST_FLYING: usize = 512;
/// The maximum number of entries created in one transaction.
const MOST_JOINS: usize = 500;
/// The maximum size of the data of these entries.
const MOST_JOINED_BYTES: usize = 512 << 10;
/// The maximum number of requests that wait to be sent.
const MOST_ORDERS: usize = 1 << 17;
/// The capacity that is kept for waiting requests.
const ROOM: usize = 256;
/// A node that never exists.
///
/// A transaction that checks it is refused by a quorum, and a heartbeat needs no more than that.
/// This needs no permission under `/`.
const NOWHERE: &str = "/=tenure";

/// An answer.
#[derive(Clone, Debug)]
pub(in super::super) struct Answer {
    pub(in super::super) body: Bytes,
}

pub(in super::super) type Outcome = Result<Answer, Error>;

/// An entry that was created.
#[derive(Clone, Debug)]
pub(in super::super) struct Made {
    pub(in super::super) path: String,
    pub(in super::super) stat: Stat,
    pub(in super::super) session: u64,
}

/// A request to be sent.
#[derive(Debug)]
pub(super) enum Order {
    Ask {
        request: Request,
        reply: oneshot::Sender<Outcome>,
        /// The barrier that it goes behind.
        barrier: Option<u64>,
    },
    /// A barrier, by its number.
    Barrier(u64),
    List(Listing),
}

/// A read of a line, shared by all callers that want it and have not been answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Listing {
    root: Arc<str>,
    /// The barrier that it goes behind.
    barrier: Option<u64>,
}

/// The callers of a [`Listing`]: those waiting for the line, and for the election's own node.
type Askers = [Vec<oneshot::Sender<Outcome>>; 2];

/// An entry to be created.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) root: Arc<str>,
    pub(super) entry: Request,
    /// Must be sent alone: a transaction with others was refused, perhaps because of one of them.
    pub(super) alone: bool,
    pub(super) reply: oneshot::Sender<Result<Made, Error>>,
}

#[derive(Debug)]
struct Flying {
    number: i32,
    sent: Moment,
    weight: usize,
    kind: Kind,
    /// Asks for many nodes at once, which not every server knows.
    reads_many: bool,
    /// The answer may have an error in its body only.
    is_transaction: bool,
    awaited: Awaited,
}

#[derive(Debug)]
enum Awaited {
    Nobody,
    /// A barrier, by its number.
    Barrier(u64),
    Answer(oneshot::Sender<Outcome>),
    Answers {
        replies: Vec<oneshot::Sender<Outcome>>,
        /// The answer counts only if a quorum took this barrier.
        barrier: Option<u64>,
    },
    Join(Join),
    Joins(Vec<Join>),
}

/// The reason why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server, or the network between, is gone.
    Lost(String),
    /// A request was not answered in time.
    Overdue,
    /// The server reports that the session is over.
    Expired,
    /// The server sent something that makes no sense.
    Malformed,
    /// A caller has waited long enough.
    GivenUp,
    /// The session was closed.
    Closed,
}

impl From<Malformed> for End {
    fn from(_: Malformed) -> End {
        End::Malformed
    }
}

/// The whole state of a client.
#[derive(Debug)]
pub(super) struct State {
    up: bool,
    number: u64,
    connection: u64,
    id: i64,
    secret: Vec<u8>,
    /// The newest transaction that was seen in any session. No server that lags behind it is used.
    seen: i64,
    /// When a server was last heard from; `None` before the first contact, and once it is
    /// forgotten.
    contact: Option<Moment>,
    ttl: Duration,
    window: ZookeeperWindow,
    joins: VecDeque<Join>,
    /// False once a server returned no tokens for entries that were created together.
    ///
    /// Servers before 3.9 return none.
    joins_together: bool,
    orders: VecDeque<Order>,
    /// The number of barriers so far, and whether the newest still waits to be sent.
    barriers: u64,
    barrier_waits: bool,
    /// The newest barrier that a quorum took.
    proven_barrier: u64,
    lists: HashMap<Listing, Askers>,
    flying: VecDeque<Flying>,
    weight: usize,
    /// How much work may be in flight.
    limit: usize,
    /// Late answers to requests up to this one do not lower the limit again.
    lowered: i32,
    requests: i32,
    /// When a heartbeat was last sent before its time.
    eager: Option<Moment>,
    /// The last proof that was published.
    told: Option<Proof>,
    standing: HashSet<u64>,
    given_up: bool,
    /// The first connection that may be asked for many nodes at once, if known.
    many_from: u64,
    /// This connection has answered such a request.
    many_answered: bool,
    pub(super) watches: Watches,
    /// The number of users that lead.
    leaders: usize,
    pace: Pace,
    pub(super) closing: bool,
    /// The last client was dropped.
    pub(super) abandoned: bool,
    pub(super) trouble: Option<Error>,
}

/// Handshakes.
impl State {
    pub(super) fn new(ttl: Duration) -> State {
        State {
            up: false,
            number: 0,
            connection: 0,
            id: 0,
            secret: vec![0; 16],
            seen: 0,
            contact: None,
            ttl,
            window: ZookeeperWindow::new(ttl),
            joins: VecDeque::new(),
            joins_together: true,
            orders: VecDeque::new(),
            barriers: 0,
            barrier_waits: false,
            proven_barrier: 0,
            lists: HashMap::new(),
            flying: VecDeque::new(),
            weight: 0,
            limit: FIRST_FLYING,
            lowered: 0,
            requests: 0,
            eager: None,
            told: None,
            standing: HashSet::new(),
            given_up: false,
            many_from: 0,
            many_answered: false,
            watches: Watches::default(),
            leaders: 0,
            pace: Pace::default(),
            closing: false,
            abandoned: false,
            trouble: None,
        }
    }

    /// Writes the handshake: for the current session, or for a new one.
    pub(super) fn greet(&self, out: &mut Vec<u8>) {
        wire::connect(out, self.seen, self.ttl, self.id, &self.secret);
    }

    /// Forgets the session, because a server said that it is over.
    pub(super) fn expired(&mut self) {
        self.id = 0;
        self.secret = vec![0; 16];
        self.told = None;
        self.standing.clear();
    }

    /// Returns true R·T after the last contact: by then every server has let go of the session.
    pub(super) fn is_forgotten(&self, now: Moment) -> bool {
        self.contact.is_some_and(|contact| now.at_least_since(contact) >= self.ttl * 5 / 4)
    }

    /// Declares the session over, without the word of a server.
    ///
    /// Servers that were rebuilt count transactions from a lower number, and refuse a client that
    /// has seen a higher one. So the number is forgotten too. This is safe: in the next session
    /// every line is read after an entry of ours was made, and no server that lags behind shows
    /// that entry.
    pub(super) fn forget(&mut self) {
        self.expired();
        (self.seen, self.contact) = (0, None);
    }

    /// Records that a server accepted us. `before` is a moment before the handshake was sent.
    pub(super) fn accepted(&mut self, id: i64, secret: Vec<u8>, ttl: Duration, before: Moment) {
        if id != self.id {
            self.number += 1;
            self.standing.clear();
            self.window = ZookeeperWindow::new(ttl);
        } else if ttl != self.ttl {
            // A proof for another session time does not hold for this one.
            self.window = ZookeeperWindow::new(ttl);
        }
        (self.id, self.secret, self.ttl) = (id, secret, ttl);
        self.window.connecting(before);
        self.contact = Some(before);
        self.connection += 1;
        self.up = true;
        self.given_up = false;
        self.many_answered = false;
        (self.requests, self.lowered) = (0, 0);
        self.trouble = None;
    }

    /// Records that the connection is over: no answer of it counts, and no request of it happens
    /// later.
    pub(super) fn ended(&mut self) {
        self.up = false;
        self.window.disconnected();
        self.watches.lose();
        self.weight = 0;
        self.barrier_waits = false;
        if !self.many_answered && self.flying.iter().any(|flying| flying.reads_many) {
            // Perhaps the connection ended because the server does not know this request, and its
            // answer got lost. So the next connection is not asked either.
            self.many_from = self.many_from.max(self.connection.saturating_add(2));
        }
        for flying in std::mem::take(&mut self.flying) {
            flying.awaited.fail(&Error::Lost);
        }
        for join in std::mem::take(&mut self.joins) {
            let _ = join.reply.send(Err(Error::Unsent));
        }
        for order in std::mem::take(&mut self.orders) {
            if let Order::Ask { reply, .. } = order {
                let _ = reply.send(Err(Error::Unsent));
            }
        }
        for reply in std::mem::take(&mut self.lists).into_values().flatten().flatten() {
            let _ = reply.send(Err(Error::Unsent));
        }
    }
}

/// The state of the session.
impl State {
    pub(super) fn is_up(&self) -> bool {
        self.up && !self.given_up
    }

    /// Returns true if the server may be asked for many nodes at once.
    pub(super) fn reads_many(&self) -> bool {
        self.connection >= self.many_from
    }

    pub(super) fn give_up(&mut self, connection: u64) {
        self.given_up |= connection == self.connection;
    }

    pub(super) fn leads(&mut self, leads: bool) {
        self.leaders = if leads { self.leaders + 1 } else { self.leaders.saturating_sub(1) };
        self.pace = if self.leaders > 0 { Pace::Leading } else { Pace::Waiting };
    }

    pub(super) fn stands(&mut self, entry: &str, stands: bool) {
        if stands {
            self.standing.insert(digest(entry));
        } else {
            self.standing.remove(&digest(entry));
        }
    }

    pub(super) fn owns(&self, entry: &str) -> bool {
        self.standing.contains(&digest(entry))
    }

    /// Returns true if closing the session would remove an entry that still stands.
    pub(super) fn has_entries(&self) -> bool {
        !self.standing.is_empty()
    }

    pub(super) fn patience(&self) -> Duration {
        (self.ttl / 5).max(Duration::from_millis(200))
    }

    /// Q: the time within which a request must be answered.
    pub(super) fn request(&self) -> Duration {
        self.window.request()
    }

    pub(super) fn session(&mut self, life: impl FnOnce(Option<Proof>) -> Life) -> Session {
        self.told = self.window.proof().filter(|_| self.id != 0);
        let (number, connection, ttl) = (self.number, self.connection, self.ttl);
        Session { number, connection, ttl, life: life(self.told) }
    }

    /// Returns true if the proof is worth publishing: each publication wakes all elections.
    pub(super) fn has_news(&self) -> bool {
        match (self.window.proof(), self.told) {
            (Some(proof), Some(told)) => proof.from.at_most_since(told.from) >= self.ttl / 50,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// Taking requests.
impl State {
    pub(super) fn ask(
        &mut self,
        request: Request,
        after_barrier: bool,
    ) -> oneshot::Receiver<Outcome> {
        let (reply, answer) = oneshot::channel();
        match self.refuse(&request) {
            Some(error) => {
                let _ = reply.send(Err(error));
            }
            None => {
                let barrier = after_barrier.then(|| self.barrier());
                self.orders.push_back(Order::Ask { request, reply, barrier });
            }
        }
        answer
    }

    /// Puts a write before the next request. A barrier that still waits to be sent is shared.
    fn barrier(&mut self) -> u64 {
        if !std::mem::replace(&mut self.barrier_waits, true) {
            self.barriers += 1;
            self.orders.push_back(Order::Barrier(self.barriers));
        }
        self.barriers
    }

    /// Reads the candidates of a line, and then the election's own node.
    ///
    /// The order matters: otherwise a candidate might be taken for one of an election that had
    /// ended before.
    ///
    /// A thousand candidates of one program may want the same line: a read that still waits to be
    /// sent serves them all.
    pub(super) fn list(
        &mut self,
        root: Arc<str>,
        after_barrier: bool,
    ) -> [oneshot::Receiver<Outcome>; 2] {
        let (tell_line, line) = oneshot::channel();
        let (tell_own, own) = oneshot::channel();
        if !self.is_up() || self.orders.len() >= MOST_ORDERS {
            for reply in [tell_line, tell_own] {
                let _ = reply.send(Err(Error::Unsent));
            }
            return [line, own];
        }
        let listing = Listing { root, barrier: after_barrier.then(|| self.barrier()) };
        if !self.lists.contains_key(&listing) {
            self.orders.push_back(Order::List(listing.clone()));
        }
        let [lines, owns] = self.lists.entry(listing).or_default();
        lines.push(tell_line);
        owns.push(tell_own);
        [line, own]
    }

    pub(super) fn join(&mut self, join: Join) {
        match self.refuse(&join.entry) {
            Some(error) => {
                let _ = join.reply.send(Err(error));
            }
            None => self.joins.push_back(join),
        }
    }

    fn refuse(&self, request: &Request) -> Option<Error> {
        let bytes = request.size();
        if bytes > MOST_BYTES {
            return Some(Error::TooLong { bytes });
        }
        let full = self.orders.len() + self.joins.len() >= MOST_ORDERS;
        (full || !self.is_up()).then_some(Error::Unsent)
    }
}

/// Sending.
impl State {
    /// Moves waiting requests to the wire, as many as the server can take.
    pub(super) fn send(&mut self, now: Moment, out: &mut Vec<u8>) {
        while self.weight < self.limit {
            // Entries first: a request made after an entry must see a line that shows it.
            if let Some(joins) = self.next_joins() {
                self.send_joins(now, joins, out);
                continue;
            }
            match self.orders.pop_front() {
                None => return self.tidy(),
                Some(Order::Barrier(number)) => {
                    self.barrier_waits = false;
                    self.fly(now, &barrier(), Awaited::Barrier(number), out);
                }
                Some(Order::List(listing)) => {
                    let [lines, owns] = self.lists.remove(&listing).unwrap_or_default();
                    let Listing { root: path, barrier } = listing;
                    let children = Request::Children { path: path.clone(), watch: false };
                    self.fly(now, &children, Awaited::Answers { replies: lines, barrier }, out);
                    let own = Request::Data { path, watch: false };
                    self.fly(now, &own, Awaited::Answers { replies: owns, barrier }, out);
                }
                // The caller no longer waits for it.
                Some(Order::Ask { reply, .. }) if reply.is_closed() => {}
                Some(Order::Ask { request, reply, barrier: None }) => {
                    self.fly(now, &request, Awaited::Answer(reply), out);
                }
                Some(Order::Ask { request, reply, barrier }) => {
                    self.fly(
                        now,
                        &request,
                        Awaited::Answers { replies: vec![reply], barrier },
                        out,
                    );
                }
            }
        }
    }

    /// Frees the memory that a burst of requests took.
    fn tidy(&mut self) {
        if self.orders.capacity() > ROOM {
            self.orders = VecDeque::new();
        }
        if self.joins.capacity() > ROOM && self.joins.is_empty() {
            self.joins = VecDeque::new();
        }
        if self.lists.capacity() > ROOM && self.lists.is_empty() {
            self.lists = HashMap::new();
        }
    }

    /// Sends a heartbeat if one is due.
    pub(super) fn beat(&mut self, now: Moment, out: &mut Vec<u8>) {
        if !self.until_beat(now).is_zero() {
            return;
        }
        if self.pace == Pace::Leading && self.is_eager(now) {
            self.eager = Some(now);
        }
        let request = match self.window.beat(now, self.pace) {
            Kind::Read => Request::Exists { path: NOWHERE.into(), watch: false },
            Kind::Sync => Request::Sync { path: NOWHERE.into() },
            Kind::Write => barrier(),
        };
        self.fly(now, &request, Awaited::Nobody, out);
    }

    /// How long until the connection needs attention.
    pub(super) fn until_next(&self, now: Moment) -> Duration {
        self.until_overdue(now).unwrap_or(Duration::MAX).min(self.until_beat(now))
    }

    /// Fails if a request has waited too long.
    ///
    /// Call this when there is nothing to read: an answer that arrived while we were busy is not
    /// the server's fault.
    pub(super) fn check_overdue(&self, now: Moment) -> Result<(), End> {
        match self.until_overdue(now) {
            Some(left) if left.is_zero() => Err(End::Overdue),
            Some(_) | None => Ok(()),
        }
    }

    /// How long until the oldest request has waited too long.
    ///
    /// The limit is Q for a session that leads, or is next. A session that only waits, or only has
    /// documents, may have sent many requests at once. Its limit is a third of its time, which
    /// leaves enough to go on with another server.
    fn until_overdue(&self, now: Moment) -> Option<Duration> {
        match self.pace {
            Pace::Leading => self.window.until_overdue(now),
            Pace::Waiting => {
                let waited = self.window.waited(now)?;
                Some((self.ttl / 3).saturating_sub(waited))
            }
        }
    }

    pub(super) fn check_given_up(&self) -> Result<(), End> {
        if self.given_up { Err(End::GivenUp) } else { Ok(()) }
    }

    /// Asks the server to close the session.
    pub(super) fn say_goodbye(&mut self, now: Moment, out: &mut Vec<u8>) {
        self.fly(now, &Request::Close, Awaited::Nobody, out);
    }

    /// Returns true if a leader, or the next in line, needs a fresh proof.
    ///
    /// Two answers in a row give a proof. The next in line should not have to wait for it when its
    /// turn comes.
    fn is_eager(&self, now: Moment) -> bool {
        let proof = self.window.proof();
        let fresh = proof.is_some_and(|proof| now.at_most_since(proof.from) < self.ttl / 2);
        let lately = self.eager.is_some_and(|eager| now.at_most_since(eager) < self.ttl / 64);
        !fresh && !lately && self.flying.is_empty()
    }

    fn until_beat(&self, now: Moment) -> Duration {
        let beat = self.window.until_heartbeat(now, self.pace);
        match self.pace {
            Pace::Waiting => beat,
            Pace::Leading if self.is_eager(now) => Duration::ZERO,
            // Reads of other users must not hold back a leader's writes.
            Pace::Leading => beat.min(self.window.until_write(now)),
        }
    }

    fn next_joins(&mut self) -> Option<Vec<Join>> {
        let mut joins: Vec<Join> = Vec::new();
        let (mut roots, mut bytes) = (HashSet::new(), 0);
        // One transaction is far less work than one request for each entry.
        let most = if self.joins_together { (self.limit * 8).min(MOST_JOINS) } else { 1 };
        while let Some(join) = self.joins.pop_front() {
            if join.reply.is_closed() {
                continue;
            }
            bytes += join.entry.size();
            let fits = joins.len() < most && bytes <= MOST_JOINED_BYTES && !join.alone;
            // Entries of one transaction would have the same token.
            let goes_along = joins.is_empty() || fits && !roots.contains(&join.root);
            if !goes_along {
                self.joins.push_front(join);
                break;
            }
            roots.insert(join.root.clone());
            let alone = join.alone;
            joins.push(join);
            if alone {
                break;
            }
        }
        (!joins.is_empty()).then_some(joins)
    }

    fn send_joins(&mut self, now: Moment, mut joins: Vec<Join>, out: &mut Vec<u8>) {
        if joins.len() == 1
            && let Some(join) = joins.pop()
        {
            let entry = join.entry.clone();
            self.fly(now, &entry, Awaited::Join(join), out);
        } else {
            let parts = joins.iter().map(|join| join.entry.clone()).collect();
            self.fly(now, &Request::Multi(parts), Awaited::Joins(joins), out);
        }
    }

    fn fly(&mut self, now: Moment, request: &Request, awaited: Awaited, out: &mut Vec<u8>) {
        self.requests = self.requests.wrapping_add(1).max(1);
        let (number, weight, kind) = (self.requests, request.weight(), request.kind());
        self.window.sent(now, kind);
        request.write(out, number);
        self.weight += weight;
        let reads_many = matches!(request, Request::ManyData(_));
        let is_transaction = matches!(request, Request::Multi(_));
        let sent = now;
        let flying = Flying { number, sent, weight, kind, reads_many, is_transaction, awaited };
        self.flying.push_back(flying);
    }
}

/// Receiving.
impl State {
    /// Handles one frame.
    pub(super) fn receive(&mut self, now: Moment, frame: &[u8]) -> Result<(), End> {
        let mut reader = Reader::new(frame);
        let head = Head::read(&mut reader)?;
        self.contact = Some(now);
        if head.number == NOTIFICATION {
            if let Some(event) = wire::Event::read(reader)? {
                self.watches.ring(event);
            }
            return Ok(());
        }
        check_session(head.refused)?;
        match head.refused {
            // A server before 3.6 refuses this ahead of its other answers, and closes the
            // connection.
            Some(Code::Unimplemented) if self.is_about_many(head.number) => {
                self.many_from = u64::MAX;
                return Err(End::Lost("the server reads nodes one by one only".to_owned()));
            }
            Some(_) | None => {}
        }
        let place = self.place(head)?;
        if self.flying[place].is_transaction {
            // A follower passes on the leader's verdict on the session in the body.
            let refused = wire::results(&mut { reader }).ok().and_then(Result::err);
            check_session(refused.map(|(_, code)| code))?;
        }
        let flying = self.flying.remove(place).ok_or(End::Malformed)?;
        self.seen = self.seen.max(head.zxid);
        self.weight -= flying.weight;
        self.many_answered |= flying.reads_many;
        self.adapt(now.at_most_since(flying.sent), flying.number, flying.weight);
        let voice = voice(flying.kind, head.refused);
        match place {
            0 => self.window.answered(now, voice),
            _ => self.window.overtaken(place),
        }
        if let (Awaited::Barrier(barrier), Voice::Ensemble) = (&flying.awaited, voice) {
            self.proven_barrier = *barrier;
        }
        self.answer(flying.awaited, head.refused, reader);
        Ok(())
    }

    /// Finds the request that was answered.
    ///
    /// Answers come in the order of the requests. Only a refusal by a server that checks
    /// permissions itself may overtake others. Any other order breaks ZooKeeper's protocol.
    fn place(&self, head: Head) -> Result<usize, End> {
        let place = self.flying.iter().position(|flying| flying.number == head.number);
        let place = place.ok_or(End::Malformed)?;
        let in_order = place == 0 || overtakes(self.flying[place].kind, head.refused);
        if in_order { Ok(place) } else { Err(End::Malformed) }
    }

    fn is_about_many(&self, number: i32) -> bool {
        self.flying.iter().any(|flying| flying.reads_many && flying.number == number)
    }

    /// Raises the limit while answers come quickly, and lowers it when they do not.
    fn adapt(&mut self, waited: Duration, number: i32, weight: usize) {
        let request = self.window.request();
        if waited > request / 3 {
            if number > self.lowered {
                self.limit = (self.limit / 2).max(FEWEST_FLYING);
                self.lowered = self.requests;
            }
        } else if waited < request / 6 {
            self.limit = (self.limit + weight).min(MOST_FLYING);
        }
    }

    fn answer(&mut self, awaited: Awaited, refused: Option<Code>, mut reader: Reader<'_>) {
        let session = self.number;
        match (awaited, refused) {
            (Awaited::Nobody | Awaited::Barrier(_), _) => {}
            (Awaited::Answer(reply), refused) => {
                let body = Bytes::copy_from_slice(reader.rest());
                let _ = reply.send(match refused {
                    Some(code) => Err(code.into()),
                    None => Ok(Answer { body }),
                });
            }
            (Awaited::Answers { replies, barrier }, refused) => {
                let body = Bytes::copy_from_slice(reader.rest());
                // Answers keep their order, so the barrier before it has been answered.
                let unproven = barrier.is_some_and(|barrier| self.proven_barrier < barrier);
                let outcome = match refused {
                    Some(_) | None if unproven => Err(Error::Unproven),
                    Some(code) => Err(Error::from(code)),
                    None => Ok(Answer { body }),
                };
                for reply in replies {
                    let _ = reply.send(outcome.clone());
                }
            }
            (Awaited::Join(join), refused) => {
                let made = match refused {
                    Some(code) => Err(code.into()),
                    None => wire::created(&mut reader)
                        .map(|(path, stat)| Made { path, stat, session })
                        .map_err(Error::from),
                };
                let _ = join.reply.send(made);
            }
            (Awaited::Joins(joins), Some(_)) => self.one_by_one(joins),
            (Awaited::Joins(joins), None) => match wire::results(&mut reader) {
                Ok(Ok(made)) if made.len() == joins.len() => {
                    for (join, made) in joins.into_iter().zip(made) {
                        // A candidate that gets no token must look for its entry. The next entries
                        // are sent alone.
                        self.joins_together &= made.is_some();
                        let made = made.map(|(path, stat)| Made { path, stat, session });
                        let _ = join.reply.send(made.ok_or(Error::Malformed));
                    }
                }
                Ok(Ok(_)) | Err(Malformed) => {
                    for join in joins {
                        let _ = join.reply.send(Err(Error::Malformed));
                    }
                }
                Ok(Err(_)) => self.one_by_one(joins),
            },
        }
    }

    /// Queues the entries of a refused transaction again, each to be sent alone.
    ///
    /// None of them was created.
    fn one_by_one(&mut self, joins: Vec<Join>) {
        for join in joins.into_iter().rev() {
            self.joins.push_front(Join { alone: true, ..join });
        }
    }
}

impl Awaited {
    fn fail(self, error: &Error) {
        // The caller may have stopped waiting.
        match self {
            Awaited::Nobody | Awaited::Barrier(_) => {}
            Awaited::Answer(reply) => drop(reply.send(Err(error.clone()))),
            Awaited::Answers { replies, .. } => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
            Awaited::Join(join) => drop(join.reply.send(Err(error.clone()))),
            Awaited::Joins(joins) => {
                for join in joins {
                    let _ = join.reply.send(Err(error.clone()));
                }
            }
        }
    }
}

/// A hash in place of a name. A collision may close a session early or cost a moment, no more.
fn digest(entry: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    entry.hash(&mut hasher);
    hasher.finish()
}

/// Ends the connection if the server says that the session is over, or has moved.
fn check_session(refused: Option<Code>) -> Result<(), End> {
    if refused == Some(Code::SessionExpired) {
        return Err(End::Expired);
    }
    if refused == Some(Code::SessionMoved) {
        // Another connection has taken the session over, so this one is of no use.
        return Err(End::Lost("the session moved".to_owned()));
    }
    Ok(())
}

fn barrier() -> Request {
    Request::Multi(vec![Request::Check { path: NOWHERE.to_owned(), version: -1 }])
}

#[cfg(test)]
mod tests;
