//! What this process knows of its own entries, and of the leases they stand under.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::lease::record::Holder;
use tenure::queue::Ticket;
use tenure::{CandidateId, Key};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Who of this process stands where, under which lease.
///
/// The key of an entry is made of the election and the seat: two candidates of one election need
/// two seats. The first seat serves one candidate of every election.
#[derive(Debug, Default)]
pub(super) struct Claims {
    state: Mutex<State>,
    /// More leases are wanted, or some trouble with one was seen.
    pub(super) wanted: Notify,
    /// There are other leases.
    leased: Notify,
    /// A claim was given up: what appears at its key now is nobody's.
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
    haunted: HashMap<(Key, i64), ()>,
    newly_haunted: Vec<(Key, i64)>,
    /// Some lease is said not to exist.
    trouble: bool,
}

/// A lease of the session, and the name under which is written what stands under it.
///
/// They are the same at first. When etcd has changed its leader, everything moves to another lease,
/// and keeps its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// What its keys end with.
    pub(super) name: i64,
    /// What is written from now on is under this lease.
    pub(super) lease: i64,
    /// What was written before may still be under this one.
    pub(super) former: Option<i64>,
}

impl Seat {
    /// A seat that is called as its first lease.
    pub(super) fn new(lease: i64) -> Seat {
        Seat { name: lease, lease, former: None }
    }

    /// Whether what is under this lease is kept alive.
    pub(super) fn keeps(&self, lease: i64) -> bool {
        self.lease == lease || self.former == Some(lease)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    /// Which of the session's seats.
    number: usize,
    ticket: Ticket,
    holder: Arc<Holder>,
    stage: Stage,
    /// It is being deleted by its owner.
    leaving: bool,
    /// The revision of the election's mark when it was looked at last.
    mark: i64,
    /// The token of the entry before it, and the revision of the store at which the line was open
    /// and showed both.
    behind: Option<(u64, i64)>,
    /// Who led then: its token, the revision of its entry, and who it is.
    leader: Option<(u64, i64, Arc<Holder>)>,
}

/// How far a join got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is under way.
    Joining,
    /// Its outcome is unknown.
    Lost { since: Instant },
    /// It made an entry.
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

/// What a key of ours may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// Nothing: whatever is there must go.
    Nothing,
    /// The entry of this token; anything else must go.
    Entry { token: u64 },
    /// The outcome of a join that is under way or in doubt: nobody knows yet.
    InDoubt,
}

impl Claims {
    /// Another session begins, with this seat.
    pub(super) fn begin(&self, session: u64, seat: Seat) {
        let mut state = self.lock();
        *state = State { session, seats: vec![seat], ..State::default() };
        drop(state);
        self.leased.notify_waiters();
    }

    /// The session is over, and with it all entries.
    pub(super) fn over(&self) {
        let mut state = self.lock();
        *state = State { session: state.session, ..State::default() };
        drop(state);
        self.leased.notify_waiters();
        self.given_up.notify_one();
    }

