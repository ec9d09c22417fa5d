//! This process's knowledge of its own entries, and of their leases.

mod looks;
mod seats;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::protocol::Holder;
use tenure::queue::Ticket;
use tenure::{CandidateId, Key};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The entries of this process, and the leases they are under.
///
/// The key of an entry is made of the election and the seat, so two candidates of one election need
/// two seats. The first seat serves one candidate of every election.
#[derive(Debug, Default)]
pub(super) struct Claims {
    state: Mutex<State>,
    /// Notified when more leases are wanted, or when there was trouble with one.
    pub(super) wanted: Notify,
    /// Notified when the leases have changed.
    leased: Notify,
    /// Notified when a claim was given up: an entry that appears at its key now must be deleted.
    pub(super) given_up: Notify,
}

#[derive(Debug, Default)]
struct State {
    session: u64,
    seats: Vec<Seat>,
    wanted: usize,
    /// By election, then by the number of the seat.
    claims: HashMap<Key, Vec<Claim>>,
    /// Keys at which a join that was given up may still arrive.
    orphan_keys: HashMap<(Key, i64), ()>,
    newly_orphaned: Vec<(Key, i64)>,
    /// A server said that some lease does not exist.
    trouble: bool,
}

/// A lease of the session, and the name in the keys under it.
///
/// They are the same at first. When etcd has changed its leader, everything moves to another lease,
/// and the name stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// The end of its keys.
    pub(super) name: i64,
    /// The lease for new keys.
    pub(super) lease: i64,
    /// The lease that older keys may still be under.
    pub(super) former: Option<i64>,
}

impl Seat {
    /// A seat that is named after its first lease.
    pub(super) fn new(lease: i64) -> Seat {
        Seat { name: lease, lease, former: None }
    }

    /// Returns true if keys of this seat under this lease are kept alive.
    pub(super) fn keeps(&self, lease: i64) -> bool {
        self.lease == lease || self.former == Some(lease)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    /// The index of its seat in the session.
    number: usize,
    ticket: Ticket,
    holder: Arc<Holder>,
    stage: Stage,
    /// Its owner is deleting it.
    leaving: bool,
    /// The revision of the election's mark at the last look.
    mark: i64,
    /// The token of the entry before it, and a store revision.
    ///
    /// At that revision the queue was open and showed both entries.
    behind: Option<(u64, i64)>,
    /// The leader at that look: its token, the revision of its entry, and its holder.
    leader: Option<(u64, i64, Arc<Holder>)>,
}

/// The progress of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The join is under way.
    Joining,
    /// The join's outcome is unknown.
    Lost { since: Instant },
    /// The join made an entry.
    Standing { token: u64 },
}

/// A place for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) session: u64,
    number: usize,
}

/// The entry of a candidacy, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) session: u64,
    pub(super) seat: Seat,
    pub(super) ticket: Ticket,
    pub(super) holder: Arc<Holder>,
    pub(super) stage: Stage,
    pub(super) mark: i64,
}

/// The content that a key of ours may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// None: any entry there must be deleted.
    Nothing,
    /// The entry with this token. Any other must be deleted.
    Entry { token: u64 },
    /// The outcome of a join that is under way or in doubt.
    InDoubt,
}

