//! The simulated backend of a process: session, connections, and proofs of life.

mod answers;
mod connections;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure::Moment;
use tenure::protocol::Ask;
use tenure::queue::machine::Input;
use tenure::queue::mutant::Mutant;
use tenure::queue::window::{EtcdWindow, Kind, ZookeeperWindow};
use tenure::queue::{Entry, Life, Pace, Proof, Session};

use super::ensemble::Answer;
use super::moving::Step;
use super::swarm::Dialect;
use crate::history::Who;
use crate::kernel::Instant;

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
