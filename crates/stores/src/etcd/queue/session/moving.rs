//! Moves everything to other leases when etcd has changed its leader.
//!
//! A leader of etcd may be deposed while it stands still. When it wakes up, it revokes the leases
//! that were not prolonged *at it*, even if its successor has prolonged them since
//! ([`LeaseTermWindow`](tenure::queue::window::LeaseTermWindow) says more). It does not know leases
//! that were granted after its time. So nothing is proven in a new term before everything is under
//! such leases. Names, values and tokens stay as they are, and our leaders go on leading.
//!
//! A seat moves in three steps. Each step is repeated if its answer is lost:
//! 1. Another lease is granted.
//! 2. The key that stands for the seat moves to it. Joins and publications compare that key's
//!    lease, so from here on no key appears under the former lease, however late a request arrives.
//! 3. The entries claimed at the seat move, whether or not they are known to stand.
//!
//! The former lease is kept alive until then, and left to lapse afterwards.

use futures_util::future::{join_all, try_join_all};
use tenure::Key;
use tokio::time::Instant;

use super::super::super::fault::{Failure, Kind, LeaseTrouble};
use super::super::super::kv;
use super::super::super::proto::TxnResponse;
use super::super::super::proto::response_op::Response;
use super::super::batch::{Change, Grouping};
use super::super::claims::Seat;
use super::super::{Shared, requests};
use super::leases::fresh;
use super::stream::ended;
use super::{Held, Keeper};

/// How many entries move at once: as many as are under way in full batches.
const MOST_MOVES: usize = 480;

impl Keeper<'_> {
    /// Moves every seat to a lease that is asked for now, when this term is known.
    ///
    /// Fails if not everything has moved within a heartbeat. The next attempt goes on from there.
    pub(super) async fn move_on(&mut self, term: u64) -> Result<(), Failure> {
        let until = Instant::now() + self.shared.ttl / 6;
        self.move_entries(until).await?;
        self.grant_next(term).await?;
        self.move_seats().await?;
        self.move_entries(until).await
    }

    /// Asks for a new lease for each seat with a lease from before this term was known.
    async fn grant_next(&mut self, term: u64) -> Result<(), Failure> {
        let outdated = |held: &Held| held.term < term && held.next.is_none();
        let outdated = self.held.iter().enumerate().filter(|(_, held)| outdated(held));
        let fresh: Vec<(usize, i64)> = outdated.map(|(at, _)| (at, fresh())).collect();
        let granted = join_all(fresh.iter().map(|(_, id)| self.grant(*id))).await;
        let mut worst = Ok(());
        for ((at, id), granted) in fresh.into_iter().zip(granted) {
            match granted {
                Ok(_) => self.held[at].next = Some((id, term)),
                // If it was granted nevertheless, it lapses by itself.
                Err(failure) => worst = Err(failure),
            }
        }
        worst
    }

    /// Moves the key that stands for each seat to the lease that was granted for it.
    async fn move_seats(&mut self) -> Result<(), Failure> {
        let moving = self.held.iter().enumerate();
        let moving = moving.filter_map(|(at, held)| Some((at, held.seat, held.next?)));
        let moving: Vec<(usize, Seat, (i64, u64))> = moving.collect();
        let moved = moving.iter().map(|(_, seat, (to, _))| self.move_seat(*seat, *to));
        let moved = join_all(moved).await;
        let mut worst = Ok(());
        for ((at, seat, (to, term)), moved) in moving.into_iter().zip(moved) {
            let held = &mut self.held[at];
            match moved {
                Ok(()) => {
                    held.seat = Seat { lease: to, former: Some(seat.lease), ..seat };
                    (held.term, held.next) = (term, None);
                    self.shared.claims.moved(self.number, held.seat);
                    // A candidate that joins from now on does so under the new lease.
                    held.behind = self.shared.claims.elections(seat.name);
                }
                Err(failure) => {
                    if failure.lease == Some(LeaseTrouble::Missing) {
                        // The lease has lapsed, and no key can move there any more.
                        held.next = None;
                    }
                    worst = Err(failure);
                }
            }
        }
        worst
    }

    async fn move_seat(&self, seat: Seat, to: i64) -> Result<(), Failure> {
        let txn = requests::move_seat(&self.shared.keys, seat.name, seat.lease, to);
        let send = |channel, request| async move { kv(channel).txn(request).await };
        let answer: TxnResponse = self.shared.core.client.call(Kind::Write, txn, send).await?;
        let found = answer.responses.into_iter().find_map(|part| match part.response {
            Some(Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            Some(
                Response::ResponsePut(_)
                | Response::ResponseDeleteRange(_)
                | Response::ResponseTxn(_),
            )
            | None => None,
        });
        // An earlier attempt may have arrived. If the key is elsewhere, or gone, the next round
        // finds out.
        if answer.succeeded || found.is_some_and(|found| found.lease == to) {
            Ok(())
        } else {
            Err(ended("what stands for a lease is not where it was"))
        }
    }

    /// Moves the entries claimed at seats that have moved.
    async fn move_entries(&mut self, until: Instant) -> Result<(), Failure> {
        for held in &mut self.held {
            let Seat { name, lease, former: Some(former) } = held.seat else { continue };
            while !held.behind.is_empty() {
                if Instant::now() >= until {
                    return Err(ended("there is more to move than a heartbeat has time for"));
                }
                let some = &held.behind[held.behind.len().saturating_sub(MOST_MOVES)..];
                let move_there =
                    |at: &Key| move_entry(self.shared, at.clone(), name, former, lease);
                let moves: Vec<_> = some.iter().map(move_there).collect();
                // An entry that does not stand there, or no longer, is left alone: that is no
                // failure.
                try_join_all(moves).await?;
                held.behind.truncate(held.behind.len().saturating_sub(MOST_MOVES));
            }
            held.seat.former = None;
            self.shared.claims.moved(self.number, held.seat);
        }
        Ok(())
    }
}

async fn move_entry(
    shared: &Shared,
    election: Key,
    seat: i64,
    from: i64,
    to: i64,
) -> Result<(), Failure> {
    let txn = requests::move_entry(&shared.keys, &election, seat, from, to);
    let change = Change { election, grouping: Grouping::Alone, txn };
    shared.changes.send(change).await.map(|_| ())
}
