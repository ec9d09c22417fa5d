//! The streams between the servers, which keep the order of their messages.

use super::super::swarm::Dialect;
use super::super::world::{Happening, World};
use super::messages::{Answer, Down, Errand, Up, is_write};
use crate::kernel::REAL_RATE;

impl World {
    pub(super) fn send_up(&mut self, from: usize, message: Up) {
        if self.servers[from].isolated || self.leader.is_none() {
            return;
        }
        let delay = self.delay(self.swarm.slow_server);
        let server = &mut self.servers[from];
        let at = (self.kernel.now + delay).max(server.up_free);
        server.up_free = at;
        let streams = self.streams;
        self.kernel.schedule(at - self.kernel.now, Happening::Up { from, streams, message });
    }

    fn send_down(&mut self, to: usize, message: Down) {
        if self.servers[to].isolated || self.leader.is_none() {
            return;
        }
        let delay = self.delay(self.swarm.slow_server);
        let server = &mut self.servers[to];
        let at = (self.kernel.now + delay).max(server.down_free);
        server.down_free = at;
        let streams = self.streams;
        self.kernel.schedule(at - self.kernel.now, Happening::Down { to, streams, message });
    }

    pub(in super::super) fn up(&mut self, from: usize, streams: u64, message: Up) {
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

    pub(in super::super) fn down(&mut self, to: usize, streams: u64, message: Down) {
        if streams != self.streams || self.servers[to].isolated {
            return;
        }
        match message {
            Down::Ping => {
                let touched = std::mem::take(&mut self.servers[to].touched);
                if std::mem::take(&mut self.servers[to].sticks) && !self.healed {
                    self.servers[to].up_free = self.kernel.now + self.ttl() * 3 / 2;
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
    pub(in super::super) fn commit(&mut self, answer: Option<(usize, Errand, Answer)>) {
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

    pub(in super::super) fn ping(&mut self, term: u64) {
        if self.term != term || self.swarm.dialect == Dialect::Etcd {
            return;
        }
        if let Some(leader) = self.leader {
            for server in (0..self.servers.len()).filter(|server| *server != leader) {
                self.send_down(server, Down::Ping);
            }
            // Half a tick of the leader, which is a quarter of the shortest session.
            let every = self.ttl() / 4 * REAL_RATE / self.swarm.server_rates[leader];
            self.kernel.schedule(every, Happening::Ping { term });
        }
    }
}
