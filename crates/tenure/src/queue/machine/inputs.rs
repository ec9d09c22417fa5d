//! Expiry of the lease and of pauses, and the handling of inputs.

use std::sync::Arc;

use super::{Ahead, Input, Machine, Output, Request, Stage};
use crate::clock::Moment;
use crate::protocol::{Ask, Holder, Lease, Loss};
use crate::queue::mutant::Mutant;
use crate::queue::{Entry, Freshness, Gone, Life, Session};
use crate::store::Fault;

/// Expiry: takes everything that has passed by `now` into account, before any input.
impl Machine {
    pub(super) fn expire(&mut self, now: Moment, out: &mut Vec<Output>) {
        if let Some(lease) = self.lease {
            if lease.remaining(now).is_zero() {
                self.lose(Loss::Expired, out);
            } else if !self.stopping && lease.until_stop(now).is_zero() {
                self.stopping = true;
                out.push(Output::MustStop);
                if self.is(Mutant::ReleaseBeforeStop) {
                    self.lease = None;
                    self.working = false;
                    self.discard();
                }
            }
        }
        if let Some((since, span)) = self.pause
            && now.at_most_since(since) >= span
        {
            self.pause = None;
        }
    }

    pub(super) fn lose(&mut self, loss: Loss, out: &mut Vec<Output>) {
        let Some(lease) = self.lease.take() else { return };
        self.ended_token = lease.token;
        self.lost = Some(lease);
        self.remember(lease.token);
        self.stopping = false;
        self.suspended = false;
        self.discard();
        out.push(Output::Lost { token: lease.token, loss });
    }

    /// Marks our entry for deletion: the entry of a tenure that is over would block the queue.
    fn discard(&mut self) {
        if let Some(mine) = &mut self.mine {
            mine.discard = true;
        }
    }

    /// Gives up the lease: this candidate stops leading before its entry is gone.
    pub(super) fn give_up(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.ended_token = lease.token;
            self.lost = Some(lease);
            self.remember(lease.token);
        }
        self.stopping = false;
        self.suspended = false;
        self.discard();
    }
}

