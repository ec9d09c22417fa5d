//! How servers handle requests.
//!
//! There are streams between them, transactions, and sessions by the leader's clock.

mod answers;
mod messages;
mod sessions;
mod streams;

use tenure::queue::mutant::Mutant;
use tenure::queue::{Freshness, Joined, Left, Line};

use self::messages::is_write;
pub(super) use self::messages::{Answer, Down, Errand, Greeting, Request, Up};
use super::Rare;
use super::registry::RootState;
use super::swarm::Dialect;
use super::world::World;
use crate::kernel::{Instant, Promise};

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
                self.kernel.saw(Rare::DeposedAnswered);
                Some(Answer::Done)
            }
            Request::KeepAlive if self.servers[server].leads && self.leader != Some(server) => {
                self.kernel.saw(Rare::DeposedAnswered);
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
            self.kernel.breaks(Promise::Fencing, how);
        }
        if let Some(item) = self.registry.find(token).filter(|_| begun) {
            let (at, who) = (self.kernel.now, item.who);
            self.kernel.check(self.promises.lock_delay.begun(at, who, token));
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
}
