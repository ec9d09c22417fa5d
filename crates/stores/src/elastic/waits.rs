//! All waits of a store for changes of documents.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure::Key;
use tenure::store::Version;
use tokio::sync::{Notify, oneshot};

/// The waits of a store.
#[derive(Debug, Default)]
pub(super) struct Waits {
    state: Mutex<State>,
    /// Notified when a wait begins.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<u64, Wait>,
    /// The number of waits so far.
    count: u64,
    /// True if the last look failed.
    deaf: bool,
}

#[derive(Debug)]
struct Wait {
    key: Key,
    seen: Option<Version>,
    wake: oneshot::Sender<()>,
}

/// The documents that a look reads.
#[derive(Debug)]
pub(super) struct Asked {
    /// Each document with a wait, once.
    pub(super) keys: Vec<Key>,
    /// Waits from this number on began after the look. It may be older than the state they saw.
    before: u64,
}

impl Waits {
    /// Waits until the document may differ from `seen`.
    pub(super) async fn changed(self: &Arc<Waits>, key: &Key, seen: Option<&Version>) {
        let (wake, woken) = oneshot::channel();
        let number = {
            let mut state = self.lock();
            let number = state.count;
            state.count += 1;
            state.waiting.insert(number, Wait { key: key.clone(), seen: seen.cloned(), wake });
            number
        };
        self.wanted.notify_one();
        let _leave = Leave { waits: self, number };
        // Woken, or the sender was dropped: the caller reads again in either case.
        let _ = woken.await;
    }

    /// Waits until there is a wait.
    pub(super) async fn somebody(&self) {
        loop {
            let mut wanted = pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if !self.lock().waiting.is_empty() {
                return;
            }
            wanted.await;
        }
    }

    /// Returns true if the last look succeeded.
    pub(super) fn served(&self) -> bool {
        !self.lock().deaf
    }

    /// Starts a look.
    pub(super) fn asked(&self) -> Asked {
        let state = self.lock();
        let mut keys: Vec<Key> = state.waiting.values().map(|wait| wait.key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        Asked { keys, before: state.count }
    }

    /// Ends a look, with the versions of its documents in the same order.
    pub(super) fn found(&self, asked: &Asked, versions: impl Iterator<Item = Option<Version>>) {
        let found: HashMap<&Key, Option<Version>> = asked.keys.iter().zip(versions).collect();
        let mut state = self.lock();
        state.deaf = false;
        let changed = |number: &u64, wait: &mut Wait| {
            *number < asked.before && found.get(&wait.key).is_some_and(|now| *now != wait.seen)
        };
        let woken: Vec<Wait> =
            state.waiting.extract_if(.., changed).map(|(_, wait)| wait).collect();
        drop(state);
        woken.into_iter().for_each(Wait::wake);
    }

    /// Ends a look that failed. After the first failure, all waiting callers have to read.
    pub(super) fn failed(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.deaf, true) {
            return;
        }
        let woken = std::mem::take(&mut state.waiting);
        drop(state);
        woken.into_values().for_each(Wait::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the next can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wait {
    fn wake(self) {
        // Sending fails if the wait was cancelled at this moment.
        let _ = self.wake.send(());
    }
}

/// Ends a wait, even if it is cancelled.
struct Leave<'a> {
    waits: &'a Waits,
    number: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.waits.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn key(text: &str) -> Key {
        Key::parse(text).expect("a good key")
    }

    fn look(waits: &Waits, versions: &[Option<&str>]) {
        let asked = waits.asked();
        assert_eq!(asked.keys.len(), versions.len());
        waits.found(&asked, versions.iter().map(|version| version.map(Version::new)));
    }

    #[tokio::test]
    async fn a_wait_ends_when_the_document_is_not_as_it_was_seen() {
        let waits = Arc::new(Waits::default());
        let (a, b, seen) = (key("a"), key("b"), Version::new("1:1"));
        let mut one = pin!(waits.changed(&a, Some(&seen)));
        let mut two = pin!(waits.changed(&b, None));
        assert!(one.as_mut().now_or_never().is_none() && two.as_mut().now_or_never().is_none());
        look(&waits, &[Some("1:1"), None]);
        assert!(one.as_mut().now_or_never().is_none() && two.as_mut().now_or_never().is_none());
        look(&waits, &[None, None]);
        assert!(one.as_mut().now_or_never().is_some() && two.as_mut().now_or_never().is_none());
        look(&waits, &[Some("2:1")]);
        assert!(two.as_mut().now_or_never().is_some());
        assert!(waits.asked().keys.is_empty());
    }

    #[tokio::test]
    async fn a_look_that_began_before_a_wait_does_not_end_it() {
        let waits = Arc::new(Waits::default());
        let (key, seen) = (key("a"), Version::new("2:1"));
        let mut early = pin!(waits.changed(&key, Some(&seen)));
        assert!(early.as_mut().now_or_never().is_none());
        let asked = waits.asked();
        let mut late = pin!(waits.changed(&key, Some(&seen)));
        assert!(late.as_mut().now_or_never().is_none());
        waits.found(&asked, [Some(Version::new("1:1"))].into_iter());
        assert!(early.as_mut().now_or_never().is_some());
        assert!(late.as_mut().now_or_never().is_none());
    }

    #[tokio::test]
    async fn the_first_look_that_fails_wakes_everybody_and_the_next_do_not() {
        let waits = Arc::new(Waits::default());
        let key = key("a");
        let mut wait = pin!(waits.changed(&key, None));
        assert!(wait.as_mut().now_or_never().is_none() && waits.served());
        waits.failed();
        assert!(wait.as_mut().now_or_never().is_some() && !waits.served());
        let mut again = pin!(waits.changed(&key, None));
        assert!(again.as_mut().now_or_never().is_none());
        waits.failed();
        assert!(again.as_mut().now_or_never().is_none());
        look(&waits, &[None]);
        assert!(waits.served() && again.as_mut().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_wait_that_is_cancelled_is_forgotten() {
        let waits = Arc::new(Waits::default());
        let key = key("a");
        {
            let mut wait = pin!(waits.changed(&key, None));
            assert!(wait.as_mut().now_or_never().is_none());
        }
        assert!(waits.asked().keys.is_empty());
    }
}
