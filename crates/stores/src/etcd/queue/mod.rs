//! Queues of candidates in etcd.
//!
//! An entry is a key of its election under a lease of this process. The format is that of etcd's
//! own clients, which wait in the same queues. An entry is named after its *seat*, which is named
//! after the first lease that the seat had; it may be under another by now. Its token is its create
//! revision. Beside it, in the same transaction and under the same lease, a record tells which join
//! made the entry, and for which candidate. One mark for each election tells if it is open.
//!
//! [`join`], [`view`] and [`marks`] are about one queue each. [`session`] keeps the leases alive
//! and proves it. [`claims`] knows the entries of this process. [`batch`] sends the requests of
//! many elections together. [`reaper`] deletes the entry of a join that was given up.

mod batch;
mod claims;
mod contents;
mod join;
mod keys;
mod marks;
mod reaper;
mod record;
mod requests;
mod session;
pub(super) mod version;
mod view;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::Key;
use tenure::protocol::Holder;
use tenure::queue::{
    Entry, Freshness, Gone, Joined, Left, Pace, Queue, Session, SessionQueue, Ticket,
};
use tenure::store::{Fault, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::batch::{Batches, Change, Changed, Grouping, Read, Reading};
use self::claims::{Claims, Own, Stage};
use self::contents::look;
use self::keys::{QueueKeys, of_name};
use super::fault::{Failure, LeaseTrouble};
use super::keys::Keys;
use super::proto::KeyValue;
use super::waits::Topic;
use super::{Core, failed};

/// The maximum number of keys to warn of.
const MOST_WARNED: usize = 1024;

/// Queues of candidates in etcd.
///
/// [`EtcdStore::queue`](super::EtcdStore::queue) opens it.
pub struct EtcdQueue {
    shared: Arc<Shared>,
    tasks: Mutex<Option<Tasks>>,
}

/// The state that the queue and its tasks share.
struct Shared {
    core: Arc<Core>,
    keys: QueueKeys,
    /// The ttl that is asked for. The server may grant another.
    ttl: Duration,
    claims: Claims,
    changes: Batches<Change>,
    readings: Batches<Reading>,
    session: watch::Sender<Session>,
    /// The reason why there is no session, or no proven one.
    trouble: Mutex<Option<StoreError>>,
    pace: watch::Sender<Pace>,
    closing: watch::Sender<bool>,
    /// Keys that a warning was logged for.
    warned: Mutex<HashSet<Bytes>>,
}

struct Tasks {
    session: JoinHandle<()>,
    reaper: JoinHandle<()>,
}

impl EtcdQueue {
    pub(super) fn new(core: Arc<Core>, keys: &Keys, ttl: Duration) -> EtcdQueue {
        let client = core.client.clone();
        let shared = Shared {
            keys: QueueKeys::new(keys),
            ttl,
            claims: Claims::default(),
            changes: Batches::new(client.clone()),
            readings: Batches::new(client),
            session: watch::Sender::new(Session::none()),
            trouble: Mutex::default(),
            pace: watch::Sender::new(Pace::Waiting),
            closing: watch::Sender::new(false),
            warned: Mutex::default(),
            core,
        };
        EtcdQueue { shared: Arc::new(shared), tasks: Mutex::default() }
    }

    /// Begins a session if there is none. A caller that only looks needs none.
    fn start(&self) {
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.as_ref().is_none_or(|tasks| tasks.session.is_finished()) {
            if let Some(old) = tasks.take() {
                old.reaper.abort();
            }
            let session = tokio::spawn(session::run(self.shared.clone()));
            let reaper = tokio::spawn(reaper::run(self.shared.clone()));
            *tasks = Some(Tasks { session, reaper });
        }
    }
}

impl Drop for EtcdQueue {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = tasks {
            tasks.reaper.abort();
        }
        // The session's task ends by itself, after it has given back the leases without entries.
        self.shared.closing.send_replace(true);
    }
}

