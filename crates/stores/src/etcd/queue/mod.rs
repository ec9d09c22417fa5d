//! Lines of candidates in etcd.
//!
//! An entry is a key of its election under a lease of this process, as etcd's own clients write it: they wait in
//! the same lines. Its name is that of a *seat*: the lease the seat had first; it may stand under another by now.
//! Its token is its create revision. Beside it, in the same transaction and under the same lease, a
//! record says which join made it, and whose. One mark an election says whether it is open.
//!
//! [`session`] keeps the leases alive and proves it, [`claims`] knows who of this process stands where, [`batch`]
//! sends the requests of many elections together, [`reaper`] deletes what a join that was given up left behind.

mod batch;
mod claims;
mod keys;
mod line;
mod reaper;
mod record;
mod requests;
mod session;
mod version;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure::lease::record::Holder;
use tenure::queue::{
    Entry, Freshness, Gone, Joined, Left, Line, Pace, Place, Session, SessionQueue, Ticket,
};
use tenure::{Fault, Key, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::batch::{Batches, Change, Changed, Company, Read, Reading};
use self::claims::{Claims, Own, Stage};
use self::keys::{LineKeys, is_entry, of_name};
use self::line::{Part, entry, look, only, stood, whole};
use self::record::Mark;
use super::fault::{Failure, LeaseTrouble};
use super::keys::Keys;
use super::proto::KeyValue;
use super::waits::Topic;
use super::{Core, failed};

/// How often a mark that somebody else is changing is tried to be changed.
const ATTEMPTS: usize = 16;

/// Lines of candidates in etcd; [`EtcdStore::queue`](super::EtcdStore::queue) gives it.
pub struct EtcdQueue {
    shared: Arc<Shared>,
    tasks: Mutex<Option<Tasks>>,
}

/// What the queue and its tasks share.
struct Shared {
    core: Arc<Core>,
    keys: LineKeys,
    /// What is asked for; the server may grant another.
    ttl: Duration,
    claims: Claims,
    changes: Batches<Change>,
    readings: Batches<Reading>,
    session: watch::Sender<Session>,
    pace: watch::Sender<Pace>,
    closing: watch::Sender<bool>,
}

struct Tasks {
    session: JoinHandle<()>,
    reaper: JoinHandle<()>,
}

impl EtcdQueue {
    pub(super) fn new(core: Arc<Core>, keys: &Keys, ttl: Duration) -> EtcdQueue {
        let client = core.client.clone();
        let shared = Shared {
            keys: LineKeys::new(keys),
            ttl,
            claims: Claims::default(),
            changes: Batches::new(client.clone()),
            readings: Batches::new(client),
            session: watch::Sender::new(Session::none()),
            pace: watch::Sender::new(Pace::Waiting),
            closing: watch::Sender::new(false),
            core,
        };
        EtcdQueue { shared: Arc::new(shared), tasks: Mutex::default() }
    }

    /// Begins a session if there is none: whoever only looks needs none.
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
        // The session's task ends by itself, after it has given back leases that nothing stands under.
        self.shared.closing.send_replace(true);
    }
}

impl fmt::Debug for EtcdQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdQueue").field("keys", &self.shared.keys).finish_non_exhaustive()
    }
}

/// A join that is under way: if it is dropped, or fails without saying whether it had an effect, its outcome is in
/// doubt, and whatever appears without being claimed is deleted.
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

