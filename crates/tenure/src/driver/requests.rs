//! Requests of many machines, gathered into few calls of the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::{SlotId, queue};
use crate::Key;
use crate::protocol::Ask;
use crate::store::{Document, Fault, Put, Store, StoreError, Write};

/// The most documents one call carries.
const MOST_IN_A_BATCH: usize = 512;
/// The time limit for a backend that does not end its calls. Every backend should end a call within
/// its own, far shorter, time-out.
pub(super) const LONGEST_CALL: Duration = Duration::from_secs(30);

/// The requests that leave next.
#[derive(Default)]
pub(super) struct Batch {
    reads: Vec<(SlotId, Request, Key)>,
    writes: Vec<(SlotId, Request, Write)>,
}

/// A call that was answered.
pub(super) enum Done {
    Reads(Vec<(SlotId, Request)>, Result<Vec<Option<Document>>, StoreError>),
    Writes(Vec<(SlotId, Request)>, Vec<Result<Put, StoreError>>),
    Queue(SlotId, queue::Answer),
    Looked(SlotId, queue::Looked),
}

impl Batch {
    pub(super) fn read(&mut self, id: SlotId, request: Request, key: Key) {
        self.reads.push((id, request, key));
    }

    pub(super) fn write(&mut self, id: SlotId, request: Request, write: Write) {
        self.writes.push((id, request, write));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Empties the batch into as few calls as possible.
    pub(super) fn batches(&mut self, store: &Arc<dyn Store>) -> Vec<BoxFuture<'static, Done>> {
        let mut calls = Vec::new();
        while !self.writes.is_empty() {
            calls.push(put(store.clone(), self.next_writes()).boxed());
        }
        let reads = std::mem::take(&mut self.reads);
        for batch in reads.chunks(MOST_IN_A_BATCH) {
            calls.push(get(store.clone(), batch.to_vec()).boxed());
        }
        calls
    }

    /// As many writes as fit. Two writes of one key are never in the same call.
    fn next_writes(&mut self) -> Vec<(SlotId, Request, Write)> {
        let mut keys = BTreeSet::new();
        let (batch, later) = std::mem::take(&mut self.writes).into_iter().partition(
            |(_, _, write): &(SlotId, Request, Write)| {
                keys.len() < MOST_IN_A_BATCH && keys.insert(write.key.clone())
            },
        );
        self.writes = later;
        batch
    }
}

async fn get(store: Arc<dyn Store>, batch: Vec<(SlotId, Request, Key)>) -> Done {
    let (asked, keys): (Vec<_>, Vec<Key>) =
        batch.into_iter().map(|(id, request, key)| ((id, request), key)).unzip();
    let answer = tokio::time::timeout(LONGEST_CALL, store.get_many(&keys)).await;
    let answer = answer.unwrap_or_else(|_| Err(overdue("reading", keys.len())));
    let answer = answer.and_then(|documents| {
        if documents.len() == keys.len() { Ok(documents) } else { Err(miscounted(keys.len())) }
    });
    Done::Reads(asked, answer)
}

async fn put(store: Arc<dyn Store>, batch: Vec<(SlotId, Request, Write)>) -> Done {
    let (asked, writes): (Vec<_>, Vec<Write>) =
        batch.into_iter().map(|(id, request, write)| ((id, request), write)).unzip();
    let count = writes.len();
    // Dropping the call leaves its outcome unknown, so it is reported as indeterminate.
    let answer = tokio::time::timeout(LONGEST_CALL, store.put_many(writes)).await;
    let outcomes = match answer {
        Ok(outcomes) if outcomes.len() == count => outcomes,
        Ok(_) => (0..count).map(|_| Err(miscounted(count))).collect(),
        Err(_) => (0..count).map(|_| Err(overdue("writing", count))).collect(),
    };
    Done::Writes(asked, outcomes)
}

fn overdue(doing: &str, count: usize) -> StoreError {
    let doing = format!("{doing} {count} documents");
    StoreError::new(Fault::Indeterminate, "store", doing, "the backend did not end its call")
}

fn miscounted(count: usize) -> StoreError {
    let doing = format!("asking about {count} documents");
    StoreError::new(
        Fault::Indeterminate,
        "store",
        doing,
        "the backend gave another number of answers",
    )
}

/// The origin of a request: a machine, or the registration beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Machine(Ask),
    /// A request for the floor, which belongs to the machine too.
    Floor(Ask),
    Registration,
    Observation,
    Opening,
}

/// The store's answer to one request of a batch.
pub(crate) enum Answer {
    Read(Result<Option<Document>, StoreError>),
    Write(Result<Put, StoreError>),
}
