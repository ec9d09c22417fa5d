//! The faults of an active world, and the actions of its users.

use std::time::Duration;

use bytes::Bytes;
use tenure::CandidateId;
use tenure::lease::machine::Input;
use tenure::lease::mutant::Mutant;
use tenure::lease::record::{Op, Record, State};
use tenure::lease::ruling::{self, Ruling, Terms};
use tenure::protocol::Farewell;
use tenure::store::Expect;

use super::Rare;
use super::network::Way;
use super::node::Work;
use super::store::{Rejoined, Stored};
use super::swarm::FaultInjection;
use super::world::{Happening, World};
use crate::history::What;
use crate::kernel::nanos;

/// An outsider's request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errand {
    number: u64,
    wish: Wish,
    terms: Terms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Create,
    End,
    Delete,
}

impl World {
    pub(super) fn injection(&mut self) {
        if !self.faults() {
            return;
        }
        let next = self.kernel.rng.below(self.swarm.pace * 2);
        self.kernel.schedule(next, Happening::FaultInjection);
        let injection = *self.kernel.rng.pick(&self.swarm.injections);
        let node = self.victim();
        let ttl = nanos(self.swarm.timings[node].ttl());
        self.kernel.note(|| format!("MISCHIEF {injection:?} n{node}"));
        match injection {
            FaultInjection::Pause => self.pause(node, ttl, false),
            FaultInjection::Suspend => self.pause(node, ttl, true),
            FaultInjection::Crash => self.crash(node),
            FaultInjection::Partition => self.partition(node, ttl),
            FaultInjection::CutLeader => {
                let leader = self.nodes.iter().position(|process| process.lease.is_some());
                if let Some(leader) = leader {
                    self.partition(leader, ttl);
                }
            }
            FaultInjection::RecreateBehindLeader => {
                let leader = self.nodes.iter().position(|process| process.lease.is_some());
                if let Some(leader) = leader {
                    self.partition(leader, ttl);
                    self.send_outsider(Wish::End);
                    let delay = self.delay(0, Way::Request) * 4;
                    let errand = self.errand(Wish::Create);
                    self.kernel.schedule(delay, Happening::OutsiderReads { errand });
                }
            }
            FaultInjection::Outage => {
                self.outage = true;
                let over = self.kernel.rng.between(ttl / 10, ttl * 3 / 2);
                self.kernel.schedule(over, Happening::OutageOver);
            }
            FaultInjection::Resign => self.resign(node, Farewell::Free),
            FaultInjection::EndByHolder => self.resign(node, Farewell::End),
            FaultInjection::Publish => {
                let value = Bytes::copy_from_slice(&self.kernel.rng.next().to_le_bytes());
                self.step(node, Input::Publish(value));
            }
            FaultInjection::ForceLoss => self.step(node, Input::ForceLoss),
            FaultInjection::Abandon => self.step(node, Input::Abandon),
            FaultInjection::OutsiderCreate => self.send_outsider(Wish::Create),
            FaultInjection::OutsiderEnd => self.send_outsider(Wish::End),
            FaultInjection::OutsiderDelete => self.send_outsider(Wish::Delete),
            FaultInjection::WallJump => {
                let wall = self.kernel.rng.below(1 << 45);
                self.nodes[node].clock.set_wall(wall);
            }
            FaultInjection::Batch => self.step(node, Input::Batch),
            FaultInjection::Branch => {
                if !self.document.is_isolated() {
                    self.document.isolate();
                    self.floor.isolate();
                    let over = self.kernel.rng.between(ttl / 10, 2 * ttl);
                    self.kernel.schedule(over, Happening::Rejoin);
                }
            }
            FaultInjection::Vandal => self.vandalise(),
            FaultInjection::DeleteRecord => self.delete_record(ttl),
        }
    }

    /// Picks a node, mostly the leader, where faults hurt most.
    fn victim(&mut self) -> usize {
        let any = usize::try_from(self.kernel.rng.below(self.nodes.len() as u64)).unwrap_or(0);
        let leader = self.nodes.iter().position(|process| process.lease.is_some());
        leader.filter(|_| self.kernel.rng.permille(500)).unwrap_or(any)
    }

    fn pause(&mut self, node: usize, ttl: u64, suspend: bool) {
        if self.nodes[node].paused || self.nodes[node].machine.is_none() {
            return;
        }
        let process = &mut self.nodes[node];
        process.paused = true;
        process.timer.stop();
        process.timer.forget();
        if suspend {
            process.clock.suspend(self.kernel.now);
            if process.lease.is_some() {
                self.kernel.saw(Rare::SuspendedLeader);
            }
        }
        let span = self.kernel.rng.between(1000, ttl * 5 / 2);
        self.kernel.schedule(span, Happening::Resume { node });
        if self.mutant == Some(Mutant::HungMeansGone) {
            for other in 0..self.nodes.len() {
                self.watch_death(other);
            }
        }
    }

