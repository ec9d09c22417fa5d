//! The end of faults: a candidate leads soon, and nothing is left behind.
//!
//! # The bound
//! Clocks run at real time or faster, so a wait on any of them takes no longer in real time. From
//! the moment faults stop: messages in flight arrive (T), a connection is given up and made again
//! (T), a session without keep-alives expires (T and a tick), work winds down (3T, or its entry
//! goes 1.25T after the last proof), and a second look makes up for a lost notification (2T). The
//! second look may happen twice, in a line that lost its first two entries without a notification.
//! The lock delay passes after a tenure that faults cut short, and once more if they cut its
//! successor short.

//!
//! # Failover
//! Then, in most worlds, the leader's process dies, and L2 holds for the next in line: the server
//! hears of the dead session for the last time a ping later (T/4, ZooKeeper), and keeps it for T
//! and a tick. The next candidate leads after the delay and the round trips in which it learns,
//! looks and records. No notification is lost any more, so the bound includes no wait for one.

use super::Rare;
use super::node::Work;
use super::registry::RootState;
use super::world::{Happening, World};
use crate::history::Who;
use crate::kernel::{Promise, nanos};

impl World {
    pub(super) fn heal(&mut self) {
        self.kernel.note(|| "HEAL".to_owned());
        self.healed = true;
        self.down_until = self.kernel.now;
        // An operator makes sure that the servers count from a higher number than ever before.
        if self.registry.zxid <= self.top {
            self.registry.zxid = self.top + 1;
        }
        for server in 0..self.servers.len() {
            self.rejoin(server);
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].cut = false;
            self.resume(node);
            self.kernel.schedule(0, Happening::Stand { node });
        }
        if self.registry.newest_root().state != RootState::Open && self.kernel.rng.permille(600) {
            let after = self.ttl() / 2;
            self.kernel.schedule(after, Happening::Recreate);
        }
        let bound = self.ttl() * 11 + nanos(self.swarm.delay) * 2;
        self.kernel.schedule(bound, Happening::Deadline);
    }

    /// Checks that a candidate leads by now, or that all have left an ended election.
    pub(super) fn deadline(&mut self) {
        self.kernel.note(|| "DEADLINE".to_owned());
        let root = self.registry.newest_root();
        for node in 0..self.nodes.len() {
            self.judge_generation(node, root.generation, root.state);
        }
        if root.state != RootState::Open {
            let standing = self.registry.living().next().map(|item| item.entry.token);
            if let Some(token) = standing {
                let how = format!("token {token} stands in an election that is over");
                self.kernel.breaks(Promise::NoGhost, how);
            }
            self.kernel.saw(Rare::HealedEnded);
            return self.kernel.schedule(1, Happening::End);
        }
        if self.promises.leader(self.kernel.now).is_none() {
            self.kernel
                .breaks(Promise::Recovery, "nobody leads long after the last fault".to_owned());
        }
        self.kernel.saw(Rare::HealedLed);
        if self.kernel.rng.permille(700) && self.kill_the_leader() {
            let trips = self.swarm.most * 16;
            let bound = self.ttl() * 5 / 4 + self.swarm.tick + nanos(self.swarm.delay) + trips;
            return self.kernel.schedule(bound, Happening::Successor);
        }
        let more = self.ttl();
        self.kernel.schedule(more, Happening::End);
    }

    /// Kills the leader's process, if another candidate is next in line. Returns true if it did.
    fn kill_the_leader(&mut self) -> bool {
        let line = self.registry.living().map(|item| (item.node, item.who));
        let line: Vec<(usize, Who)> = line.take(2).collect();
        let [(leader, _), (next, who)] = line[..] else { return false };
        let leads = self.nodes[leader].lease.is_some();
        if !leads || leader == next || self.nodes[next].current != Some(who) {
            return false;
        }
        self.kernel.note(|| format!("n{leader} dies, and n{next} is next"));
        self.crash(leader);
        true
    }

    /// Checks that the next in line leads by now, after the leader's death.
    pub(super) fn successor(&mut self) {
        self.kernel.note(|| "SUCCESSOR".to_owned());
        if self.promises.leader(self.kernel.now).is_none() {
            self.kernel.breaks(
                Promise::Recovery,
                "nobody leads in the place of a leader that died".to_owned(),
            );
        }
        self.kernel.saw(Rare::FailedOver);
        let more = self.ttl();
        self.kernel.schedule(more, Happening::End);
    }

    /// Checks that candidates of an election that is over have left it.
    fn judge_generation(&mut self, node: usize, generation: u64, state: RootState) {
        let process = &self.nodes[node];
        // The work never ends, and its caller is not told until then.
        let stuck = process.work != Work::None && self.swarm.stuck && node == 0;
        let stale = process.machines.iter().find(|standing| {
            let known = standing.machine.awaiting_end();
            known.is_some_and(|known| known != generation || state != RootState::Open)
        });
        if let Some(standing) = stale.filter(|_| !stuck) {
            let how = format!("candidate {} never leaves an election that is over", standing.who);
            self.kernel.breaks(Promise::EndedIsTerminal, how);
        }
    }

    /// Checks that a candidate still leads, and that every entry has an owner.
    pub(super) fn end(&mut self) {
        self.kernel.note(|| "END".to_owned());
        self.kernel.end();
        let open = self.registry.newest_root().state == RootState::Open;
        if open && self.promises.leader(self.kernel.now).is_none() {
            self.kernel.breaks(Promise::Recovery, "a healthy leader was lost".to_owned());
        }
        let unseen = self.registry.living().find(|item| {
            let mut machines = self.nodes[item.node].machines.iter();
            machines.any(|standing| {
                let own = standing.machine.watching()[0] == Some(&item.entry);
                own && standing.machine.candidate().value != item.holder.value
            })
        });
        if let Some(unseen) = unseen {
            let how = format!("token {} never shows the newest value", unseen.entry.token);
            self.kernel.breaks(Promise::Recovery, how);
        }
        let ghost = self.registry.living().find(|item| {
            let machines = &self.nodes[item.node].machines;
            !machines.iter().any(|standing| standing.machine.claims(&item.entry, &item.ticket))
        });
        if let Some(ghost) = ghost {
            let how = format!("token {} stands in line for nobody", ghost.entry.token);
            self.kernel.breaks(Promise::NoGhost, how);
        }
    }
}
