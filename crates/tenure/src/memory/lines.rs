//! Lines in this process's memory, for programs under test.
//!
//! Their sessions can be cut off, expired and closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::Key;
use crate::clock::{Clock, Moment};
use crate::protocol::Holder;
use crate::queue::{
    Entry, Freshness, Gone, Joined, Left, Life, Line, Pace, Place, Proof, Session, SessionQueue,
    Ticket,
};
use crate::store::{Fault, StoreError};
use crate::timing::window_of;

/// A server with lines. Clones share it; every [`MemoryLines::connect`] is another process's
/// session.
#[derive(Clone, Debug)]
pub struct MemoryLines {
    server: Arc<Server>,
}

#[derive(Debug)]
struct Server {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts every change: tokens and generations come from it.
    writes: u64,
    sessions: u64,
    clients: u64,
    roots: BTreeMap<Key, Root>,
    /// By election and token, which is the order of every line.
    entries: BTreeMap<(Key, u64), Stored>,
    /// The waiters for changes, by line.
    topics: BTreeMap<Key, watch::Sender<()>>,
}

#[derive(Debug)]
struct Root {
    generation: u64,
    ended: bool,
    unclean: Option<u64>,
    highest: u64,
}

#[derive(Debug)]
struct Stored {
    session: u64,
    client: u64,
    ticket: Ticket,
    holder: Arc<Holder>,
}

impl MemoryLines {
    /// A server without lines, on this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> MemoryLines {
        MemoryLines { server: Arc::new(Server { clock, state: Mutex::default() }) }
    }

    /// Opens a session that the server keeps for `ttl` after it last heard from it.
    ///
    /// # Panics
    /// Outside a tokio runtime, because the session could not be kept alive.
    #[must_use]
    pub fn connect(&self, ttl: Duration) -> MemoryQueue {
        let mut state = self.server.lock();
        state.clients += 1;
        state.sessions += 1;
        let link = Link { session: state.sessions, ..Link::default() };
        let now = self.server.clock.now();
        let session = Session { number: 1, connection: 1, ttl, life: live(now, ttl) };
        let client = Client {
            number: state.clients,
            server: self.server.clone(),
            known: watch::Sender::new(session),
            link: Mutex::new(link),
        };
        drop(state);
        let client = Arc::new(client);
        let heart = tokio::spawn(beat(Arc::downgrade(&client), self.server.clock.clone(), ttl));
        MemoryQueue { client, heart: Arc::new(Heart(heart.abort_handle())) }
    }

    /// Makes a client without a session yet: [`MemoryQueue::resume`] begins the first.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`MemoryLines::connect`] does.
    #[must_use]
    pub fn connect_later(&self, ttl: Duration) -> MemoryQueue {
        let queue = self.connect(ttl);
        queue.client.link().expired = true;
        queue.client.known.send_replace(Session { ttl, ..Session::none() });
        queue
    }

    /// Deletes the first entry of a line, as an operator could; returns true if there was one.
    pub fn delete_first(&self, election: &Key) -> bool {
        let mut state = self.server.lock();
        let first = state.line(election).next().map(|(token, _)| token);
        first.is_some_and(|token| state.delete(election, token))
    }
}

/// One session of one process at a time. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    client: Arc<Client>,
    /// Ends with the last clone.
    #[expect(dead_code, reason = "it is there to be dropped")]
    heart: Arc<Heart>,
}

#[derive(Debug)]
struct Heart(tokio::task::AbortHandle);

impl Drop for Heart {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Client {
    number: u64,
    server: Arc<Server>,
    known: watch::Sender<Session>,
    link: Mutex<Link>,
}

/// The state of a client's connection, and the failures to simulate.
#[derive(Debug, Default)]
struct Link {
    /// The server's number of the session.
    session: u64,
    cut: Option<Moment>,
    expired: bool,
    lose: u32,
    refuse: u32,
    pace: Pace,
    counts: Counts,
}

/// Counts of calls and answers of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Joins.
    pub joins: u64,
    /// Reads of a line.
    pub reads: u64,
    /// Watches of entries that reported a deletion.
    pub told: u64,
    /// Answers that were lost.
    pub lost: u64,
}

impl MemoryQueue {
    /// Cuts the connection. The server forgets the session after its ttl.
    pub fn suspend(&self) {
        self.client.suspend();
    }

    /// Connects again: the same session if the server still has it, else a new one.
    pub fn resume(&self) {
        self.client.resume();
    }

