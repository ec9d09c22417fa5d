//! The promises of queues that no history shows: checked against the whole world.

use super::world::World;
use crate::kernel::Promise;

impl World {
    /// Checks that an elected candidate is the first in line.
    pub(super) fn judge_order(&mut self, token: u64) {
        let before = self.registry.living().find(|item| item.entry.token < token);
        if let Some(before) = before {
            let how = format!("token {token} leads before {}, who came first", before.entry.token);
            self.kernel.breaks(Promise::Fairness, how);
        }
    }

    /// Checks that a token is above all recorded ones, and those of this process.
    ///
    /// This holds even for servers that count from a lower number on.
    pub(super) fn judge_token(&mut self, node: usize, token: u64) {
        // S2 assumes that nobody else removes queue entries. When an operator removes one, the next
        // in line leads and is recorded, and the owner may hear of its own turn before it hears of
        // the removal. So its token is compared with the records up to the removal. Later ones
        // prove nothing: until then its entry kept those behind it from leading. No other candidate
        // is excused.
        let removed = self.registry.find(token).filter(|item| item.removed);
        let until = removed.and_then(|item| item.gone).unwrap_or(self.registry.zxid);
        let recorded = self.registry.highest(until);
        // Its own beginning is recorded before it leads.
        let recorded = if recorded == token && !self.swarm.delay.is_zero() { 0 } else { recorded };
        let known = recorded.max(self.nodes[node].highest);
        if token <= known {
            let how = format!("token {token} leads, and {known} is known to have led");
            self.kernel.breaks(Promise::Fencing, how);
        }
    }

    /// Checks that an elected candidate became the first before the election ended.
    pub(super) fn judge_turn(&mut self, node: usize, who: u32, token: u64) {
        let mut machines = self.nodes[node].machines.iter();
        let standing = machines.find(|standing| standing.who == who);
        let generation = standing.and_then(|standing| standing.machine.awaiting_end());
        let in_time = |generation| self.registry.was_first_in_time(token, generation);
        if !generation.is_some_and(in_time) {
            let how = format!("token {token} leads, and became the first after the end");
            self.kernel.breaks(Promise::EndedIsTerminal, how);
        }
    }

    /// Checks that no session expires while its owner relies on it.
    pub(super) fn judge_window(&mut self, session: usize) {
        let node = self.sessions[session].node;
        let process = &self.nodes[node];
        let Some(lease) = process.lease else { return };
        let entry = self.registry.find(lease.token);
        if lease.until > self.kernel.now && entry.is_some_and(|item| item.session == session) {
            let how = format!(
                "the session of token {} expires {} ns before its window ends",
                lease.token,
                lease.until - self.kernel.now
            );
            self.kernel.breaks(Promise::Window, how);
        }
    }

    /// Checks that no entry is deleted while its owner leads with it.
    pub(super) fn judge_entry(&mut self, session: usize, token: u64) {
        let node = self.sessions[session].node;
        let led = self.nodes[node].lease.filter(|lease| lease.token == token);
        if let Some(lease) = led.filter(|lease| lease.until > self.kernel.now) {
            let left = lease.until - self.kernel.now;
            let how = format!("the entry of token {token} goes {left} ns before its window ends");
            self.kernel.breaks(Promise::Window, how);
        }
    }

    /// Checks that the servers keep the session of a candidate that leads.
    pub(super) fn judge_life(&mut self, token: u64) {
        let Some(item) = self.registry.find(token) else { return };
        if !self.sessions[item.session].alive {
            let how = format!("token {token} leads, and its session is over already");
            self.kernel.breaks(Promise::Window, how);
        }
    }

    /// Checks that no candidate waits after a tenure that was left cleanly.
    pub(super) fn judge_release(&mut self, token: u64) {
        // In rebuilt servers the mark may be of an earlier tenure with the same number.
        let rebuilt = self.top > 0;
        if !rebuilt && self.registry.mark(self.registry.zxid) == Some(token) {
            let how = format!("token {token} was left cleanly, and the next waits all the same");
            self.kernel.breaks(Promise::LockDelay, how);
        }
    }

    /// Checks that no tenure goes on over a connection newer than its deletion.
    pub(super) fn judge_extension(&mut self, node: usize, token: u64) {
        let Some(gone) = self.registry.find(token).and_then(|item| item.gone) else { return };
        if gone < self.nodes[node].client.connected_at {
            let how =
                format!("token {token} goes on, on a connection made after its entry was gone");
            self.kernel.breaks(Promise::OneLeader, how);
        }
    }

    /// Checks that a deletion wakes only the candidate that left and the next one.
    pub(super) fn judge_notification(&mut self, node: usize, who: u32, token: u64) {
        let machines = self.nodes[node].machines.iter();
        let mut own = machines.filter(|standing| standing.who == who);
        let own = own.find_map(|standing| standing.machine.watching()[0].map(|entry| entry.token));
        let living = self.registry.living().any(|item| Some(item.entry.token) == own);
        let Some(item) = self.registry.items.iter_mut().find(|item| item.entry.token == token)
        else {
            return;
        };
        // A candidate that lost its own entry meanwhile does not know yet that it is no longer the
        // next, although another join of it may have arrived.
        if (living || item.who == who) && !item.told.contains(&who) {
            item.told.push(who);
        }
        if item.told.len() > 2 {
            let how = format!("{} candidates are told that token {token} is gone", item.told.len());
            self.kernel.breaks(Promise::NoHerd, how);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tenure::CandidateId;
    use tenure::protocol::Holder;
    use tenure::queue::Ticket;

    use super::super::Options;
    use super::super::registry::Registry;
    use super::*;

    fn enter(registry: &mut Registry, who: u32) -> u64 {
        let candidate = CandidateId::from_bits(u128::from(who));
        let ticket = Ticket { candidate: candidate.clone(), attempt: 1 };
        let (name, value) = (format!("c{who}").into(), Bytes::new());
        let holder = Arc::new(Holder { id: candidate, name, value, presence: None });
        registry.enter(who, 0, (usize::try_from(who).unwrap_or(0), 0), &ticket, &holder).token
    }

    /// Whether the owner of the first of two entries may lead after this.
    fn may_lead(happens: impl FnOnce(&mut Registry, u64, u64)) -> bool {
        let mut world = World::new(0, Options::default());
        let (first, second) = (enter(&mut world.registry, 1), enter(&mut world.registry, 2));
        let third = enter(&mut world.registry, 3);
        // An operator was at work, elsewhere in the line.
        world.registry.remove(third);
        happens(&mut world.registry, first, second);
        world.judge_token(0, first);
        !world.kernel.is_broken()
    }

    #[test]
    fn only_a_removal_by_an_operator_excuses_an_entry_and_only_from_later_tenures() {
        assert!(may_lead(|_, _, _| {}));
        assert!(may_lead(|registry, first, second| {
            registry.remove(first);
            registry.note(second);
        }));
        assert!(!may_lead(|registry, first, second| {
            registry.note(second);
            registry.remove(first);
        }));
        assert!(!may_lead(|registry, first, second| {
            registry.delete(first, false);
            registry.note(second);
        }));
        assert!(!may_lead(|registry, _, second| {
            registry.close(1);
            registry.note(second);
        }));
    }
}