    pub(super) fn partition(&mut self, node: usize, ttl: u64) {
        if self.nodes[node].cut {
            return;
        }
        self.nodes[node].cut = true;
        let span = self.kernel.rng.between(ttl / 20, ttl * 5 / 2);
        self.kernel.schedule(span, Happening::Reconnect { node });
    }

    fn resign(&mut self, node: usize, farewell: Farewell) {
        if self.nodes[node].paused || self.nodes[node].machine.is_none() {
            return;
        }
        match self.nodes[node].work {
            Work::Running { .. } => self.stop_work(node, Some(farewell)),
            Work::Stopping { .. } => {}
            Work::None if self.nodes[node].leaving.is_none() => self.release(node, farewell),
            Work::None => {}
        }
    }

    pub(super) fn send_outsider(&mut self, wish: Wish) {
        let errand = self.errand(wish);
        let delay = self.delay(0, Way::Request);
        self.kernel.schedule(delay, Happening::OutsiderReads { errand });
    }

    fn errand(&mut self, wish: Wish) -> Errand {
        self.errands += 1;
        let longest = u64::try_from(self.swarm.longest_ttl().as_millis()).unwrap_or(1000);
        let ttl = Duration::from_millis(self.kernel.rng.between(longest / 4, longest));
        let delayed = self.swarm.delays.iter().any(Option::is_some);
        let delay = (delayed && self.kernel.rng.permille(500))
            .then(|| Duration::from_millis(self.kernel.rng.below(longest)));
        let floor = self.swarm.block.is_some();
        Errand { number: self.errands, wish, terms: Terms { ttl, delay, floor } }
    }

    pub(super) fn outsider_reads(&mut self, errand: Errand) {
        if self.outage {
            return;
        }
        let seen = self.read(None);
        if seen.as_ref().is_some_and(|seen| seen.record.is_err()) {
            return;
        }
        let found = seen.as_ref().and_then(|seen| seen.record.as_ref().ok());
        // The ids of candidates are counted up from zero, and never reach this one.
        let op = Op::new(&CandidateId::from_bits(u128::MAX), errand.number);
        let ruling = match errand.wish {
            Wish::Create => self.create(found, errand.terms, op),
            Wish::End => ruling::end(found, errand.terms, op),
            Wish::Delete => ruling::delete(found, op),
        };
        let Ruling::Write(record) = ruling else { return };
        let expect = seen.map_or(Expect::Absent, |seen| Expect::At(seen.version));
        let delay = self.delay(0, Way::Request);
        self.kernel.schedule(delay, Happening::OutsiderWrites { errand, expect, record });
    }

    fn create(&self, found: Option<&Record>, terms: Terms, op: Op) -> Ruling {
        let ruling = ruling::create(found, terms, op);
        match ruling {
            Ruling::Write(record) if record.holder().is_some() => {
                Ruling::Write(match self.mutant {
                    Some(Mutant::RecreateHandsOut) => {
                        Record { state: State::Free { clean: true }, ..record }
                    }
                    Some(Mutant::RecreateShortensTtl) => Record { ttl: terms.ttl, ..record },
                    _ => record,
                })
            }
            Ruling::Write(record) if self.mutant == Some(Mutant::RecreateCutsDelay) => {
                let delay = terms.delay.unwrap_or(record.delay);
                Ruling::Write(Record { delay, next_delay: None, ..record })
            }
            Ruling::Write(_) | Ruling::Stands => ruling,
        }
    }

    pub(super) fn outsider_writes(&mut self, errand: Errand, expect: &Expect, record: Record) {
        if self.outage {
            return;
        }
        if self.faults() && self.document.is_isolated() && self.kernel.rng.permille(500) {
            // The outsider waits for no answer, so it never learns that the write did not last.
            self.document.write_isolated(expect, record, None);
            return;
        }
        if !self.document.allows(expect) {
            return;
        }
        if errand.wish == Wish::Create && record.holder().is_some() {
            self.kernel.saw(Rare::RecreatedWithHolder);
        }
        self.kernel.note(|| format!("an outsider's {:?} is written", errand.wish));
        let _ = self.document.commit(record, None);
        self.committed();
    }

