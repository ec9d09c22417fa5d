//! Who waits for which document to change, for all waits of a store.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::known::{Glimpse, Known, Verdict, begin};

/// More looks are not remembered; a watch then begins at the document's own revision.
const MOST_GLIMPSES: usize = 16 * 1024;
/// A watch is kept for so long after the last wait: whoever is woken mostly waits again.
const LINGER: Duration = Duration::from_secs(20);

/// The waits of a store.
#[derive(Debug, Default)]
pub(super) struct Waits {
    state: Mutex<State>,
    /// There is a wait that no watch serves yet.
    pub(super) wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    glimpses: HashMap<Key, Glimpse>,
    /// The last attempt to listen failed, or what was heard ended.
    deaf: bool,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    /// Where a watch has to begin.
    start: i64,
    waiting: usize,
    since: Instant,
    /// Whether the stream there is serves it.
    asked: bool,
    changed: Arc<Notify>,
}

impl Waits {
    /// Remembers how documents were.
    pub(super) fn saw(&self, looks: impl Iterator<Item = (Key, Glimpse)>) {
        let mut state = self.lock();
        if state.glimpses.len() > MOST_GLIMPSES {
            state.glimpses.clear();
        }
        for (key, glimpse) in looks {
            let held = state.glimpses.entry(key).or_insert(glimpse);
            if held.store <= glimpse.store {
                *held = glimpse;
            }
        }
    }

    /// Waits until the document may no longer be as it was seen.
    pub(super) async fn changed(self: &Arc<Waits>, key: &Key, seen: Option<i64>) {
        let Some(wait) = self.join(key, seen) else { return };
        loop {
            let mut notified = pin!(wait.changed.notified());
            // From here on no notification is missed, also before the first poll.
            notified.as_mut().enable();
            if wait.is_over() {
                return;
            }
            notified.await;
        }
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
        state.entries.values_mut().for_each(|entry| entry.asked = false);
    }

    /// Watches that have to be asked for, with where they begin.
    pub(super) fn unasked(&self) -> Vec<(Key, i64)> {
        let mut state = self.lock();
        let unasked = state.entries.iter_mut().filter(|(_, entry)| !entry.asked);
        unasked
            .map(|(key, entry)| {
                entry.asked = true;
                (key.clone(), entry.start)
            })
            .collect()
    }

    /// A watch has begun at this revision of the store.
    pub(super) fn begun(&self, key: &Key, revision: i64) {
        let mut state = self.lock();
        state.deaf = false;
        if let Some(entry) = state.entries.get_mut(key).filter(|entry| entry.start == 0) {
            entry.learn(Known { revision, absent: true }, revision);
        }
    }

    /// A document changed.
    pub(super) fn event(&self, key: &Key, known: Known) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            entry.learn(known, known.revision);
        }
    }

    /// A watch ended; whoever waits has to look again.
    pub(super) fn ended(&self, key: &Key) {
        if let Some(entry) = self.lock().entries.remove(key) {
            entry.changed.notify_waiters();
        }
    }

    /// The stream ended: everybody has to look again if it had served anybody.
    pub(super) fn fell_silent(&self, served: bool) {
        let mut state = self.lock();
        state.deaf = true;
        if served {
            state.entries.drain().for_each(|(_, entry)| entry.changed.notify_waiters());
        }
    }

    /// Watches that nobody has needed for a while. They are forgotten here.
    pub(super) fn expired(&self) -> Vec<Key> {
        let mut state = self.lock();
        let old = |entry: &Entry| entry.waiting == 0 && entry.since.elapsed() > LINGER;
        state.entries.extract_if(|_, entry| old(entry)).map(|(key, _)| key).collect()
    }

    /// Whether there is any watch to keep.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
    }

    fn join(self: &Arc<Waits>, key: &Key, seen: Option<i64>) -> Option<Wait> {
        let mut state = self.lock();
        let (known, start) = begin(seen, state.glimpses.get(key).copied());
        let entry = state.entries.entry(key.clone()).or_insert_with(|| Entry {
            known,
            start,
            waiting: 0,
            since: Instant::now(),
            asked: false,
            changed: Arc::default(),
        });
        match entry.known.judge(known) {
            Verdict::Stale => return None,
            Verdict::Newer => entry.learn(known, known.revision),
            Verdict::Same => {}
        }
        entry.waiting += 1;
        let changed = entry.changed.clone();
        let unasked = !entry.asked;
        drop(state);
        if unasked {
            self.wanted.notify_one();
        }
        Some(Wait { waits: self.clone(), key: key.clone(), seen: known, changed })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the next can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn learn(&mut self, known: Known, until: i64) {
        if self.known.judge(known) == Verdict::Newer {
            self.known = known;
            self.start = self.start.max(until + 1);
            self.changed.notify_waiters();
        }
    }
}

