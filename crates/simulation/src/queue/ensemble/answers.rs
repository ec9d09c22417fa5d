//! Answers on their way out of a server: completed when they leave, and in order.

use tenure::queue::{Joined, Left};

use super::super::Rare;
use super::super::world::World;
use super::messages::{Answer, Errand};

impl World {
    /// Completes an answer with the state that the server has when it leaves.
    pub(in super::super) fn finish(
        &self,
        answer: Answer,
        node: usize,
        zxid: u64,
        term: u64,
    ) -> Answer {
        match answer {
            Answer::Joined(joined) => {
                let session = self.nodes[node].client.number;
                Answer::Joined(Joined { session, line: self.registry.line(zxid, node), ..joined })
            }
            Answer::Line(_) => Answer::Line(self.registry.line(zxid, node)),
            Answer::Refused { request, .. } => {
                Answer::Refused { request, line: self.registry.line(zxid, node) }
            }
            Answer::Got { session, .. } => {
                let shown = self.registry.items.iter().filter(|item| {
                    item.session == session && self.registry.shows(item.entry.token, zxid)
                });
                let ours = shown.map(|item| (item.entry.clone(), item.ticket.clone())).collect();
                let closed = self.sessions[session].closed;
                let alive = closed.is_none_or(|closed| closed > zxid);
                Answer::Got { session, term, alive, ours }
            }
            Answer::Done
            | Answer::KeptAlive { .. }
            | Answer::Moved(_)
            | Answer::Begun { .. }
            | Answer::Noted
            | Answer::Left(_)
            | Answer::Ended
            | Answer::Published
            | Answer::Expired
            | Answer::Elsewhere => answer,
        }
    }

    /// Stores an answer. It leaves after all earlier answers.
    pub(in super::super) fn ready(&mut self, errand: &Errand, answer: Answer) {
        let node = errand.node;
        if self.nodes[node].client.connection != errand.connection {
            let applied = match &answer {
                Answer::Joined(joined) if joined.entry.is_some() => Some(Rare::JoinAnswerLost),
                Answer::Left(Left::Deleted) => Some(Rare::LeaveAnswerLost),
                Answer::Begun { recorded: true, .. } => Some(Rare::BeginAnswerLost),
                Answer::Published => Some(Rare::PublishAnswerLost),
                Answer::Joined(_)
                | Answer::Begun { recorded: false, .. }
                | Answer::Noted
                | Answer::Left(Left::Absent)
                | Answer::Done
                | Answer::KeptAlive { .. }
                | Answer::Moved(_)
                | Answer::Got { .. }
                | Answer::Line(_)
                | Answer::Ended
                | Answer::Expired
                | Answer::Elsewhere
                | Answer::Refused { .. } => None,
            };
            if let Some(rare) = applied {
                self.kernel.saw(rare);
            }
            return;
        }
        let slots = &mut self.nodes[node].served.slots;
        if let Some(slot) = slots.iter_mut().find(|(id, _)| *id == errand.id) {
            slot.1 = Some(answer);
        }
        self.flush(node);
    }
}
