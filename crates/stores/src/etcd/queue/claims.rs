//! This process's knowledge of its own entries, and of their leases.

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
    /// At that revision the line was open and showed both entries.
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
    /// Begins another session, with this seat.
    pub(super) fn begin(&self, session: u64, seat: Seat) {
        let mut state = self.lock();
        *state = State { session, seats: vec![seat], ..State::default() };
        drop(state);
        self.leased.notify_waiters();
    }

    /// Ends the session, and with it all entries.
    pub(super) fn over(&self) {
        let mut state = self.lock();
        *state = State { session: state.session, ..State::default() };
        drop(state);
        self.leased.notify_waiters();
        self.given_up.notify_one();
    }

    /// Returns true if no entry of this process can be in a line.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().claims.is_empty()
    }

    /// The number of leases that are wanted.
    pub(super) fn leases_wanted(&self) -> usize {
        self.lock().wanted
    }

    /// Adds seats that may be used from now on.
    pub(super) fn add(&self, session: u64, seats: &[Seat]) {
        let mut state = self.lock();
        if state.session == session {
            state.seats.extend(seats);
            drop(state);
            self.leased.notify_waiters();
        }
    }

    /// Records that a seat moves, or has moved, to another lease.
    pub(super) fn moved(&self, session: u64, seat: Seat) {
        let mut state = self.lock();
        if state.session == session
            && let Some(known) = state.seats.iter_mut().find(|known| known.name == seat.name)
        {
            *known = seat;
        }
    }

    /// The elections in which an entry of ours is, or may be, at this seat.
    pub(super) fn elections(&self, seat: i64) -> Vec<Key> {
        let state = self.lock();
        let number = state.number(seat);
        let sits = |claims: &Vec<Claim>| claims.iter().any(|claim| Some(claim.number) == number);
        let sitting = state.claims.iter().filter(|(_, claims)| sits(claims));
        sitting.map(|(election, _)| election.clone()).collect()
    }

    /// Removes the seats that no claim needs, except the first.
    pub(super) fn spare(&self) -> Vec<i64> {
        let mut state = self.lock();
        let claims = state.claims.values().flatten();
        let used = claims.map(|claim| claim.number + 1).max().unwrap_or(0);
        let orphan_keys = state.orphan_keys.keys().filter_map(|(_, seat)| state.number(*seat));
        let needed = orphan_keys.map(|at| at + 1).max().unwrap_or(0).max(used).max(1);
        state.wanted = needed;
        let kept = needed.min(state.seats.len());
        state.seats.split_off(kept).into_iter().map(|seat| seat.name).collect()
    }

    /// Returns true if a lease was said not to exist, and forgets that.
    pub(super) fn trouble(&self) -> bool {
        std::mem::take(&mut self.lock().trouble)
    }

    /// Records that a lease is said not to exist.
    pub(super) fn report_trouble(&self) {
        self.lock().trouble = true;
        self.wanted.notify_one();
    }

    /// Reserves a place for an entry of this candidacy; `None` if there is no session.
    pub(super) fn reserve(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Option<Reservation> {
        let mut state = self.lock();
        if state.seats.is_empty() {
            return None;
        }
        let session = state.session;
        // One is nearly always enough: most processes stand once in an election.
        let claims = state.claims.entry(election.clone()).or_insert_with(|| Vec::with_capacity(1));
        let claim = |number| Claim {
            number,
            ticket: ticket.clone(),
            holder: holder.clone(),
            stage: Stage::Joining,
            leaving: false,
            mark: 0,
            behind: None,
            leader: None,
        };
        let earlier = claims.iter_mut().find(|claim| claim.ticket.candidate == ticket.candidate);
        let number = match earlier {
            Some(earlier) => {
                *earlier = claim(earlier.number);
                earlier.number
            }
            None => {
                // The claims are in order, so the first index that is not its claim's number is
                // free.
                let gap = claims.iter().enumerate().find(|(at, claim)| *at != claim.number);
                let number = gap.map_or(claims.len(), |(at, _)| at);
                claims.insert(number, claim(number));
                number
            }
        };
        if number >= state.seats.len() && number >= state.wanted {
            state.wanted = number + 1;
            drop(state);
            self.wanted.notify_one();
        }
        Some(Reservation { session, number })
    }

    /// Waits for the seat of a place; `None` if the session is over.
    pub(super) async fn seat(&self, place: &Reservation) -> Option<Seat> {
        loop {
            let mut leased = std::pin::pin!(self.leased.notified());
            leased.as_mut().enable();
            {
                let state = self.lock();
                if state.session != place.session || state.seats.is_empty() {
                    return None;
                }
                if let Some(seat) = state.seats.get(place.number) {
                    return Some(*seat);
                }
            }
            leased.await;
        }
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

    /// Records the revision of the mark that a candidacy of ours saw.
    pub(super) fn saw_mark(&self, election: &Key, candidate: &CandidateId, revision: i64) {
        self.with(election, candidate, |claim| claim.mark = claim.mark.max(revision));
    }

    /// Records the entry before our candidacy's own.
    ///
    /// The line was open at this revision of the store.
    pub(super) fn saw_before(
        &self,
        election: &Key,
        candidate: &CandidateId,
        before: Option<u64>,
        revision: i64,
    ) {
        let behind = before.map(|token| (token, revision));
        self.with(election, candidate, |claim| claim.behind = behind);
    }

    /// The revision at which our candidates behind this entry last saw the line open.
    pub(super) fn looked(&self, election: &Key, before: u64) -> Option<i64> {
        let state = self.lock();
        let behind = state.claims.get(election)?.iter().filter_map(|claim| claim.behind);
        behind.filter(|(token, _)| *token == before).map(|(_, revision)| revision).min()
    }

    /// The oldest mark of the election that a candidacy of ours relies on.
    pub(super) fn mark(&self, election: &Key) -> Option<i64> {
        self.lock().claims.get(election)?.iter().map(|claim| claim.mark).min()
    }

    /// The leader, if a candidacy of ours has seen this very entry at this revision.
    pub(super) fn leader(&self, election: &Key, token: u64, revision: i64) -> Option<Arc<Holder>> {
        let state = self.lock();
        let mut seen = state.claims.get(election)?.iter().filter_map(|claim| claim.leader.as_ref());
        let seen = seen.find(|seen| (seen.0, seen.1) == (token, revision));
        seen.map(|(_, _, holder)| holder.clone())
    }

    pub(super) fn saw_leader(
        &self,
        election: &Key,
        candidate: &CandidateId,
        token: u64,
        revision: i64,
        holder: &Arc<Holder>,
    ) {
        let leader = Some((token, revision, holder.clone()));
        self.with(election, candidate, |claim| claim.leader = leader);
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

    /// Returns true if this is a seat of the current session.
    pub(super) fn owns(&self, seat: i64) -> bool {
        self.lock().number(seat).is_some()
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
mod tests {
    use super::*;

    fn election() -> Key {
        Key::parse("elections/a").expect("a good key")
    }

    fn ticket(candidate: u128, attempt: u64) -> Ticket {
        Ticket { candidate: CandidateId::from_bits(candidate), attempt }
    }

    fn someone() -> Arc<Holder> {
        let id = CandidateId::from_bits(1);
        Arc::new(Holder { id, name: "a".into(), value: Default::default(), presence: None })
    }

    #[tokio::test]
    async fn two_candidates_of_one_election_have_two_seats_and_a_third_takes_what_was_left() {
        let claims = Claims::default();
        assert_eq!(
            claims.reserve(&election(), &ticket(1, 1), &someone()),
            None,
            "there is no session"
        );
        claims.begin(1, Seat::new(10));
        let first = claims.reserve(&election(), &ticket(1, 1), &someone()).expect("a place");
        let second = claims.reserve(&election(), &ticket(2, 1), &someone()).expect("a place");
        assert_eq!(claims.seat(&first).await, Some(Seat::new(10)));
        assert_eq!(claims.leases_wanted(), 2);
        claims.add(1, &[Seat::new(20)]);
        assert_eq!(claims.seat(&second).await, Some(Seat::new(20)));
        claims.release(&election(), &ticket(1, 1).candidate, 1);
        let third = claims.reserve(&election(), &ticket(3, 1), &someone()).expect("a place");
        assert_eq!(claims.seat(&third).await, Some(Seat::new(10)));
        assert_eq!(claims.spare(), [] as [i64; 0]);
        claims.release(&election(), &ticket(2, 1).candidate, 1);
        assert_eq!(claims.spare(), [20]);
        let other = Key::parse("elections/b").expect("a good key");
        let elsewhere = claims.reserve(&other, &ticket(3, 1), &someone()).expect("a place");
        assert_eq!(
            claims.seat(&elsewhere).await,
            Some(Seat::new(10)),
            "one lease for all elections"
        );
    }

    #[tokio::test]
    async fn a_second_attempt_takes_the_place_of_the_first_whose_outcome_is_nobodys_then() {
        let claims = Claims::default();
        claims.begin(1, Seat::new(10));
        claims.reserve(&election(), &ticket(1, 1), &someone());
        assert!(claims.note(&election(), &ticket(1, 1), 1, Stage::Lost { since: Instant::now() }));
        let patience = Duration::from_secs(9);
        assert_eq!(claims.claimed(&election(), 10, patience), Some(Claimed::InDoubt));
        assert_eq!(claims.claimed(&election(), 10, Duration::ZERO), Some(Claimed::Nothing));
        let adopted = claims.note(&election(), &ticket(1, 1), 1, Stage::Standing { token: 5 });
        assert!(!adopted, "what is about to be deleted is not taken up again");
        claims.reserve(&election(), &ticket(1, 2), &someone());
        assert!(!claims.note(&election(), &ticket(1, 1), 1, Stage::Standing { token: 5 }));
        assert!(claims.note(&election(), &ticket(1, 2), 1, Stage::Standing { token: 6 }));
        assert_eq!(claims.claimed(&election(), 10, patience), Some(Claimed::Entry { token: 6 }));
        claims.gone(&election(), 10, 5);
        assert!(!claims.is_empty(), "that was another");
        claims.gone(&election(), 10, 6);
        assert!(claims.is_empty());
        assert_eq!(claims.claimed(&election(), 11, patience), None);
    }

    #[tokio::test]
    async fn a_seat_keeps_its_name_and_its_entries_when_it_moves_to_another_lease() {
        let claims = Claims::default();
        claims.begin(1, Seat::new(10));
        claims.add(1, &[Seat::new(20)]);
        let place = claims.reserve(&election(), &ticket(1, 1), &someone()).expect("a place");
        assert!(claims.note(&election(), &ticket(1, 1), 1, Stage::Standing { token: 5 }));
        let moving = Seat { name: 10, lease: 30, former: Some(10) };
        claims.moved(2, moving);
        assert_eq!(claims.seat(&place).await, Some(Seat::new(10)), "that is another session's");
        claims.moved(1, moving);
        assert_eq!(claims.seat(&place).await, Some(moving));
        assert_eq!(claims.at(&election(), 10).map(|own| own.seat), Some(moving));
        assert!(claims.at(&election(), 30).is_none(), "nothing is called so");
        assert_eq!((claims.elections(10), claims.elections(20)), (vec![election()], vec![]));
        assert!(moving.keeps(30) && moving.keeps(10), "what has not moved yet is kept too");
        assert!(!Seat { former: None, ..moving }.keeps(10));
    }

    #[tokio::test]
    async fn nothing_of_a_session_is_left_when_it_is_over() {
        let claims = Claims::default();
        claims.begin(1, Seat::new(10));
        let place = claims.reserve(&election(), &ticket(1, 1), &someone()).expect("a place");
        claims.over();
        assert_eq!(claims.seat(&place).await, None);
        claims.begin(2, Seat::new(11));
        assert_eq!(claims.seat(&place).await, None);
        assert!(!claims.note(&election(), &ticket(1, 1), 1, Stage::Standing { token: 5 }));
        assert!(claims.is_empty());
    }
}
