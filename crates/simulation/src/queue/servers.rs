//! Servers: their leader, isolation, and the state that each has seen.

use std::collections::VecDeque;

use super::Rare;
use super::client::{Arrival, Notice};
use super::ensemble::{Answer, Errand, Session};
use super::refusals::Refusing;
use super::registry::RootState;
use super::swarm::Dialect;
use super::world::{Happening, World};
use crate::kernel::Instant;

/// One server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// The newest transaction it has applied.
    pub(super) applied: u64,
    /// Cut off from the other servers; its clients still reach it.
    pub(super) isolated: bool,
    /// Whether the server believes that it leads.
    pub(super) leads: bool,
    pub(super) term: u64,
    /// Sessions that sent a request since the last ping.
    pub(super) touched: Vec<usize>,
    /// Streams keep their order: no message arrives before an earlier one.
    pub(super) up_free: u64,
    pub(super) down_free: u64,
    /// The next reply to a ping is stuck.
    pub(super) sticks: bool,
    /// The leases it knew when it was deposed. Each has its end by the server's own count (etcd).
    pub(super) counts: Vec<(u64, Instant)>,
    /// Set while the server refuses requests by itself (ZooKeeper).
    pub(super) refusing: Option<Refusing>,
    /// Requests that wait until the server knows a leader again (etcd).
    pub(super) held: Vec<Errand>,
}

/// A connection as its server sees it. Answers leave in the order of their requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    pub(super) slots: VecDeque<(u64, Option<Answer>)>,
}

impl Server {
    pub(super) fn new() -> Server {
        Server {
            applied: 1,
            isolated: false,
            leads: false,
            term: 1,
            touched: Vec::new(),
            up_free: 0,
            down_free: 0,
            sticks: false,
            counts: Vec::new(),
            refusing: None,
            held: Vec::new(),
        }
    }
}

impl World {
    /// Cuts a server off from the others; if it led, another one will.
    pub(super) fn isolate(&mut self, server: usize) {
        if self.servers.iter().any(|server| server.isolated) || self.servers.len() < 3 {
            return;
        }
        self.kernel.note(|| format!("server {server} is cut off"));
        self.servers[server].isolated = true;
        let ttl = self.ttl();
        if self.leader == Some(server) {
            self.leader = None;
            self.streams += 1;
            let living = self.sessions.iter().filter(|session| session.alive);
            let counted = living.flat_map(|session| {
                session.leases().map(|lease| (lease, session.expiry)).collect::<Vec<_>>()
            });
            self.servers[server].counts = counted.collect();
            let term = self.term;
            let after = self.kernel.rng.between(ttl / 50, ttl / 2);
            self.kernel.schedule(after, Happening::Elect { term });
        }
        let after = self.kernel.rng.between(ttl / 20, ttl * 5 / 2);
        self.kernel.schedule(after, Happening::Rejoin { server });
    }

    pub(super) fn elect(&mut self, term: u64) {
        if self.term != term || self.leader.is_some() {
            return;
        }
        let able: Vec<usize> =
            (0..self.servers.len()).filter(|at| !self.servers[*at].isolated).collect();
        let leader = *self.kernel.rng.pick(&able);
        self.become_leader(leader);
    }

    fn become_leader(&mut self, leader: usize) {
        self.term += 1;
        self.streams += 1;
        self.leader = Some(leader);
        let (term, zxid, now) = (self.term, self.registry.zxid, self.kernel.now);
        self.kernel.note(|| format!("server {leader} leads in term {term}"));
        self.kernel.saw(Rare::ServerElection);
        for (at, server) in self.servers.iter_mut().enumerate() {
            server.up_free = server.up_free.max(now);
            server.down_free = server.down_free.max(now);
            if !server.isolated {
                server.leads = at == leader;
                server.term = term;
                server.applied = zxid;
                server.touched.clear();
            }
        }
        // Every session starts its whole time anew.
        for session in 0..self.sessions.len() {
            if self.sessions[session].alive {
                self.touch(session);
            }
        }
        for node in 0..self.nodes.len() {
            self.fire_watches(node);
        }
        self.kernel.schedule(0, Happening::Ping { term });
    }

    pub(super) fn rejoin(&mut self, server: usize) {
        if !self.servers[server].isolated {
            return;
        }
        self.kernel.note(|| format!("server {server} is back"));
        self.servers[server].isolated = false;
        match self.leader {
            Some(_) => {
                self.wake_deposed(server);
                let (term, zxid, now) = (self.term, self.registry.zxid, self.kernel.now);
                let back = &mut self.servers[server];
                back.leads = false;
                back.term = term;
                back.applied = zxid;
                back.touched.clear();
                back.up_free = now;
                back.down_free = now;
                match self.swarm.dialect {
                    // A server that changes its role closes its connections.
                    Dialect::Zookeeper => {
                        for node in 0..self.nodes.len() {
                            if self.nodes[node].client.server == server {
                                self.server_closes(node);
                            }
                        }
                    }
                    // The server forwards the requests that it held to the new leader.
                    Dialect::Etcd => {
                        for errand in std::mem::take(&mut self.servers[server].held) {
                            self.at_server_again(server, errand);
                        }
                    }
                }
            }
            // No other server has led in its place yet, so it goes on.
            None if self.servers[server].leads => {
                self.servers[server].held.clear();
                self.become_leader(server);
            }
            None => self.servers[server].held.clear(),
        }
    }

