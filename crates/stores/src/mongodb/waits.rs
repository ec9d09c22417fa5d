//! All waits of a store for changes of documents.
//!
//! A document's state is known from this store's reads and writes and from the change stream.
//! Versions have no order, so the two sources are ordered by counting the changes that the stream
//! has shown. An answer is newer than every change shown before its request was sent. For a change
//! shown after that, the order is unknown: the change wins, and the waiting caller reads again.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure::Key;
use tenure::store::Version;
use tokio::sync::Notify;

/// Up to this many documents without waits are remembered.
const MOST_KNOWN: usize = 16 * 1024;

/// The waits of a store.
#[derive(Debug, Default)]
pub(super) struct Waits {
    state: Mutex<State>,
    /// Notified when a wait begins.
    wanted: Notify,
    /// Notified when there is a wait for a document of unknown state.
    doubted: Notify,
}

/// The position of the stream when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

#[derive(Debug, Default)]
struct State {
    /// Changes that were shown, and streams that began.
    count: u64,
    /// Answers to requests sent before this count are older than the stream.
    floor: u64,
    live: bool,
    /// True if the last attempt to listen failed, or the stream ended.
    deaf: bool,
    /// How often the stream fell silent.
    falls: u64,
    known: HashMap<Key, Known>,
    waiting: HashMap<Key, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    version: Option<Version>,
    at: u64,
}

#[derive(Debug, Default)]
struct Entry {
    waits: usize,
    changed: Arc<Notify>,
}

impl Waits {
    /// The stream's current position, for a request about to be sent.
    pub(super) fn place(&self) -> Place {
        Place(self.lock().count)
    }

    /// Records the states of documents from the answer to a request sent at `place`.
    pub(super) fn saw(&self, place: Place, looks: impl Iterator<Item = (Key, Option<Version>)>) {
        let mut state = self.lock();
        if !state.live || place.0 < state.floor {
            return;
        }
        if state.known.len() > MOST_KNOWN {
            let State { known, waiting, .. } = &mut *state;
            known.retain(|key, _| waiting.contains_key(key));
        }
        for (key, version) in looks {
            if state.known.get(&key).is_none_or(|known| known.at <= place.0) {
                state.learn(key, version, place.0);
            }
        }
    }

    /// Records a change that the stream showed.
    pub(super) fn event(&self, key: Key, version: Option<Version>) {
        let mut state = self.lock();
        state.count += 1;
        if state.known.contains_key(&key) || state.waiting.contains_key(&key) {
            let at = state.count;
            state.learn(key, version, at);
        }
    }

    /// Records that a stream began: all states known before it are dropped.
    pub(super) fn begun(&self) {
        let mut state = self.lock();
        state.count += 1;
        (state.floor, state.live, state.deaf) = (state.count, true, false);
        state.known.clear();
        drop(state);
        self.doubted.notify_one();
    }

    /// Records that the stream ended or failed. All waiting callers have to read.
    pub(super) fn fell_silent(&self) {
        let mut state = self.lock();
        let heard = state.live || !state.deaf;
        (state.live, state.deaf) = (false, true);
        state.known.clear();
        if heard {
            state.falls += 1;
            state.waiting.values().for_each(|entry| entry.changed.notify_waiters());
        }
    }

    /// Records that the stream was closed for lack of waits. New waits wait for the next one.
    pub(super) fn rest(&self) {
        let mut state = self.lock();
        state.live = false;
        state.known.clear();
    }

    /// Returns true unless the last attempt to listen failed or the stream ended.
    pub(super) fn listening(&self) -> bool {
        !self.lock().deaf
    }

    /// Waits until there is a wait.
    pub(super) async fn somebody(&self) {
        loop {
            let mut wanted = pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if self.anybody() {
                return;
            }
            wanted.await;
        }
    }

