//! Everything moves to other leases when etcd has changed its leader.
//!
//! A leader that was deposed while it stood still, and wakes up, revokes the leases that were not
//! prolonged *at it*, whatever its successor has heard since
//! ([`EtcdWindow`](tenure::queue::window::EtcdWindow) says more). It does not know leases that were
//! granted after its time. So nothing is proven in a new term before everything stands under such
//! leases. Names, values and tokens stay as they are, and whoever leads goes on.
//!
//! A seat moves in three steps, each of which is taken again if its answer is lost:
//! 1. Another lease is granted.
//! 2. What stands for the seat moves to it. Joins and publications compare that: from here on
//!    nothing more appears under the former lease, however late it arrives.
//! 3. Whatever is claimed at the seat moves, whether it is known to stand or not.
//!
//! The former lease is kept alive until then, and left to lapse afterwards.

use futures_util::future::{join_all, try_join_all};
use tenure::Key;
use tokio::time::Instant;

use super::super::super::fault::{Failure, Kind, LeaseTrouble};
use super::super::super::kv;
use super::super::super::proto::TxnResponse;
use super::super::super::proto::response_op::Response;
use super::super::batch::{Change, Company};
use super::super::claims::Seat;
use super::super::{Shared, requests};
use super::leases::fresh;
use super::stream::ended;
use super::{Held, Keeper};

/// Entries that move at once: as many as are under way in full batches.
const MOST_MOVES: usize = 480;

impl Keeper<'_> {
    /// Moves every seat to a lease that is asked for now, when this term is known.
    ///
    /// Fails when not all has moved, or not within a heartbeat: the next attempt goes on where this
    /// one stopped.
    pub(super) async fn move_on(&mut self, term: u64) -> Result<(), Failure> {
        let until = Instant::now() + self.shared.ttl / 6;
        self.move_entries(until).await?;
        self.grant_next(term).await?;
        self.move_seats().await?;
        self.move_entries(until).await
    }

    /// A lease for each seat whose own was asked for before this term was known.
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

    /// Moves what stands for each seat to the lease that was granted for it.
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
                    // Whoever joins from now on does so under the other lease.
                    held.behind = self.shared.claims.elections(seat.name);
                }
                Err(failure) => {
                    if failure.lease == Some(LeaseTrouble::Missing) {
                        // It has lapsed, and nothing can move there any more.
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
        // An earlier attempt may have arrived. Where it is elsewhere, or gone, the next round finds
        // that out.
        if answer.succeeded || found.is_some_and(|found| found.lease == to) {
            Ok(())
        } else {
            Err(ended("what stands for a lease is not where it was"))
        }
    }

    /// Moves whatever is claimed at seats that have moved.
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
                // What does not stand there, or no longer, is left alone: that is no failure.
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
    let change = Change { election, company: Company::Alone, txn };
    shared.changes.send(change).await.map(|_| ())
}
