//! The answers to joins and to reads of the queue.

use super::{Ahead, Leaving, Machine, Mine, Output, Stage, Why};
use crate::clock::Moment;
use crate::protocol::Loss;
use crate::queue::mutant::Mutant;
use crate::queue::{Entry, Freshness, Joined, Place, Queue, Ticket};
use crate::store::Fault;

impl Machine {
    pub(super) fn take_joined(
        &mut self,
        now: Moment,
        ticket: Ticket,
        answer: Result<Joined, Fault>,
        out: &mut Vec<Output>,
    ) {
        let joined = match answer {
            Ok(joined) => joined,
            Err(fault) => {
                if fault == Fault::Indeterminate && !self.is(Mutant::LostJoinForgotten) {
                    self.doubt = Some(ticket);
                }
                return self.fail(now, fault);
            }
        };
        self.last_read = Some(now);
        if joined.session < self.session.number {
            // This entry belongs to a session that is over.
            return;
        }
        if let Some(entry) = joined.entry {
            // The entry was made on this connection: there is nothing to verify.
            self.unverified = false;
            self.mine = Some(Mine::new(entry, joined.session));
        }
        if let Some((found, known)) = self.fallen(&joined.queue).filter(|_| self.mine.is_some()) {
            return self.regress(now, found, known, out);
        }
        self.take_queue(now, joined.queue, Freshness::Session, false, out);
    }

    pub(super) fn take_queue(
        &mut self,
        now: Moment,
        queue: Queue,
        freshness: Freshness,
        first: bool,
        out: &mut Vec<Output>,
    ) {
        let fallen = self.fallen(&queue).filter(|_| freshness == Freshness::Barrier);
        if let (Some((found, known)), Queue::Open { places, .. } | Queue::Ended { places, .. }) =
            (fallen, &queue)
        {
            self.collect(places, freshness);
            return self.regress(now, found, known, out);
        }
        match queue {
            Queue::Open { generation, places, unclean, highest } => match self.age(generation) {
                Age::Same => {
                    self.take_places(now, &places, freshness, out);
                    self.take_highest(highest);
                    self.take_mark(now, unclean, first);
                }
                Age::Newer => {
                    self.collect(&places, freshness);
                    self.election_over(now, out);
                }
                Age::Older => self.look_again(now),
            },
            Queue::Ended { generation, places } => match self.age(generation) {
                Age::Same | Age::Newer => {
                    self.collect(&places, freshness);
                    self.election_over(now, out);
                }
                Age::Older => self.look_again(now),
            },
            Queue::Missing => {
                // Nothing can exist below a root that does not exist.
                self.doubt = None;
                self.strays.clear();
                self.lose(Loss::Ended, out);
                self.mine = None;
                self.election_over(now, out);
            }
        }
    }

    /// The generation in a queue and the one we know, if the queue's is earlier.
    ///
    /// If the queue is as new as a write of ours, then the store has fallen back.
    fn fallen(&self, queue: &Queue) -> Option<(u64, u64)> {
        let found = match queue {
            Queue::Open { generation, .. } | Queue::Ended { generation, .. } => *generation,
            Queue::Missing => return None,
        };
        let ignored = self.is(Mutant::RegressionIgnored) || self.is(Mutant::GenerationIgnored);
        self.generation.filter(|known| found < *known && !ignored).map(|known| (found, known))
    }

    /// Reads again, because the server that answered lags behind.
    ///
    /// This queue is older than the election.
    fn look_again(&mut self, now: Moment) {
        self.stale = true;
        self.rest(now);
    }

    fn age(&mut self, found: u64) -> Age {
        let known = *self.generation.get_or_insert(found);
        if self.is(Mutant::GenerationIgnored) {
            return Age::Same;
        }
        match found.cmp(&known) {
            std::cmp::Ordering::Equal => Age::Same,
            std::cmp::Ordering::Greater => Age::Newer,
            std::cmp::Ordering::Less => Age::Older,
        }
    }

