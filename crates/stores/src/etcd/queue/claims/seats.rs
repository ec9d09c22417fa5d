//! The seats of a session, and the places that entries reserve in them.

use std::sync::Arc;

use tenure::Key;
use tenure::protocol::Holder;
use tenure::queue::Ticket;

use super::{Claim, Claims, Reservation, Seat, Stage, State};

impl Claims {
    /// Begins another session, with this seat.
    pub(in super::super) fn begin(&self, session: u64, seat: Seat) {
        let mut state = self.lock();
        *state = State { session, seats: vec![seat], ..State::default() };
        drop(state);
        self.leased.notify_waiters();
    }

    /// Ends the session, and with it all entries.
    pub(in super::super) fn over(&self) {
        let mut state = self.lock();
        *state = State { session: state.session, ..State::default() };
        drop(state);
        self.leased.notify_waiters();
        self.given_up.notify_one();
    }

    /// The number of leases that are wanted.
    pub(in super::super) fn leases_wanted(&self) -> usize {
        self.lock().wanted
    }

    /// Adds seats that may be used from now on.
    pub(in super::super) fn add(&self, session: u64, seats: &[Seat]) {
        let mut state = self.lock();
        if state.session == session {
            state.seats.extend(seats);
            drop(state);
            self.leased.notify_waiters();
        }
    }

    /// Records that a seat moves, or has moved, to another lease.
    pub(in super::super) fn moved(&self, session: u64, seat: Seat) {
        let mut state = self.lock();
        if state.session == session
            && let Some(known) = state.seats.iter_mut().find(|known| known.name == seat.name)
        {
            *known = seat;
        }
    }

    /// The elections in which an entry of ours is, or may be, at this seat.
    pub(in super::super) fn elections(&self, seat: i64) -> Vec<Key> {
        let state = self.lock();
        let number = state.number(seat);
        let sits = |claims: &Vec<Claim>| claims.iter().any(|claim| Some(claim.number) == number);
        let sitting = state.claims.iter().filter(|(_, claims)| sits(claims));
        sitting.map(|(election, _)| election.clone()).collect()
    }

    /// Removes the seats that no claim needs, except the first.
    pub(in super::super) fn spare(&self) -> Vec<i64> {
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
    pub(in super::super) fn trouble(&self) -> bool {
        std::mem::take(&mut self.lock().trouble)
    }

    /// Records that a lease is said not to exist.
    pub(in super::super) fn report_trouble(&self) {
        self.lock().trouble = true;
        self.wanted.notify_one();
    }

    /// Reserves a place for an entry of this candidacy; `None` if there is no session.
    pub(in super::super) fn reserve(
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
    pub(in super::super) async fn seat(&self, place: &Reservation) -> Option<Seat> {
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

    /// Returns true if this is a seat of the current session.
    pub(in super::super) fn owns(&self, seat: i64) -> bool {
        self.lock().number(seat).is_some()
    }
}