impl Claims {
    /// Returns true if no entry of this process can be in a queue.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().claims.is_empty()
    }

    /// The entry that this candidacy has, or may have, here.
    pub(super) fn of(&self, election: &Key, candidate: &CandidateId) -> Option<Own> {
        let state = self.lock();
        let claim = state.find(election, candidate)?;
        Some(state.own(claim, *state.seats.get(claim.number)?))
    }

    /// The claim of this process at this seat.
    pub(super) fn at(&self, election: &Key, seat: i64) -> Option<Own> {
        let state = self.lock();
        let number = state.number(seat)?;
        let claim = state.claims.get(election)?.iter().find(|claim| claim.number == number)?;
        Some(state.own(claim, state.seats[number]))
    }

    fn with(&self, election: &Key, candidate: &CandidateId, change: impl FnOnce(&mut Claim)) {
        let mut state = self.lock();
        let claims = state.claims.get_mut(election);
        let claim = claims.and_then(|claims| {
            claims.iter_mut().find(|claim| claim.ticket.candidate == *candidate)
        });
        if let Some(claim) = claim {
            change(claim);
        }
    }

    /// Records that another value is published at this entry.
    pub(super) fn publish(&self, election: &Key, candidate: &CandidateId, holder: Arc<Holder>) {
        self.with(election, candidate, |claim| claim.holder = holder);
    }

    /// The content that may be at this key of ours; `None` if the seat is no longer ours.
    ///
    /// A claim that has been in doubt for longer than `patience` is given up here, and for good. A
    /// later look for its entry does not find the claim, so the caller may delete the entry because
    /// of this answer.
    pub(super) fn claimed(&self, election: &Key, seat: i64, patience: Duration) -> Option<Claimed> {
        let mut state = self.lock();
        let number = state.number(seat)?;
        let Some(claims) = state.claims.get_mut(election) else { return Some(Claimed::Nothing) };
        let given_up = |claim: &Claim| {
            claim.number == number
                && matches!(claim.stage, Stage::Lost { since } if since.elapsed() > patience)
        };
        claims.retain(|claim| !given_up(claim));
        let stage = claims.iter().find(|claim| claim.number == number).map(|claim| claim.stage);
        if claims.is_empty() {
            state.claims.remove(election);
        }
        Some(match stage {
            None => Claimed::Nothing,
            Some(Stage::Standing { token }) => Claimed::Entry { token },
            Some(Stage::Joining | Stage::Lost { .. }) => Claimed::InDoubt,
        })
    }

    /// Records the progress of this ticket's join. Returns false if it had been given up meanwhile.
    pub(super) fn note(&self, election: &Key, ticket: &Ticket, session: u64, stage: Stage) -> bool {
        let mut state = self.lock();
        if state.session != session {
            return false;
        }
        let claims = state.claims.get_mut(election);
        let claim = claims.and_then(|all| all.iter_mut().find(|claim| claim.ticket == *ticket));
        match claim {
            Some(claim) => {
                claim.stage = stage;
                true
            }
            None => false,
        }
    }

    /// Releases the claim of an entry that is gone, or was never made.
    pub(super) fn release(&self, election: &Key, candidate: &CandidateId, session: u64) {
        let mut state = self.lock();
        if state.session != session {
            return;
        }
        let Some(claims) = state.claims.get_mut(election) else { return };
        claims.retain(|claim| claim.ticket.candidate != *candidate);
        if claims.is_empty() {
            state.claims.remove(election);
        }
        drop(state);
        self.given_up.notify_one();
    }

    /// Records that the owner of the entry with this token is about to delete it.
    pub(super) fn leave(&self, election: &Key, seat: i64, token: u64) {
        if let Some(own) = self.at(election, seat)
            && own.stage == (Stage::Standing { token })
        {
            self.with(election, &own.ticket.candidate, |claim| claim.leaving = true);
        }
    }

    /// Returns true if an entry of ours is gone although its owner did not leave.
    pub(super) fn vanished(&self, election: &Key, seat: i64, token: u64) -> bool {
        let state = self.lock();
        let number = state.number(seat);
        let mut claims = state.claims.get(election).into_iter().flatten();
        claims.any(|claim| {
            Some(claim.number) == number
                && claim.stage == Stage::Standing { token }
                && !claim.leaving
        })
    }

    /// Releases the claim of the entry with this token, which is gone.
    pub(super) fn gone(&self, election: &Key, seat: i64, token: u64) {
        if let Some(own) = self.at(election, seat)
            && own.stage == (Stage::Standing { token })
        {
            self.release(election, &own.ticket.candidate, own.session);
        }
    }

    /// Records that a join that was given up may still arrive at this key.
    ///
    /// It may do so as long as its lease lives.
    pub(super) fn haunt(&self, election: &Key, seat: i64) {
        let mut state = self.lock();
        if state.orphan_keys.insert((election.clone(), seat), ()).is_none() {
            state.newly_orphaned.push((election.clone(), seat));
        }
        drop(state);
        self.given_up.notify_one();
    }

    /// Takes the keys that have become orphans since the last call.
    pub(super) fn newly_orphaned(&self) -> Vec<(Key, i64)> {
        std::mem::take(&mut self.lock().newly_orphaned)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the next can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, election: &Key, candidate: &CandidateId) -> Option<&Claim> {
        self.claims.get(election)?.iter().find(|claim| claim.ticket.candidate == *candidate)
    }

    fn own(&self, claim: &Claim, seat: Seat) -> Own {
        let Claim { ticket, holder, stage, mark, .. } = claim.clone();
        Own { session: self.session, seat, ticket, holder, stage, mark }
    }

    fn number(&self, seat: i64) -> Option<usize> {
        self.seats.iter().position(|own| own.name == seat)
    }
}

#[cfg(test)]
mod tests;
