//! Requests and answers: late, lost, refused, or answered wrongly.

use tenure::lease::floor::Laid;
use tenure::lease::machine::{Input, Seen, SeenFloor};
use tenure::lease::mutant::Mutant;
use tenure::lease::record::{Record, RecordError};
use tenure::protocol::Ask;
use tenure::store::{Durability, Expect, Fault, Put, Reads, Version};

use super::Rare;
use super::store::Stored;
use super::world::{Happening, World};
use crate::history::Who;
use crate::kernel::{Instant, Promise, nanos};

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) ask: Ask,
    /// When its sender gives it up, in real time.
    pub(super) given_up: Instant,
    pub(super) kind: Kind,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Request,
    Answer,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Read,
    Write { expect: Expect, record: Box<Record>, durability: Durability },
    ReadFloor,
    WriteFloor { expect: Expect, laid: Box<Laid> },
}

impl World {
    pub(super) fn send(&mut self, node: usize, request: Request) {
        let who = self.nodes[node].who;
        if self.faults() {
            let network = &self.swarm.network;
            let (lose, unavailable) = (network.lose_request, network.unavailable);
            let denied = network.denied;
            if self.nodes[node].cut || self.kernel.rng.permille(lose) {
                self.kernel.note(|| format!("  n{node} {:?} is lost on its way", request.ask));
                return;
            }
            if self.kernel.rng.permille(unavailable) {
                return self.answer(node, who, &request, Err(Fault::Unavailable));
            }
            if self.kernel.rng.permille(denied) {
                return self.answer(node, who, &request, Err(Fault::Denied));
            }
        }
        let delay = self.delay(node, Way::Request);
        self.kernel.schedule(delay, Happening::Arrive { node, who, request });
    }

    /// Handles a request that reaches the store.
    pub(super) fn arrive(&mut self, node: usize, who: Who, request: Request) {
        if self.outage {
            // The store does nothing, and may or may not say so.
            if self.kernel.rng.permille(500) {
                self.answer(node, who, &request, Err(Fault::Unavailable));
            }
            return;
        }
        match &request.kind {
            Kind::Read => {
                let seen = self.read(Some(node));
                self.deliver(node, who, Input::Read(request.ask, Ok(seen)));
            }
            Kind::Write { expect, record, durability } => {
                let outcome = self.write((node, who), &request, expect, record, *durability);
                self.answer(node, who, &request, outcome);
            }
            Kind::ReadFloor => {
                let seen = self.read_floor();
                self.deliver(node, who, Input::ReadFloor(request.ask, Ok(seen)));
            }
            Kind::WriteFloor { expect, laid } => {
                let outcome = self.write_floor(who, expect, laid);
                self.answer(node, who, &request, outcome);
            }
        }
    }

    fn write_floor(&mut self, who: Who, expect: &Expect, laid: &Laid) -> Result<Put, Fault> {
        if self.floor.is_isolated() && self.goes_to_branch(None) {
            let applied = self.floor.write_isolated(expect, laid.clone(), Some(who));
            self.kernel.note(|| format!("  the isolated primary takes c{who}'s floor: {applied}"));
            return if applied { Err(Fault::Indeterminate) } else { Ok(Put::Conflict) };
        }
        if !self.floor.allows(expect) {
            return Ok(Put::Conflict);
        }
        let version = self.floor.commit(laid.clone(), Some(who));
        self.kernel.saw(Rare::FloorRaised);
        self.answered(version)
    }

    /// The floor that a read shows at this moment.
    fn read_floor(&mut self) -> Option<SeenFloor> {
        let seen = |stored: &Stored<Laid>| SeenFloor {
            version: stored.version.clone(),
            laid: Ok(stored.record.clone()),
        };
        if self.floor.is_isolated() && self.goes_to_branch(None) {
            return self.floor.isolated().map(seen);
        }
        let behind = self.behind(self.floor.depth());
        self.floor.old(behind).map(seen)
    }

    /// How many versions a read lags behind.
    fn behind(&mut self, depth: usize) -> usize {
        let stale = self.faults()
            && self.swarm.reads == Reads::Weak
            && self.kernel.rng.permille(self.swarm.network.stale_read);
        if !stale {
            return 0;
        }
        usize::try_from(self.kernel.rng.below((depth as u64 + 1).min(6))).unwrap_or(0)
    }

    fn write(
        &mut self,
        (node, who): (usize, Who),
        request: &Request,
        expect: &Expect,
        record: &Record,
        durability: Durability,
    ) -> Result<Put, Fault> {
        if self.goes_to_branch(Some(node)) {
            let applied = self.document.write_isolated(expect, record.clone(), Some(who));
            self.kernel.note(|| format!("  the isolated primary takes c{who}'s write: {applied}"));
            // The isolated primary waits for a majority that it cannot reach.
            return if applied { Err(Fault::Indeterminate) } else { Ok(Put::Conflict) };
        }
        let blind = self.mutant == Some(Mutant::UnconditionalRenewal)
            && durability == Durability::UntilPowerCut;
        if !blind && !self.document.allows(expect) {
            return Ok(Put::Conflict);
        }
        let version = self.document.commit(record.clone(), Some(who));
        if self.kernel.now > request.given_up {
            self.kernel.saw(Rare::LateApply);
        }
        self.arrived_in_time(who, record);
        self.committed();
        self.answered(version)
    }

