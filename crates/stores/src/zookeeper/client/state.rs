//! The state of a session: requests to send, requests in flight, and the proof. No I/O in here.

mod asking;
mod heartbeats;
mod receiving;
mod requests;
mod sending;

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use tenure::Moment;
use tenure::queue::window::StreamOrderWindow;
use tenure::queue::{Life, Pace, Proof, Session};

pub(super) use self::requests::Join;
pub(in super::super) use self::requests::{Answer, Made, Outcome};
use self::requests::{Askers, Flying, Listing, Order};
use super::super::wire::{self, Malformed};
use super::error::Error;
use super::watches::Watches;

/// How much work may be in flight: at least, at first and at most.
///
/// A server can answer this well within the time that an answer may take. With more, our own load
/// would end the connection.
const FEWEST_FLYING: usize = 48;
const FIRST_FLYING: usize = 128;
const MOST_FLYING: usize = 512;

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
    window: StreamOrderWindow,
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
            window: StreamOrderWindow::new(ttl),
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
    /// every queue is read after an entry of ours was made, and no server that lags behind shows
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
            self.window = StreamOrderWindow::new(ttl);
        } else if ttl != self.ttl {
            // A proof for another session time does not hold for this one.
            self.window = StreamOrderWindow::new(ttl);
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

    pub(super) fn check_given_up(&self) -> Result<(), End> {
        if self.given_up { Err(End::GivenUp) } else { Ok(()) }
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

/// A hash in place of a name. A collision may close a session early or cost a moment, no more.
fn digest(entry: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    entry.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
