//! Waits for changes of keys, for all waits of a process on one store.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tenure::queue::Gone;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::known::{Glimpse, Known, Verdict, begin};

/// How many looks are remembered.
///
/// Beyond this, a watch begins at the key's own revision. Most keys are waited on at once or never.
const MOST_GLIMPSES: usize = 4 * 1024;
/// How long a watch is kept after the last wait: a caller that is woken mostly waits again.
const LINGER: Duration = Duration::from_secs(20);

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

    /// Waits until there is a wait to serve.
    pub(super) async fn somebody(&self) {
        loop {
            let mut wanted = pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if self.lock().entries.values().any(|entry| entry.waiting > 0) {
                return;
            }
            wanted.await;
        }
    }

    /// Prepares for a new stream: unused entries are dropped, and all others need a watch again.
    pub(super) fn begin_again(&self) {
        let mut state = self.lock();
        state.entries.retain(|_, entry| entry.waiting > 0);
        for entry in state.entries.values_mut() {
            entry.watch = None;
        }
        state.unasked = state.entries.keys().cloned().collect();
    }

    /// The watches to ask for, and the revision from which each begins.
    ///
    /// Each gets the next of `numbers`.
    pub(super) fn unasked(&self, mut numbers: impl FnMut() -> i64) -> Vec<(i64, Topic, i64)> {
        let mut state = self.lock();
        let unasked = std::mem::take(&mut state.unasked);
        let ask = |topic: Topic| {
            let entry = state.entries.get_mut(&topic).filter(|entry| entry.watch.is_none())?;
            let number = *entry.watch.insert(numbers());
            Some((number, topic, entry.start))
        };
        unasked.into_iter().filter_map(ask).collect()
    }

    /// Records that a watch has begun at this revision of the store.
    pub(super) fn begun(&self, topic: &Topic, revision: i64) {
        let mut state = self.lock();
        state.deaf = false;
        let Some(entry) = state.entries.get_mut(topic) else { return };
        if entry.start == 0 {
            entry.since = Some(revision + 1);
            entry.learn(Known { revision, absent: true }, revision);
        }
    }

    /// Records a change of a key.
    pub(super) fn event(&self, topic: &Topic, news: News) {
        if let Some(entry) = self.lock().entries.get_mut(topic) {
            let News { revision, created } = news;
            let absent = created == 0;
            let newest = if absent { &mut entry.deleted } else { &mut entry.written };
            *newest = revision.max(*newest);
            entry.created = created;
            entry.learn(Known { revision, absent }, revision);
        }
    }

    /// Records that a watch ended. Its waits end, so their callers look again.
    pub(super) fn ended(&self, topic: &Topic) {
        if let Some(entry) = self.lock().entries.remove(topic) {
            entry.changed.notify_waiters();
        }
    }

    /// Records that the stream ended. If it had served a watch, all waits end, so their callers
    /// look again.
    pub(super) fn fell_silent(&self, served: bool) {
        let mut state = self.lock();
        state.deaf = true;
        if served {
            state.entries.drain().for_each(|(_, entry)| entry.changed.notify_waiters());
            state.unasked.clear();
        }
    }

    /// Removes watches that are unused for a while, and returns their numbers.
    pub(super) fn expired(&self) -> Vec<i64> {
        let mut state = self.lock();
        let old = |entry: &Entry| entry.waiting == 0 && entry.idle_since.elapsed() > LINGER;
        state
            .entries
            .extract_if(|_, entry| old(entry))
            .filter_map(|(_, entry)| entry.watch)
            .collect()
    }

    /// Returns true if there is no watch to keep.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
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
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn topic() -> Topic {
        Topic::one("a/b".into())
    }

    /// The topics to watch, and from which revision.
    fn unasked(waits: &Waits) -> Vec<(Topic, i64)> {
        let mut last = 0;
        let numbers = || {
            last += 1;
            last
        };
        waits.unasked(numbers).into_iter().map(|(_, topic, start)| (topic, start)).collect()
    }

    fn present(revision: i64) -> News {
        News { revision, created: 1 }
    }

    fn deleted(revision: i64) -> News {
        News { revision, created: 0 }
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_event_it_waits_for_and_not_with_its_own() {
        let waits = Arc::new(Waits::default());
        let topic = topic();
        let mut wait = pin!(waits.changed(&topic, Some(5)));
        assert!(wait.as_mut().now_or_never().is_none());
        assert_eq!(unasked(&waits), [(topic.clone(), 6)]);
        waits.event(&topic, present(5));
        assert!(wait.as_mut().now_or_never().is_none());
        waits.event(&topic, present(7));
        wait.await;
        assert!(
            waits.changed(&topic, Some(5)).now_or_never().is_some(),
            "what is past wakes at once"
        );
        assert!(waits.changed(&topic, Some(7)).now_or_never().is_none());
        assert!(unasked(&waits).is_empty(), "the watch goes on serving");
    }

    #[tokio::test]
    async fn a_wait_for_something_absent_ends_when_its_watch_begins_or_begins_after_the_last_look()
    {
        let waits = Arc::new(Waits::default());
        let topic = topic();
        let mut wait = pin!(waits.changed(&topic, None));
        assert!(wait.as_mut().now_or_never().is_none());
        assert_eq!(unasked(&waits), [(topic.clone(), 0)]);
        waits.begun(&topic, 9);
        wait.await;
        let look = Glimpse { document: 0, created: 0, store: 12 };
        waits.saw([(topic.clone(), look)].into_iter());
        let mut wait = pin!(waits.changed(&topic, None));
        assert!(wait.as_mut().now_or_never().is_none());
        waits.event(&topic, present(13));
        wait.await;
    }

    #[tokio::test]
    async fn everybody_wakes_when_the_stream_ends_and_may_wait_for_the_next() {
        let waits = Arc::new(Waits::default());
        let topic = topic();
        let mut wait = pin!(waits.changed(&topic, Some(5)));
        let mut gone = pin!(waits.gone(&topic, 5));
        assert!(wait.as_mut().now_or_never().is_none());
        assert!(gone.as_mut().now_or_never().is_none());
        waits.fell_silent(false);
        assert!(wait.as_mut().now_or_never().is_none(), "there was nothing to miss");
        waits.fell_silent(true);
        wait.await;
        assert_eq!(gone.await, Gone::Perhaps);
        assert!(!waits.listening());
        assert!(waits.changed(&topic, Some(5)).now_or_never().is_none());
        waits.begin_again();
        assert!(waits.is_empty(), "that wait was dropped");
    }

    #[tokio::test]
    async fn an_entry_is_gone_when_it_is_deleted_and_not_when_its_value_changes() {
        let waits = Arc::new(Waits::default());
        let topic = topic();
        let look = Glimpse { document: 5, created: 5, store: 9 };
        waits.saw([(topic.clone(), look)].into_iter());
        let mut gone = pin!(waits.gone(&topic, 5));
        assert!(gone.as_mut().now_or_never().is_none());
        assert_eq!(unasked(&waits), [(topic.clone(), 10)], "watched from the look on");
        waits.event(&topic, News { revision: 11, created: 5 });
        assert!(gone.as_mut().now_or_never().is_none());
        waits.event(&topic, deleted(12));
        waits.event(&topic, News { revision: 13, created: 13 });
        assert_eq!(gone.await, Gone::Deleted, "another stands at the same key");
        assert_eq!(waits.gone(&topic, 5).now_or_never(), Some(Gone::Deleted));
        assert!(waits.gone(&topic, 13).now_or_never().is_none());
    }

    /// The end of an election writes the first entry in its line. The entry's watch reports that
    /// before the deletion.
    #[tokio::test]
    async fn an_entry_that_was_written_before_its_deletion_is_told_from_one_that_was_not() {
        let waits = Arc::new(Waits::default());
        let topic = topic();
        let look = Glimpse { document: 5, created: 5, store: 9 };
        waits.saw([(topic.clone(), look)].into_iter());
        let mut gone = pin!(waits.gone(&topic, 5));
        assert!(gone.as_mut().now_or_never().is_none());
        assert!(waits.is_unwritten_since(&topic, 9));
        assert!(!waits.is_unwritten_since(&topic, 7), "the watch does not tell of revision 8");
        waits.event(&topic, News { revision: 11, created: 5 });
        waits.event(&topic, deleted(12));
        assert_eq!(gone.await, Gone::Deleted);
        assert!(!waits.is_unwritten_since(&topic, 9));
        assert!(waits.is_unwritten_since(&topic, 11), "a later look showed that write");
        waits.fell_silent(true);
        assert!(!waits.is_unwritten_since(&topic, 11), "nothing is known without a watch");
    }

    #[tokio::test]
    async fn a_range_that_nobody_looked_at_wakes_once_and_then_when_something_happens() {
        let waits = Arc::new(Waits::default());
        let range = Topic { key: "a/".into(), end: "a0".into() };
        let mut moved = pin!(waits.moved(&range));
        assert!(moved.as_mut().now_or_never().is_none());
        waits.begun(&range, 9);
        moved.await;
        let mut moved = pin!(waits.moved(&range));
        assert!(moved.as_mut().now_or_never().is_none());
        waits.event(&range, present(10));
        moved.await;
        assert!(waits.moved(&range).now_or_never().is_none(), "that was heard of");
    }

    #[tokio::test]
    async fn an_entry_that_a_look_did_not_show_is_gone_at_once() {
        let waits = Arc::new(Waits::default());
        let topic = topic();
        waits.saw([(topic.clone(), Glimpse { document: 0, created: 0, store: 9 })].into_iter());
        assert_eq!(waits.gone(&topic, 5).now_or_never(), Some(Gone::Deleted));
    }

    #[tokio::test]
    async fn a_watch_that_began_later_does_not_say_that_an_entry_stands() {
        let waits = Arc::new(Waits::default());
        let topic = topic();
        let mut wait = pin!(waits.changed(&topic, None));
        assert!(wait.as_mut().now_or_never().is_none());
        assert_eq!(waits.gone(&topic, 5).now_or_never(), Some(Gone::Perhaps));
        waits.begun(&topic, 9);
        assert_eq!(waits.gone(&topic, 5).now_or_never(), Some(Gone::Perhaps));
        let look = Glimpse { document: 5, created: 5, store: 10 };
        waits.saw([(topic.clone(), look)].into_iter());
        let mut gone = pin!(waits.gone(&topic, 5));
        assert!(gone.as_mut().now_or_never().is_none(), "it stood after the watch began");
        waits.event(&topic, deleted(12));
        assert_eq!(gone.await, Gone::Deleted);
    }
}