    pub(super) fn rejoin(&mut self) {
        let had = self.document.isolated().is_some();
        self.bound = None;
        let may_last = self.kernel.rng.permille(300);
        match self.document.rejoin(may_last && self.faults()) {
            Rejoined::Lasting(writes) => {
                self.kernel
                    .note(|| format!("the isolated primary is back: {} writes last", writes.len()));
                if !writes.is_empty() {
                    self.kernel.saw(Rare::BranchLasted);
                } else if had {
                    self.kernel.saw(Rare::RolledBack);
                }
                for write in writes {
                    if let Some(Stored { record, by: Some(who), .. }) = &write {
                        self.arrived_in_time(*who, record);
                    }
                    self.document.adopt(write);
                    self.committed();
                }
            }
            Rejoined::RolledBack(writes) => {
                self.kernel.note(|| "the isolated primary is back: nothing of it lasts".to_owned());
                if had {
                    self.kernel.saw(Rare::RolledBack);
                }
                self.carry_out_again(writes);
            }
        }
        let may_last = self.kernel.rng.permille(300);
        if let Rejoined::Lasting(writes) = self.floor.rejoin(may_last && self.faults()) {
            writes.into_iter().for_each(|write| self.floor.adopt(write));
        }
    }

    /// Servers pass on to the next primary what the last one had no time to confirm. A deletion by
    /// hand has no condition, and a creation has none but absence; other writes are compared with
    /// a version that is not there.
    fn carry_out_again(&mut self, writes: Vec<Option<Stored>>) {
        let has_deletion = writes.iter().any(Option::is_none);
        if !has_deletion || !self.faults() || !self.kernel.rng.permille(700) {
            return;
        }
        let mut deleted = false;
        for write in writes {
            match write {
                None => {
                    deleted = true;
                    self.vanish();
                }
                Some(Stored { record, by, .. }) if deleted => {
                    deleted = false;
                    if self.document.current().is_none() {
                        self.kernel.saw(Rare::CreatedAgain);
                        self.kernel.note(|| "the record is created again".to_owned());
                        if let Some(who) = by {
                            self.arrived_in_time(who, &record);
                        }
                        let _ = self.document.commit(record, by);
                        self.committed();
                    }
                }
                Some(_) => {}
            }
        }
    }

    pub(super) fn mend(&mut self) {
        if self.document.mend() {
            self.committed();
        }
    }

    /// An operator deletes the record, and the floor stays.
    fn delete_record(&mut self, ttl: u64) {
        let isolated = self.document.is_isolated() || self.swarm.network.to_branch == 0;
        if !isolated && self.kernel.rng.permille(300) {
            // All but the leader see that primary alone. A record that is created there is waited
            // for longer than a ttl.
            self.document.isolate();
            let over = self.kernel.rng.between(ttl, 5 * ttl);
            self.kernel.schedule(over, Happening::Rejoin);
            let leads = |node: usize| self.nodes[node].lease.is_some();
            let bound = (0..self.nodes.len()).map(|node| !leads(node)).collect::<Vec<_>>();
            self.bound = Some(bound);
        }
        if self.document.isolated().is_some() && self.kernel.rng.permille(500) {
            self.kernel.note(|| "the isolated primary deletes the record".to_owned());
            self.tell(What::Deleted);
            return self.document.vanish_isolated();
        }
        self.vanish();
    }

    fn vanish(&mut self) {
        if self.document.current().is_some() {
            self.kernel.saw(Rare::Deleted);
            self.tell(What::Deleted);
            self.document.vanish();
            self.committed();
        }
    }

    /// Breaks the one assumption about operators.
    ///
    /// It is that they never delete records or restore old ones.
    fn vandalise(&mut self) {
        if self.document.current().is_none() {
            return;
        }
        self.tell(What::Vandalised);
        if self.kernel.rng.permille(300) {
            self.document.garble();
            let ttl = nanos(self.swarm.longest_ttl());
            let mended = self.kernel.rng.below(2 * ttl);
            return self.kernel.schedule(mended, Happening::Mend);
        }
        if let Some(stored) = self.document.current().cloned()
            && self.kernel.rng.permille(300)
        {
            // An operator frees a lease that is still held. Only then is a valid lease found
            // deposed.
            let (state, revision) = (State::Free { clean: true }, stored.record.revision + 1);
            let op = Op::new(&CandidateId::from_bits(u128::MAX - 1), revision);
            let _ = self.document.commit(Record { state, revision, op, ..stored.record }, None);
            return self.committed();
        }
        let behind = usize::try_from(self.kernel.rng.between(1, 8)).unwrap_or(1);
        match self.document.old(behind).cloned() {
            Some(old) if self.kernel.rng.permille(700) => {
                let _ = self.document.commit(old.record, None);
            }
            Some(_) | None => self.document.vanish(),
        }
        self.committed();
    }
}
