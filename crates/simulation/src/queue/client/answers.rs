//! Messages that reach a process: answers and notices, and the inputs that they give to machines.

use tenure::protocol::Ask;
use tenure::queue::machine::Input;
use tenure::queue::mutant::Mutant;
use tenure::queue::window::Voice;
use tenure::queue::{Entry, Gone, Joined, Line};
use tenure::store::Fault;

use super::super::Rare;
use super::super::ensemble::{Answer, Request};
use super::super::moving::Step;
use super::super::swarm::Dialect;
use super::super::world::World;
use super::requests::failure;
use super::{Arrival, Notice, Purpose, Recorded};
use crate::history::Who;

impl World {
    pub(in super::super) fn at_client(&mut self, node: usize, connection: u64, arrival: Arrival) {
        if self.nodes[node].paused {
            self.nodes[node].inbox.push((connection, arrival));
            return;
        }
        if self.nodes[node].client.connection != connection {
            return;
        }
        self.kernel.note(|| format!("n{node} hears {arrival:?}"));
        match arrival {
            Arrival::Welcome { session: None, .. } => self.session_over(node),
            Arrival::Welcome { session: Some(session), term } => self.welcomed(node, session, term),
            Arrival::Answer { id, answer, zxid } => self.answered(node, id, answer, zxid),
            Arrival::Notified { who, notice } => {
                let input = self.input_of(node, who, notice);
                self.step(node, who, input);
            }
            Arrival::Fault { who, input } => self.step(node, who, input),
        }
        self.set_timer(node);
    }

    /// Turns a notice into an input, as the backend does.
    fn input_of(&mut self, node: usize, who: Who, notice: Notice) -> Input {
        let Notice::Gone { entry, touched, over } = notice else { return Input::Hint };
        let mut machines = self.nodes[node].machines.iter();
        let looked = machines.find(|standing| standing.who == who).map_or(0, |found| found.looked);
        let in_time = match self.swarm.dialect {
            Dialect::Zookeeper => !over,
            Dialect::Etcd => touched <= looked,
        };
        if !in_time {
            self.kernel.saw(Rare::DeletedAfterEnd);
        }
        let session = self.nodes[node].client.session;
        let own = self.registry.find(entry.token).is_some_and(|item| Some(item.session) == session);
        let in_time = in_time || own && self.mutant == Some(Mutant::OwnDeletionAfterEndCounts);
        let gone = if self.kernel.rng.permille(50) {
            Gone::Perhaps
        } else if in_time {
            Gone::Deleted
        } else {
            Gone::DeletedMaybeEnded
        };
        Input::Gone(entry, gone)
    }

