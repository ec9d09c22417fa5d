//! Connections of a process, and the session that goes on over them.

use tenure::queue::machine::Input;
use tenure::queue::window::{EtcdWindow, ZookeeperWindow};
use tenure::queue::{Life, Session};

use super::super::Rare;
use super::super::ensemble::Greeting;
use super::super::world::{Happening, World};
use super::State;

impl World {
    pub(in super::super) fn connect(&mut self, node: usize, connection: u64) {
        if self.nodes[node].client.connection != connection {
            return;
        }
        if self.nodes[node].paused {
            let again = self.ttl() / 50;
            return self.kernel.schedule(again, Happening::Connect { node, connection });
        }
        let server = usize::try_from(self.kernel.rng.below(self.servers.len() as u64)).unwrap_or(0);
        let now = self.nodes[node].clock.now(self.kernel.now);
        if self.nodes[node].client.is_forgotten(now, self.swarm.dialect) {
            // No server keeps the session any more, and perhaps none has seen the transactions that
            // we saw.
            self.kernel.saw(Rare::GaveUpSession);
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
            let at = self.kernel.now + delay;
            (client.up_free, client.down_free) = (at, at);
            self.kernel.schedule(delay, Happening::Handshake { server, greeting });
        }
        let patience = self.ttl() / 5;
        self.kernel
            .schedule(patience, Happening::GiveUp { node, connection, unless_connected: true });
    }

    pub(super) fn welcomed(&mut self, node: usize, session: usize, term: u64) {
        let (zxid, now) = (self.registry.zxid, self.nodes[node].clock.now(self.kernel.now));
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

    pub(in super::super) fn give_up(
        &mut self,
        node: usize,
        connection: u64,
        unless_connected: bool,
    ) {
        let client = &self.nodes[node].client;
        if client.connection != connection || unless_connected && client.is_connected() {
            return;
        }
        if self.nodes[node].paused {
            let again = self.ttl() / 50;
            return self
                .kernel
                .schedule(again, Happening::GiveUp { node, connection, unless_connected });
        }
        self.disconnect(node);
    }

    pub(in super::super) fn disconnect(&mut self, node: usize) {
        let client = &mut self.nodes[node].client;
        client.connection += 1;
        client.state = State::Down;
        client.pending.clear();
        client.zookeeper.disconnected();
        client.etcd.abandoned();
        let connection = client.connection;
        let mut after = self.kernel.rng.between(1000, self.ttl() / 20);
        if let Some(lease) = self.nodes[node].lease
            && !self.healed
            && self.kernel.rng.permille(self.swarm.hiccup)
        {
            // Reconnect when hardly any of the lease is left.
            let least = self.kernel.rng.between(self.ttl() / 40, self.ttl() / 10);
            after = lease.until.saturating_sub(self.kernel.now).saturating_sub(least).max(1000);
            self.kernel.schedule(after, Happening::Reconnect { node });
        }
        self.kernel.schedule(after, Happening::Connect { node, connection });
        self.tell_session(node);
    }

    /// Tells every candidacy of this process about the session, if that has changed.
    pub(in super::super) fn tell_session(&mut self, node: usize) {
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
    pub(super) fn session_over(&mut self, node: usize) {
        let client = &mut self.nodes[node].client;
        client.session = None;
        client.seen = 0;
        let over = Session { life: Life::Over, ..client.told };
        // A value that is replaced at once is never seen.
        if self.kernel.rng.permille(700) {
            self.tell_this(node, over);
        }
        self.disconnect(node);
    }
}
