//! A second candidate of the same session. It waits behind the first, and resigns as soon as it is
//! elected.

use bytes::Bytes;
use tenure::CandidateId;
use tenure::protocol::Farewell;
use tenure::protocol::Holder;
use tenure::queue::machine::{Input, Machine, Output, Settings};

use super::node::Standing;
use super::world::World;
use crate::history::Who;

impl World {
    /// Stands beside the candidate that has just stood, in a world with companions.
    pub(super) fn stand_beside(&mut self, node: usize) {
        if !self.swarm.companions || self.nodes[node].machines.len() > 1 {
            return;
        }
        let who = self.whos;
        self.whos += 1;
        let id = CandidateId::from_bits(u128::from(who));
        let name = format!("c{who}").into();
        let candidate = Holder { id, name, value: Bytes::new(), presence: None };
        let (delay, highest) = (self.swarm.delay, self.nodes[node].highest);
        let settings = Settings { candidate, grace: None, generation: None, delay, highest };
        let machine = Machine::new(settings).broken(self.mutant);
        let process = &mut self.nodes[node];
        process.machines.push(Standing { who, machine, looked: 0, companion: true });
        let session = process.client.told;
        self.step(node, who, Input::Session(session));
    }

    /// Returns true if this output concerns the tenure of a companion.
    ///
    /// A companion does no work: only its turn is checked.
    pub(super) fn is_of_a_companion(&mut self, node: usize, who: Who, output: &Output) -> bool {
        if !self.nodes[node].is_companion(who) {
            return false;
        }
        match output {
            Output::Elected(lease) => {
                self.judge_order(lease.token);
                self.judge_turn(node, who, lease.token);
                self.judge_life(lease.token);
                true
            }
            Output::Extended(_)
            | Output::MustStop
            | Output::Lost { .. }
            | Output::Resumed
            | Output::Over(_) => true,
            Output::Join { .. }
            | Output::Line { .. }
            | Output::Begin { .. }
            | Output::Note { .. }
            | Output::Leave { .. }
            | Output::End { .. }
            | Output::Publish { .. }
            | Output::Following(_)
            | Output::Suspended => false,
        }
    }

    /// Lets an elected companion resign.
    pub(super) fn dismiss(&mut self, node: usize, who: Who) {
        if self.nodes[node].is_companion(who) {
            self.step(node, who, Input::Release(Farewell::Free));
        }
    }
}
