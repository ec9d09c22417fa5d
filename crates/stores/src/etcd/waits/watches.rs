//! The watches that serve the waits, as the task that listens sees them.

use std::pin::pin;
use std::time::Duration;

use super::super::known::Known;
use super::{Entry, News, Topic, Waits};

/// How long a watch is kept after the last wait: a caller that is woken mostly waits again.
const LINGER: Duration = Duration::from_secs(20);

impl Waits {
    /// Waits until there is a wait to serve.
    pub(in super::super) async fn somebody(&self) {
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
    pub(in super::super) fn begin_again(&self) {
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
    pub(in super::super) fn unasked(
        &self,
        mut numbers: impl FnMut() -> i64,
    ) -> Vec<(i64, Topic, i64)> {
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
    pub(in super::super) fn begun(&self, topic: &Topic, revision: i64) {
        let mut state = self.lock();
        state.deaf = false;
        let Some(entry) = state.entries.get_mut(topic) else { return };
        if entry.start == 0 {
            entry.since = Some(revision + 1);
            entry.learn(Known { revision, absent: true }, revision);
        }
    }

    /// Records a change of a key.
    pub(in super::super) fn event(&self, topic: &Topic, news: News) {
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
    pub(in super::super) fn ended(&self, topic: &Topic) {
        if let Some(entry) = self.lock().entries.remove(topic) {
            entry.changed.notify_waiters();
        }
    }

    /// Records that the stream ended. If it had served a watch, all waits end, so their callers
    /// look again.
    pub(in super::super) fn fell_silent(&self, served: bool) {
        let mut state = self.lock();
        state.deaf = true;
        if served {
            state.entries.drain().for_each(|(_, entry)| entry.changed.notify_waiters());
            state.unasked.clear();
        }
    }

    /// Removes watches that are unused for a while, and returns their numbers.
    pub(in super::super) fn expired(&self) -> Vec<i64> {
        let mut state = self.lock();
        let old = |entry: &Entry| entry.waiting == 0 && entry.idle_since.elapsed() > LINGER;
        state
            .entries
            .extract_if(|_, entry| old(entry))
            .filter_map(|(_, entry)| entry.watch)
            .collect()
    }

    /// Returns true if there is no watch to keep.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
    }
}