    /// Returns true if there are waits.
    pub(super) fn anybody(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Waits until there are waits for documents of unknown state, and returns those.
    pub(super) async fn doubts(&self) -> Vec<Key> {
        loop {
            let mut doubted = pin!(self.doubted.notified());
            doubted.as_mut().enable();
            let doubts = self.lock().doubts();
            if !doubts.is_empty() {
                return doubts;
            }
            doubted.await;
        }
    }

    /// Waits until the document may differ from `seen`.
    pub(super) async fn changed(self: &Arc<Waits>, key: &Key, seen: Option<&Version>) {
        let wait = self.join(key);
        loop {
            let mut notified = pin!(wait.changed.notified());
            // From here on no notification is missed, also before the first poll.
            notified.as_mut().enable();
            if self.is_over(&wait, seen) {
                return;
            }
            notified.await;
        }
    }

    fn is_over(&self, wait: &Wait, seen: Option<&Version>) -> bool {
        let state = self.lock();
        let known = state.known.get(&wait.key);
        state.falls != wait.falls || known.is_some_and(|known| known.version.as_ref() != seen)
    }

    fn join(self: &Arc<Waits>, key: &Key) -> Wait {
        let mut state = self.lock();
        let entry = state.waiting.entry(key.clone()).or_default();
        entry.waits += 1;
        let changed = entry.changed.clone();
        let falls = state.falls;
        let doubt = state.live && !state.known.contains_key(key);
        drop(state);
        self.wanted.notify_one();
        if doubt {
            self.doubted.notify_one();
        }
        Wait { waits: self.clone(), key: key.clone(), changed, falls }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the next can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn doubts(&self) -> Vec<Key> {
        let doubtful = |key: &&Key| self.live && !self.known.contains_key(*key);
        self.waiting.keys().filter(doubtful).cloned().collect()
    }

    fn learn(&mut self, key: Key, version: Option<Version>, at: u64) {
        if let Some(entry) = self.waiting.get(&key) {
            entry.changed.notify_waiters();
        }
        self.known.insert(key, Known { version, at });
    }
}

/// One wait; dropping it ends it.
struct Wait {
    waits: Arc<Waits>,
    key: Key,
    changed: Arc<Notify>,
    falls: u64,
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.waits.lock();
        if let Some(entry) = state.waiting.get_mut(&self.key) {
            entry.waits -= 1;
            if entry.waits == 0 {
                state.waiting.remove(&self.key);
            }
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

    fn version(name: &str) -> Version {
        Version::new(name)
    }

    fn looks(name: &str) -> std::vec::IntoIter<(Key, Option<Version>)> {
        vec![(key(), Some(version(name)))].into_iter()
    }

    fn waits(waits: &Arc<Waits>, seen: &str) -> bool {
        waits.changed(&key(), Some(&version(seen))).now_or_never().is_none()
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_change_it_waits_for_and_not_with_its_own() {
        let all = Arc::new(Waits::default());
        all.begun();
        all.saw(all.place(), looks("1"));
        let (key, seen) = (key(), version("1"));
        let mut wait = pin!(all.changed(&key, Some(&seen)));
        assert!(wait.as_mut().now_or_never().is_none());
        all.event(key.clone(), Some(version("1")));
        assert!(wait.as_mut().now_or_never().is_none(), "it came a little late");
        all.event(key.clone(), Some(version("2")));
        wait.await;
        assert!(!waits(&all, "1"), "what is past wakes at once");
        assert!(waits(&all, "2"));
    }

    #[tokio::test]
    async fn a_change_shown_before_the_read_was_sent_is_older_and_one_since_then_wakes() {
        let all = Arc::new(Waits::default());
        all.begun();
        all.saw(all.place(), looks("0"));
        all.event(key(), Some(version("1")));
        // The read shows a change that the stream has not shown yet.
        all.saw(all.place(), looks("2"));
        assert!(waits(&all, "2"));
        let place = all.place();
        all.event(key(), Some(version("3")));
        all.saw(place, looks("2"));
        assert!(!waits(&all, "2"), "nobody can tell which of them is newer");
        all.saw(all.place(), looks("3"));
        assert!(waits(&all, "3"));
    }

    #[tokio::test]
    async fn what_nothing_is_known_of_is_doubted_until_somebody_looks() {
        let all = Arc::new(Waits::default());
        all.saw(all.place(), looks("1"));
        let (key, seen) = (key(), version("1"));
        let mut wait = pin!(all.changed(&key, Some(&seen)));
        assert!(wait.as_mut().now_or_never().is_none());
        assert!(all.doubts().now_or_never().is_none(), "nothing can be known before it begins");
        let before = all.place();
        all.begun();
        all.saw(before, looks("2"));
        assert_eq!(all.doubts().now_or_never(), Some(vec![key.clone()]), "that was too early");
        all.saw(all.place(), looks("1"));
        assert!(all.doubts().now_or_never().is_none());
        assert!(wait.as_mut().now_or_never().is_none());
        all.saw(all.place(), looks("2"));
        wait.await;
    }

    #[tokio::test]
    async fn everybody_wakes_when_the_stream_ends_and_may_wait_for_the_next() {
        let all = Arc::new(Waits::default());
        let (key, seen) = (key(), version("1"));
        assert!(all.listening());
        let mut wait = pin!(all.changed(&key, Some(&seen)));
        assert!(wait.as_mut().now_or_never().is_none());
        all.fell_silent();
        wait.await;
        assert!(!all.listening());
        let mut wait = pin!(all.changed(&key, Some(&seen)));
        assert!(wait.as_mut().now_or_never().is_none());
        all.fell_silent();
        assert!(wait.as_mut().now_or_never().is_none(), "they know that nobody listens");
        all.begun();
        assert!(all.listening());
        all.saw(all.place(), looks("2"));
        wait.await;
        assert!(!all.anybody());
    }
}
