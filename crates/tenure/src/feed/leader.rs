//! The one record of a feed as a store for the lease protocol.
//!
//! The machine that decides every election also decides the leader of a feed: this module shows it
//! the table's documents as the documents of a [`Store`]. It adds two features. Heartbeats that the
//! subscription shows are answered from there, so that followers need not read. The current leader
//! and any request to hand over are kept for the [`Feed`](super::Feed).
//!
//! # Why a shown heartbeat may stand for a read
//! A follower that reads a renewal only restarts its timer on that version. A subscription may be
//! late, and may show a write that is never committed. But it never shows a write before it was
//! sent, and the holder counts its window from the sending. So the timer starts no earlier than it
//! may, and the claim that follows compares with the very version that was shown. Everything else
//! is really read: any change but a renewal by the same holder under the same terms, and any
//! document after a write of our own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::watch;

use super::event::{Event, Teller};
use super::record::{PREFERRED, preferred, to_body, to_fields};
use crate::candidate::CandidateId;
use crate::clock::Moment;
use crate::lease::record::{Record, State};
use crate::parts::Parts;
use crate::store::feed::{Beat, FeedStore, Fields, Found, LEADER};
use crate::store::{Document, Expect, Fault, Page, Put, Reads, Store, StoreError, Version, Write};
use crate::{Error, Key, Name};

/// How many lost races a request for a hand-over survives before it is given up.
const MOST_ATTEMPTS: u32 = 64;
/// The number of ttls after which an unchanged registration counts as gone.
///
/// A feed refreshes its document every tenth ttl.
const STALE_TTLS: u32 = 20;
/// The most registrations that are remembered.
const MOST_REGISTRATIONS: usize = 1024;

/// The most candidacies of this feed that are remembered. A leaving candidacy is done within a ttl.
const MOST_REMEMBERED: usize = 16;

/// The leader that the table shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) holder: CandidateId,
    pub(super) token: u64,
}

/// The documents of one feed in its table.
#[derive(Debug)]
pub(super) struct LeaderStore {
    feed: Arc<dyn FeedStore>,
    table: String,
    me: String,
    key: Key,
    parts: Parts,
    teller: Arc<Teller>,
    hearing: watch::Receiver<bool>,
    shown: watch::Sender<Shown>,
    known: watch::Sender<Option<Known>>,
    asked: watch::Sender<Option<String>>,
    memory: Mutex<Memory>,
}

/// The last state of the leader's document that the subscription showed.
#[derive(Clone, Debug, Default)]
struct Shown {
    /// How many states it showed.
    count: u64,
    /// The state, if it was a valid record.
    found: Option<(Found, Record)>,
}

#[derive(Debug, Default)]
struct Memory {
    answered: Option<Answered>,
    /// The candidacies that write through here, the newest last. One may still be leaving while the
    /// next one stands.
    mine: VecDeque<CandidateId>,
    /// The feed that the record is freed for.
    successor: Option<String>,
    registrations: Registrations,
}

/// Registrations of other feeds, and since when each has been unchanged.
///
/// Their timestamps come from the server that took the write, and servers' clocks differ. Only this
/// process's own clock tells how long a registration was left alone.
#[derive(Debug, Default)]
struct Registrations {
    seen: HashMap<String, (Version, Moment)>,
}

impl Registrations {
    fn is_fresh(&mut self, id: &str, at: &Version, ttl: Option<Duration>, now: Moment) -> bool {
        if self.seen.len() >= MOST_REGISTRATIONS && !self.seen.contains_key(id) {
            self.seen.clear();
        }
        let (seen, since) = self.seen.entry(id.to_owned()).or_insert_with(|| (at.clone(), now));
        if seen != at {
            (*seen, *since) = (at.clone(), now);
        }
        ttl.is_none_or(|ttl| now.at_least_since(*since) <= ttl.saturating_mul(STALE_TTLS))
    }
}

impl Memory {
    fn note_mine(&mut self, id: &CandidateId) {
        if self.mine.contains(id) {
            return;
        }
        if self.mine.len() == MOST_REMEMBERED {
            self.mine.pop_front();
        }
        self.mine.push_back(id.clone());
    }
}

