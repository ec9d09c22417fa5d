//! Sends many requests in few transactions, each with its own outcome.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tenure::Key;
use tenure::store::Fault;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::super::client::Client;
use super::super::fault::{Failure, Kind};
use super::super::proto::response_op::Response;
use super::super::proto::{
    RangeRequest, RangeResponse, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use super::super::{kv, message};
use super::requests;

/// The maximum number of transactions inside one.
///
/// With the operations of each, they stay below etcd's limit of 128.
const MOST_CHANGES: usize = 60;
/// The maximum number of reads in one transaction.
const MOST_READS: usize = 120;
/// The maximum number of transactions under way at once.
const MOST_FLIGHTS: usize = 8;
/// The maximum number of requests that wait to be taken.
const QUEUE: usize = 1024;

/// A request that is sent together with others of its kind.
pub(super) trait BatchItem: Send + Sized + 'static {
    type Answer: Send + 'static;

    /// The election of a change, and the rule for changes of the same election.
    fn grouping(&self) -> Option<(&Key, Grouping)>;
    /// How much room it takes.
    fn weight(&self) -> usize;
    /// How much room a transaction has.
    const ROOM: usize;
    /// Whether it is a read or a write.
    const KIND: Kind;

    /// Sends items in one transaction.
    fn send(
        client: Arc<Client>,
        items: Vec<Self>,
    ) -> impl Future<Output = Vec<Result<Self::Answer, Failure>>> + Send;
}

/// The rule for several changes of one election in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Must be the only one. Entries made in one transaction have the same create revision, so two
    /// of one election would both be first. If a transaction reads an entry and then deletes it,
    /// the deletion has the revision of that read, and a watch from the next revision on would
    /// never report it. And etcd refuses a transaction that writes a key twice.
    Alone,
    /// May go with others of this kind: deletions of entries do not affect each other.
    Alike,
}

/// A change of one election.
pub(super) struct Change {
    pub(super) election: Key,
    pub(super) grouping: Grouping,
    pub(super) txn: TxnRequest,
}

/// The outcome of a change.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) succeeded: bool,
    /// The store's revision with the change.
    pub(super) revision: i64,
    /// The results of the reads in the branch that was taken, in order.
    pub(super) found: Vec<RangeResponse>,
}

impl BatchItem for Change {
    type Answer = Changed;
    const ROOM: usize = MOST_CHANGES;
    const KIND: Kind = Kind::Write;

    fn grouping(&self) -> Option<(&Key, Grouping)> {
        Some((&self.election, self.grouping))
    }

    fn weight(&self) -> usize {
        1
    }

    async fn send(client: Arc<Client>, mut changes: Vec<Change>) -> Vec<Result<Changed, Failure>> {
        if changes.len() == 1 {
            let change = changes.remove(0);
            return vec![send_one(&client, change.txn).await];
        }
        let success = changes.iter().map(|change| message::within(change.txn.clone())).collect();
        let all = TxnRequest { success, ..TxnRequest::default() };
        match transact(&client, Kind::Write, all).await {
            Ok(answer) => {
                let header = answer.header;
                let parts = answer.responses.into_iter().map(Some).chain(std::iter::repeat(None));
                let parts = changes.iter().zip(parts);
                parts.map(|(_, part)| inner(part.and_then(|part| part.response), header)).collect()
            }
            // One of them was refused, and so were all: none had an effect, and each may learn its
            // own fate.
            Err(failure) if failure.lease.is_some() || refused(failure.fault) => {
                join_all(changes.into_iter().map(|change| send_one(&client, change.txn))).await
            }
            Err(failure) => changes.iter().map(|_| Err(failure.copy())).collect(),
        }
    }
}

/// Reads that belong together.
pub(super) struct Reading {
    pub(super) ranges: Vec<RangeRequest>,
}

/// The results of a [`Reading`].
#[derive(Debug)]
pub(super) struct Read {
    pub(super) revision: i64,
    pub(super) found: VecDeque<RangeResponse>,
}

impl Read {
    /// The result of the next read.
    pub(super) fn next(&mut self) -> RangeResponse {
        self.found.pop_front().unwrap_or_default()
    }
}

impl BatchItem for Reading {
    type Answer = Read;
    const ROOM: usize = MOST_READS;
    const KIND: Kind = Kind::Read;

