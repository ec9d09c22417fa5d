//! How everything of a session moves to another lease when etcd has changed its leader: step by step, with faults
//! between.

use tenure::queue::mutant::Mutant;

use super::Rare;
use super::client::Purpose;
use super::ensemble::{Request, Session};
use super::registry::Item;
use super::world::World;

/// A session moves to another lease in steps, each of which may be taken again (etcd).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Another lease is granted.
    Grant,
    /// The key of the session moves there: from now on nothing appears under the lease it had.
    Session,
    /// Its entries move.
    Entries,
}

/// At the servers.
impl World {
    /// A step that was taken before is not taken again.
    pub(super) fn take_step(&mut self, session: usize, step: Step, term: u64) {
        self.registry.tick();
        let Session { lease, moved, former, next, .. } = self.sessions[session];
        let next = next.filter(|(_, asked)| *asked == term);
        match step {
            // One that comes late is for nothing.
            Step::Grant | Step::Session if moved >= term => {}
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
            Step::Entries => {
                if let Some(former) = former {
                    self.registry.relet(former, lease);
                    self.sessions[session].former = None;
                }
            }
        }
    }

    /// A lease that a session had before is over, and the entries with it that have not moved (etcd).
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

/// At the process.
impl World {
    /// The next step towards another lease. One that fails is taken again after the next proof of life.
    pub(super) fn take_step_on(&mut self, node: usize, step: Step, term: u64) {
        if self.healed || !self.rng.permille(250) {
            self.send(node, Request::Move(step, term), Purpose::Heartbeat, 0);
        }
    }

    pub(super) fn moved(&mut self, node: usize, step: Step) {
        let client = &mut self.nodes[node].client;
        let Some((awaited, term)) = client.moving.filter(|(awaited, _)| *awaited == step) else {
            return;
        };
        let early = client.mutant == Some(Mutant::LeasedBeforeMoved) && awaited == Step::Session;
        let next = match awaited {
            Step::Grant => Some(Step::Session),
            Step::Session if !early => Some(Step::Entries),
            Step::Session | Step::Entries => None,
        };
        client.moving = next.map(|next| (next, term));
        match next {
            Some(next) => self.take_step_on(node, next, term),
            None => {
                client.etcd.leased(term);
                if self.nodes[node].lease.is_some() {
                    self.saw(Rare::LeaseReplaced);
                }
            }
        }
    }
}