impl fmt::Debug for EtcdQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdQueue").field("keys", &self.shared.keys).finish_non_exhaustive()
    }
}

#[async_trait]
impl SessionQueue for EtcdQueue {
    async fn join(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Result<Joined, StoreError> {
        self.start();
        self.shared.join(election, ticket, holder).await
    }

    async fn read(
        &self,
        election: &Key,
        ticket: &Ticket,
        freshness: Freshness,
    ) -> Result<Queue, StoreError> {
        // Every read is linearizable: it shows all writes acknowledged before it was sent.
        let _ = freshness;
        self.shared.read_queue(election, ticket).await
    }

    async fn gone(&self, entry: &Entry) -> Gone {
        let shared = &self.shared;
        let key = of_name(&entry.name);
        let Ok(token) = i64::try_from(entry.token) else { return Gone::Perhaps };
        shared.core.listen();
        let gone = shared.core.waits.gone(&Topic::one(key.clone()), token).await;
        if gone == Gone::Perhaps {
            return gone;
        }
        let Some((election, seat)) = shared.keys.parse(&key) else { return Gone::Perhaps };
        if shared.claims.vanished(&election, seat, entry.token) {
            shared.claims.gone(&election, seat, entry.token);
        }
        // A leader that leaves because the election has ended must not make the next candidate
        // lead.
        let open = shared.was_open_until_deleted(&election, entry);
        if open { Gone::Deleted } else { Gone::DeletedMaybeEnded }
    }

    async fn ended(&self, election: &Key, generation: u64) {
        self.shared.core.listen();
        let mark = Topic::one(self.shared.keys.mark(election));
        // The generation is the revision of the mark that opened the election.
        let seen = i64::try_from(generation).ok().filter(|revision| *revision > 0);
        self.shared.core.waits.changed(&mark, seen).await;
    }

    async fn begin(&self, entry: &Entry) -> Result<(), StoreError> {
        let shared = &self.shared;
        let doing = || format!("recording a tenure at {}", entry.name);
        let (election, _) = shared.own(entry, doing())?;
        let txn = requests::begin(&shared.keys, &election, of_name(&entry.name), entry.token);
        let changed = shared.change(election, txn, doing).await?;
        vanished_unless(changed.succeeded, doing)
    }

    /// Records nothing.
    ///
    /// A record would not help: a copy of an etcd has none of the leases to compare it with, and a
    /// restored backup has the record of that day. A process still knows the tokens that it led
    /// with.
    async fn note(&self, _entry: &Entry) -> Result<(), StoreError> {
        Ok(())
    }

    async fn leave(&self, entry: &Entry, clean: bool) -> Result<Left, StoreError> {
        let shared = &self.shared;
        let doing = || format!("deleting {}", entry.name);
        let Some((election, seat)) = shared.keys.parse(&of_name(&entry.name)) else {
            return Err(unavailable(doing(), "it is no entry of ours"));
        };
        let txn = requests::leave(&shared.keys, &election, seat, entry.token, clean);
        let change = Change { election: election.clone(), grouping: Grouping::Alike, txn };
        shared.claims.leave(&election, seat, entry.token);
        let changed = shared.changes.send(change).await;
        let changed = changed.map_err(|failure| shared.failed(failure, doing()))?;
        shared.claims.gone(&election, seat, entry.token);
        Ok(if changed.succeeded { Left::Deleted } else { Left::Absent })
    }

    async fn publish(&self, entry: &Entry, value: &Bytes) -> Result<(), StoreError> {
        let shared = &self.shared;
        let doing = || format!("publishing a value at {}", entry.name);
        let (election, own) = shared.own(entry, doing())?;
        let holder = Arc::new(Holder { value: value.clone(), ..(*own.holder).clone() });
        let attempt = own.ticket.attempt;
        let (keys, token) = (&shared.keys, entry.token);
        let txn = requests::publish(keys, &election, own.seat, token, &holder, attempt);
        let changed = shared.change(election.clone(), txn, doing).await?;
        shared.claims.publish(&election, &own.ticket.candidate, holder);
        vanished_unless(changed.succeeded, doing)
    }

    async fn create(&self, election: &Key) -> Result<u64, StoreError> {
        self.shared.create(election).await
    }

    async fn end(&self, election: &Key, generation: u64) -> Result<(), StoreError> {
        self.shared.end(election, generation).await
    }

    async fn remove(&self, election: &Key) -> Result<bool, StoreError> {
        self.shared.remove(election).await
    }

    async fn look(&self, election: &Key, freshness: Freshness) -> Result<Queue, StoreError> {
        // As for `read`.
        let _ = freshness;
        self.shared.look(election).await
    }

    async fn survey(&self, election: &Key) -> Result<Queue, StoreError> {
        self.look(election, Freshness::Barrier).await
    }

    async fn moved(&self, election: &Key, first: Option<&Entry>) {
        let shared = &self.shared;
        shared.core.listen();
        let waits = &shared.core.waits;
        let mark = Topic::one(shared.keys.mark(election));
        // No entry can come before one that stands, so its key alone is enough.
        let queue = match first {
            Some(first) => Topic::one(of_name(&first.name)),
            None => shared.keys.entries(election),
        };
        tokio::select! {
            () = waits.moved(&mark) => {}
            () = waits.moved(&queue) => {}
        }
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.start();
        self.shared.session.subscribe()
    }

    fn trouble(&self) -> Option<StoreError> {
        self.shared.trouble().clone()
    }

    fn pace(&self, pace: Pace) {
        self.shared.pace.send_if_modified(|held| std::mem::replace(held, pace) != pace);
    }
}

impl Shared {
    /// The election and the claim of an entry of this process.
    fn own(&self, entry: &Entry, doing: String) -> Result<(Key, Own), StoreError> {
        let own = self.keys.parse(&of_name(&entry.name)).and_then(|(election, seat)| {
            let own = self.claims.at(&election, seat)?;
            (own.stage == Stage::Standing { token: entry.token }).then_some((election, own))
        });
        own.ok_or_else(|| unavailable(doing, "it is no entry of this session"))
    }