    /// Whether anything of this process may stand in a line.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().claims.is_empty()
    }

    /// How many leases are wanted.
    pub(super) fn leases_wanted(&self) -> usize {
        self.lock().wanted
    }

    /// More seats may be used.
    pub(super) fn add(&self, session: u64, seats: &[Seat]) {
        let mut state = self.lock();
        if state.session == session {
            state.seats.extend(seats);
            drop(state);
            self.leased.notify_waiters();
        }
    }

    /// A seat moves, or has moved, to another lease.
    pub(super) fn moved(&self, session: u64, seat: Seat) {
        let mut state = self.lock();
        if state.session == session
            && let Some(known) = state.seats.iter_mut().find(|known| known.name == seat.name)
        {
            *known = seat;
        }
    }

    /// The elections in which something of ours stands at this seat, or may.
    pub(super) fn elections(&self, seat: i64) -> Vec<Key> {
        let state = self.lock();
        let number = state.number(seat);
        let sits = |claims: &Vec<Claim>| claims.iter().any(|claim| Some(claim.number) == number);
        let sitting = state.claims.iter().filter(|(_, claims)| sits(claims));
        sitting.map(|(election, _)| election.clone()).collect()
    }

    /// Takes back the seats that nobody needs; the first stays.
    pub(super) fn spare(&self) -> Vec<i64> {
        let mut state = self.lock();
        let claims = state.claims.values().flatten();
        let used = claims.map(|claim| claim.number + 1).max().unwrap_or(0);
        let haunted = state.haunted.keys().filter_map(|(_, seat)| state.number(*seat));
        let needed = haunted.map(|at| at + 1).max().unwrap_or(0).max(used).max(1);
        state.wanted = needed;
        let kept = needed.min(state.seats.len());
        state.seats.split_off(kept).into_iter().map(|seat| seat.name).collect()
    }

    /// Whether a lease was said not to exist; asks once.
    pub(super) fn trouble(&self) -> bool {
        std::mem::take(&mut self.lock().trouble)
    }

    /// A lease is said not to exist.
    pub(super) fn report_trouble(&self) {
        self.lock().trouble = true;
        self.wanted.notify_one();
    }

    /// A place for an entry of this candidacy; none while there is no session.
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
        // Nearly always one: most processes stand once in an election.
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
                // They are kept in order: the first gap is where a number is not the next.
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

    /// The seat of a place, once there is one; none when the session is over.
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

    /// Who of this process stands at this entry.
    pub(super) fn at(&self, election: &Key, seat: i64) -> Option<Own> {
        let state = self.lock();
        let number = state.number(seat)?;
        let claim = state.claims.get(election)?.iter().find(|claim| claim.number == number)?;
        Some(state.own(claim, state.seats[number]))
    }

    /// The mark of the election was at this revision when a candidacy of ours looked.
    pub(super) fn saw_mark(&self, election: &Key, candidate: &CandidateId, revision: i64) {
        self.with(election, candidate, |claim| claim.mark = claim.mark.max(revision));
    }

    /// The line was open at this revision of the store, and showed this entry before that of a
    /// candidacy of ours.
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

    /// The revision at which the line was last seen open by those of ours who stand behind this
    /// entry.
    pub(super) fn looked(&self, election: &Key, before: u64) -> Option<i64> {
        let state = self.lock();
        let behind = state.claims.get(election)?.iter().filter_map(|claim| claim.behind);
        behind.filter(|(token, _)| *token == before).map(|(_, revision)| revision).min()
    }

    /// The oldest mark of the election that a candidacy of ours goes by.
    pub(super) fn mark(&self, election: &Key) -> Option<i64> {
        self.lock().claims.get(election)?.iter().map(|claim| claim.mark).min()
    }

    /// Who leads, if somebody of ours has seen this very entry as it is.
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

    /// Another value is published at this entry.
    pub(super) fn publish(&self, election: &Key, candidate: &CandidateId, holder: Arc<Holder>) {
        self.with(election, candidate, |claim| claim.holder = holder);
    }

    /// Whether this is a seat of the session there is.
    pub(super) fn owns(&self, seat: i64) -> bool {
        self.lock().number(seat).is_some()
    }

    /// What may be at this key of ours; none when the seat is no longer ours.
    ///
    /// A claim that has been in doubt for longer than `patience` is given up here, and for good:
    /// whoever looks for its entry later does not find it, and what is deleted on the strength of
    /// this answer is nobody's.
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

    /// The join of this ticket got so far. False when it had been given up meanwhile.
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

    /// The entry of this candidacy is gone, or was never made.
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

    /// The entry of this token is about to be deleted by its owner.
    pub(super) fn leave(&self, election: &Key, seat: i64, token: u64) {
        if let Some(own) = self.at(election, seat)
            && own.stage == (Stage::Standing { token })
        {
            self.with(election, &own.ticket.candidate, |claim| claim.leaving = true);
        }
    }

    /// Whether an entry of ours is gone without its owner having left.
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

    /// The entry of this token is gone.
    pub(super) fn gone(&self, election: &Key, seat: i64, token: u64) {
        if let Some(own) = self.at(election, seat)
            && own.stage == (Stage::Standing { token })
        {
            self.release(election, &own.ticket.candidate, own.session);
        }
    }

    /// A join that was given up may arrive at this key, as long as its lease lives.
    pub(super) fn haunt(&self, election: &Key, seat: i64) {
        let mut state = self.lock();
        if state.haunted.insert((election.clone(), seat), ()).is_none() {
            state.newly_haunted.push((election.clone(), seat));
        }
        drop(state);
        self.given_up.notify_one();
    }

    /// The keys that have become haunted since this was asked last.
    pub(super) fn newly_haunted(&self) -> Vec<(Key, i64)> {
        std::mem::take(&mut self.lock().newly_haunted)
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