/// Inputs.
impl Machine {
    pub(super) fn take(&mut self, now: Moment, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Tick => {}
            Input::Session(session) => self.take_session(now, session, out),
            Input::Joined(ask, answer) => {
                if let Some(Request::Join(ticket)) = self.landed(ask) {
                    self.take_joined(now, ticket, answer, out);
                }
            }
            Input::Read(ask, answer) => {
                if let Some(Request::Read { freshness, first }) = self.landed(ask) {
                    self.last_read = Some(now);
                    match answer {
                        Ok(queue) => self.take_queue(now, queue, freshness, first, out),
                        Err(fault) => {
                            // If a queue is refused for good, no join in doubt has left an entry in
                            // it.
                            self.doubt.take_if(|_| {
                                fault == Fault::Permanent && freshness == Freshness::Barrier
                            });
                            self.fail(now, fault);
                        }
                    }
                }
            }
            Input::Begun(ask, answer) => {
                if let Some(Request::Begin(entry)) = self.landed(ask) {
                    self.take_begun(now, &entry, answer);
                }
            }
            Input::Noted(ask, answer) => {
                if let Some(Request::Note(entry)) = self.landed(ask) {
                    self.take_noted(now, &entry, answer);
                }
            }
            Input::Left(ask, answer) => {
                if let Some(Request::Leave(entry)) = self.landed(ask) {
                    self.take_left(now, &entry, answer);
                }
            }
            Input::Ended(ask, answer) => {
                if let Some(Request::End) = self.landed(ask) {
                    self.take_ended(now, answer);
                }
            }
            Input::Published(ask, answer) => {
                if let Some(Request::Publish) = self.landed(ask)
                    && let Err(fault) = answer
                {
                    self.unpublished = true;
                    self.fail(now, fault);
                }
            }
            Input::Gone(entry, gone) => self.take_gone(&entry, gone, out),
            Input::Hint => self.stale = true,
            Input::WorkEnded => {
                // The work was told to stop and has stopped: give up the rest of that tenure, then
                // stand again.
                if self.stopping {
                    self.lose(Loss::Resigned, out);
                }
                // Otherwise, while the lease lives, its work is not over.
                if self.lease.is_none() {
                    self.end_work(now);
                }
            }
            Input::Release(farewell) => self.begin_leaving(now, farewell),
            Input::Abandon => self.abandon(now, out),
            Input::Publish(value) => {
                self.me = Arc::new(Holder { value, ..(*self.me).clone() });
                // The next join carries the new value. A join under way or in doubt does not.
                self.unpublished = true;
            }
            Input::ForceLoss => self.lose(Loss::Forced, out),
        }
    }

    /// Takes the request that this answer belongs to, unless the request was given up.
    fn landed(&mut self, ask: Ask) -> Option<Request> {
        self.flight.take_if(|flight| flight.ask == ask).map(|flight| flight.request)
    }

    fn take_session(&mut self, now: Moment, session: Session, out: &mut Vec<Output>) {
        let before = std::mem::replace(&mut self.session, session);
        if session.number != before.number {
            self.session_over(out);
        }
        if session.connection != before.connection || !session.is_live() {
            self.disconnect(out);
        }
        match session.life {
            Life::Live { .. } => {
                if session.connection != before.connection || !before.is_live() {
                    // Changes during the disconnection were not seen.
                    self.stale = true;
                    self.pause = None;
                }
            }
            Life::Suspended { .. } => {}
            Life::Over => self.session_over(out),
            Life::Closed => {
                self.session_over(out);
                self.close(out);
            }
        }
        self.extend(now, out);
    }

    /// Handles a lost connection.
    ///
    /// The outcome of the request under way is unknown. A leader leads only as long as its newest
    /// proof lasts.
    fn disconnect(&mut self, out: &mut Vec<Output>) {
        match self.flight.take().map(|flight| flight.request) {
            Some(Request::Join(ticket)) if !self.is(Mutant::LostJoinForgotten) => {
                self.doubt = Some(ticket);
            }
            Some(Request::Publish) => self.unpublished = true,
            Some(
                Request::Join(_)
                | Request::Read { .. }
                | Request::Begin(_)
                | Request::Note(_)
                | Request::Leave(_)
                | Request::End,
            )
            | None => {}
        }
        if self.is(Mutant::ResumedUnverified) {
            return;
        }
        self.unverified = true;
        if self.lease.is_some() && !self.suspended {
            self.suspended = true;
            out.push(Output::Suspended);
        }
    }

    /// Forgets the entries of earlier sessions: they are gone, or going, and out of our hands.
    fn session_over(&mut self, out: &mut Vec<Output>) {
        self.lose(Loss::Expired, out);
        // ZooKeeper's client gives a session up when no server answers for long, and servers may
        // keep it for a while.
        if let (Stage::Leaving(leaving), Some(_)) = (&mut self.stage, &self.mine) {
            leaving.unanswered |= leaving.tried;
        }
        self.mine = None;
        self.doubt = None;
        self.strays.clear();
        if matches!(&self.flight, Some(flight) if flight.request != Request::End) {
            self.flight = None;
        }
    }

    /// Extends the lease by a newer proof of life.
    pub(super) fn extend(&mut self, now: Moment, out: &mut Vec<Output>) {
        let Some(held) = self.lease.filter(|_| !self.unverified && self.session.is_live()) else {
            return;
        };
        if !self.mine.as_ref().is_some_and(|mine| self.is_current(mine)) {
            return;
        }
        let Some(lease) = self.proven(now, held.token) else { return };
        if lease.remaining(now) > held.remaining(now) {
            self.lease = Some(lease);
            if self.is(Mutant::MustStopNotLatched) {
                self.stopping = false;
            }
            out.push(Output::Extended(lease));
        }
    }

    /// The lease that follows from the session's newest proof.
    pub(super) fn proven(&self, now: Moment, token: u64) -> Option<Lease> {
        let proof = self.session.proof()?;
        let from = if self.is(Mutant::WindowFromAnswer) { now } else { proof.from };
        let window = if self.is(Mutant::NoDriftMargin) { self.session.ttl } else { proof.window };
        Some(Lease { token, from, window, grace: self.grace() })
    }

    fn take_gone(&mut self, entry: &Entry, gone: Gone, out: &mut Vec<Output>) {
        let any = self.is(Mutant::LeadWhenAnyPredecessorLeaves);
        let gone = match gone {
            Gone::DeletedMaybeEnded if self.is(Mutant::DeletionAfterEndCounts) => Gone::Deleted,
            Gone::Deleted | Gone::DeletedMaybeEnded | Gone::Perhaps => gone,
        };
        let Some(mine) = &mut self.mine else { return };
        let own = mine.entry == *entry;
        match (&mine.ahead, gone) {
            (_, Gone::Deleted | Gone::DeletedMaybeEnded) if own => self.own_entry_gone(out),
            (_, Gone::DeletedMaybeEnded | Gone::Perhaps) => self.stale = true,
            (Ahead::Before { predecessor, is_first, .. }, Gone::Deleted)
                if predecessor == entry =>
            {
                if *is_first || any {
                    // The predecessor was first, and no entry can have appeared before ours since.
                    mine.ahead = Ahead::Nobody;
                    self.follow(None, out);
                } else {
                    mine.ahead = Ahead::Unknown;
                    self.stale = true;
                }
            }
            // The watch was on an entry that is no longer before ours.
            (Ahead::Before { .. } | Ahead::Nobody | Ahead::Unknown, Gone::Deleted) => {
                self.stale |= self.is(Mutant::Herd);
            }
        }
    }

    pub(super) fn own_entry_gone(&mut self, out: &mut Vec<Output>) {
        self.lose(Loss::Vanished, out);
        self.mine = None;
    }

    pub(super) fn follow(&mut self, holder: Option<Arc<Holder>>, out: &mut Vec<Output>) {
        let same = match (&holder, &self.following) {
            (Some(now), Some(before)) => now.id == before.id && now.value == before.value,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            self.following = holder;
            out.push(Output::Following(self.following.clone()));
        }
    }
}
