//! All waits of a store for changes of documents.
//!
//! The table's change feed shows each change since the feed began; only a read shows the state
//! before that. So time is counted in *moments*: the number of changes heard so far. A read that
//! was sent while the feed was live shows every change heard before the moment it was sent, and the
//! feed will show every later change.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Up to this many documents are remembered. Above it, only documents with waits are.
const MOST_REMEMBERED: usize = 16 * 1024;
/// How long the feed is kept after the last wait. Most woken callers soon wait again.
const LINGER: Duration = Duration::from_secs(20);

/// The last operation written to a document; none if the document does not exist.
pub(super) type State = Option<Arc<str>>;

/// The waits of a store.
#[derive(Debug, Default)]
pub(super) struct Waits {
    table: Mutex<Table>,
    /// Notified when a wait begins.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct Table {
    documents: HashMap<Key, Remembered>,
    feed: Feed,
    moment: u64,
    /// How many feeds ended after they had begun. A wait from before that has to read.
    silences: u64,
    waiting: usize,
    /// When the last wait ended.
    since: Option<Instant>,
}

/// The state of the change feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Feed {
    /// No feed: nothing has waited yet, or not for a while.
    #[default]
    Idle,
    /// Changes have been heard since this moment.
    Live { since: u64 },
    /// The last attempt to listen failed, or the feed ended.
    Deaf,
}

#[derive(Debug, Default)]
struct Remembered {
    /// The last change heard, and its moment.
    heard: Option<(State, u64)>,
    /// The state in this store's last read or write, and the moment it was sent.
    looked: Option<(State, u64)>,
    waiting: usize,
    changed: Arc<Notify>,
}

/// The comparison of a caller's state with the feed and the last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Changed,
    Same,
    /// The document was neither heard of nor read since the feed began.
    Unknown,
}

/// A moment at which the feed was live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(u64);

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The document may have changed.
    Changed,
    /// The feed is live, but a change may have come before it: the caller has to read.
    LookFirst,
}

impl Waits {
    /// The current moment, for a read about to be sent; none without a live feed.
    pub(super) fn moment(&self) -> Option<Moment> {
        let table = self.lock();
        match table.feed {
            Feed::Live { .. } => Some(Moment(table.moment)),
            Feed::Idle | Feed::Deaf => None,
        }
    }

    /// Records the state of a document from a read or write that was sent at `moment`.
    pub(super) fn saw(&self, moment: Option<Moment>, key: &Key, state: State) {
        let Some(Moment(moment)) = moment else { return };
        let mut table = self.lock();
        // A read from before the feed began again says nothing about the current state.
        if matches!(table.feed, Feed::Live { since } if moment >= since) {
            let looked = &mut table.remember(key).looked;
            if looked.as_ref().is_none_or(|(_, earlier)| *earlier <= moment) {
                *looked = Some((state, moment));
            }
        }
    }

