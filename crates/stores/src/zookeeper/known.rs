//! The versions of documents that this process has proven: a read that shows another one shows news.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure::{Document, Key, Version};

/// How many documents are remembered: as many as a group of workers has slots at most.
///
/// What is forgotten is proven once more.
const MOST: usize = 1 << 14;

/// What was proven of each document last.
#[derive(Debug, Default)]
pub(super) struct Known {
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    by_key: HashMap<Key, Fact>,
    /// How many writes there were.
    writes: u64,
    /// Reads that were asked for before this many writes say nothing any more.
    floor: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    /// A proven read or an acknowledged write showed this version; none for an absent document.
    Proven(Option<Version>),
    /// Written by this process, as this many before it were, and it is not known how that ended.
    Doubtful(u64),
}

/// When a read was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked(u64);

impl Known {
    /// To be taken before a read is asked for.
    pub(super) fn asked(&self) -> Asked {
        Asked(self.lock().writes)
    }

    /// Whether any of these has been proven before: if none has, everything is news.
    pub(super) fn knows_any(&self, keys: &[Key]) -> bool {
        let facts = self.lock();
        keys.iter().any(|key| matches!(facts.by_key.get(key), Some(Fact::Proven(_))))
    }

    /// The places of the documents that are not as they were proven last.
    ///
    /// `found` is what a read showed that proves nothing; where it ends, everything is news.
    pub(super) fn news(&self, keys: &[Key], found: &[Option<Document>]) -> Vec<usize> {
        let facts = self.lock();
        let is_known = |at: usize, key: &Key| match (found.get(at), facts.by_key.get(key)) {
            (Some(found), Some(Fact::Proven(known))) => {
                found.as_ref().map(|document| &document.version) == known.as_ref()
            }
            (None, _) | (Some(_), Some(Fact::Doubtful(_)) | None) => false,
        };
        let places = keys.iter().enumerate().filter(|(at, key)| !is_known(*at, key));
        places.map(|(at, _)| at).collect()
    }

    /// A read behind a barrier showed this version, or nothing.
    ///
    /// It says nothing of a write that was sent after it was asked for.
    pub(super) fn read(&self, key: &Key, version: Option<Version>, asked: Asked) {
        let mut facts = self.lock();
        let doubtful = match facts.by_key.get(key) {
            Some(Fact::Doubtful(write)) => *write >= asked.0,
            Some(Fact::Proven(_)) | None => false,
        };
        if !doubtful && asked.0 >= facts.floor {
            facts.set(key, Fact::Proven(version));
        }
    }

    /// A document is about to be written, or it is not known whether it was.
    pub(super) fn doubt(&self, key: &Key) {
        let mut facts = self.lock();
        let write = facts.writes;
        facts.writes += 1;
        facts.set(key, Fact::Doubtful(write));
    }

    /// A write was acknowledged, with this version.
    pub(super) fn wrote(&self, key: &Key, version: &Version) {
        self.lock().set(key, Fact::Proven(Some(version.clone())));
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        // Every change can be lost at any point: a panic leaves less known, and nothing that is wrong.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    fn set(&mut self, key: &Key, fact: Fact) {
        if self.by_key.len() >= MOST && !self.by_key.contains_key(key) {
            self.by_key.clear();
            self.floor = self.writes;
        }
        self.by_key.insert(key.clone(), fact);
    }
}

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
        known.doubt(&keys[0]);
        assert_eq!(known.news(&keys, &[at("1")]), [0], "the write may be there");
        known.read(&keys[0], Some(version("1")), before);
        assert_eq!(known.news(&keys, &[at("1")]), [0], "that was asked for before the write");
        known.read(&keys[0], Some(version("1")), known.asked());
        assert!(known.news(&keys, &[at("1")]).is_empty(), "and that was not");
        known.wrote(&keys[0], &version("2"));
        assert_eq!(known.news(&keys, &[at("1")]), [0]);
        assert!(known.news(&keys, &[at("2")]).is_empty());
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