    /// Lets an old leader revoke leases that have run out by its own count (etcd).
    ///
    /// It does so before it learns of its successor.
    fn wake_deposed(&mut self, server: usize) {
        let counts = std::mem::take(&mut self.servers[server].counts);
        let etcd = self.swarm.dialect == Dialect::Etcd;
        if !etcd || !self.servers[server].leads || self.healed || self.kernel.rng.permille(300) {
            return;
        }
        let ended = counts.into_iter().filter(|(_, expiry)| *expiry <= self.kernel.now);
        for (lease, _) in ended.collect::<Vec<_>>() {
            let known = |session: &Session| session.alive && session.lease == lease;
            if let Some(session) = self.sessions.iter().position(known) {
                self.kernel
                    .note(|| format!("server {server} revokes the lease of session {session}"));
                self.kernel.saw(Rare::DeposedRevoked);
                self.close_session(session);
            }
            let had = |session: &Session| session.alive && session.former == Some(lease);
            if let Some(session) = self.sessions.iter().position(had) {
                self.kernel.note(|| {
                    format!("server {server} revokes the former lease of session {session}")
                });
                self.revoke_former(session, lease);
            }
        }
    }

    pub(super) fn server_closes(&mut self, node: usize) {
        let connection = self.nodes[node].client.connection;
        let after = self.delay(0);
        self.kernel
            .schedule(after, Happening::GiveUp { node, connection, unless_connected: false });
        self.nodes[node].served.slots.clear();
        self.nodes[node].client.deaf = true;
    }

    /// Sends the answers that are ready, in order.
    pub(super) fn flush(&mut self, node: usize) {
        while let Some((_, Some(_))) = self.nodes[node].served.slots.front() {
            let Some((id, Some(answer))) = self.nodes[node].served.slots.pop_front() else {
                return;
            };
            let server = self.nodes[node].client.server;
            let zxid = self.servers[server].applied;
            let term = self.servers[server].term;
            let answer = self.finish(answer, node, zxid, term);
            self.send_client(node, Arrival::Answer { id, answer, zxid });
        }
    }

    /// Sends a message to a process, in the order of its connection.
    pub(super) fn send_client(&mut self, node: usize, arrival: Arrival) {
        self.nodes[node].client.deaf |= self.nodes[node].cut;
        if self.nodes[node].client.deaf {
            return;
        }
        let is_answer = matches!(arrival, Arrival::Answer { .. });
        if is_answer && !self.healed && self.kernel.rng.permille(self.swarm.break_down) {
            // A stream that loses one message loses all that follow.
            self.kernel.note(|| format!("  n{node} hears no more on this connection: {arrival:?}"));
            self.nodes[node].client.deaf = true;
            return;
        }
        let delay = self.delay(self.swarm.slow);
        let client = &mut self.nodes[node].client;
        let mut at = self.kernel.now + delay;
        // etcd's watches have a stream of their own, and report different keys in any order.
        let ordered = self.swarm.dialect == Dialect::Zookeeper
            || !matches!(arrival, Arrival::Notified { .. });
        if ordered {
            at = at.max(client.down_free);
            client.down_free = at;
        }
        let connection = client.connection;
        self.kernel
            .schedule(at - self.kernel.now, Happening::AtClient { node, connection, arrival });
    }

    /// Sends the notices that the watches of this process have to report by now.
    pub(super) fn fire_watches(&mut self, node: usize) {
        let process = &self.nodes[node];
        if !process.client.is_connected() || process.client.deaf {
            return;
        }
        let applied = self.servers[process.client.server].applied;
        let root = self.registry.root(applied);
        let mut told: Vec<(u32, Option<tenure::queue::Entry>)> = Vec::new();
        for standing in &process.machines {
            for entry in standing.machine.watching().into_iter().flatten() {
                let known = process.client.notified.contains(&(standing.who, entry.token));
                // A server that has not seen the entry's creation reports nothing about it.
                let seen = entry.token <= applied;
                if !known && seen && !self.registry.shows(entry.token, applied) {
                    told.push((standing.who, Some(entry.clone())));
                }
            }
            if let Some(generation) = standing.machine.awaiting_end() {
                let open = root.state == RootState::Open;
                let over = !open || root.generation != generation;
                let known = process.client.notified.contains(&(standing.who, 0));
                if over && !known {
                    told.push((standing.who, None));
                }
            }
        }
        for (who, entry) in told {
            let token = entry.as_ref().map_or(0, |entry| entry.token);
            self.nodes[node].client.notified.push((who, token));
            if !self.healed && self.kernel.rng.permille(self.swarm.lose_notification) {
                self.kernel.saw(Rare::NotificationLost);
                self.kernel.note(|| format!("  n{node} is never told that {token} is gone"));
                continue;
            }
            let notice = match entry {
                Some(entry) => {
                    self.judge_notification(node, who, token);
                    let touched = self.registry.find(token).map_or(0, |item| item.touched);
                    let over = root.state != RootState::Open || root.generation > token;
                    Notice::Gone { entry, touched, over }
                }
                None => Notice::Over,
            };
            self.send_client(node, Arrival::Notified { who, notice });
        }
    }
}
