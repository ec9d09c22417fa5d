//! The faults of an active world, and the actions of its users.

use bytes::Bytes;
use tenure::protocol::Farewell;
use tenure::queue::machine::Input;
use tenure::queue::window::Kind;

use super::Rare;
use super::node::Work;
use super::registry::RootState;
use super::swarm::{Dialect, FaultInjection};
use super::world::{Happening, World};
use crate::history::What;

impl World {
    pub(super) fn injection(&mut self) {
        if self.healed {
            return;
        }
        let next = self.kernel.rng.below(self.swarm.pace * 2);
        self.kernel.schedule(next, Happening::FaultInjection);
        let injection = *self.kernel.rng.pick(&self.swarm.injections);
        let node = self.victim();
        let ttl = self.ttl();
        self.kernel.note(|| format!("MISCHIEF {injection:?} n{node}"));
        match injection {
            FaultInjection::Pause => self.pause(node, false),
            FaultInjection::Suspend => self.pause(node, true),
            FaultInjection::Crash => self.crash(node),
            FaultInjection::Cut => self.cut(node),
            FaultInjection::CutLeader => {
                if let Some(leader) = self.leading() {
                    self.cut(leader);
                }
            }
            FaultInjection::Disconnect => {
                if self.nodes[node].client.is_connected() {
                    self.server_closes(node);
                }
            }
            FaultInjection::IsolateServer => {
                let server = self.kernel.rng.below(self.servers.len() as u64);
                self.isolate(usize::try_from(server).unwrap_or(0));
            }
            FaultInjection::IsolateLeader => {
                if let Some(leader) = self.leader {
                    self.isolate(leader);
                }
            }
            FaultInjection::StallServer => {
                let server = self.kernel.rng.below(self.servers.len() as u64);
                let until = self.kernel.now + self.kernel.rng.between(ttl / 20, ttl);
                let server = &mut self.servers[usize::try_from(server).unwrap_or(0)];
                if self.kernel.rng.permille(600) {
                    server.down_free = server.down_free.max(until);
                }
                if self.kernel.rng.permille(600) {
                    server.up_free = server.up_free.max(until);
                }
            }
            FaultInjection::RefuseAlone => {
                let any =
                    usize::try_from(self.kernel.rng.below(self.servers.len() as u64)).unwrap_or(0);
                let leading = self.leading().map(|leader| self.nodes[leader].client.server);
                let server = leading.filter(|_| self.kernel.rng.permille(700)).unwrap_or(any);
                self.begin_to_refuse(server);
                if self.kernel.rng.permille(700) {
                    self.isolate(server);
                }
            }
            FaultInjection::DeleteBehindDeposed => {
                let token = self.leading().and_then(|leader| self.nodes[leader].lease);
                if let (Some(server), Some(node), Some(lease)) =
                    (self.leader, self.leading(), token)
                {
                    self.begin_to_refuse(server);
                    self.isolate(server);
                    let deletion = self.kernel.rng.between(ttl / 20, ttl / 2);
                    self.kernel.schedule(deletion, Happening::Delete { token: lease.token });
                    self.nodes[node].cut = true;
                    let back = deletion + self.kernel.rng.below(ttl / 5);
                    self.kernel.schedule(back, Happening::Reconnect { node });
                }
            }
            FaultInjection::Whim => {
                let kind =
                    *self.kernel.rng.pick(&[Kind::Read, Kind::Sync, Kind::Sync, Kind::Write]);
                let until = self.kernel.now + self.kernel.rng.between(ttl / 4, ttl * 2);
                self.nodes[node].client.mood = Some((kind, until));
                let server = self.nodes[node].client.server;
                if self.kernel.rng.permille(500) {
                    self.isolate(server);
                }
            }
            FaultInjection::Nap => {
                let span = self.kernel.rng.between(ttl / 5, ttl * 9 / 10);
                self.pause_for(node, false, span);
            }
            FaultInjection::NapOfTheNext => {
                for waiter in 0..self.nodes.len() {
                    if self.nodes[waiter].lease.is_none() {
                        let span = self.kernel.rng.between(ttl * 7 / 10, ttl);
                        self.pause_for(waiter, false, span);
                    }
                }
                if let Some(leader) = self.leading() {
                    self.resign(leader, Farewell::Free);
                }
            }
            FaultInjection::StickReply => {
                for server in &mut self.servers {
                    server.sticks = true;
                    server.down_free =
                        server.down_free.max(self.kernel.now + self.kernel.rng.below(ttl / 8));
                }
            }
            FaultInjection::StickDuringNap => {
                if let Some(leader) = self.leading() {
                    let span = self.kernel.rng.between(ttl / 4, ttl / 2);
                    self.pause_for(leader, false, span);
                    let late = self.kernel.now + span + self.kernel.rng.below(ttl / 20);
                    let server = &mut self.servers[self.nodes[leader].client.server];
                    server.down_free = server.down_free.max(late);
                    server.sticks = true;
                    let after = span + self.kernel.rng.between(ttl / 20, ttl / 6);
                    self.kernel.schedule(after, Happening::Cut { node: leader });
                }
            }
            FaultInjection::DeposeUnderLeader => {
                if let (Some(server), Some(leader)) = (self.leader, self.leading()) {
                    self.isolate(server);
                    let mut after = self.kernel.rng.between(ttl / 20, ttl / 3);
                    if self.kernel.rng.permille(500) {
                        // Back soon: pending requests are answered in another term.
                        let back = self.kernel.rng.between(ttl / 20, ttl * 2 / 3);
                        self.kernel.schedule(back, Happening::Rejoin { server });
                        after = back + self.kernel.rng.below(ttl / 8);
                    }
                    self.kernel.schedule(after, Happening::Cut { node: leader });
                }
            }
            FaultInjection::Resign => self.resign(node, Farewell::Free),
            FaultInjection::EndByHolder => self.resign(node, Farewell::End),
            FaultInjection::Withdraw => self.withdraw(node),
            FaultInjection::ForceLoss => {
                if let Some(who) = self.nodes[node].current.filter(|_| !self.nodes[node].paused) {
                    self.step(node, who, Input::ForceLoss);
                    self.set_timer(node);
                }
            }
            FaultInjection::Abandon => self.abandon(node),
            FaultInjection::Publish => self.publish(node),
            FaultInjection::OutsiderEnd => self.outsider_ends(),
            FaultInjection::OutsiderCreate => self.outsider_creates(),
            FaultInjection::OutsiderDelete => self.outsider_deletes(),
            FaultInjection::RecreateBehindLeader => {
                if let Some(leader) = self.leading() {
                    self.cut(leader);
                    self.outsider_ends();
                    let after = self.kernel.rng.between(1000, ttl / 20);
                    self.kernel.schedule(after, Happening::Recreate);
                }
            }
            FaultInjection::Operator => self.operator(),
            FaultInjection::DeleteDuringLook => {
                let leading = self.leading().filter(|node| !self.nodes[*node].paused);
                if let Some(node) = leading
                    && let (Some(who), Some(lease)) =
                        (self.nodes[node].current, self.nodes[node].lease)
                {
                    // Hints may come at any time, and a leader looks at its line then.
                    self.step(node, who, Input::Hint);
                    self.set_timer(node);
                    let deletion = self.kernel.rng.below(self.swarm.most * 6);
                    self.kernel.schedule(deletion, Happening::Delete { token: lease.token });
                }
            }
            FaultInjection::Rebuild => self.rebuild(),
        }
    }

