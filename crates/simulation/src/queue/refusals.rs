//! Refusals by a single server.
//!
//! It throttles requests, and refuses writes without permission.
//!
//! The server asks no other server, so even one that is cut off refuses (ZooKeeper).

use tenure::queue::{Freshness, Line};

use super::Rare;
use super::client::Arrival;
use super::ensemble::{Answer, Errand, Request};
use super::swarm::Dialect;
use super::world::World;
use crate::kernel::Instant;

/// How long a server refuses, and in which order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusing {
    pub(super) until: Instant,
    pub(super) turn: Turn,
}

/// The moment when a refusal leaves the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// After the answers to earlier requests (`Throttled`).
    InOrder,
    /// At once (`NoAuth` with `enableEagerACLCheck`).
    AtOnce,
}

impl World {
    /// Returns how a server refuses a request by itself, if it does.
    pub(super) fn refuses(&mut self, server: usize, request: &Request) -> Option<Turn> {
        let zookeeper = self.swarm.dialect == Dialect::Zookeeper && !self.healed;
        let refusing = self.servers[server].refusing.filter(|_| zookeeper)?;
        if refusing.until <= self.kernel.now {
            self.servers[server].refusing = None;
            return None;
        }
        match request {
            Request::Sync => (refusing.turn == Turn::InOrder).then_some(Turn::InOrder),
            Request::Touch
            | Request::Join { .. }
            | Request::Begin(_)
            | Request::Note(_)
            | Request::Leave { .. }
            | Request::Publish { .. }
            | Request::End(_) => Some(refusing.turn),
            // The line behind its barrier is answered in its turn.
            Request::Line(Freshness::Barrier) => Some(Turn::InOrder),
            Request::Line(Freshness::Session)
            | Request::Beat
            | Request::KeepAlive
            | Request::Get
            | Request::Move(..) => None,
        }
    }

    pub(super) fn refuse(&mut self, server: usize, errand: &Errand, turn: Turn) {
        if self.servers[server].isolated {
            self.kernel.saw(Rare::RefusedAlone);
        }
        let Errand { node, connection, id, ref request, .. } = *errand;
        let answer = Answer::Refused { request: request.clone(), line: Line::Missing };
        match turn {
            Turn::InOrder => self.ready(errand, answer),
            Turn::AtOnce if self.nodes[node].client.connection == connection => {
                self.nodes[node].served.slots.retain(|(waiting, _)| *waiting != id);
                let zxid = self.servers[server].applied;
                self.send_client(node, Arrival::Answer { id, answer, zxid });
                self.flush(node);
            }
            Turn::AtOnce => {}
        }
    }

    /// Makes a server refuse, mostly the one of the election's leader.
    pub(super) fn begin_to_refuse(&mut self, server: usize) {
        let ttl = self.ttl();
        let turn = if self.kernel.rng.permille(500) { Turn::InOrder } else { Turn::AtOnce };
        let until = self.kernel.now + self.kernel.rng.between(ttl / 20, ttl * 2);
        self.kernel.note(|| format!("server {server} refuses, {turn:?}"));
        self.servers[server].refusing = Some(Refusing { until, turn });
    }
}
