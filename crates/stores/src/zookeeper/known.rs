//! The versions of documents that this process has proven. A read of another version shows news.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure::Key;
use tenure::store::{Document, Version};

/// How many documents are remembered: the maximum number of slots of a group of workers.
///
/// A forgotten document is proven once more.
const MOST: usize = 1 << 14;

/// The last proven version of each document.
#[derive(Debug, Default)]
pub(super) struct Known {
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    by_key: HashMap<Key, Fact>,
    /// Counts the events in here: reads asked for, facts learnt.
    count: u64,
    /// Reads that were asked for before this count prove nothing any more.
    floor: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    /// The count when this was learnt.
    since: u64,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// A proven read or an acknowledged write showed this version; `None` if the document is
    /// absent.
    Proven(Option<Version>),
    /// This process has sent a write, or learnt two facts in an unknown order.
    Doubtful,
}

/// The count when a read was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked(u64);

/// The count when a write was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent(u64);

impl Known {
    /// Must be called before a read is sent.
    pub(super) fn asked(&self) -> Asked {
        Asked(self.lock().next())
    }

    /// Returns true if any of these has been proven before. If none has, everything is news.
    pub(super) fn knows_any(&self, keys: &[Key]) -> bool {
        let facts = self.lock();
        keys.iter().any(|key| matches!(facts.state(key), Some(State::Proven(_))))
    }

    /// The indexes of the documents that are not as they were proven last.
    ///
    /// `found` is the answer of a read that proves nothing. Beyond its end, everything is news.
    pub(super) fn news(&self, keys: &[Key], found: &[Option<Document>]) -> Vec<usize> {
        let facts = self.lock();
        let is_known = |at: usize, key: &Key| match (found.get(at), facts.state(key)) {
            (Some(found), Some(State::Proven(known))) => {
                found.as_ref().map(|document| &document.version) == known.as_ref()
            }
            (None, _) | (Some(_), Some(State::Doubtful) | None) => false,
        };
        let places = keys.iter().enumerate().filter(|(at, key)| !is_known(*at, key));
        places.map(|(at, _)| at).collect()
    }

    /// Records that a read behind a barrier showed this version, or no document.
    ///
    /// The read counts if it was asked for after all known facts were learnt. Otherwise the order
    /// of the two is unknown, because answers are taken in any order. If they differ, the next read
    /// must prove its answer.
    pub(super) fn read(&self, key: &Key, version: Option<Version>, asked: Asked) {
        let mut facts = self.lock();
        let state = match facts.by_key.get(key) {
            None if asked.0 <= facts.floor => return,
            Some(fact) if asked.0 <= fact.since => match &fact.state {
                State::Proven(known) if *known != version => State::Doubtful,
                State::Proven(_) | State::Doubtful => return,
            },
            Some(_) | None => State::Proven(version),
        };
        facts.learn(key, state);
    }

    /// Records that a document is about to be written, or may have been.
    pub(super) fn doubt(&self, key: &Key) -> Sent {
        Sent(self.lock().learn(key, State::Doubtful))
    }

    /// Records that the write sent at `sent` was acknowledged with this version.
    pub(super) fn wrote(&self, key: &Key, version: &Version, sent: Sent) {
        let mut facts = self.lock();
        let proven = State::Proven(Some(version.clone()));
        let state = match facts.by_key.get(key) {
            Some(fact) if fact.state == proven => return,
            // Nothing was learnt since the write was sent.
            Some(fact) if fact.since == sent.0 => proven,
            Some(_) | None => State::Doubtful,
        };
        facts.learn(key, state);
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        // A panic may lose a change at any point. Then less is known, but nothing wrong.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    fn state(&self, key: &Key) -> Option<&State> {
        self.by_key.get(key).map(|fact| &fact.state)
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn learn(&mut self, key: &Key, state: State) -> u64 {
        let since = self.next();
        if self.by_key.len() >= MOST && !self.by_key.contains_key(key) {
            self.by_key.clear();
            self.floor = since;
        }
        self.by_key.insert(key.clone(), Fact { since, state });
        since
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).expect("a good key")
    }

    fn version(name: &str) -> Version {
        Version::new(name)
    }