    /// Copies the servers' contents into fresh servers.
    ///
    /// The operator who does that must wait until every session is over.
    fn rebuild(&mut self) {
        if self.swarm.dialect != Dialect::Zookeeper || self.leader.is_none() || self.is_down() {
            return;
        }
        let ttl = self.ttl();
        let zxid = self.kernel.rng.between(1, self.registry.zxid);
        self.kernel.note(|| format!("the servers are rebuilt, and count from {zxid} on"));
        self.down_until = self.kernel.now + ttl * 2;
        self.top = self.top.max(self.registry.zxid);
        self.streams += 1;
        self.forget_sessions();
        self.registry.rebuild(zxid);
        for server in &mut self.servers {
            server.applied = zxid;
            server.touched.clear();
        }
        self.tell(What::Vandalised);
        for node in 0..self.nodes.len() {
            if self.nodes[node].client.is_connected() {
                self.server_closes(node);
            }
        }
    }

    /// Picks a process, mostly the leader, where faults hurt most.
    fn victim(&mut self) -> usize {
        let any = usize::try_from(self.kernel.rng.below(self.nodes.len() as u64)).unwrap_or(0);
        self.leading().filter(|_| self.kernel.rng.permille(500)).unwrap_or(any)
    }

    fn leading(&self) -> Option<usize> {
        self.nodes.iter().position(|process| process.lease.is_some())
    }

