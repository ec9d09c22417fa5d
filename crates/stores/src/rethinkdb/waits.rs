//! Who waits for which document to change, for all waits of a store.
//!
//! The feed of the table shows each change since it began; what was before, a read has to show. So
//! time is counted in *moments*, the changes heard so far: a look that was sent while the feed was
//! live shows every change heard before its moment, and whatever comes later will be heard.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

/// More documents are not remembered, unless somebody waits for them.
const MOST_REMEMBERED: usize = 16 * 1024;
/// The feed is kept for so long after the last wait: whoever is woken mostly waits again.
const LINGER: Duration = Duration::from_secs(20);

/// At which operation a document is; none when it is not there.
pub(super) type State = Option<Arc<str>>;

/// The waits of a store.
#[derive(Debug, Default)]
pub(super) struct Waits {
    table: Mutex<Table>,
    /// Somebody begins to wait.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct Table {
    documents: HashMap<Key, Remembered>,
    feed: Feed,
    moment: u64,
    /// How often a feed ended that had served somebody: whoever waited then has to look.
    silences: u64,
    waiting: usize,
    /// When the last wait ended.
    since: Option<Instant>,
}

/// How the feed is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Feed {
    /// Nobody has needed it yet, or for a while.
    #[default]
    Idle,
    /// Changes are heard, since this moment.
    Live { since: u64 },
    /// The last attempt failed, or what was heard ended.
    Deaf,
}

#[derive(Debug, Default)]
struct Remembered {
    /// The last change heard, and its moment.
    heard: Option<(State, u64)>,
    /// The last look of ours, and the moment when it was sent.
    looked: Option<(State, u64)>,
    waiting: usize,
    changed: Arc<Notify>,
}

/// What is known of a document that somebody saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Changed,
    Same,
    /// Nothing was heard or seen of it since the feed began.
    Unknown,
}

/// A moment at which the feed was live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(u64);

/// What a wait comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The document may have changed.
    Changed,
    /// The feed is live, and only a look can say what was before.
    LookFirst,
}

impl Waits {
    /// The moment, for a look that is about to be sent; none while nothing is heard.
    pub(super) fn moment(&self) -> Option<Moment> {
        let table = self.lock();
        match table.feed {
            Feed::Live { .. } => Some(Moment(table.moment)),
            Feed::Idle | Feed::Deaf => None,
        }
    }

    /// Remembers how a document was, in a look or a write that was sent at that moment.
    pub(super) fn saw(&self, moment: Option<Moment>, key: &Key, state: State) {
        let Some(Moment(moment)) = moment else { return };
        let mut table = self.lock();
        // A look from before the feed began again says nothing about it.
        if matches!(table.feed, Feed::Live { since } if moment >= since) {
            let looked = &mut table.remember(key).looked;
            if looked.as_ref().is_none_or(|(_, earlier)| *earlier <= moment) {
                *looked = Some((state, moment));
            }
        }
    }

    /// Waits until the document may no longer be as it was seen, or until somebody has to look.
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

    /// Whether the last attempt to listen succeeded.
    pub(super) fn listening(&self) -> bool {
        self.lock().feed != Feed::Deaf
    }

    /// Waits until somebody waits.
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

    /// Whether nobody has waited for a while.
    pub(super) fn is_idle(&self) -> bool {
        let table = self.lock();
        table.waiting == 0 && table.since.is_none_or(|since| since.elapsed() > LINGER)
    }

    /// The feed has begun: whatever was known is from before.
    pub(super) fn begun(&self) {
        let mut table = self.lock();
        table.moment += 1;
        table.feed = Feed::Live { since: table.moment };
        table.start_afresh();
    }

    /// A document changed.
    pub(super) fn heard(&self, key: &Key, state: State) {
        let mut table = self.lock();
        table.moment += 1;
        let moment = table.moment;
        let document = table.remember(key);
        document.heard = Some((state, moment));
        document.changed.notify_waiters();
    }

    /// The feed ended: everybody has to look again if it had begun.
    pub(super) fn fell_silent(&self, served: bool) {
        let mut table = self.lock();
        table.feed = Feed::Deaf;
        if served {
            table.silences += 1;
            table.start_afresh();
        }
    }

    /// The feed was ended for want of waits.
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
    /// What is known; nothing while nothing is heard.
    fn judge(&self, key: &Key, seen: &State, silences: u64) -> Option<Verdict> {
        if self.silences != silences {
            return Some(Verdict::Changed);
        }
        let Feed::Live { .. } = self.feed else { return None };
        let document = self.documents.get(key)?;
        Some(match (&document.heard, &document.looked) {
            (Some((heard, _)), _) if heard == seen => Verdict::Same,
            // What was heard before that look was sent is older than it. (A feed can show what
            // never came to be.)
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

    /// Forgets what was heard and seen; everybody has to judge again.
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
        // It is there for as long as somebody waits for it.
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

    /// What the wait comes to at once, if anything.
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
