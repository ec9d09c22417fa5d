//! Requests of a process: its heartbeats, and those of its candidates.

use std::time::Duration;

use tenure::protocol::Ask;
use tenure::queue::Freshness;
use tenure::queue::machine::Input;
use tenure::queue::window::Kind;
use tenure::store::Fault;

use super::super::ensemble::{Errand, Request};
use super::super::swarm::Dialect;
use super::super::world::{Happening, World};
use super::{Arrival, Pending, Purpose, Recorded};
use crate::history::Who;

impl World {
    /// Sends a heartbeat that is due. A request that waited too long ends the connection.
    pub(in super::super) fn pulse(&mut self, node: usize) {
        let dialect = self.swarm.dialect;
        let process = &self.nodes[node];
        let (client, now) = (&process.client, process.clock.now(self.kernel.now));
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
                let mood =
                    client.mood.filter(|(_, until)| *until > self.kernel.now && !self.healed);
                let pace = process.pace();
                let due = self.nodes[node].client.zookeeper.beat(now, pace);
                let request = heartbeat(mood.map_or(due, |(kind, _)| kind));
                if !self.healed && self.kernel.rng.permille(self.swarm.burst) {
                    // Another user of the session sends a request at the same moment.
                    let other = *self.kernel.rng.pick(&[Kind::Sync, Kind::Write]);
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

    pub(in super::super) fn send(
        &mut self,
        node: usize,
        request: Request,
        purpose: Purpose,
        late: u64,
    ) {
        let process = &mut self.nodes[node];
        let now = process.clock.now(self.kernel.now);
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
        if !self.healed && self.kernel.rng.permille(self.swarm.break_up) {
            self.nodes[node].client.mute = true;
        }
        if self.nodes[node].client.mute {
            return;
        }
        let delay = self.delay(self.swarm.slow);
        let client = &mut self.nodes[node].client;
        let at = (self.kernel.now + delay).max(client.up_free);
        client.up_free = at;
        let (server, connection) = (client.server, client.connection);
        let errand = Errand { node, connection, session, id, request };
        self.kernel.schedule(at + late - self.kernel.now, Happening::AtServer { server, errand });
    }

    /// Sends a machine's request. On etcd it may be reported as unknown on a live connection.
    pub(in super::super) fn request(
        &mut self,
        node: usize,
        who: Who,
        ask: Ask,
        mut request: Request,
    ) {
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
        if doubtful && self.kernel.rng.permille(self.swarm.indeterminate) {
            let fault = if self.kernel.rng.permille(300) {
                Fault::Unavailable
            } else {
                Fault::Indeterminate
            };
            let input = failure(&request, ask, fault);
            // A late value would replace a newer one, and nothing is promised about that.
            let late = !matches!(request, Request::Publish { .. });
            if late && fault == Fault::Indeterminate && self.kernel.rng.permille(600) {
                self.send_later(node, request);
            }
            let client = &self.nodes[node].client;
            let (connection, arrival) = (client.connection, Arrival::Fault { who, input });
            let after = self.delay(0);
            return self.kernel.schedule(after, Happening::AtClient { node, connection, arrival });
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
        let after = self.kernel.rng.between(1000, self.ttl());
        let errand = Errand { node, connection, session, id, request };
        self.kernel.schedule(after, Happening::AtServer { server, errand });
    }
}

/// The input that tells a machine of a failed request.
pub(super) fn failure(request: &Request, ask: Ask, fault: Fault) -> Input {
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
