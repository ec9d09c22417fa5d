//! Who waits for which key to change, for all waits of a process on one store.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tenure::queue::Gone;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::known::{Glimpse, Known, Verdict, begin};

/// More looks are not remembered; a watch then begins at the key's own revision. Most are waited on
/// at once or never.
const MOST_GLIMPSES: usize = 4 * 1024;
/// A watch is kept for so long after the last wait: whoever is woken mostly waits again.
const LINGER: Duration = Duration::from_secs(20);

/// What is watched: a key of etcd, or a range of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Topic {
    pub(super) key: Bytes,
    /// Where the range ends; empty for one key.
    pub(super) end: Bytes,
}

impl Topic {
    pub(super) fn one(key: Bytes) -> Topic {
        Topic { key, end: Bytes::new() }
    }
}

/// What a watch said of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// The revision of the change.
    pub(super) revision: i64,
    /// When what is there now was made; 0 when it was deleted.
    pub(super) created: i64,
}

/// The waits of a store.
#[derive(Debug, Default)]
pub(super) struct Waits {
    state: Mutex<State>,
    /// There is a wait that no watch serves yet.
    pub(super) wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Topic, Entry>,
    /// Those that no watch serves yet.
    unasked: Vec<Topic>,
    glimpses: HashMap<Topic, Glimpse>,
    /// The last attempt to listen failed, or what was heard ended.
    deaf: bool,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    /// Where a watch has to begin.
    start: i64,
    /// Every change from this revision on is, or will be, heard of.
    since: Option<i64>,
    /// When what stands there was made, if that is known.
    created: i64,
    /// The newest deletion that was heard of.
    deleted: i64,
    /// The newest time it was written that was heard of.
    written: i64,
    waiting: usize,
    idle_since: Instant,
    /// Which watch of the stream there is serves it.
    watch: Option<i64>,
    changed: Arc<Notify>,
}

impl Waits {
    /// Remembers how keys were.
    pub(super) fn saw(&self, looks: impl Iterator<Item = (Topic, Glimpse)>) {
        let mut state = self.lock();
        if state.glimpses.len() > MOST_GLIMPSES {
            state.glimpses = HashMap::new();
        }
        for (topic, glimpse) in looks {
            // What is there and watched needs no remembering: every change since is heard of.
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

    /// Waits until the key may no longer be as anybody here saw it last, or heard of it.
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

    /// Waits until what was made at revision `token` is deleted, or that can no longer be told.
    pub(super) async fn gone(self: &Arc<Waits>, topic: &Topic, token: i64) -> Gone {
        let wait = match self.join_until_gone(topic, token) {
            Ok(wait) => wait,
            Err(gone) => return gone,
        };
        loop {
            let mut notified = pin!(wait.changed.notified());
            // From here on no notification is missed, also before the first poll.
            notified.as_mut().enable();
            if let Some(gone) = wait.fate(token) {
                return gone;
            }
            notified.await;
        }
    }

    /// The newest change of a key that was heard of, if it is watched.
    pub(super) fn heard(&self, topic: &Topic) -> Option<i64> {
        self.lock().entries.get(topic).map(|entry| entry.known.revision)
    }

    /// Whether a key was not written between this revision of the store and its deletion.
    ///
    /// The server tells of one key in order, and of two keys in any: a watch that is behind is
    /// served later than others of its stream. So this is known of the deleted key itself, and of
    /// no other.
    pub(super) fn is_unwritten_since(&self, topic: &Topic, revision: i64) -> bool {
        let state = self.lock();
        let entry = state.entries.get(topic);
        entry.is_some_and(|entry| {
            entry.since.is_some_and(|since| since <= revision + 1) && entry.written <= revision
        })
    }

    /// Whether the last attempt to listen succeeded.
    pub(super) fn listening(&self) -> bool {
        !self.lock().deaf
    }

    /// Waits until somebody waits.
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

    /// Forgets that anything was asked for: a new stream begins.
    pub(super) fn begin_again(&self) {
        let mut state = self.lock();
        state.entries.retain(|_, entry| entry.waiting > 0);
        for entry in state.entries.values_mut() {
            entry.watch = None;
        }
        state.unasked = state.entries.keys().cloned().collect();
    }

    /// Watches that have to be asked for, with where they begin, each with the next of these
    /// numbers.
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

    /// A watch has begun at this revision of the store.
    pub(super) fn begun(&self, topic: &Topic, revision: i64) {
        let mut state = self.lock();
        state.deaf = false;
        let Some(entry) = state.entries.get_mut(topic) else { return };
        if entry.start == 0 {
            entry.since = Some(revision + 1);
            entry.learn(Known { revision, absent: true }, revision);
        }
    }

    /// A key changed.
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

    /// A watch ended; whoever waits has to look again.
    pub(super) fn ended(&self, topic: &Topic) {
        if let Some(entry) = self.lock().entries.remove(topic) {
            entry.changed.notify_waiters();
        }
    }

    /// The stream ended: everybody has to look again if it had served anybody.
    pub(super) fn fell_silent(&self, served: bool) {
        let mut state = self.lock();
        state.deaf = true;
        if served {
            state.entries.drain().for_each(|(_, entry)| entry.changed.notify_waiters());
            state.unasked.clear();
        }
    }

    /// The numbers of watches that nobody has needed for a while. They are forgotten here.
    pub(super) fn expired(&self) -> Vec<i64> {
        let mut state = self.lock();
        let old = |entry: &Entry| entry.waiting == 0 && entry.idle_since.elapsed() > LINGER;
        state
            .entries
            .extract_if(|_, entry| old(entry))
            .filter_map(|(_, entry)| entry.watch)
            .collect()
    }

    /// Whether there is any watch to keep.
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
        // It was made at that revision, which is to say that it stood then.
        let known = Known { revision: look.map_or(token, |look| look.document), absent: false };
        let stood = look.map_or(token, |look| look.store);
        let entry = state.enter(topic, || Entry::new(known, stood + 1, token));
        if let Some(gone) = entry.fate(token) {
            return Err(gone);
        }
        if entry.created != token && entry.since.is_none_or(|since| since > token) {
            // The watch there is began after it was made: what it has not heard of is known only
            // from a look.
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

    /// What became of that which was made at revision `token`; nothing while it stands, or is not
    /// heard of yet.
    fn fate(&self, token: i64) -> Option<Gone> {
        (self.deleted > token || self.created > token).then_some(Gone::Deleted)
    }
}

/// One wait; dropping it ends it.
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
            // From here on no notification is missed, also before the first poll.
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

    /// What is known, unless the watch ended.
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

    /// What is to be watched, and from where.
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

    /// The end of an election writes the first entry in its line, and its watch tells of that
    /// before its deletion.
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