#[async_trait]
impl SessionQueue for EtcdQueue {
    async fn join(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Result<Joined, StoreError> {
        self.start();
        let shared = &*self.shared;
        let doing = || format!("joining the line of {election}");
        let Some(place) = shared.claims.reserve(election, ticket, holder) else {
            return Err(unavailable(doing(), "there is no session"));
        };
        let session = place.session;
        let mut joining = Joining { shared, election, ticket, session, seat: None, doubtful: true };
        let seat = shared.claims.seat(&place);
        let seat = tokio::time::timeout(shared.core.client.request(), seat).await;
        let Ok(Some(seat)) = seat else {
            return Err(unavailable(doing(), "there is no lease for it"));
        };
        joining.seat = Some(seat.name);
        let txn = requests::join(&shared.keys, election, seat, ticket, holder);
        let change = Change { election: election.clone(), company: Company::Alone, txn };
        let changed = match shared.changes.send(change).await {
            Ok(changed) => changed,
            Err(failure) => {
                if failure.fault != Fault::Indeterminate {
                    joining.doubtful = false;
                    shared.claims.release(election, &ticket.candidate, session);
                }
                return Err(shared.failed(failure, doing()));
            }
        };
        joining.doubtful = false;
        if changed.succeeded {
            shared.joined(election, ticket, session, seat.name, changed).await
        } else {
            shared.not_joined(election, ticket, session, seat.name, changed)
        }
    }

    async fn line(
        &self,
        election: &Key,
        ticket: &Ticket,
        freshness: Freshness,
    ) -> Result<Line, StoreError> {
        // Every read is linearizable: it shows all that was acknowledged before it was sent.
        let _ = freshness;
        self.shared.line(election, ticket).await
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
        let Some((election, seat)) = shared.keys.parse(&key) else { return gone };
        if shared.claims.vanished(&election, seat, entry.token) {
            shared.claims.gone(&election, seat, entry.token);
            return gone;
        }
        // Whoever leaves because the election ended must not make the next lead: its end is heard of first.
        if shared.is_open_for_all_we_know(&election) { Gone::Deleted } else { Gone::Perhaps }
    }

    async fn ended(&self, election: &Key, generation: u64) {
        self.shared.core.listen();
        let mark = Topic::one(self.shared.keys.mark(election));
        // The generation is the revision of the mark that opened it.
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

    async fn leave(&self, entry: &Entry, clean: bool) -> Result<Left, StoreError> {
        let shared = &self.shared;
        let doing = || format!("deleting {}", entry.name);
        let Some((election, seat)) = shared.keys.parse(&of_name(&entry.name)) else {
            return Err(unavailable(doing(), "it is no entry of ours"));
        };
        let txn = requests::leave(&shared.keys, &election, seat, entry.token, clean);
        let change = Change { election: election.clone(), company: Company::Alike, txn };
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
        let shared = &self.shared;
        let doing = || format!("creating {election}");
        let mut txn = requests::create(&shared.keys, election);
        for _ in 0..ATTEMPTS {
            let mut changed = shared.change(election.clone(), txn, doing).await?;
            if changed.succeeded {
                return Ok(u64::try_from(changed.revision).unwrap_or(0));
            }
            let found = changed.found.pop().and_then(only);
            txn = match Mark::read(found.as_ref()) {
                Mark::Open { generation } => {
                    shared.saw(&[(shared.keys.mark(election), found.as_ref())], changed.revision);
                    return Ok(generation);
                }
                Mark::Missing => requests::create(&shared.keys, election),
                Mark::Ended { .. } => {
                    let at = found.map_or(0, |found| found.mod_revision);
                    let open = Bytes::from_static(record::OPEN);
                    requests::mark(&shared.keys, election, at, open)
                }
            };
        }
        Err(unavailable(doing(), "others change it all the time"))
    }

    async fn end(&self, election: &Key, generation: u64) -> Result<(), StoreError> {
        let Some(at) = i64::try_from(generation).ok().filter(|at| *at > 0) else {
            // No creation of ours has that number.
            return Ok(());
        };
        let txn = requests::mark(&self.shared.keys, election, at, Mark::ended(generation));
        let doing = || format!("ending {election}");
        // Where it is no longer at that revision, that generation is over already.
        self.shared.change(election.clone(), txn, doing).await.map(|_| ())
    }

    async fn remove(&self, election: &Key) -> Result<bool, StoreError> {
        let shared = &self.shared;
        let doing = || format!("removing {election}");
        let mut read = shared.read(requests::anybody(&shared.keys, election), doing).await?;
        let revision = read.revision;
        let (mark, some) = (only(read.next()), read.next());
        let topic = shared.keys.entries(election);
        shared.saw(&[(shared.keys.mark(election), mark.as_ref())], revision);
        let mut first = some.kvs.into_iter().find(|found| is_entry(&topic, &found.key));
        if first.is_none() && some.more {
            first = shared.all(election, None).await?.first;
        }
        match Mark::read(mark.as_ref()) {
            Mark::Missing => Ok(first.is_none()),
            Mark::Open { .. } => Ok(false),
            Mark::Ended { .. } if first.is_some() => Ok(false),
            Mark::Ended { .. } => {
                let at = mark.map_or(0, |mark| mark.mod_revision);
                let txn = requests::remove(&shared.keys, election, at);
                Ok(shared.change(election.clone(), txn, doing).await?.succeeded)
            }
        }
    }

    async fn look(&self, election: &Key) -> Result<Line, StoreError> {
        let shared = &self.shared;
        let doing = || format!("reading the line of {election}");
        let mut read = shared.read(requests::everything(&shared.keys, election), doing).await?;
        let (mark, tenure) = (only(read.next()), only(read.next()));
        let (entries, records) = (read.next().kvs, read.next().kvs);
        let range = shared.keys.entries(election);
        let first = entries.iter().find(|found| is_entry(&range, &found.key));
        let mut looks = vec![(shared.keys.mark(election), mark.as_ref())];
        looks.extend(first.map(|first| (first.key.clone(), Some(first))));
        shared.saw(&looks, read.revision);
        let (mark, tenure) = (Mark::read(mark.as_ref()), record::read_tenure(tenure.as_ref()));
        Ok(whole(&shared.keys, election, mark, tenure, entries, &records))
    }

    async fn moved(&self, election: &Key, first: Option<&Entry>) {
        let shared = &self.shared;
        shared.core.listen();
        let waits = &shared.core.waits;
        let mark = Topic::one(shared.keys.mark(election));
        // While somebody stands there nobody can come before: that entry alone tells.
        let line = match first {
            Some(first) => Topic::one(of_name(&first.name)),
            None => shared.keys.entries(election),
        };
        tokio::select! {
            () = waits.moved(&mark) => {}
            () = waits.moved(&line) => {}
        }
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.start();
        self.shared.session.subscribe()
    }

    fn pace(&self, pace: Pace) {
        self.shared.pace.send_if_modified(|held| std::mem::replace(held, pace) != pace);
    }
}

impl Shared {
    /// An entry was made.
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
            // It was given up meanwhile, and the entry is nobody's.
            self.claims.haunt(election, seat);
            let says = "it was given up before it was answered";
            return Err(doubtful(format!("joining the line of {election}"), says));
        }
        let mut found = changed.found.into_iter();
        let mut next = || found.next().unwrap_or_default();
        let (mark, tenure) = (only(next()), only(next()));
        let (first, newest) = (only(next()), next());
        let key = self.keys.entry(election, seat);
        let own = newest.kvs.iter().find(|found| found.key == key).cloned();
        let before = newest.kvs.into_iter().find(|found| found.key != key);
        let part = Part { first, before, own };
        // Keys nested deeper were in the way, or came with it: the whole line tells who is before us.
        let entries = self.keys.entries(election);
        let odd = |found: &Option<KeyValue>| {
            found.as_ref().is_some_and(|found| !is_entry(&entries, &found.key))
        };
        let lost = part.own.is_none() || odd(&part.first) || odd(&part.before);
        let part = if lost {
            let read = self.all(election, Some(&key)).await;
            // The entry is made: without its line, a later look has to tell.
            read.map_err(|error| StoreError { fault: Fault::Indeterminate, ..error })?
        } else {
            part
        };
        let entry = Entry { name: keys::to_name(&key), token };
        self.saw(&[(self.keys.mark(election), mark.as_ref()), (key, part.own.as_ref())], revision);
        let line = self.assemble(election, ticket, &mark, &tenure, part, revision).await;
        Ok(Joined { session, entry: Some(entry), line })
    }