    async fn change(
        &self,
        election: Key,
        txn: super::proto::TxnRequest,
        doing: impl Fn() -> String,
    ) -> Result<Changed, StoreError> {
        let changed = self.changes.send(Change { election, grouping: Grouping::Alone, txn }).await;
        changed.map_err(|failure| self.failed(failure, doing()))
    }

    async fn read(
        &self,
        ranges: Vec<super::proto::RangeRequest>,
        doing: impl Fn() -> String,
    ) -> Result<Read, StoreError> {
        let read = self.readings.send(Reading { ranges }).await;
        read.map_err(|failure| failed(failure, &doing()))
    }

    /// Returns true if this key has not been warned of yet, and remembers it.
    fn is_news(&self, key: &Bytes) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.len() < MOST_WARNED && warned.insert(key.clone())
    }

    fn trouble(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, failure: Failure, doing: String) -> StoreError {
        if failure.lease == Some(LeaseTrouble::Missing) {
            self.claims.report_trouble();
        }
        failed(failure, &doing)
    }

    fn saw(&self, looks: &[(Bytes, Option<&KeyValue>)], store: i64) {
        let looks = looks.iter().map(|(key, found)| look(key.clone(), *found, store));
        self.core.waits.saw(looks);
    }
}

fn unavailable(doing: String, says: &str) -> StoreError {
    StoreError::new(Fault::Unavailable, "etcd", doing, says)
}

fn doubtful(doing: String, says: &str) -> StoreError {
    StoreError::new(Fault::Indeterminate, "etcd", doing, says)
}

fn vanished_unless(succeeded: bool, doing: impl Fn() -> String) -> Result<(), StoreError> {
    if succeeded { Ok(()) } else { Err(unavailable(doing(), "the entry is gone, or moves")) }
}