    fn take_places(
        &mut self,
        now: Moment,
        places: &[Place],
        freshness: Freshness,
        out: &mut Vec<Output>,
    ) {
        self.collect(places, freshness);
        let leader = places.first().and_then(|place| place.holder.clone());
        self.follow(leader.filter(|leader| leader.id != self.me.id), out);
        let Some(mine) = &mut self.mine else { return };
        let Some(at) = places.iter().position(|place| place.entry == mine.entry) else {
            // The queue is newer than our entry but does not show it: the entry was deleted.
            return self.own_entry_gone(out);
        };
        mine.ahead = match (at.checked_sub(1).and_then(|at| places.get(at)), places.first()) {
            (Some(before), Some(first)) => Ahead::Before {
                predecessor: before.entry.clone(),
                is_first: at == 1,
                first: first.entry.clone(),
            },
            (Some(_), None) | (None, Some(_) | None) => Ahead::Nobody,
        };
        if self.judge_token(now, out) {
            return;
        }
        if freshness == Freshness::Barrier {
            self.unverified = false;
            if std::mem::take(&mut self.suspended) {
                out.push(Output::Resumed);
            }
            self.extend(now, out);
        }
    }

    /// Finds our entries: the entry of a join in doubt, and the entries to delete.
    fn collect(&mut self, places: &[Place], freshness: Freshness) {
        let ours = |place: &&Place| {
            let ticket = place.ticket.as_ref();
            ticket.is_some_and(|ticket| ticket.candidate == self.me.id)
        };
        let any = self.is(Mutant::AdoptOldEntry);
        let adoptable = |place: &&Place| {
            let awaited = self.doubt.is_some() && place.ticket == self.doubt;
            awaited && place.entry.token > self.ended_token || any && place.ticket.is_some()
        };
        let found = places.iter().find(adoptable);
        let adopted = found.filter(|_| self.mine.is_none()).map(|place| place.entry.clone());
        if let Some(entry) = adopted {
            self.mine = Some(Mine::new(entry, self.session.number));
            self.doubt = None;
        }
        let mine = self.mine.as_ref().map(|mine| &mine.entry);
        let strays = places.iter().filter(ours).map(|place| &place.entry);
        // A queue may be older than the deletion of the entry of a tenure whose work still stops:
        // nothing of that tenure is given up before its work has ended. If the entry stands after
        // all, a later queue shows it.
        let working = self.working && !self.is(Mutant::OldReadGivesUpEntry);
        let is_held = |entry: &&Entry| working && entry.token == self.ended_token;
        let strays = strays.filter(|entry| Some(*entry) != mine && !is_held(entry));
        self.strays = strays.cloned().collect();
        if freshness == Freshness::Barrier || freshness == self.settles_doubt() {
            self.doubt = None;
        }
    }

    /// Handles the end of the election.
    ///
    /// A leader stops, and each candidate deletes its own entry.
    fn election_over(&mut self, now: Moment, out: &mut Vec<Output>) {
        let had_lease = self.lease.is_some();
        self.lose(Loss::Ended, out);
        self.follow(None, out);
        match &mut self.stage {
            Stage::Standing => {
                self.stage = Stage::Leaving(Leaving {
                    why: Why::Ended,
                    since: now,
                    had_lease,
                    tried: false,
                    unanswered: false,
                    told: false,
                });
            }
            Stage::Leaving(leaving) => {
                // Another process has already written the end that we were about to write.
                if leaving.why == Why::EndFirst {
                    leaving.why = Why::Farewell;
                }
            }
            Stage::Settled => {}
        }
    }

    pub(super) fn fail(&mut self, now: Moment, fault: Fault) {
        self.stale = true;
        let refused = matches!(fault, Fault::Permanent | Fault::Denied);
        let idle = self.lease.is_none() && !self.working && self.mine.is_none();
        if refused && idle {
            self.refuse(now, fault);
        }
        self.rest(now);
    }

    /// Leaves because the store refuses, and always will.
    pub(super) fn refuse(&mut self, now: Moment, fault: Fault) {
        if matches!(self.stage, Stage::Standing) {
            self.stage = Stage::Leaving(Leaving {
                why: Why::Refused(fault),
                since: now,
                had_lease: false,
                tried: false,
                unanswered: false,
                told: false,
            });
        }
    }

    /// Pauses, so that a store that fails at once is not asked again at once.
    pub(super) fn rest(&mut self, now: Moment) {
        self.pause = Some((now, self.session.ttl / 20));
    }
}

/// How a queue's generation compares to ours.
enum Age {
    Same,
    Newer,
    Older,
}
