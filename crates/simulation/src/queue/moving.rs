//! Moves everything of a session to another lease after a change of etcd's leader. It takes several
//! steps, with faults between them.

use tenure::queue::mutant::Mutant;

use super::Rare;
use super::client::Purpose;
use super::ensemble::{Request, Session};
use super::registry::Item;
use super::world::World;

/// The number of entries of a session. One is in the simulated election, the others are in
/// elections that are not simulated.
const ENTRIES: usize = 3;

/// A step of a session's move to another lease; each may be repeated (etcd).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Another lease is granted.
    Grant,
    /// The key of the session moves there. From now on nothing appears under the old lease.
    Session,
    /// One of its entries moves.
    Entry(usize),
}

/// The servers' side.
impl World {
    /// Takes a step, unless it was taken before.
    pub(super) fn take_step(&mut self, session: usize, step: Step, term: u64) {
        self.registry.tick();
        let Session { lease, moved, former, next, .. } = self.sessions[session];
        let next = next.filter(|(_, asked)| *asked == term);
        match step {
            // A step that comes too late has no effect.
            Step::Grant | Step::Session if moved >= term => {}
            Step::Entry(_) if moved != term => {}
            Step::Grant => {
                let fresh = next.map_or_else(|| self.fresh_lease(), |(next, _)| next);
                self.sessions[session].next = Some((fresh, term));
                self.touch(session);
            }
            Step::Session => {
                if let Some((next, _)) = next {
                    let known = &mut self.sessions[session];
                    (known.lease, known.moved) = (next, term);
                    (known.former, known.next) = (Some(lease), None);
                }
            }
            Step::Entry(entry) => {
                let Some(former) = former else { return };
                if entry == session % ENTRIES {
                    self.registry.relet(former, lease);
                }
                if entry + 1 == ENTRIES {
                    self.sessions[session].former = None;
                }
            }
        }
    }

    /// Ends a former lease of a session, with the entries that have not moved (etcd).
    pub(super) fn revoke_former(&mut self, session: usize, lease: u64) {
        let under = |item: &&Item| item.session == session && item.lease == lease;
        let tokens = self.registry.living().filter(under).map(|item| item.entry.token);
        for token in tokens.collect::<Vec<_>>() {
            self.judge_entry(session, token);
            self.registry.delete(token, false);
        }
        self.sessions[session].former = None;
        self.commit(None);
    }
}

/// The process's side.
impl World {
    /// Requests the next step towards another lease.
    ///
    /// A step that fails is repeated after the next proof of life.
    pub(super) fn take_step_on(&mut self, node: usize, step: Step, term: u64) {
        if self.healed || !self.kernel.rng.permille(250) {
            self.send(node, Request::Move(step, term), Purpose::Heartbeat, 0);
        }
    }

    pub(super) fn moved(&mut self, node: usize, step: Step) {
        let client = &mut self.nodes[node].client;
        let Some((awaited, term)) = client.moving.filter(|(awaited, _)| *awaited == step) else {
            return;
        };
        let next = match awaited {
            Step::Grant => Some(Step::Session),
            Step::Session => Some(Step::Entry(0)),
            Step::Entry(entry) => Some(entry + 1).filter(|next| *next < ENTRIES).map(Step::Entry),
        };
        let early = match client.mutant {
            Some(Mutant::LeasedBeforeMoved) => awaited == Step::Session,
            Some(Mutant::LeasedAfterFirstMoved) => awaited == Step::Entry(0),
            Some(_) | None => false,
        };
        let next = next.filter(|_| !early);
        client.moving = next.map(|next| (next, term));
        match next {
            Some(next) => self.take_step_on(node, next, term),
            None => {
                client.etcd.leased(term);
                if self.nodes[node].lease.is_some() {
                    self.kernel.saw(Rare::LeaseReplaced);
                }
            }
        }
    }
}