    /// The server ends the session, and the client hears of it and begins another.
    pub fn expire(&self) {
        self.client.expire();
        self.client.begin_again();
    }

    /// Ends the session for good, and its entries with it.
    pub fn close(&self) {
        self.client.expire();
        self.client.known.send_modify(|session| session.life = Life::Closed);
    }

    /// The next `count` calls take effect, but their answers are lost.
    pub fn lose_answers(&self, count: u32) {
        self.client.link().lose = count;
    }

    /// The next `count` calls have no effect.
    pub fn refuse(&self, count: u32) {
        self.client.link().refuse = count;
    }

    /// The counts of calls and answers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.client.link().counts
    }

    /// The last requested pace of proving its life.
    #[must_use]
    pub fn last_pace(&self) -> Pace {
        self.client.link().pace
    }
}

fn live(now: Moment, ttl: Duration) -> Life {
    Life::Live { proof: Some(Proof { from: now, window: window_of(ttl) }) }
}

/// Keeps a session alive while its client exists.
async fn beat(client: Weak<Client>, clock: Arc<dyn Clock>, ttl: Duration) {
    let mut timer = clock.timer();
    loop {
        timer.until(clock.now() + ttl / 8).await;
        match client.upgrade() {
            Some(client) => client.beat(),
            None => return,
        }
    }
}

impl Client {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let now = self.server.clock.now();
        let (cut, expired) = {
            let link = self.link();
            (link.cut, link.expired)
        };
        let ttl = self.known.borrow().ttl;
        match cut {
            Some(cut) if !expired && now.at_least_since(cut) >= ttl => self.expire(),
            Some(_) => {}
            None => self.known.send_modify(|session| {
                if session.is_live() {
                    session.life = live(now, ttl);
                }
            }),
        }
    }

    fn suspend(&self) {
        let now = self.server.clock.now();
        self.link().cut.get_or_insert(now);
        self.known.send_modify(|session| {
            session.life = Life::Suspended { proof: session.proof() };
        });
    }

    fn resume(&self) {
        let expired = {
            let mut link = self.link();
            link.cut = None;
            link.expired
        };
        if expired {
            return self.begin_again();
        }
        let now = self.server.clock.now();
        self.known.send_modify(|session| {
            session.connection += 1;
            session.life = live(now, session.ttl);
        });
    }

    /// Makes the server forget the session and its entries. The client may not know it yet.
    fn expire(&self) {
        let session = {
            let mut link = self.link();
            link.expired = true;
            link.session
        };
        let mut state = self.server.lock();
        let gone = state.entries.iter().filter(|(_, entry)| entry.session == session);
        let gone: Vec<(Key, u64)> = gone.map(|(place, _)| place.clone()).collect();
        for (key, token) in gone {
            state.delete(&key, token);
        }
    }

    fn begin_again(&self) {
        let fresh = {
            let mut state = self.server.lock();
            state.sessions += 1;
            state.sessions
        };
        {
            let mut link = self.link();
            (link.session, link.expired, link.cut) = (fresh, false, None);
        }
        let now = self.server.clock.now();
        self.known.send_modify(|session| {
            session.number += 1;
            session.connection += 1;
            session.life = live(now, session.ttl);
        });
    }

    /// Makes a call, subject to the simulated failures.
    fn call<T>(
        &self,
        doing: &str,
        act: impl FnOnce(&mut State, u64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let error = |fault, says| Err(StoreError::new(fault, "memory", doing, says));
        let session = {
            let mut link = self.link();
            if link.cut.is_some() || self.known.borrow().life == Life::Closed {
                return error(Fault::Unavailable, "not connected");
            }
            if link.refuse > 0 {
                link.refuse -= 1;
                return error(Fault::Unavailable, "refused");
            }
            link.session
        };
        let answer = act(&mut self.server.lock(), session);
        let mut link = self.link();
        if link.lose > 0 {
            link.lose -= 1;
            link.counts.lost += 1;
            return error(Fault::Indeterminate, "the answer was lost");
        }
        answer
    }

    /// Waits until this line or the connection has changed.
    async fn change(&self, key: &Key, mut seen: impl FnMut(&mut State) -> bool) {
        let mut session = self.known.subscribe();
        let mut topic = self.server.lock().topic(key);
        loop {
            session.mark_unchanged();
            topic.mark_unchanged();
            let connected = self.link().cut.is_none();
            if connected && seen(&mut self.server.lock()) {
                return;
            }
            tokio::select! {
                changed = session.changed() => if changed.is_err() { std::future::pending().await },
                changed = topic.changed() => if changed.is_err() { std::future::pending().await },
            }
        }
    }
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Only a failed test panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    fn line(&self, key: &Key) -> impl Iterator<Item = (u64, &Stored)> {
        let whole = (key.clone(), 0)..=(key.clone(), u64::MAX);
        self.entries.range(whole).map(|((_, token), entry)| (*token, entry))
    }

    fn topic(&mut self, key: &Key) -> watch::Receiver<()> {
        self.topics.entry(key.clone()).or_default().subscribe()
    }

    fn ring(&mut self, key: &Key) {
        if let Some(topic) = self.topics.get(key) {
            topic.send_replace(());
        }
    }

    /// Returns true if the election has been open since this entry joined it.
    ///
    /// Then no end came before its deletion.
    fn is_open_since(&self, key: &Key, token: u64) -> bool {
        self.roots.get(key).is_some_and(|root| !root.ended && root.generation <= token)
    }

    fn delete(&mut self, key: &Key, token: u64) -> bool {
        let deleted = self.entries.remove(&(key.clone(), token)).is_some();
        if deleted {
            self.ring(key);
        }
        deleted
    }

    fn find(&mut self, entry: &Entry) -> Option<(Key, &mut Stored)> {
        let key = key_of(entry)?;
        let stored = self.entries.get_mut(&(key.clone(), entry.token))?;
        Some((key, stored))
    }

    /// The line as `client` may see it.
    ///
    /// Without a client, all entries of an ended line are included.
    fn read(&self, key: &Key, client: Option<u64>) -> Line {
        let Some(root) = self.roots.get(key) else { return Line::Missing };
        let generation = root.generation;
        let mine = |entry: &Stored| client.is_none_or(|client| entry.client == client);
        let places = self.line(key).filter(|(_, entry)| !root.ended || mine(entry));
        let places = places.map(|(token, entry)| Place {
            entry: named(key, token),
            ticket: (client == Some(entry.client)).then(|| entry.ticket.clone()),
            holder: Some(entry.holder.clone()),
        });
        let places = places.collect();
        if root.ended {
            Line::Ended { generation, places }
        } else {
            let (unclean, highest) = (root.unclean, root.highest);
            Line::Open { generation, places, unclean, highest }
        }
    }
}