    /// Checks that no write of a departed candidate arrives.
    ///
    /// Only a record without a tenure may.
    pub(super) fn arrived_in_time(&mut self, who: Who, record: &Record) {
        let left = usize::try_from(who).ok().and_then(|at| self.departed.get(at)).copied();
        if left.unwrap_or(false) && record.token > 0 {
            let how = format!("a write of candidate {who} arrives, which says that it has left");
            self.kernel.breaks(Promise::TruthfulOutcome, how);
        }
    }

    fn answered(&mut self, version: Version) -> Result<Put, Fault> {
        if self.faults() {
            let network = &self.swarm.network;
            let (conflict, indeterminate) = (network.false_conflict, network.indeterminate);
            if self.kernel.rng.permille(conflict) {
                self.kernel.saw(Rare::FalseConflict);
                return Ok(Put::Conflict);
            }
            if self.kernel.rng.permille(indeterminate) {
                return Err(Fault::Indeterminate);
            }
        }
        Ok(Put::Stored(version))
    }

    /// The record that a read shows at this moment.
    pub(super) fn read(&mut self, node: Option<usize>) -> Option<Seen> {
        if let Some(version) = self.document.garbled() {
            let says = "garbled by somebody".into();
            let record = Err(RecordError::NotARecord { says });
            return Some(Seen { version: version.clone(), record });
        }
        if self.goes_to_branch(node) {
            return self.document.isolated().map(seen);
        }
        let behind = self.behind(self.document.depth());
        self.document.old(behind).map(seen)
    }

    fn goes_to_branch(&mut self, node: Option<usize>) -> bool {
        if let (Some(bound), Some(node)) = (&self.bound, node) {
            return bound[node];
        }
        self.document.is_isolated() && self.kernel.rng.permille(self.swarm.network.to_branch)
    }

    fn answer(&mut self, node: usize, who: Who, request: &Request, outcome: Result<Put, Fault>) {
        let input = match request.kind {
            Kind::Write { .. } | Kind::WriteFloor { .. } => Input::Wrote(request.ask, outcome),
            // The only other answer to a read is a fault.
            Kind::Read => Input::Read(request.ask, outcome.map(|_| None)),
            Kind::ReadFloor => Input::ReadFloor(request.ask, outcome.map(|_| None)),
        };
        self.deliver(node, who, input);
    }

    fn deliver(&mut self, node: usize, who: Who, input: Input) {
        if self.nodes[node].who != who {
            return;
        }
        let lose = self.swarm.network.lose_answer;
        if self.faults() && (self.nodes[node].cut || self.kernel.rng.permille(lose)) {
            self.kernel.note(|| format!("  n{node} never hears {input:?}"));
            return;
        }
        let delay = self.delay(node, Way::Answer);
        self.kernel.schedule(delay, Happening::Deliver { node, who, input });
    }

    /// The time that a message takes.
    pub(super) fn delay(&mut self, node: usize, way: Way) -> u64 {
        let network = &self.swarm.network;
        let usual = self.kernel.rng.between(network.least, network.most);
        if !self.faults() || network.only.is_some_and(|only| only != node) {
            return usual;
        }
        let (slow, late) = match way {
            Way::Request => (network.slow_request, network.late),
            Way::Answer => (network.slow_answer, 0),
        };
        let timing = &self.swarm.timings[node];
        let (request, ttl) = (nanos(timing.request()), nanos(timing.ttl()));
        if self.kernel.rng.permille(network.very_slow) {
            return self.kernel.rng.between(usual, 3 * ttl);
        }
        if self.kernel.rng.permille(late) {
            return self.kernel.rng.between(request, request * 2);
        }
        if self.kernel.rng.permille(slow) {
            return self.kernel.rng.between(usual, request.max(usual));
        }
        usual
    }

    /// Returns true as long as faults may happen.
    pub(super) fn faults(&self) -> bool {
        self.healing.is_none()
    }

    /// Tells a watch of a change that it has not seen, soon or never.
    pub(super) fn watch(&mut self, node: usize) {
        if !self.swarm.notified || self.nodes[node].hinted || self.nodes[node].cut {
            return;
        }
        let Some(machine) = &self.nodes[node].machine else { return };
        let Some(version) = machine.watching() else { return };
        if self.shows(version)
            || (self.faults() && !self.kernel.rng.permille(self.swarm.network.hint))
        {
            return;
        }
        let who = self.nodes[node].who;
        self.nodes[node].hinted = true;
        let delay = self.delay(node, Way::Answer);
        self.kernel.schedule(delay, Happening::Hint { node, who });
    }
}

fn seen(stored: &Stored) -> Seen {
    Seen { version: stored.version.clone(), record: Ok(stored.record.clone()) }
}
