//! Waits for changes of keys, for all waits of a process on one store.

mod watches;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tenure::queue::Gone;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::known::{Glimpse, Known, Verdict, begin};

/// How many looks are remembered.
///
/// Beyond this, a watch begins at the key's own revision. Most keys are waited on at once or never.
const MOST_GLIMPSES: usize = 4 * 1024;

/// The key or range of keys that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Topic {
    pub(super) key: Bytes,
    /// The end of the range; empty for one key.
    pub(super) end: Bytes,
}

impl Topic {
    pub(super) fn one(key: Bytes) -> Topic {
        Topic { key, end: Bytes::new() }
    }
}

/// A change of a key, as a watch reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// The revision of the change.
    pub(super) revision: i64,
    /// The create revision of the key's value now; 0 if the key was deleted.
    pub(super) created: i64,
}

/// The waits of a store.
#[derive(Debug, Default)]
pub(super) struct Waits {
    state: Mutex<State>,
    /// Notified when a wait has no watch yet.
    pub(super) wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Topic, Entry>,
    /// The topics without a watch.
    unasked: Vec<Topic>,
    glimpses: HashMap<Topic, Glimpse>,
    /// True if the last attempt to listen failed, or the last stream ended.
    deaf: bool,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    /// The revision from which a watch has to begin.
    start: i64,
    /// Every change from this revision on has been or will be reported.
    since: Option<i64>,
    /// The create revision of the current value, if known.
    created: i64,
    /// The newest deletion that was reported.
    deleted: i64,
    /// The newest write that was reported.
    written: i64,
    waiting: usize,
    idle_since: Instant,
    /// The watch of the current stream that serves it.
    watch: Option<i64>,
    changed: Arc<Notify>,
}

impl Waits {
    /// Remembers looks at keys.
    pub(super) fn saw(&self, looks: impl Iterator<Item = (Topic, Glimpse)>) {
        let mut state = self.lock();
        if state.glimpses.len() > MOST_GLIMPSES {
            state.glimpses = HashMap::new();
        }
        for (topic, glimpse) in looks {
            // A watched key that exists needs no look: every change since then is reported.
            if glimpse.document > 0
                && let Some(entry) = state.entries.get_mut(&topic)
                && entry.since.is_some_and(|since| since <= glimpse.store + 1)
            {
                if entry.deleted <= glimpse.store {
                    entry.created = entry.created.max(glimpse.created);
                }
                continue;
            }
            let held = state.glimpses.entry(topic).or_insert(glimpse);
            if held.store <= glimpse.store {
                *held = glimpse;
            }
        }
    }

    /// Waits until the key may no longer be as it was seen.
    pub(super) async fn changed(self: &Arc<Waits>, topic: &Topic, seen: Option<i64>) {
        let Some(wait) = self.join(topic, seen) else { return };
        wait.until_over().await;
    }

    /// Waits until the key may have changed since this process last saw or heard of it.
    pub(super) async fn moved(self: &Arc<Waits>, topic: &Topic) {
        let wait = {
            let state = self.lock();
            let heard = state.entries.get(topic).map(|entry| entry.known);
            let looked = state.glimpses.get(topic).copied();
            match heard.filter(|heard| looked.is_none_or(|look| look.store <= heard.revision)) {
                Some(heard) => Some(self.begin_wait(state, topic, heard)),
                None => {
                    drop(state);
                    let seen = looked.map(|look| look.document).filter(|revision| *revision > 0);
                    self.join(topic, seen)
                }
            }
        };
        if let Some(wait) = wait {
            wait.until_over().await;
        }
    }

    /// Waits until the entry made at revision `token` is deleted.
    ///
    /// Also returns when that can no longer be told.
    pub(super) async fn gone(self: &Arc<Waits>, topic: &Topic, token: i64) -> Gone {
        let wait = match self.join_until_gone(topic, token) {
            Ok(wait) => wait,
            Err(gone) => return gone,
        };
        loop {
            let mut notified = pin!(wait.changed.notified());
            // From here on no notification is missed, even before the first poll.
            notified.as_mut().enable();
            if let Some(gone) = wait.fate(token) {
                return gone;
            }
            notified.await;
        }
    }

    /// The newest reported change of a key, if it is watched.
    pub(super) fn heard(&self, topic: &Topic) -> Option<i64> {
        self.lock().entries.get(topic).map(|entry| entry.known.revision)
    }

    /// Returns true if a key was not written between this revision and its deletion.
    ///
    /// The server reports changes of one key in order, but those of two keys in any order: a watch
    /// that lags behind is served later than others of its stream. So this can be told of the
    /// deleted key itself, and of no other.
    pub(super) fn is_unwritten_since(&self, topic: &Topic, revision: i64) -> bool {
        let state = self.lock();
        let entry = state.entries.get(topic);
        entry.is_some_and(|entry| {
            entry.since.is_some_and(|since| since <= revision + 1) && entry.written <= revision
        })
    }