    fn grouping(&self) -> Option<(&Key, Grouping)> {
        None
    }

    fn weight(&self) -> usize {
        self.ranges.len()
    }

    async fn send(client: Arc<Client>, readings: Vec<Reading>) -> Vec<Result<Read, Failure>> {
        let ranges = readings.iter().flat_map(|reading| reading.ranges.iter().cloned());
        let answer = match transact(&client, Kind::Read, requests::reads(ranges)).await {
            Ok(answer) => answer,
            Err(failure) => return readings.iter().map(|_| Err(failure.copy())).collect(),
        };
        let revision = message::at(answer.header.as_ref());
        let mut found = answer.responses.into_iter().map(range);
        let mut read = |reading: &Reading| {
            let found: VecDeque<_> = found.by_ref().take(reading.ranges.len()).flatten().collect();
            if found.len() == reading.ranges.len() {
                Ok(Read { revision, found })
            } else {
                Err(Failure::garbled(Kind::Read))
            }
        };
        readings.iter().map(&mut read).collect()
    }
}

/// Collects items and sends them together.
pub(super) struct Batches<P: BatchItem> {
    client: Arc<Client>,
    running: Mutex<Option<Running<P>>>,
}

struct Running<P: BatchItem> {
    items: mpsc::Sender<Posted<P>>,
    task: JoinHandle<()>,
}

struct Posted<P: BatchItem> {
    item: P,
    expires: Instant,
    answer: oneshot::Sender<Result<P::Answer, Failure>>,
}

impl<P: BatchItem> Batches<P> {
    pub(super) fn new(client: Arc<Client>) -> Batches<P> {
        Batches { client, running: Mutex::default() }
    }

    /// Sends an item, together with others that wait to be sent now.
    pub(super) async fn send(&self, item: P) -> Result<P::Answer, Failure> {
        let request = self.client.request();
        let (answer, answered) = oneshot::channel();
        let posted = Posted { item, expires: Instant::now() + request, answer };
        let items = self.items();
        match tokio::time::timeout(request, items.send(posted)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(Failure::unsent(request)),
        }
        // The task ends only with the runtime. Then no answer comes.
        answered.await.unwrap_or_else(|_| Err(Failure::late(P::KIND, request)))
    }

    fn items(&self) -> mpsc::Sender<Posted<P>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Some(running) if !running.task.is_finished() => running.items.clone(),
            Some(_) | None => {
                let (items, posted) = mpsc::channel(QUEUE);
                let task = tokio::spawn(run(self.client.clone(), posted));
                *running = Some(Running { items: items.clone(), task });
                items
            }
        }
    }
}

impl<P: BatchItem> Drop for Batches<P> {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running {
            running.task.abort();
        }
    }
}

async fn run<P: BatchItem>(client: Arc<Client>, mut posted: mpsc::Receiver<Posted<P>>) {
    let mut waiting = VecDeque::new();
    let mut flights = JoinSet::new();
    loop {
        tokio::select! {
            next = posted.recv(), if waiting.len() < QUEUE => match next {
                Some(next) => waiting.push_back(next),
                None => return,
            },
            Some(_) = flights.join_next(), if !flights.is_empty() => {}
        }
        // Callers that are about to send get the chance to travel with the first.
        tokio::task::yield_now().await;
        while waiting.len() < QUEUE
            && let Ok(next) = posted.try_recv()
        {
            waiting.push_back(next);
        }
        while flights.len() < MOST_FLIGHTS {
            let batch = take(&mut waiting);
            if batch.is_empty() {
                break;
            }
            flights.spawn(deliver(client.clone(), batch));
        }
    }
}

/// Takes the next items that may travel together, in order.
fn take<P: BatchItem>(waiting: &mut VecDeque<Posted<P>>) -> Vec<Posted<P>> {
    let mut elections = HashMap::new();
    let (mut batch, mut left, mut room) = (Vec::new(), VecDeque::new(), P::ROOM);
    while let Some(next) = waiting.pop_front() {
        if next.answer.is_closed() {
            // The caller has gone, and nothing was sent.
            continue;
        }
        if next.expires <= Instant::now() {
            let _ = next.answer.send(Err(Failure::unsent(Duration::ZERO)));
            continue;
        }
        let grouping =
            next.item.grouping().map(|(election, grouping)| (election.clone(), grouping));
        if let Some((election, grouping)) = &grouping
            && let Some(other) = elections.get(election)
            && (*grouping, *other) != (Grouping::Alike, Grouping::Alike)
        {
            left.push_back(next);
            continue;
        }
        let weight = next.item.weight();
        if weight > room && !batch.is_empty() {
            left.push_back(next);
            break;
        }
        room = room.saturating_sub(weight);
        elections.extend(grouping);
        batch.push(next);
    }
    left.append(waiting);
    *waiting = left;
    batch
}