    /// None was: the election is not open, or something stands at our key.
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
            return Err(doubtful(format!("joining the line of {election}"), says));
        }
        self.claims.release(election, &ticket.candidate, session);
        let line = match Mark::read(mark.as_ref()) {
            Mark::Ended { generation } => Line::Ended { generation, places: Vec::new() },
            Mark::Missing => Line::Missing,
            Mark::Open { .. } => {
                let says = "its lease was replaced meanwhile";
                return Err(unavailable(format!("joining the line of {election}"), says));
            }
        };
        Ok(Joined { session, entry: None, line })
    }

    async fn line(&self, election: &Key, ticket: &Ticket) -> Result<Line, StoreError> {
        let doing = || format!("reading the line of {election}");
        let held = self.claims.of(election, &ticket.candidate);
        let key = held.as_ref().map(|own| self.keys.entry(election, own.seat.name));
        let token = held.as_ref().and_then(|own| match own.stage {
            Stage::Standing { token } => Some(token),
            Stage::Joining | Stage::Lost { .. } => None,
        });
        let entries = self.keys.entries(election);
        let seat = held.as_ref().map(|own| own.seat.name);
        let mut ranges = requests::own(&self.keys, election, seat);
        let heard = self.core.waits.heard(&Topic::one(self.keys.mark(election)));
        // If the mark has changed, the election has most likely ended, and then nobody else in line matters: reading
        // all of it for each who leaves would be much.
        let ending = held.as_ref().is_some_and(|own| heard.is_some_and(|heard| heard > own.mark));
        if !ending {
            ranges.push(requests::first(entries.clone()));
            ranges.extend(token.map(|token| requests::before(entries.clone(), token)));
        }
        let mut read = self.read(ranges, doing).await?;
        let revision = read.revision;
        let (mark, tenure) = (only(read.next()), only(read.next()));
        let own = key.as_ref().and_then(|_| only(read.next()));
        let record = key.as_ref().and_then(|_| only(read.next()));
        let is_open = matches!(Mark::read(mark.as_ref()), Mark::Open { .. });
        let found = own.as_ref().map(|own| entry(own).token);
        let part = if !is_open {
            Part { own, ..Part::default() }
        } else {
            let (first, before) = match found {
                _ if ending => self.around(election, found).await?,
                Some(own) if token != Some(own) => self.around(election, found).await?,
                Some(_) => (only(read.next()), only(read.next())),
                None => (only(read.next()), None),
            };
            let odd = |found: &Option<KeyValue>| {
                found.as_ref().is_some_and(|found| !is_entry(&entries, &found.key))
            };
            if odd(&first) || odd(&before) {
                self.all(election, key.as_deref()).await?
            } else {
                Part { first, before, own }
            }
        };
        let stood =
            part.own.as_ref().and_then(|own| stood(&self.keys, election, own, record.as_ref()));
        let found = part.own.as_ref().map(entry);
        // Only where somebody deleted the record does the join that we wait for stand in for it.
        let made_by =
            stood.map(|stood| stood.ticket).or(held.as_ref().map(|own| own.ticket.clone()));
        if let (Some(key), Some(held)) = (key, &held) {
            if !self.is_kept(election, held, part.own.as_ref()) {
                return Err(unavailable(doing(), "our own entry is under a lease that lapses"));
            }
            self.saw(&[(key, part.own.as_ref())], revision);
            if !self.learn(election, held, found.as_ref(), made_by.as_ref()) {
                return Err(unavailable(doing(), "our own entry was given up meanwhile"));
            }
        }
        self.saw(&[(self.keys.mark(election), mark.as_ref())], revision);
        let mut line = self.assemble(election, ticket, &mark, &tenure, part, revision).await;
        self.sign(&mut line, found.as_ref(), made_by);
        Ok(line)
    }

    /// Whether our own entry, if it stands, is under a lease that is kept alive.
    ///
    /// When a seat moves to another lease, whatever is claimed there moves with it. What was not claimed then, and is
    /// now, would vanish while it leads: it is left to lapse.
    fn is_kept(&self, election: &Key, held: &Own, own: Option<&KeyValue>) -> bool {
        let now = self.claims.of(election, &held.ticket.candidate);
        // It may have moved while it was looked for, in either order.
        let seats = [Some(held.seat), now.map(|now| now.seat)];
        own.is_none_or(|own| seats.into_iter().flatten().any(|seat| seat.keeps(own.lease)))
    }

    /// What a look tells of our own entry. False when that was given up while it was looked for: it may be deleted at
    /// any moment, and must not be taken for ours.
    fn learn(
        &self,
        election: &Key,
        held: &Own,
        own: Option<&Entry>,
        made_by: Option<&Ticket>,
    ) -> bool {
        let candidate = &held.ticket.candidate;
        match own {
            Some(own) if made_by.is_some_and(|ticket| ticket.candidate == *candidate) => {
                let stage = Stage::Standing { token: own.token };
                return self.claims.note(election, &held.ticket, held.session, stage);
            }
            // A join of an earlier candidacy arrived late.
            Some(_) => self.claims.haunt(election, held.seat.name),
            None => {
                if !matches!(held.stage, Stage::Standing { .. }) {
                    // It may still arrive; then nobody wants it.
                    self.claims.haunt(election, held.seat.name);
                }
                let now = self.claims.of(election, candidate);
                if now.is_some_and(|now| now.ticket == held.ticket && now.stage == held.stage) {
                    self.claims.release(election, candidate, held.session);
                }
            }
        }
        true
    }

    /// Puts a line together, with who stands first.
    async fn assemble(
        &self,
        election: &Key,
        ticket: &Ticket,
        mark: &Option<KeyValue>,
        tenure: &Option<KeyValue>,
        part: Part,
        revision: i64,
    ) -> Line {
        let entries = part.in_order();
        let looks: Vec<_> = entries.iter().map(|found| (found.key.clone(), Some(*found))).collect();
        self.saw(&looks, revision);
        let own = part.own.as_ref().map(entry);
        let place = |found: &&KeyValue| Place { entry: entry(found), ticket: None, holder: None };
        let mut places: Vec<Place> = entries.iter().map(place).collect();
        match Mark::read(mark.as_ref()) {
            Mark::Open { generation } => {
                let candidate = &ticket.candidate;
                let written = mark.as_ref().map_or(0, |mark| mark.mod_revision);
                self.claims.saw_mark(election, candidate, written);
                if let (Some(first), Some(found)) = (places.first_mut(), entries.first()) {
                    let holder = self.see(election, found).await;
                    let (token, revision) = (first.entry.token, found.mod_revision);
                    self.claims.saw_leader(election, candidate, token, revision, &holder);
                    first.holder = Some(holder);
                }
                let unclean = record::read_tenure(tenure.as_ref());
                Line::Open { generation, places, unclean }
            }
            mark @ (Mark::Ended { .. } | Mark::Missing) => {
                places.retain(|place| Some(&place.entry) == own.as_ref());
                match mark {
                    Mark::Ended { generation } => Line::Ended { generation, places },
                    Mark::Missing if places.is_empty() => Line::Missing,
                    // Somebody removed the mark under us: whatever was made until now is over, and ours must go.
                    Mark::Missing | Mark::Open { .. } => {
                        Line::Ended { generation: u64::try_from(revision).unwrap_or(0), places }
                    }
                }
            }
        }
    }

    /// Says which joins made the entries of ours.
    fn sign(&self, line: &mut Line, own: Option<&Entry>, made_by: Option<Ticket>) {
        let places = match line {
            Line::Open { places, .. } | Line::Ended { places, .. } => places,
            Line::Missing => return,
        };
        for place in places {
            place.ticket = if Some(&place.entry) == own {
                made_by.clone()
            } else {
                self.own(&place.entry, String::new()).ok().map(|(_, own)| own.ticket)
            };
        }
    }

    /// Who stands at this entry.
    async fn see(&self, election: &Key, found: &KeyValue) -> Arc<Holder> {
        let token = entry(found).token;
        let own = self.own(&entry(found), String::new()).ok().map(|(_, own)| own.holder);
        let seen = || self.claims.leader(election, token, found.mod_revision);
        if let Some(holder) = own.or_else(seen) {
            return holder;
        }
        let beside = match self.keys.holder_of(election, &found.key) {
            Some(key) => {
                let doing = || format!("reading who leads {election}");
                let read = self.read(vec![requests::one(key)], doing).await;
                // It is only shown: the entry itself says enough.
                read.ok().and_then(|mut read| only(read.next()))
            }
            None => None,
        };
        record::holder(found, stood(&self.keys, election, found, beside.as_ref()).as_ref())
    }

    /// The first in line, and the one before our own entry.
    async fn around(
        &self,
        election: &Key,
        own: Option<u64>,
    ) -> Result<(Option<KeyValue>, Option<KeyValue>), StoreError> {
        let entries = self.keys.entries(election);
        let mut ranges = vec![requests::first(entries.clone())];
        ranges.extend(own.map(|token| requests::before(entries, token)));
        let doing = || format!("reading the line of {election}");
        let mut read = self.read(ranges, doing).await?;
        Ok((only(read.next()), own.and_then(|_| only(read.next()))))
    }

    /// Whether an end that came before anything we have heard of would have been heard of.
    fn is_open_for_all_we_know(&self, election: &Key) -> bool {
        let mark = Topic::one(self.keys.mark(election));
        let waits = &self.core.waits;
        let heard = waits.heard(&mark).zip(self.claims.mark(election));
        waits.in_order(&mark) && heard.is_some_and(|(heard, seen)| heard <= seen)
    }

    /// The part of a line that concerns us, from all its keys.
    async fn all(&self, election: &Key, own: Option<&[u8]>) -> Result<Part, StoreError> {
        let entries = self.keys.entries(election);
        let doing = || format!("reading the line of {election}");
        let mut read = self.read(vec![requests::all(entries.clone())], doing).await?;
        Ok(Part::of(read.next().kvs, &entries, own))
    }

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
        let changed = self.changes.send(Change { election, company: Company::Alone, txn }).await;
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
