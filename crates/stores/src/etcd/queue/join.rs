//! Joins a queue, and handles joins that are given up.

use std::sync::Arc;

use tenure::Key;
use tenure::protocol::Holder;
use tenure::queue::{Entry, Joined, Queue, Ticket};
use tenure::store::{Fault, StoreError};
use tokio::time::Instant;

use super::super::proto::KeyValue;
use super::batch::{Change, Changed, Grouping};
use super::claims::Stage;
use super::contents::{Part, is_candidate, only};
use super::keys::to_name;
use super::record::Mark;
use super::{Shared, doubtful, requests, unavailable};

/// A join that is under way.
///
/// If it is dropped, or fails without a clear outcome, it is in doubt. An entry that then appears
/// without being claimed is deleted.
struct Joining<'a> {
    shared: &'a Shared,
    election: &'a Key,
    ticket: &'a Ticket,
    session: u64,
    seat: Option<i64>,
    doubtful: bool,
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        let claims = &self.shared.claims;
        match self.seat.filter(|_| self.doubtful) {
            Some(seat) => {
                let stage = Stage::Lost { since: Instant::now() };
                claims.note(self.election, self.ticket, self.session, stage);
                claims.haunt(self.election, seat);
            }
            None if self.doubtful => {
                claims.release(self.election, &self.ticket.candidate, self.session);
            }
            None => {}
        }
    }
}

impl Shared {
    pub(super) async fn join(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Result<Joined, StoreError> {
        let doing = || format!("joining the queue of {election}");
        let Some(place) = self.claims.reserve(election, ticket, holder) else {
            return Err(unavailable(doing(), "there is no session"));
        };
        let session = place.session;
        let mut joining =
            Joining { shared: self, election, ticket, session, seat: None, doubtful: true };
        let seat = self.claims.seat(&place);
        let seat = tokio::time::timeout(self.core.client.request(), seat).await;
        let Ok(Some(seat)) = seat else {
            return Err(unavailable(doing(), "there is no lease for it"));
        };
        joining.seat = Some(seat.name);
        let txn = requests::join(&self.keys, election, seat, ticket, holder);
        let change = Change { election: election.clone(), grouping: Grouping::Alone, txn };
        let changed = match self.changes.send(change).await {
            Ok(changed) => changed,
            Err(failure) => {
                if failure.fault != Fault::Indeterminate {
                    joining.doubtful = false;
                    self.claims.release(election, &ticket.candidate, session);
                }
                return Err(self.failed(failure, doing()));
            }
        };
        joining.doubtful = false;
        if changed.succeeded {
            self.joined(election, ticket, session, seat.name, changed).await
        } else {
            self.not_joined(election, ticket, session, seat.name, changed)
        }
    }

    /// Handles a join that made an entry.
    async fn joined(
        &self,
        election: &Key,
        ticket: &Ticket,
        session: u64,
        seat: i64,
        changed: Changed,
    ) -> Result<Joined, StoreError> {
        let revision = changed.revision;
        let token = u64::try_from(revision).unwrap_or(0);
        if !self.claims.note(election, ticket, session, Stage::Standing { token }) {
            // The join was given up meanwhile, so no candidate wants the entry.
            self.claims.haunt(election, seat);
            let says = "it was given up before it was answered";
            return Err(doubtful(format!("joining the queue of {election}"), says));
        }
        let mut found = changed.found.into_iter();
        let mut next = || found.next().unwrap_or_default();
        let (mark, tenure) = (only(next()), only(next()));
        let (first, newest) = (only(next()), next());
        let key = self.keys.entry(election, seat);
        let own = newest.kvs.iter().find(|found| found.key == key).cloned();
        let before = newest.kvs.into_iter().find(|found| found.key != key);
        let part = Part { first, before, own };
        // Our own entry is missing, or a key that is no candidate was read: the whole queue has to
        // tell which candidate is before us.
        let entries = self.keys.entries(election);
        let odd = |found: &Option<KeyValue>| {
            found.as_ref().is_some_and(|found| !is_candidate(&entries, found))
        };
        let lost = part.own.is_none() || odd(&part.first) || odd(&part.before);
        let part = if lost {
            let read = self.all(election, Some(&key)).await;
            // The entry is made. Without its queue, a later look has to tell.
            read.map_err(|error| StoreError { fault: Fault::Indeterminate, ..error })?
        } else {
            part
        };
        let entry = Entry { name: to_name(&key), token };
        self.saw(&[(self.keys.mark(election), mark.as_ref()), (key, part.own.as_ref())], revision);
        let queue = self.assemble(election, ticket, &mark, &tenure, part, revision).await;
        Ok(Joined { session, entry: Some(entry), queue })
    }

    /// Handles a join that made no entry: the election is not open, or a key is already there.
    fn not_joined(
        &self,
        election: &Key,
        ticket: &Ticket,
        session: u64,
        seat: i64,
        changed: Changed,
    ) -> Result<Joined, StoreError> {
        let mut found = changed.found.into_iter();
        let mut next = || found.next().and_then(only);
        let (mark, own, _beside) = (next(), next(), next());
        self.saw(&[(self.keys.mark(election), mark.as_ref())], changed.revision);
        if own.is_some() {
            // An earlier attempt arrived late. A look tells which, and then it is deleted.
            let stage = Stage::Lost { since: Instant::now() };
            self.claims.note(election, ticket, session, stage);
            self.claims.haunt(election, seat);
            let says = "an entry of an earlier attempt stands there";
            return Err(doubtful(format!("joining the queue of {election}"), says));
        }
        self.claims.release(election, &ticket.candidate, session);
        let queue = match Mark::read(mark.as_ref()) {
            Mark::Ended { generation } => Queue::Ended { generation, places: Vec::new() },
            Mark::Missing => Queue::Missing,
            Mark::Open { .. } => {
                let says = "its lease was replaced meanwhile";
                return Err(unavailable(format!("joining the queue of {election}"), says));
            }
        };
        Ok(Joined { session, entry: None, queue })
    }
}