async fn deliver<P: BatchItem>(client: Arc<Client>, batch: Vec<Posted<P>>) {
    let (items, answers): (Vec<P>, Vec<_>) =
        batch.into_iter().map(|posted| (posted.item, posted.answer)).unzip();
    let outcomes = P::send(client, items).await;
    for (answer, outcome) in answers.into_iter().zip(outcomes) {
        // A caller that has gone meanwhile looks for the outcome itself.
        let _ = answer.send(outcome);
    }
}

async fn send_one(client: &Client, txn: TxnRequest) -> Result<Changed, Failure> {
    let answer = transact(client, Kind::Write, txn).await?;
    let header = answer.header;
    inner(Some(Response::ResponseTxn(answer)), header)
}

async fn transact(client: &Client, kind: Kind, txn: TxnRequest) -> Result<TxnResponse, Failure> {
    let send = |channel, request| async move { kv(channel).txn(request).await };
    client.call(kind, txn, send).await
}

fn inner(part: Option<Response>, header: Option<ResponseHeader>) -> Result<Changed, Failure> {
    let revision = message::at(header.as_ref());
    match part {
        Some(Response::ResponseTxn(TxnResponse { succeeded, responses, .. })) => {
            let found = responses.into_iter().filter_map(range).collect();
            Ok(Changed { succeeded, revision, found })
        }
        Some(
            Response::ResponseRange(_)
            | Response::ResponsePut(_)
            | Response::ResponseDeleteRange(_),
        )
        | None => Err(Failure::garbled(Kind::Write)),
    }
}

fn range(part: ResponseOp) -> Option<RangeResponse> {
    match part.response {
        Some(Response::ResponseRange(range)) => Some(range),
        Some(
            Response::ResponsePut(_) | Response::ResponseDeleteRange(_) | Response::ResponseTxn(_),
        )
        | None => None,
    }
}

/// Returns true if a request certainly had no effect, and would be refused again.
fn refused(fault: Fault) -> bool {
    matches!(fault, Fault::Permanent | Fault::Denied)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(election: usize) -> Posted<Change> {
        posted_in(election, Grouping::Alone)
    }

    fn posted_in(election: usize, grouping: Grouping) -> Posted<Change> {
        let election = Key::parse(&format!("elections/{election}")).expect("a good key");
        let change = Change { election, grouping, txn: TxnRequest::default() };
        let (answer, answered) = oneshot::channel();
        std::mem::forget(answered);
        Posted { item: change, expires: Instant::now() + Duration::from_secs(9), answer }
    }

    #[tokio::test]
    async fn two_of_one_election_never_travel_together() {
        let mut waiting: VecDeque<_> = [1, 2, 1, 3, 2, 1].into_iter().map(posted).collect();
        let mut sizes = Vec::new();
        while !waiting.is_empty() {
            sizes.push(take(&mut waiting).len());
        }
        assert_eq!(sizes, [3, 2, 1]);
    }

    #[tokio::test]
    async fn deletions_travel_together_and_not_with_a_join() {
        let leave = |election| posted_in(election, Grouping::Alike);
        let mut waiting: VecDeque<_> =
            [leave(1), leave(1), posted(1), leave(1), leave(2)].into_iter().collect();
        assert_eq!(take(&mut waiting).len(), 4);
        assert_eq!(take(&mut waiting).len(), 1);
    }

    #[tokio::test]
    async fn a_batch_has_sixty_at_most_and_none_that_nobody_waits_for() {
        let mut waiting: VecDeque<_> = (0..100).map(posted).collect();
        let (gone, _) = oneshot::channel();
        waiting[0].answer = gone;
        assert_eq!(take(&mut waiting).len(), 60);
        assert_eq!(take(&mut waiting).len(), 39);
    }
}