    pub(super) fn cut(&mut self, node: usize) {
        if self.healed {
            return;
        }
        self.nodes[node].cut = true;
        let ttl = self.ttl();
        let span = self.kernel.rng.between(ttl / 50, ttl * 2);
        self.kernel.schedule(span, Happening::Reconnect { node });
    }

    fn pause(&mut self, node: usize, suspend: bool) {
        let ttl = self.ttl();
        let span = self.kernel.rng.between(1000, ttl * 5 / 2);
        self.pause_for(node, suspend, span);
    }

    /// Pauses a leader that waits for its renewal until its lease has ended.
    pub(super) fn hiccup(&mut self, node: usize) {
        let ttl = self.ttl();
        let Some(lease) = self.nodes[node].lease.filter(|lease| lease.until > self.kernel.now)
        else {
            return;
        };
        let left = lease.until - self.kernel.now;
        if !self.healed && left < ttl / 10 && self.kernel.rng.permille(self.swarm.hiccup) {
            let span = left + self.kernel.rng.below(ttl / 100);
            self.pause_for(node, false, span);
        }
    }

    fn pause_for(&mut self, node: usize, suspend: bool, span: u64) {
        if self.nodes[node].paused {
            return;
        }
        let now = self.kernel.now;
        let process = &mut self.nodes[node];
        process.paused = true;
        process.timer.stop();
        if suspend {
            process.clock.suspend(now);
        }
        self.kernel.schedule(span, Happening::Resume { node });
    }

    pub(super) fn resume(&mut self, node: usize) {
        if !self.nodes[node].paused {
            return;
        }
        let now = self.kernel.now;
        let process = &mut self.nodes[node];
        process.paused = false;
        process.clock.wake_up(now);
        let (lease, current) = (process.lease, process.current);
        let inbox = std::mem::take(&mut process.inbox);
        if lease.is_some_and(|lease| lease.until <= now) {
            self.kernel.saw(Rare::PausedBeyondWindow);
        }
        if let Some(who) = current {
            self.tell(What::Paused { who });
        }
        // Both its timers and its messages are due.
        if self.kernel.rng.permille(300) {
            self.tick(node);
        }
        for (connection, arrival) in inbox {
            self.at_client(node, connection, arrival);
        }
        self.tick(node);
        if self.nodes[node].current.is_none() {
            self.kernel.schedule(0, Happening::Stand { node });
        }
    }

    pub(super) fn crash(&mut self, node: usize) {
        let now = self.kernel.now;
        let process = &mut self.nodes[node];
        process.machines.clear();
        process.lease = None;
        process.led = None;
        process.highest = 0;
        process.work = Work::None;
        process.paused = false;
        process.clock.wake_up(now);
        process.inbox.clear();
        process.timer.stop();
        process.served.slots.clear();
        process.client = process.client.reborn();
        let connection = process.client.connection;
        if let Some(who) = process.current.take() {
            self.tell(What::Crashed { who });
        }
        let ttl = self.ttl();
        let after = self.kernel.rng.between(ttl / 20, ttl * 2);
        self.kernel.schedule(after, Happening::Connect { node, connection });
        let later = after + self.kernel.rng.below(ttl);
        self.kernel.schedule(later, Happening::Stand { node });
    }