    fn at(name: &str) -> Option<Document> {
        Some(Document { version: version(name), body: Bytes::new() })
    }

    #[test]
    fn what_was_not_proven_before_is_news() {
        let known = Known::default();
        let keys = [key("a"), key("b"), key("c")];
        assert!(!known.knows_any(&keys));
        assert_eq!(known.news(&keys, &[]), [0, 1, 2]);
        known.read(&keys[0], Some(version("1")), known.asked());
        known.read(&keys[1], None, known.asked());
        assert!(known.knows_any(&keys));
        assert_eq!(known.news(&keys, &[at("1"), None, None]), [2], "nothing is known of c");
        assert_eq!(known.news(&keys, &[at("2"), at("1"), None]), [0, 1, 2]);
        assert_eq!(known.news(&keys, &[None, None, None]), [0, 2]);
    }

    #[test]
    fn after_a_write_of_our_own_in_doubt_everything_is_news() {
        let known = Known::default();
        let keys = [key("a")];
        known.read(&keys[0], Some(version("1")), known.asked());
        let before = known.asked();
        let sent = known.doubt(&keys[0]);
        assert_eq!(known.news(&keys, &[at("1")]), [0], "the write may be there");
        known.read(&keys[0], Some(version("1")), before);
        assert_eq!(known.news(&keys, &[at("1")]), [0], "that was asked for before the write");
        known.read(&keys[0], Some(version("1")), known.asked());
        assert!(known.news(&keys, &[at("1")]).is_empty(), "and that was not");
        known.wrote(&keys[0], &version("2"), sent);
        assert_eq!(known.news(&keys, &[at("1")]), [0]);
        assert_eq!(known.news(&keys, &[at("2")]), [0], "the read may have been before the write");
        let sent = known.doubt(&keys[0]);
        known.wrote(&keys[0], &version("2"), sent);
        assert_eq!(known.news(&keys, &[at("1")]), [0]);
        assert!(known.news(&keys, &[at("2")]).is_empty());
    }

    /// Each answer is taken by its own task, so answers come in any order.
    #[test]
    fn a_read_that_was_asked_for_earlier_does_not_replace_what_was_learnt_later() {
        let (known, keys) = (Known::default(), [key("a")]);
        // A read of the first version. A write of the second is acknowledged before the read is
        // taken.
        let asked = known.asked();
        let sent = known.doubt(&keys[0]);
        known.wrote(&keys[0], &version("2"), sent);
        known.read(&keys[0], Some(version("1")), asked);
        assert_eq!(known.news(&keys, &[at("1")]), [0], "a deposed leader shows it");
        // The answers of two reads are taken in the other order.
        let (first, second) = (known.asked(), known.asked());
        known.read(&keys[0], Some(version("3")), second);
        assert!(known.news(&keys, &[at("3")]).is_empty());
        known.read(&keys[0], Some(version("2")), first);
        assert_eq!(known.news(&keys, &[at("2")]), [0]);
        // Concurrent reads were all shown the same version: nothing is in doubt.
        let asked = [known.asked(), known.asked()];
        for asked in asked {
            known.read(&keys[0], Some(version("3")), asked);
        }
        assert!(known.news(&keys, &[at("3")]).is_empty());
    }

    #[test]
    fn an_acknowledgement_that_is_taken_late_does_not_replace_that_of_a_later_write() {
        let (known, keys) = (Known::default(), [key("a")]);
        let first = known.doubt(&keys[0]);
        let second = known.doubt(&keys[0]);
        known.wrote(&keys[0], &version("2"), second);
        known.wrote(&keys[0], &version("1"), first);
        assert_eq!(known.news(&keys, &[at("1")]), [0]);
    }

    #[test]
    fn no_more_than_a_group_has_is_remembered() {
        let known = Known::default();
        let (early, written) = (known.asked(), key("written"));
        known.doubt(&written);
        for number in 0..=MOST {
            known.read(&key(&format!("k{number}")), None, known.asked());
        }
        assert!(known.lock().by_key.len() <= MOST);
        known.read(&written, None, early);
        assert_eq!(known.news(&[written], &[None]), [0], "the doubt was forgotten with the rest");
    }
}