/// The last answer to the machine about the leader's document.
#[derive(Clone, Debug)]
struct Answered {
    record: Option<Record>,
    /// How many states the subscription had shown when the question was sent.
    shown: u64,
    /// True if it was read and we have not written since.
    ///
    /// Then a shown renewal may stand for a read.
    settled: bool,
}

impl LeaderStore {
    pub(super) fn new(
        feed: Arc<dyn FeedStore>,
        table: String,
        me: String,
        parts: Parts,
        teller: Arc<Teller>,
        hearing: watch::Receiver<bool>,
    ) -> LeaderStore {
        let name = Name::parse(LEADER).expect("it is one plain segment");
        LeaderStore {
            feed,
            table,
            me,
            key: Key::election(&name),
            parts,
            teller,
            hearing,
            shown: watch::Sender::default(),
            known: watch::Sender::default(),
            asked: watch::Sender::default(),
            memory: Mutex::default(),
        }
    }

    /// Forgets the view of an earlier candidacy: the next one reads for itself.
    pub(super) fn begin(&self) {
        let mut memory = self.lock();
        memory.answered = None;
        memory.successor = None;
        drop(memory);
        self.asked.send_replace(None);
    }

    /// The leader that the table shows, from now on.
    pub(super) fn known(&self) -> watch::Receiver<Option<Known>> {
        self.known.subscribe()
    }

    /// The feed that we are asked to hand over to, from now on.
    pub(super) fn asked(&self) -> watch::Receiver<Option<String>> {
        self.asked.subscribe()
    }

    /// Makes the next release prefer this feed for the first claim.
    pub(super) fn prefer(&self, successor: String) {
        self.lock().successor = Some(successor);
    }

    /// Takes a state of the leader's document from the subscription.
    pub(super) fn show(&self, found: Option<Found>) {
        let found = found.and_then(|found| {
            let record = Record::decode(&to_body(&found.fields, &self.me)).ok()?;
            Some((found, record))
        });
        self.shown.send_modify(|shown| *shown = Shown { count: shown.count + 1, found });
    }

    /// Returns true if a feed of this id takes part.
    pub(super) async fn is_registered(&self, id: &str) -> Result<bool, StoreError> {
        let found = self.feed.read(&self.table, &[registration(id)]).await?;
        let Some(found) = found.into_iter().next().flatten() else { return Ok(false) };
        let ttl = found.fields.get("ttl").and_then(Value::as_u64).map(Duration::from_millis);
        let now = self.parts.clock.now();
        Ok(self.lock().registrations.is_fresh(id, &found.version, ttl, now))
    }