    fn answered(&mut self, node: usize, id: u64, answer: Answer, zxid: u64) {
        let now = self.nodes[node].clock.now(self.kernel.now);
        let dialect = self.swarm.dialect;
        let client = &mut self.nodes[node].client;
        if client.until_overdue(now, dialect).is_some_and(|left| left.is_zero()) {
            return self.disconnect(node);
        }
        let Some(place) = client.pending.iter().position(|pending| pending.id == id) else {
            return;
        };
        let refused = matches!(answer, Answer::Refused { .. });
        assert!(place == 0 || refused, "answers come in the order of their requests");
        let Some(pending) = client.pending.remove(place) else { return };
        client.seen = client.seen.max(zxid);
        client.contact = Some(now);
        match &answer {
            Answer::KeptAlive { alive: false, .. } | Answer::Expired => {
                return self.session_over(node);
            }
            Answer::Elsewhere => return self.disconnect(node),
            Answer::KeptAlive { term, alive: true } => {
                client.etcd.keep_alive_answered(*term, client.ttl);
                client.etcd.get_sent();
                self.send(node, Request::Get, Purpose::Heartbeat, 0);
            }
            Answer::Got { alive: false, .. } => return self.session_over(node),
            Answer::Got { term, alive: true, ours, .. } => {
                client.etcd.get_answered(*term, true);
                if let Some(term) = client.etcd.outdated() {
                    // A lease that was granted before still counts in the term that was known then.
                    let (step, term) = *client.moving.get_or_insert((Step::Grant, term));
                    self.take_step_on(node, step, term);
                }
                self.reap(node, ours);
            }
            Answer::Moved(step) => self.moved(node, *step),
            Answer::Done
            | Answer::Joined(_)
            | Answer::Line(_)
            | Answer::Begun { .. }
            | Answer::Noted
            | Answer::Left(_)
            | Answer::Published
            | Answer::Ended
            | Answer::Refused { .. } => {}
        }
        // Only a request that the server has carried out proves anything: "expired" and "moved" do
        // not.
        let client = &mut self.nodes[node].client;
        match (place, refused) {
            (0, true) => client.zookeeper.answered(now, Voice::OneServer),
            (0, false) => client.zookeeper.answered(now, Voice::Ensemble),
            (place, _) => client.zookeeper.overtaken(place),
        }
        if !self.healed && self.kernel.rng.permille(self.swarm.chatter) {
            let request =
                if self.kernel.rng.permille(500) { Request::Touch } else { Request::Beat };
            self.send(node, request, Purpose::Heartbeat, 0);
        }
        // The machine may learn of the session or of the answer first.
        let session_first = self.kernel.rng.permille(500);
        if session_first {
            self.tell_session(node);
        }
        if let Purpose::Machine { who, ask } = pending.purpose {
            if let Answer::Begun { token, recorded: true } = answer {
                self.nodes[node].client.begun.insert(token, Recorded::Known);
            }
            self.remember_look(node, who, &answer, zxid);
            self.deliver(node, who, ask, answer);
        }
        if !session_first {
            self.tell_session(node);
        }
        self.hiccup(node);
    }

    /// Remembers the transaction of the last open line.
    fn remember_look(&mut self, node: usize, who: Who, answer: &Answer, zxid: u64) {
        let (Answer::Line(line) | Answer::Joined(Joined { line, .. })) = answer else { return };
        let standing = self.nodes[node].machines.iter_mut().find(|standing| standing.who == who);
        if let (Line::Open { .. }, Some(standing)) = (line, standing) {
            standing.looked = zxid;
        }
    }

    fn deliver(&mut self, node: usize, who: Who, ask: Ask, answer: Answer) {
        let input = match answer {
            Answer::Joined(joined) => Input::Joined(ask, Ok(joined)),
            Answer::Line(line) => Input::Line(ask, Ok(line)),
            Answer::Begun { recorded: true, .. } => Input::Begun(ask, Ok(())),
            // The entry is gone.
            Answer::Begun { recorded: false, .. } => Input::Begun(ask, Err(Fault::Unavailable)),
            Answer::Noted => Input::Noted(ask, Ok(())),
            Answer::Left(left) => Input::Left(ask, Ok(left)),
            Answer::Ended => Input::Ended(ask, Ok(())),
            Answer::Published => Input::Published(ask, Ok(())),
            Answer::Refused { request: Request::Line(_), line }
                if self.mutant == Some(Mutant::RefusedBarrierCounts) =>
            {
                Input::Line(ask, Ok(line))
            }
            Answer::Refused { request, .. } => failure(&request, ask, Fault::Unavailable),
            Answer::Done
            | Answer::KeptAlive { .. }
            | Answer::Moved(_)
            | Answer::Got { .. }
            | Answer::Expired
            | Answer::Elsewhere => return,
        };
        self.step(node, who, input);
    }

    /// Deletes entries of our lease that no candidacy claims (etcd).
    fn reap(&mut self, node: usize, ours: &[(Entry, tenure::queue::Ticket)]) {
        for (entry, ticket) in ours {
            let claimed = self.nodes[node]
                .machines
                .iter()
                .any(|standing| standing.machine.claims(entry, ticket));
            if !claimed {
                self.kernel.saw(Rare::LateJoinReaped);
                let entry = entry.clone();
                let request = Request::Leave { entry, clean: false, takes_back: false };
                self.send(node, request, Purpose::Forgotten, 0);
            }
        }
    }
}