    /// Returns true if the last attempt to listen succeeded.
    pub(super) fn listening(&self) -> bool {
        !self.lock().deaf
    }

    fn join(self: &Arc<Waits>, topic: &Topic, seen: Option<i64>) -> Option<Wait> {
        let mut state = self.lock();
        let glimpse = state.glimpses.remove(topic);
        let (known, start) = begin(seen, glimpse);
        let created = glimpse.filter(|look| look.store + 1 == start).map_or(0, |look| look.created);
        let entry = state.enter(topic, || Entry::new(known, start, created));
        match entry.known.judge(known) {
            Verdict::Stale => return None,
            Verdict::Newer => entry.learn(known, known.revision),
            Verdict::Same => {}
        }
        Some(self.begin_wait(state, topic, known))
    }

    fn join_until_gone(self: &Arc<Waits>, topic: &Topic, token: i64) -> Result<Wait, Gone> {
        let mut state = self.lock();
        let look = state.glimpses.remove(topic).filter(|look| look.store >= token);
        if look.is_some_and(|look| look.created != token) {
            return Err(Gone::Deleted);
        }
        // It was made at that revision, so it stood then.
        let known = Known { revision: look.map_or(token, |look| look.document), absent: false };
        let stood = look.map_or(token, |look| look.store);
        let entry = state.enter(topic, || Entry::new(known, stood + 1, token));
        if let Some(gone) = entry.fate(token) {
            return Err(gone);
        }
        if entry.created != token && entry.since.is_none_or(|since| since > token) {
            // The existing watch began after the entry was made. Only a look can tell of the time
            // before.
            match entry.since {
                Some(since) if since <= stood + 1 => entry.created = token,
                Some(_) | None => return Err(Gone::Perhaps),
            }
        }
        Ok(self.begin_wait(state, topic, known))
    }

    fn begin_wait(
        self: &Arc<Waits>,
        mut state: MutexGuard<'_, State>,
        topic: &Topic,
        seen: Known,
    ) -> Wait {
        let entry = state.entries.get_mut(topic).expect("it was entered under the same lock");
        entry.waiting += 1;
        let (changed, unasked) = (entry.changed.clone(), entry.watch.is_none());
        drop(state);
        if unasked {
            self.wanted.notify_one();
        }
        Wait { waits: self.clone(), topic: topic.clone(), seen, changed }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the next can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, topic: &Topic, new: impl FnOnce() -> Entry) -> &mut Entry {
        let State { entries, unasked, .. } = self;
        entries.entry(topic.clone()).or_insert_with(|| {
            unasked.push(topic.clone());
            new()
        })
    }
}

impl Entry {
    fn new(known: Known, start: i64, created: i64) -> Entry {
        Entry {
            known,
            start,
            since: Some(start).filter(|start| *start > 0),
            created,
            deleted: 0,
            written: 0,
            waiting: 0,
            idle_since: Instant::now(),
            watch: None,
            changed: Arc::default(),
        }
    }

    fn learn(&mut self, known: Known, until: i64) {
        if self.known.judge(known) == Verdict::Newer {
            self.known = known;
            self.start = self.start.max(until + 1);
            self.changed.notify_waiters();
        }
    }

    /// The fate of the entry made at revision `token`; `None` while it stands, or has not been
    /// reported.
    fn fate(&self, token: i64) -> Option<Gone> {
        (self.deleted > token || self.created > token).then_some(Gone::Deleted)
    }
}

/// One wait, which ends when it is dropped.
struct Wait {
    waits: Arc<Waits>,
    topic: Topic,
    seen: Known,
    changed: Arc<Notify>,
}

impl Wait {
    async fn until_over(&self) {
        loop {
            let mut notified = pin!(self.changed.notified());
            // From here on no notification is missed, even before the first poll.
            notified.as_mut().enable();
            if self.with_entry(|entry| entry.known.judge(self.seen)) != Some(Verdict::Same) {
                return;
            }
            notified.await;
        }
    }

    fn fate(&self, token: i64) -> Option<Gone> {
        self.with_entry(|entry| entry.fate(token)).unwrap_or(Some(Gone::Perhaps))
    }

    /// Looks at the entry, unless its watch has ended.
    fn with_entry<T>(&self, look: impl FnOnce(&Entry) -> T) -> Option<T> {
        let state = self.waits.lock();
        let entry = state.entries.get(&self.topic);
        entry.filter(|entry| Arc::ptr_eq(&entry.changed, &self.changed)).map(look)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.waits.lock();
        if let Some(entry) = state.entries.get_mut(&self.topic)
            && Arc::ptr_eq(&entry.changed, &self.changed)
        {
            entry.waiting -= 1;
            entry.idle_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests;
