//! Carries out the outputs of a candidate's machine.

use tenure::lease::machine::{Machine, Output};
use tenure::lease::record::Record;
use tenure::protocol::{Lease, Loss};
use tenure::store::Expect;

use super::super::Rare;
use super::super::network::{Kind, Request};
use super::super::world::{World, holder_of};
use super::Work;
use crate::history::What;
use crate::kernel::Instant;

impl World {
    pub(super) fn do_output(
        &mut self,
        node: usize,
        machine: &Machine,
        output: Output,
        by_read: bool,
    ) {
        let who = self.nodes[node].who;
        match output {
            Output::Read { ask } => {
                let given_up = self.give_up(node);
                self.nodes[node].reading = Some((ask, given_up));
                self.send(node, Request { ask, given_up, kind: Kind::Read });
            }
            Output::Write { ask, expect, record, durability } => {
                let record = self.about_to_write(node, &expect, record);
                let given_up = self.give_up(node);
                let kind = Kind::Write { expect, record: Box::new(record), durability };
                self.send(node, Request { ask, given_up, kind });
            }
            Output::ReadFloor { ask } => {
                let given_up = self.give_up(node);
                self.send(node, Request { ask, given_up, kind: Kind::ReadFloor });
            }
            Output::WriteFloor { ask, expect, laid } => {
                let given_up = self.give_up(node);
                let kind = Kind::WriteFloor { expect, laid: Box::new(laid) };
                self.send(node, Request { ask, given_up, kind });
            }
            Output::Elected(lease) => self.elected(node, machine, lease, by_read),
            Output::Extended(lease) => {
                if by_read {
                    self.kernel.saw(Rare::GrantByRead);
                }
                let lease = self.nodes[node].clock.term(lease);
                self.nodes[node].lease = Some(lease);
                self.tell(What::Extended { who, lease });
            }
            Output::MustStop => {
                self.nodes[node].told = true;
                self.tell(What::MustStop { who });
                self.stop_work(node, None);
            }
            Output::Lost { token, loss } => {
                self.nodes[node].lease = None;
                if loss == Loss::Deposed {
                    self.kernel.saw(Rare::Deposed);
                }
                self.tell(What::Lost { who, token, loss: &loss });
                self.stop_work(node, None);
            }
            Output::Resumed => {
                if self.nodes[node].told {
                    self.kernel.saw(Rare::ResumedAfterMustStop);
                }
            }
            Output::Suspended | Output::Following(_) | Output::Garbled(_) => {}
            Output::Over(outcome) => self.over(node, &outcome),
        }
    }

    fn give_up(&self, node: usize) -> Instant {
        self.kernel.now + self.nodes[node].clock.real(self.swarm.timings[node].request())
    }

    fn about_to_write(&mut self, node: usize, expect: &Expect, mut record: Record) -> Record {
        let process = &self.nodes[node];
        let (who, leaving) = (process.who, process.leaving.is_some());
        let mine = holder_of(&record) == Some(who);
        if mine {
            let ttl = u64::try_from(record.ttl.as_millis()).unwrap_or(0);
            record.expire = process.clock.wall(self.kernel.now) + ttl;
        }
        let base = match expect {
            Expect::At(version) => Some(version),
            Expect::Absent => None,
        };
        let held = base
            .and_then(|version| self.document.find(version))
            .is_some_and(|stored| holder_of(&stored.record) == Some(who));
        let gives_up = held && !mine;
        if mine && base.is_some() && base == self.nodes[node].death.as_ref() {
            self.kernel.saw(Rare::ClaimAfterDeath);
        }
        if !mine && !gives_up {
            self.kernel.saw(if leaving { Rare::FenceWrite } else { Rare::ConfirmWrite });
        }
        self.tell(What::Sent { who, record: &record, gives_up });
        record
    }

    fn elected(&mut self, node: usize, machine: &Machine, lease: Lease, by_read: bool) {
        let who = self.nodes[node].who;
        self.exactly(node, machine, lease);
        let lease = self.nodes[node].clock.term(lease);
        if by_read {
            self.kernel.saw(Rare::GrantByRead);
        }
        if self.nodes[node].led {
            self.kernel.saw(Rare::ReclaimedAfterLapse);
        }
        if let Some((last, clean)) = self.last_tenure
            && last != who
        {
            self.kernel.saw(Rare::TookOver);
            if !clean && self.swarm.delays.iter().any(Option::is_some) {
                self.kernel.saw(Rare::DelayWaited);
            }
        }
        self.last_tenure = Some((who, false));
        let process = &mut self.nodes[node];
        process.lease = Some(lease);
        process.told = false;
        process.led = true;
        process.work = Work::Running { token: lease.token };
        self.tell(What::Elected { who, lease });
    }

    /// Checks that the machine and the checkers have exactly the same window.
    fn exactly(&mut self, node: usize, machine: &Machine, lease: Lease) {
        let until = self.nodes[node].clock.passed(lease.from, lease.window);
        let believes = |at: Instant| machine.lease(self.nodes[node].clock.now(at)).is_some();
        // A machine may lose its lease in the same step; then there is nothing to compare.
        if until > self.kernel.now && believes(self.kernel.now) {
            assert!(believes(until - 1) && !believes(until), "the window ends at {until}");
        }
    }
}