    /// Asks the leader to hand over to this feed, by a note in the leader's document.
    pub(super) async fn ask_for(&self, id: &str) -> Result<(), Error> {
        let mut sent: Vec<String> = Vec::new();
        for _ in 0..MOST_ATTEMPTS {
            let found = self.feed.read(&self.table, &[LEADER.into()]).await?;
            // There has never been a leader: the preferred feed may claim at once.
            let Some(found) = found.into_iter().next().flatten() else { return Ok(()) };
            let field = |name: &str| found.fields.get(name).and_then(Value::as_str);
            let done = field("op").is_some_and(|op| sent.iter().any(|sent| sent == op))
                || preferred(&found.fields) == Some(id)
                || field("value") == Some(id);
            if done {
                return Ok(());
            }
            let mut fields = found.fields.clone();
            let op = self.parts.fresh_op().as_str().to_owned();
            let revision = fields.get("revision").and_then(Value::as_u64).unwrap_or(0);
            fields.remove("timestamp");
            fields.insert("op".into(), op.clone().into());
            fields.insert("revision".into(), revision.saturating_add(1).into());
            fields.insert(PREFERRED.into(), id.into());
            sent.push(op);
            let expect = Expect::At(found.version);
            let beat = Beat { id: LEADER.into(), expect, fields: Some(fields) };
            match self.feed.heartbeat(&self.table, beat).await {
                Ok(Put::Stored(_)) => return Ok(()),
                Ok(Put::Conflict) => {}
                Err(error) if error.fault == Fault::Indeterminate => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended { attempts: MOST_ATTEMPTS })
    }

    /// Removes this feed's registration, if the table answers.
    pub(super) async fn unregister(&self) -> Result<(), StoreError> {
        let id = registration(&self.me);
        let found = self.feed.read(&self.table, std::slice::from_ref(&id)).await?;
        if let Some(found) = found.into_iter().next().flatten() {
            let expect = Expect::At(found.version);
            // A conflict means that another feed has taken this id, and with it the registration.
            let _ = self.feed.heartbeat(&self.table, Beat { id, expect, fields: None }).await?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // Every change is one assignment: a panic leaves nothing half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id_of(&self, key: &Key) -> String {
        // The driver uses two kinds of documents: the record, and its own registration.
        if *key == self.key { LEADER.into() } else { registration(&self.me) }
    }

    /// The leader's document from the subscription, where it may stand for a read.
    fn shown_renewal(&self) -> Option<Document> {
        let Shown { count, found } = self.shown.borrow().clone();
        let (found, record) = found?;
        let mut memory = self.lock();
        let answered = memory.answered.as_ref().filter(|answered| answered.settled)?;
        let before = answered.record.as_ref()?;
        // Our own writes must be read: the subscription may show a write that never commits.
        let another = record.holder().is_some_and(|holder| !memory.mine.contains(&holder.id));
        if !another || !is_renewal(before, &record) || preferred(&found.fields).is_some() {
            return None;
        }
        memory.answered = Some(Answered { record: Some(record), shown: count, settled: true });
        Some(Document { version: found.version, body: to_body(&found.fields, &self.me) })
    }

    /// Keeps the result of a read of the leader's document.
    fn note_read(&self, shown: u64, found: Option<&Found>) {
        let record = found.and_then(|found| Record::decode(&to_body(&found.fields, &self.me)).ok());
        let holder = record.as_ref().and_then(Record::holder);
        let is_mine = {
            let mut memory = self.lock();
            memory.answered = Some(Answered { record: record.clone(), shown, settled: true });
            holder.is_some_and(|holder| memory.mine.back() == Some(&holder.id))
        };
        let asked = found.and_then(|found| preferred(&found.fields)).filter(|id| *id != self.me);
        if let Some(id) = asked.filter(|_| is_mine) {
            self.asked.send_replace(Some(id.to_owned()));
        }
        self.note_leader(record.as_ref());
    }

    fn note_leader(&self, record: Option<&Record>) {
        let known = record.and_then(|record| {
            Some(Known { holder: record.holder()?.id.clone(), token: record.token })
        });
        self.known.send_if_modified(|before| {
            let differs = *before != known;
            *before = known;
            differs
        });
    }

    fn tell(&self, error: &StoreError) {
        self.teller.tell(Event::HeartbeatError(Error::Store(error.clone())));
    }

    async fn write(&self, write: Write) -> Result<Put, StoreError> {
        let Write { key, expect, body, durability: _ } = write;
        match body {
            Some(body) if key == self.key => self.write_leader(expect, &body).await,
            Some(body) => self.register(expect, &body).await,
            // The next candidacy of this feed uses the same registration, so only the feed
            // unregisters.
            None => Ok(Put::Stored(Version::new(""))),
        }
    }

    async fn write_leader(&self, expect: Expect, body: &Bytes) -> Result<Put, StoreError> {
        let record = Record::decode(body).ok();
        let shown = self.shown.borrow().count;
        let successor = {
            let mut memory = self.lock();
            if let Some(id) = record.as_ref().and_then(written_by_its_holder) {
                memory.note_mine(id);
            }
            if let Some(answered) = &mut memory.answered {
                answered.settled = false;
            }
            let freed = |record: &Record| matches!(record.state, State::Free { .. });
            memory.successor.clone().filter(|_| record.as_ref().is_some_and(freed))
        };
        let fields = to_fields(body, successor.as_deref());
        let beat = Beat { id: LEADER.into(), expect, fields: Some(fields.ok_or_else(no_record)?) };
        let put = self.feed.heartbeat(&self.table, beat).await;
        match &put {
            Ok(Put::Stored(_)) => {
                self.note_leader(record.as_ref());
                self.lock().answered = Some(Answered { record, shown, settled: false });
            }
            Ok(Put::Conflict) => {}
            Err(error) => self.tell(error),
        }
        put
    }

    async fn register(&self, expect: Expect, body: &Bytes) -> Result<Put, StoreError> {
        let mut entry: Fields = serde_json::from_slice(body).map_err(|_| no_record())?;
        let id = registration(&self.me);
        let op = self.parts.fresh_op();
        let mut fields = Fields::new();
        fields.insert("id".into(), id.clone().into());
        fields.insert("value".into(), self.me.clone().into());
        fields.insert("op".into(), op.as_str().into());
        for kept in ["since", "ttl"] {
            fields.extend(entry.remove_entry(kept));
        }
        self.feed.heartbeat(&self.table, Beat { id, expect, fields: Some(fields) }).await
    }

    /// Returns true if the subscription has shown a state that the machine does not know.
    fn is_news(&self, shown: &Shown, seen: Option<&Version>) -> bool {
        let memory = self.lock();
        let Some(answered) = &memory.answered else { return shown.count > 0 };
        if shown.count <= answered.shown {
            return false;
        }
        match (&shown.found, &answered.record) {
            // A late notification of an older state is no news.
            (Some((found, now)), Some(before)) => {
                now.revision > before.revision
                    || now.revision == before.revision && Some(&found.version) != seen
            }
            (None, _) | (_, None) => true,
        }
    }
}

#[async_trait]
impl Store for LeaderStore {
    fn reads(&self) -> Reads {
        self.feed.reads()
    }

    fn notifies(&self) -> bool {
        *self.hearing.borrow()
    }

    fn forgets_deleted(&self) -> bool {
        false
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        if keys == std::slice::from_ref(&self.key)
            && let Some(document) = self.shown_renewal()
        {
            return Ok(vec![Some(document)]);
        }
        let ids: Vec<String> = keys.iter().map(|key| self.id_of(key)).collect();
        let shown = self.shown.borrow().count;
        let read = self.feed.read(&self.table, &ids).await;
        let found = read.inspect_err(|error| self.tell(error))?;
        let document = |(id, found): (&String, Option<Found>)| {
            if id == LEADER {
                self.note_read(shown, found.as_ref());
            }
            let Found { version, fields } = found?;
            Some(Document { version, body: to_body(&fields, &self.me) })
        };
        Ok(ids.iter().zip(found).map(document).collect())
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        join_all(writes.into_iter().map(|write| self.write(write))).await
    }

    async fn list(&self, _: &Key, _: Option<&Key>, _: usize) -> Result<Page, StoreError> {
        // A feed is one election: there is none above or below it.
        Ok(Page::default())
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        if *key != self.key {
            return std::future::pending().await;
        }
        let mut shown = self.shown.subscribe();
        loop {
            let news = {
                let shown = shown.borrow_and_update();
                self.is_news(&shown, seen)
            };
            // The sender is ours, so there is no error to see.
            if news || shown.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The id of a feed's registration document.
fn registration(id: &str) -> String {
    format!("feeds/{id}")
}

/// The holder, if this record is its own claim or renewal.
///
/// A candidate that leaves may rewrite another holder's record; such a record does not count.
fn written_by_its_holder(record: &Record) -> Option<&CandidateId> {
    let id = &record.holder()?.id;
    let number = record.op.as_str().strip_prefix(id.as_str())?;
    number.starts_with('-').then_some(id)
}

/// Returns true if `after` is `before`, renewed by its holder under the same terms.
fn is_renewal(before: &Record, after: &Record) -> bool {
    let (Some(holder), Some(same)) = (before.holder(), after.holder()) else { return false };
    holder.id == same.id
        && before.token == after.token
        && before.generation == after.generation
        && before.ttl == after.ttl
        && (before.delay, before.next_delay) == (after.delay, after.next_delay)
        && before.revision < after.revision
}

fn no_record() -> StoreError {
    let says = "what the protocol wrote is no JSON object";
    StoreError::new(Fault::Permanent, "feed", "writing the leader's document", says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_old_when_it_was_seen_unchanged_for_long_enough() {
        let (mut registrations, began) = (Registrations::default(), crate::clock::system().now());
        let (one, other, ttl) = (Version::new("a-1"), Version::new("a-2"), Duration::from_secs(2));
        let mut fresh = |version: &Version, after: u64| {
            let now = began + Duration::from_secs(after);
            registrations.is_fresh("a", version, Some(ttl), now)
        };
        assert!(fresh(&one, 0) && fresh(&one, 39));
        assert!(!fresh(&one, 45), "nobody refreshes it");
        assert!(fresh(&other, 46) && fresh(&other, 80), "it was refreshed");
        assert!(!fresh(&other, 90));
    }
}
