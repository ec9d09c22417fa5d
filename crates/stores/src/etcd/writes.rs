//! Sends the writes of a batch in few transactions, each with its own outcome.
//!
//! A write is a transaction on its document's own revision. Several of them go inside one outer
//! transaction, which the servers agree on, log and apply once. All comparisons are made before any
//! change, so writes that go together are about different documents. All changes of a transaction
//! have the same revision.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tenure::Key;
use tenure::store::{Fault, MAX_DOCUMENT_BYTES, Put, StoreError, Write};
use tokio::time::Instant;

use super::fault::{Excess, Failure, Kind};
use super::known::Glimpse;
use super::proto::{TxnRequest, TxnResponse};
use super::room::Load;
use super::waits::Topic;
use super::{EtcdStore, failed, kv, message};

/// The size of a write beyond its body and its key (twice or thrice): tags, lengths and a revision.
const WRAPPING: usize = 64;

/// A write that is not answered yet.
struct Pending {
    /// Its index in the batch.
    place: usize,
    name: Key,
    key: Bytes,
    bytes: usize,
    deletion: bool,
    txn: TxnRequest,
    alone: bool,
}

impl Load for Pending {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn alone(&self) -> bool {
        self.alone
    }
}

type Outcome = Result<Put, StoreError>;

/// The result of a request.
#[derive(Default)]
struct Sent {
    settled: Vec<(usize, Outcome)>,
    /// Writes that certainly had no effect, and may succeed in another transaction.
    again: Vec<Pending>,
}

impl EtcdStore {
    pub(super) async fn write(&self, writes: Vec<Write>) -> Vec<Outcome> {
        let end = Instant::now() + self.core.client.request();
        let (mut settled, mut waiting) = (Vec::new(), Vec::new());
        let mut keys = HashSet::new();
        for (place, write) in writes.into_iter().enumerate() {
            match self.pending(place, write) {
                Ok(pending) => {
                    // Callers must not write a document twice. etcd refuses that, or does not
                    // notice.
                    let alone = !keys.insert(pending.key.clone());
                    waiting.push(Pending { alone, ..pending });
                }
                Err(outcome) => settled.push((place, outcome)),
            }
        }
        while !waiting.is_empty() {
            let flights = self.core.room.cut(std::mem::take(&mut waiting));
            for sent in join_all(flights.into_iter().map(|flight| self.send(flight, end))).await {
                settled.extend(sent.settled);
                waiting.extend(sent.again);
            }
        }
        settled.sort_by_key(|(place, _)| *place);
        settled.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Prepares a write. `Err` is an outcome that is known without sending it.
    fn pending(&self, place: usize, write: Write) -> Result<Pending, Outcome> {
        let Write { key: name, expect, body, durability: _ } = write;
        let size = body.as_ref().map_or(0, Bytes::len);
        if size > MAX_DOCUMENT_BYTES {
            let says = format!("{size} bytes are more than {MAX_DOCUMENT_BYTES}");
            return Err(Err(StoreError::new(Fault::Permanent, "etcd", doing(&name), says)));
        }
        let (key, deletion) = (self.keys.encode(&name), body.is_none());
        let bytes = 3 * key.len() + size + WRAPPING;
        match message::write(key.clone(), &expect, body) {
            Some(txn) => Ok(Pending { place, name, key, bytes, deletion, txn, alone: false }),
            // No document was ever at a version that is not one of ours.
            None => Err(Ok(Put::Conflict)),
        }
    }

    async fn send(&self, mut flight: Vec<Pending>, end: Instant) -> Sent {
        let single = flight.len() == 1;
        let txn = match &mut flight[..] {
            [one] => std::mem::take(&mut one.txn),
            several => message::together(several.iter().map(|write| &write.txn)),
        };
        match self.transact(txn, end).await {
            Ok(answer) if single => {
                self.settled(flight, &answer, std::iter::once(Some(answer.succeeded)))
            }
            Ok(answer) => self.settled(flight, &answer, message::succeeded(&answer)),
            Err(failure) if single => all_failed(flight, &failure),
            Err(failure) => self.refused(flight, &failure),
        }
    }

    async fn transact(&self, txn: TxnRequest, end: Instant) -> Result<TxnResponse, Failure> {
        let client = &self.core.client;
        let left = end.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(Failure::unsent(client.request()));
        }
        let send = |channel, request| async move { kv(channel).txn(request).await };
        client.call_within(left, Kind::Write, txn, send).await
    }

    fn settled(
        &self,
        flight: Vec<Pending>,
        answer: &TxnResponse,
        succeeded: impl Iterator<Item = Option<bool>>,
    ) -> Sent {
        let store = message::at(answer.header.as_ref());
        let (mut looks, mut settled) = (Vec::new(), Vec::new());
        for (write, succeeded) in flight.into_iter().zip(succeeded) {
            let outcome = match succeeded {
                Some(true) => {
                    let document = if write.deletion { 0 } else { store };
                    looks.push((Topic::one(write.key), Glimpse { document, created: 0, store }));
                    Ok(Put::Stored(message::version(store)))
                }
                Some(false) => Ok(Put::Conflict),
                None => Err(failed(Failure::garbled(Kind::Write), &doing(&write.name))),
            };
            settled.push((write.place, outcome));
        }
        self.core.waits.saw(looks.into_iter());
        Sent { settled, again: Vec::new() }
    }

    /// Handles the failure of several writes that were sent together.
    ///
    /// Writes that had no effect, and may succeed otherwise, are sent again.
    fn refused(&self, flight: Vec<Pending>, failure: &Failure) -> Sent {
        match failure.excess {
            Some(Excess::Parts) => {
                self.core.room.too_many_writes(flight.len());
                Sent { again: flight, ..Sent::default() }
            }
            Some(Excess::Bytes) => {
                self.core.room.too_many_bytes(flight.iter().map(Load::bytes).sum());
                Sent { again: flight, ..Sent::default() }
            }
            Some(Excess::Storage) if flight.iter().any(|write| !write.deletion) => {
                let (again, full) = flight.into_iter().partition(|write| write.deletion);
                Sent { again, ..all_failed(full, failure) }
            }
            // Perhaps one of them alone is to blame.
            None if matches!(failure.fault, Fault::Denied | Fault::Permanent) && !failure.token => {
                let again = flight.into_iter().map(|write| Pending { alone: true, ..write });
                Sent { again: again.collect(), ..Sent::default() }
            }
            Some(Excess::Storage) | None => all_failed(flight, failure),
        }
    }
}

fn all_failed(flight: Vec<Pending>, failure: &Failure) -> Sent {
    let fail = |write: Pending| (write.place, Err(failed(failure.copy(), &doing(&write.name))));
    Sent { settled: flight.into_iter().map(fail).collect(), again: Vec::new() }
}

fn doing(name: &Key) -> String {
    format!("writing {name}")
}
