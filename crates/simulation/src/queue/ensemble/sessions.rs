//! Sessions: their handshakes, and their time by the leader's clock.

use super::super::Rare;
use super::super::client::Arrival;
use super::super::swarm::Dialect;
use super::super::world::{Happening, World};
use super::Session;
use super::messages::{Greeting, Up};
use crate::kernel::REAL_RATE;

/// Handshakes.
impl World {
    pub(in super::super) fn handshake(&mut self, server: usize, greeting: Greeting) {
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
                self.kernel.saw(Rare::DeposedAnswered);
            }
            self.welcome(&greeting, Some(session));
        } else if !self.servers[server].leads {
            self.send_up(server, Up::Greeting(greeting));
        }
    }

    /// The leader begins or continues a session.
    pub(super) fn greet(&mut self, greeting: &Greeting) -> Option<usize> {
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
    pub(in super::super) fn fresh_lease(&mut self) -> u64 {
        self.leases += 1;
        self.leases
    }

    /// An old leader extends the leases that are kept alive at it.
    pub(super) fn count_again(&mut self, session: usize, server: usize) {
        let keeps = self.ttl() * REAL_RATE / self.swarm.server_rates[server];
        let until = self.kernel.now + keeps;
        let session = &self.sessions[session];
        let leases: Vec<u64> = session.leases().collect();
        let counts = &mut self.servers[server].counts;
        let kept = counts.iter_mut().filter(|(known, _)| leases.contains(known));
        kept.for_each(|(_, at)| *at = until);
    }

    pub(super) fn welcome(&mut self, greeting: &Greeting, session: Option<usize>) {
        if self.nodes[greeting.node].client.connection == greeting.connection {
            // For a session that exists already the term of its beginning does not matter.
            let term = self.term;
            self.send_client(greeting.node, Arrival::Welcome { session, term });
        }
    }

    /// Returns true if this server, as far as it has seen, knows the session as alive.
    pub(super) fn knows(&self, session: usize, server: usize) -> bool {
        self.sessions[session].closed.is_none_or(|closed| closed > self.servers[server].applied)
    }
}

/// Sessions by the leader's clock.
impl World {
    pub(in super::super) fn touch(&mut self, session: usize) {
        let Some(leader) = self.leader else { return };
        if !self.sessions[session].alive {
            return;
        }
        let keeps = self.ttl() * REAL_RATE / self.swarm.server_rates[leader];
        let extra = self.kernel.rng.below(self.swarm.tick + 1);
        let expiry = self.kernel.now + keeps + extra;
        let known = &mut self.sessions[session];
        known.expiry = expiry;
        if !known.checking {
            known.checking = true;
            self.kernel.schedule(keeps + extra, Happening::Expiry { session });
        }
    }

    pub(in super::super) fn expiry(&mut self, session: usize) {
        let Session { alive, expiry, .. } = self.sessions[session];
        if !alive || self.leader.is_none() {
            self.sessions[session].checking = false;
            return;
        }
        if self.kernel.now < expiry {
            return self.kernel.schedule(expiry - self.kernel.now, Happening::Expiry { session });
        }
        self.kernel.note(|| format!("session {session} expires"));
        self.close_session(session);
    }

    /// Ends a session and its entries.
    pub(in super::super) fn close_session(&mut self, session: usize) {
        self.kernel.saw(Rare::SessionExpired);
        self.judge_window(session);
        let node = self.sessions[session].node;
        let held =
            |token: u64| self.registry.find(token).is_some_and(|item| item.session == session);
        if self.nodes[node].led.is_some_and(held) {
            self.kernel.saw(Rare::LeaderExpired);
        }
        self.registry.close(session);
        self.sessions[session].alive = false;
        self.sessions[session].closed = Some(self.registry.zxid);
        self.commit(None);
    }
}