    /// Waits until the document may differ from `seen`, or the caller has to read it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn changed(self: &Arc<Waits>, key: &Key, seen: &State) -> Woken {
        let wait = self.join(key);
        loop {
            let mut notified = pin!(wait.changed.notified());
            // From here on no notification is missed, also before the first poll.
            notified.as_mut().enable();
            match self.lock().judge(key, seen, wait.silences) {
                Some(Verdict::Changed) => return Woken::Changed,
                Some(Verdict::Unknown) => return Woken::LookFirst,
                Some(Verdict::Same) | None => {}
            }
            notified.await;
        }
    }

    /// Returns true unless the last attempt to listen failed or the feed ended.
    pub(super) fn listening(&self) -> bool {
        self.lock().feed != Feed::Deaf
    }

    /// Waits until there is a wait.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn somebody(&self) {
        loop {
            let mut wanted = pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if self.lock().waiting > 0 {
                return;
            }
            wanted.await;
        }
    }

    /// Returns true if there are no waits, and were none for [`LINGER`].
    pub(super) fn is_idle(&self) -> bool {
        let table = self.lock();
        table.waiting == 0 && table.since.is_none_or(|since| since.elapsed() > LINGER)
    }

    /// Records that the feed began. All remembered states are older, so they are dropped.
    pub(super) fn begun(&self) {
        let mut table = self.lock();
        table.moment += 1;
        table.feed = Feed::Live { since: table.moment };
        table.start_afresh();
    }

    /// Records a change that the feed showed.
    pub(super) fn heard(&self, key: &Key, state: State) {
        let mut table = self.lock();
        table.moment += 1;
        let moment = table.moment;
        let document = table.remember(key);
        document.heard = Some((state, moment));
        document.changed.notify_waiters();
    }

    /// Records that the feed ended. If it had begun, all waits have to read again.
    pub(super) fn fell_silent(&self, served: bool) {
        let mut table = self.lock();
        table.feed = Feed::Deaf;
        if served {
            table.silences += 1;
            table.start_afresh();
        }
    }

    /// Records that the feed was ended because there were no waits.
    pub(super) fn rests(&self) {
        let mut table = self.lock();
        table.feed = Feed::Idle;
        table.start_afresh();
    }

    fn join(self: &Arc<Waits>, key: &Key) -> Wait {
        let mut table = self.lock();
        table.waiting += 1;
        let document = table.remember(key);
        document.waiting += 1;
        let changed = document.changed.clone();
        let silences = table.silences;
        drop(table);
        self.wanted.notify_one();
        Wait { waits: self.clone(), key: key.clone(), silences, changed }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every change is complete before the next can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Compares `seen` with the known state; none while the feed is not live.
    fn judge(&self, key: &Key, seen: &State, silences: u64) -> Option<Verdict> {
        if self.silences != silences {
            return Some(Verdict::Changed);
        }
        let Feed::Live { .. } = self.feed else { return None };
        let document = self.documents.get(key)?;
        Some(match (&document.heard, &document.looked) {
            (Some((heard, _)), _) if heard == seen => Verdict::Same,
            // A change heard before that read was sent is older than the read. (A feed can show a
            // change that never took effect.)
            (Some((_, heard)), Some((looked, sent))) if looked == seen && sent >= heard => {
                Verdict::Same
            }
            (Some(_), _) => Verdict::Changed,
            (None, Some((looked, _))) if looked == seen => Verdict::Same,
            (None, Some(_)) => Verdict::Changed,
            (None, None) => Verdict::Unknown,
        })
    }

    fn remember(&mut self, key: &Key) -> &mut Remembered {
        if self.documents.len() >= MOST_REMEMBERED && !self.documents.contains_key(key) {
            self.documents.retain(|_, document| document.waiting > 0);
        }
        self.documents.entry(key.clone()).or_default()
    }

    /// Forgets all states heard and seen, and wakes all waits to judge again.
    fn start_afresh(&mut self) {
        self.documents.retain(|_, document| {
            (document.heard, document.looked) = (None, None);
            document.changed.notify_waiters();
            document.waiting > 0
        });
    }
}