/// One wait; dropping it ends it.
struct Wait {
    waits: Arc<Waits>,
    key: Key,
    seen: Known,
    changed: Arc<Notify>,
}

impl Wait {
    fn is_over(&self) -> bool {
        let state = self.waits.lock();
        let entry = state.entries.get(&self.key);
        let mine = entry.filter(|entry| Arc::ptr_eq(&entry.changed, &self.changed));
        mine.is_none_or(|entry| entry.known.judge(self.seen) != Verdict::Same)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.waits.lock();
        if let Some(entry) = state.entries.get_mut(&self.key)
            && Arc::ptr_eq(&entry.changed, &self.changed)
        {
            entry.waiting -= 1;
            entry.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn key() -> Key {
        Key::parse("a/b").expect("a good key")
    }

    fn present(revision: i64) -> Known {
        Known { revision, absent: false }
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_event_it_waits_for_and_not_with_its_own() {
        let waits = Arc::new(Waits::default());
        let key = key();
        let mut wait = pin!(waits.changed(&key, Some(5)));
        assert!(wait.as_mut().now_or_never().is_none());
        assert_eq!(waits.unasked(), [(key.clone(), 6)]);
        waits.event(&key, present(5));
        assert!(wait.as_mut().now_or_never().is_none());
        waits.event(&key, present(7));
        wait.await;
        assert!(
            waits.changed(&key, Some(5)).now_or_never().is_some(),
            "what is past wakes at once"
        );
        assert!(waits.changed(&key, Some(7)).now_or_never().is_none());
        assert!(waits.unasked().is_empty(), "the watch goes on serving");
    }

    #[tokio::test]
    async fn a_wait_for_something_absent_ends_when_its_watch_begins_or_begins_after_the_last_look()
    {
        let waits = Arc::new(Waits::default());
        let key = key();
        let mut wait = pin!(waits.changed(&key, None));
        assert!(wait.as_mut().now_or_never().is_none());
        assert_eq!(waits.unasked(), [(key.clone(), 0)]);
        waits.begun(&key, 9);
        wait.await;
        waits.saw([(key.clone(), Glimpse { document: 0, store: 12 })].into_iter());
        let mut wait = pin!(waits.changed(&key, None));
        assert!(wait.as_mut().now_or_never().is_none());
        waits.event(&key, present(13));
        wait.await;
    }

    #[tokio::test]
    async fn everybody_wakes_when_the_stream_ends_and_may_wait_for_the_next() {
        let waits = Arc::new(Waits::default());
        let key = key();
        let mut wait = pin!(waits.changed(&key, Some(5)));
        assert!(wait.as_mut().now_or_never().is_none());
        waits.fell_silent(false);
        assert!(wait.as_mut().now_or_never().is_none(), "there was nothing to miss");
        waits.fell_silent(true);
        wait.await;
        assert!(!waits.listening());
        assert!(waits.changed(&key, Some(5)).now_or_never().is_none());
        waits.begin_again();
        assert!(waits.is_empty(), "that wait was dropped");
    }
}