fn named(key: &Key, token: u64) -> Entry {
    Entry { name: format!("{key}#{token}").into(), token }
}

fn key_of(entry: &Entry) -> Option<Key> {
    let (key, _) = entry.name.rsplit_once('#')?;
    Key::parse(key).ok()
}

#[async_trait]
impl SessionQueue for MemoryQueue {
    async fn join(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Result<Joined, StoreError> {
        let client = &self.client;
        client.link().counts.joins += 1;
        let known = client.known.borrow().number;
        client.call("joining", |state, session| {
            let open = state.roots.get(election).is_some_and(|root| !root.ended);
            let entry = open.then(|| {
                let token = state.next();
                let stored = Stored {
                    session,
                    client: client.number,
                    ticket: ticket.clone(),
                    holder: holder.clone(),
                };
                state.entries.insert((election.clone(), token), stored);
                state.ring(election);
                named(election, token)
            });
            let line = state.read(election, Some(client.number));
            Ok(Joined { session: known, entry, line })
        })
    }

    async fn line(
        &self,
        election: &Key,
        _ticket: &Ticket,
        _freshness: Freshness,
    ) -> Result<Line, StoreError> {
        let client = &self.client;
        client.link().counts.reads += 1;
        client.call("reading", |state, _| Ok(state.read(election, Some(client.number))))
    }

    async fn gone(&self, entry: &Entry) -> Gone {
        let Some(key) = key_of(entry) else { return Gone::Perhaps };
        let mut open = false;
        let gone = |state: &mut State| {
            open = state.is_open_since(&key, entry.token);
            state.find(entry).is_none()
        };
        self.client.change(&key, gone).await;
        self.client.link().counts.told += 1;
        if open { Gone::Deleted } else { Gone::DeletedMaybeEnded }
    }

    async fn ended(&self, election: &Key, generation: u64) {
        let ended = |state: &mut State| {
            let root = state.roots.get(election);
            root.is_none_or(|root| root.ended || root.generation != generation)
        };
        self.client.change(election, ended).await;
    }

    async fn begin(&self, entry: &Entry) -> Result<(), StoreError> {
        self.client.call("beginning", |state, _| {
            let key = state.find(entry).map(|(key, _)| key);
            match key.and_then(|key| state.roots.get_mut(&key)) {
                Some(root) => {
                    (root.unclean, root.highest) = (Some(entry.token), entry.token);
                    Ok(())
                }
                None => {
                    let says = "there is no such entry";
                    Err(StoreError::new(Fault::Unavailable, "memory", "beginning", says))
                }
            }
        })
    }

    async fn note(&self, entry: &Entry) -> Result<(), StoreError> {
        self.client.call("recording a token", |state, _| {
            let key = state.find(entry).map(|(key, _)| key);
            if let Some(root) = key.and_then(|key| state.roots.get_mut(&key)) {
                root.highest = entry.token;
            }
            Ok(())
        })
    }

    async fn leave(&self, entry: &Entry, clean: bool) -> Result<Left, StoreError> {
        self.client.call("leaving", |state, _| {
            let Some((key, _)) = state.find(entry) else { return Ok(Left::Absent) };
            if let Some(root) = state.roots.get_mut(&key)
                && clean
            {
                root.unclean.take_if(|token| *token == entry.token);
            }
            state.delete(&key, entry.token);
            Ok(Left::Deleted)
        })
    }

    async fn publish(&self, entry: &Entry, value: &Bytes) -> Result<(), StoreError> {
        self.client.call("publishing", |state, _| {
            let Some((key, stored)) = state.find(entry) else { return Ok(()) };
            stored.holder = Arc::new(Holder { value: value.clone(), ..(*stored.holder).clone() });
            state.ring(&key);
            Ok(())
        })
    }

    async fn create(&self, election: &Key) -> Result<u64, StoreError> {
        self.client.call("creating", |state, _| {
            if let Some(root) = state.roots.get(election).filter(|root| !root.ended) {
                return Ok(root.generation);
            }
            let earlier = state.roots.get(election);
            let unclean = earlier.and_then(|root| root.unclean);
            let highest = earlier.map_or(0, |root| root.highest);
            let generation = state.next();
            let root = Root { generation, ended: false, unclean, highest };
            state.roots.insert(election.clone(), root);
            state.ring(election);
            Ok(generation)
        })
    }

    async fn end(&self, election: &Key, generation: u64) -> Result<(), StoreError> {
        self.client.call("ending", |state, _| {
            if let Some(root) =
                state.roots.get_mut(election).filter(|root| root.generation == generation)
            {
                root.ended = true;
                state.ring(election);
            }
            Ok(())
        })
    }

    async fn remove(&self, election: &Key) -> Result<bool, StoreError> {
        self.client.call("removing", |state, _| {
            let standing = state.line(election).next().is_some();
            match state.roots.get(election) {
                None => return Ok(true),
                Some(root) if !root.ended || standing => return Ok(false),
                Some(_) => {}
            }
            state.roots.remove(election);
            state.ring(election);
            Ok(true)
        })
    }

    async fn look(&self, election: &Key, _freshness: Freshness) -> Result<Line, StoreError> {
        self.client.call("looking", |state, _| Ok(state.read(election, None)))
    }

    async fn survey(&self, election: &Key) -> Result<Line, StoreError> {
        self.look(election, Freshness::Barrier).await
    }

    async fn moved(&self, election: &Key, first: Option<&Entry>) {
        let seen = {
            let mut state = self.client.server.lock();
            let _ = state.topic(election);
            summary(&state, election)
        };
        let moved = |state: &mut State| {
            let now = summary(state, election);
            now.1.as_ref() != first || now != seen
        };
        self.client.change(election, moved).await;
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.client.known.subscribe()
    }

    fn trouble(&self) -> Option<StoreError> {
        None
    }

    fn pace(&self, pace: Pace) {
        self.client.link().pace = pace;
    }
}

type Summary = (Option<(u64, bool)>, Option<Entry>, Option<Bytes>);

/// The state of an election, its first entry, and the first entry's value.
fn summary(state: &State, key: &Key) -> Summary {
    let root = state.roots.get(key).map(|root| (root.generation, root.ended));
    let first = state.line(key).next();
    let value = first.map(|(_, stored)| stored.holder.value.clone());
    (root, first.map(|(token, _)| named(key, token)), value)
}