/// One wait; dropping it ends it.
struct Wait {
    waits: Arc<Waits>,
    key: Key,
    silences: u64,
    changed: Arc<Notify>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut table = self.waits.lock();
        table.waiting -= 1;
        table.since = Some(Instant::now());
        // The document is kept while there are waits for it.
        if let Some(document) = table.documents.get_mut(&self.key) {
            document.waiting -= 1;
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

    fn at(op: &str) -> State {
        Some(op.into())
    }

    fn live() -> (Arc<Waits>, Key) {
        let waits = Arc::new(Waits::default());
        waits.begun();
        (waits, key())
    }

    /// The result of a wait that ends at once; none if it does not.
    fn woken(waits: &Arc<Waits>, seen: &State) -> Option<Woken> {
        waits.changed(&key(), seen).now_or_never()
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_change_it_waits_for_and_not_with_its_own() {
        let (waits, key) = live();
        let seen = at("1");
        waits.saw(waits.moment(), &key, seen.clone());
        let mut wait = pin!(waits.changed(&key, &seen));
        assert_eq!(wait.as_mut().now_or_never(), None);
        waits.heard(&key, at("1"));
        assert_eq!(wait.as_mut().now_or_never(), None, "that was seen");
        waits.heard(&key, at("2"));
        assert_eq!(wait.await, Woken::Changed);
        assert_eq!(woken(&waits, &at("1")), Some(Woken::Changed), "what is past wakes at once");
        assert_eq!(woken(&waits, &at("2")), None);
        waits.heard(&key, None);
        assert_eq!(woken(&waits, &at("2")), Some(Woken::Changed));
        assert_eq!(woken(&waits, &None), None);
    }

    #[tokio::test]
    async fn what_was_seen_before_the_feed_began_has_to_be_looked_at_again() {
        let waits = Arc::new(Waits::default());
        let early = waits.moment();
        assert_eq!(early, None);
        let (key, seen) = (key(), at("1"));
        let mut wait = pin!(waits.changed(&key, &seen));
        assert_eq!(wait.as_mut().now_or_never(), None, "nothing is heard yet");
        waits.begun();
        assert_eq!(wait.await, Woken::LookFirst);
        waits.saw(early, &key, at("1"));
        assert_eq!(woken(&waits, &at("1")), Some(Woken::LookFirst));
        waits.saw(waits.moment(), &key, at("1"));
        assert_eq!(woken(&waits, &at("1")), None);
    }

    #[tokio::test]
    async fn a_look_before_the_feed_began_again_says_nothing_about_it() {
        let (waits, key) = live();
        let before = waits.moment();
        waits.fell_silent(true);
        waits.begun();
        waits.saw(before, &key, at("1"));
        assert_eq!(woken(&waits, &at("1")), Some(Woken::LookFirst));
    }

    #[tokio::test]
    async fn a_change_that_never_came_to_be_wakes_once() {
        let (waits, key) = live();
        waits.saw(waits.moment(), &key, at("1"));
        waits.heard(&key, at("never"));
        assert_eq!(woken(&waits, &at("1")), Some(Woken::Changed));
        waits.saw(waits.moment(), &key, at("1"));
        assert_eq!(woken(&waits, &at("1")), None);
    }

    #[tokio::test]
    async fn a_change_between_a_look_and_its_wait_is_not_missed() {
        let (waits, key) = live();
        let sent = waits.moment();
        waits.heard(&key, at("2"));
        waits.saw(sent, &key, at("1"));
        assert_eq!(woken(&waits, &at("1")), Some(Woken::Changed));
    }

    #[tokio::test]
    async fn everybody_wakes_when_the_feed_ends_and_may_wait_for_the_next() {
        let (waits, key) = live();
        let seen = at("1");
        waits.saw(waits.moment(), &key, seen.clone());
        let mut wait = pin!(waits.changed(&key, &seen));
        assert_eq!(wait.as_mut().now_or_never(), None);
        waits.fell_silent(true);
        assert_eq!(wait.await, Woken::Changed);
        assert!(!waits.listening());
        let mut wait = pin!(waits.changed(&key, &seen));
        assert_eq!(wait.as_mut().now_or_never(), None);
        waits.fell_silent(false);
        assert_eq!(wait.as_mut().now_or_never(), None, "there was nothing to miss");
        waits.begun();
        assert!(waits.listening());
        assert_eq!(wait.await, Woken::LookFirst);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_remembered_within_bounds() {
        let (waits, key) = live();
        let seen = at("1");
        let mut wait = pin!(waits.changed(&key, &seen));
        waits.saw(waits.moment(), &key, at("1"));
        assert_eq!(wait.as_mut().now_or_never(), None);
        for number in 0..MOST_REMEMBERED + 10 {
            let other = Key::parse(&format!("other/n{number}")).expect("a good key");
            waits.heard(&other, at("x"));
        }
        assert!(waits.lock().documents.len() <= MOST_REMEMBERED);
        assert_eq!(wait.as_mut().now_or_never(), None, "it is still waited for");
        waits.heard(&key, at("2"));
        assert_eq!(wait.await, Woken::Changed);
    }
}
