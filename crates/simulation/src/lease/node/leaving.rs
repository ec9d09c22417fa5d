//! The end of a candidate's work, and of its candidacy.

use std::time::Duration;

use tenure::lease::machine::Input;
use tenure::protocol::{Farewell, Outcome};

use super::super::Rare;
use super::super::world::{Happening, World};
use super::Work;
use crate::history::{What, Who};
use crate::kernel::nanos;

impl World {
    /// Tells the work to stop. It takes its time, mostly within its budget.
    pub(in super::super) fn stop_work(&mut self, node: usize, farewell: Option<Farewell>) {
        let Work::Running { token } = self.nodes[node].work else { return };
        self.nodes[node].work = Work::Stopping { token, farewell };
        let timing = &self.swarm.timings[node];
        let most = if self.faults() && self.kernel.rng.permille(self.swarm.slow_stop) {
            nanos(timing.ttl()) * 3 / 2
        } else {
            self.nodes[node].clock.real(timing.grace())
        };
        let takes = self.kernel.rng.below(most);
        let who = self.nodes[node].who;
        self.kernel.schedule(takes, Happening::WorkDone { node, who, token });
    }

    pub(in super::super) fn work_done(&mut self, node: usize, who: Who, done: u64) {
        let process = &mut self.nodes[node];
        let Work::Stopping { token, farewell } = process.work else { return };
        if process.who != who || token != done {
            return;
        }
        if process.paused {
            // The work is paused together with its process.
            self.kernel.schedule(1_000_000, Happening::WorkDone { node, who, token });
            return;
        }
        process.work = Work::None;
        self.tell(What::WorkEnded { who });
        if self.nodes[node].lease.is_none() {
            self.kernel.saw(Rare::WorkOutlivedLease);
        }
        if self.nodes[node].machine.is_none() {
            return self.stand_again(node);
        }
        match farewell {
            Some(farewell) => self.release(node, farewell),
            // The work stopped in time: give up the lease, so that another candidate may lead.
            None if self.nodes[node].lease.is_some() => self.release(node, Farewell::Free),
            None => self.step(node, Input::WorkEnded),
        }
    }

    pub(in super::super) fn release(&mut self, node: usize, farewell: Farewell) {
        let now = self.kernel.now;
        self.nodes[node].leaving.get_or_insert(now);
        self.nodes[node].reading = None;
        self.step(node, Input::Release(farewell));
    }

    // The enum may grow; other outcomes are not counted.
    #[allow(clippy::wildcard_enum_match_arm)]
    pub(super) fn over(&mut self, node: usize, outcome: &Outcome) {
        let who = self.nodes[node].who;
        match outcome {
            Outcome::Released => self.kernel.saw(Rare::Released),
            Outcome::Unknown { .. } => self.kernel.saw(Rare::ReleaseUnknown),
            Outcome::Ended => self.kernel.saw(Rare::Ended),
            Outcome::Regressed { .. } => self.kernel.saw(Rare::Regressed),
            Outcome::Vanished => self.kernel.saw(Rare::Vanished),
            _ => {}
        }
        self.tell(What::Over { who, outcome });
        self.depart(node, outcome);
        self.stop_work(node, None);
        let process = &mut self.nodes[node];
        process.leaving = None;
        process.timer.stop();
        if matches!(self.nodes[node].work, Work::None) {
            self.stand_again(node);
        }
    }

    /// Marks a candidacy as departed, if none of its writes can still arrive.
    ///
    /// It must have had the time to make sure of that.
    fn depart(&mut self, node: usize, outcome: &Outcome) {
        let process = &self.nodes[node];
        let in_time = process.leaving.is_some_and(|since| {
            // Clocks count whole nanoseconds: no candidate leaves in the last of them.
            self.kernel.now + 1000 < since + process.clock.real(self.swarm.timings[node].ttl())
        });
        let sure = matches!(outcome, Outcome::Released | Outcome::AlreadyLost | Outcome::Withdrawn);
        // A candidate that the store refuses cannot find out.
        if in_time && sure && self.swarm.network.denied == 0 {
            let at = usize::try_from(process.who).ok();
            if let Some(departed) = at.and_then(|at| self.departed.get_mut(at)) {
                *departed = true;
            }
        }
    }

    /// Lets the process stand again, as a new candidacy. Its earlier work has ended.
    fn stand_again(&mut self, node: usize) {
        if !self.faults() && self.is_ended() {
            return;
        }
        let ttl = nanos(self.swarm.timings[node].ttl());
        let most = if self.faults() { self.swarm.away } else { ttl / 50 };
        // Standing again and again in an ended election tests nothing.
        let least = if self.faults() && self.is_ended() { ttl / 2 } else { 0 };
        let after = least + self.kernel.rng.below(most);
        self.kernel.schedule(after, Happening::Stand { node });
    }

    /// The longest time that leaving may take, in real time.
    pub(in super::super) fn longest_leave(&self, node: usize) -> u64 {
        nanos(self.swarm.timings[node].ttl() + Duration::from_millis(1))
    }
}