    fn resign(&mut self, node: usize, farewell: Farewell) {
        if self.nodes[node].paused {
            return;
        }
        match self.nodes[node].work {
            Work::Running { .. } => self.stop_work(node, Some(farewell)),
            Work::None if farewell == Farewell::Free => self.withdraw(node),
            Work::None | Work::Stopping { .. } => {}
        }
    }

    /// A candidate that does not lead leaves, perhaps in the middle of its join.
    pub(super) fn withdraw(&mut self, node: usize) {
        if self.nodes[node].paused || self.nodes[node].work != Work::None {
            return;
        }
        if let Some(who) = self.nodes[node].current {
            self.step(node, who, Input::Release(Farewell::Free));
            self.set_timer(node);
        }
    }

    /// A caller abandons a leader, and its work goes on for a while.
    fn abandon(&mut self, node: usize) {
        if self.nodes[node].paused || self.nodes[node].work == Work::None {
            return;
        }
        if let Some(who) = self.nodes[node].current {
            self.stop_work(node, None);
            self.kernel.saw(Rare::Abandoned);
            self.step(node, who, Input::Abandon);
            self.set_timer(node);
        }
    }

    fn publish(&mut self, node: usize) {
        if self.nodes[node].paused {
            return;
        }
        if let Some(who) = self.nodes[node].current {
            let value = Bytes::copy_from_slice(&self.kernel.now.to_be_bytes());
            self.step(node, who, Input::Publish(value));
            self.set_timer(node);
        }
    }

    fn outsider_ends(&mut self) {
        if self.leader.is_some() && self.registry.newest_root().state == RootState::Open {
            self.kernel.note(|| "an outsider ends the election".to_owned());
            self.end_election();
            self.commit(None);
        }
    }

    pub(super) fn outsider_creates(&mut self) {
        if self.leader.is_some() && self.registry.newest_root().state != RootState::Open {
            self.kernel.note(|| "an outsider creates the election".to_owned());
            self.registry.set_root(RootState::Open);
            self.commit(None);
            for node in 0..self.nodes.len() {
                let after = self.kernel.rng.below(self.swarm.most * 8);
                self.kernel.schedule(after, Happening::Stand { node });
            }
        } else if self.healed && self.leader.is_none() {
            let again = self.ttl() / 10;
            self.kernel.schedule(again, Happening::Recreate);
        }
    }

    /// Deletes the election. The root can go only when nothing is below it.
    fn outsider_deletes(&mut self) {
        self.outsider_ends();
        let empty = self.registry.living().next().is_none();
        if self.leader.is_some() && empty {
            self.kernel.note(|| "an outsider deletes the election".to_owned());
            self.registry.set_root(RootState::Missing);
            self.promises.lock_delay.forget();
            self.commit(None);
        }
    }

    /// Deletes an entry as an operator would, which no protocol can prevent.
    fn operator(&mut self) {
        let all: Vec<u64> = self.registry.living().map(|item| item.entry.token).collect();
        if all.is_empty() || self.leader.is_none() {
            return;
        }
        let token = *self.kernel.rng.pick(&all);
        self.delete_by_hand(token);
    }

    pub(super) fn delete_by_hand(&mut self, token: u64) {
        let stands = self.registry.living().any(|item| item.entry.token == token);
        if self.leader.is_none() || !stands || self.healed {
            return;
        }
        if self.nodes.iter().any(|process| process.lease.is_some_and(|lease| lease.token == token))
        {
            self.kernel.saw(Rare::OperatorDeletedLeader);
        }
        self.kernel.note(|| format!("an operator deletes {token}"));
        self.tell(What::Vandalised);
        self.registry.remove(token);
        self.commit(None);
    }
}
