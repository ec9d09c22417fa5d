//! Turns the keys that were read into a queue.

use std::collections::BTreeMap;

use tenure::Key;
use tenure::queue::{Entry, Place, Queue};

use super::super::known::Glimpse;
use super::super::proto::{KeyValue, RangeResponse};
use super::super::waits::Topic;
use super::keys::{QueueKeys, is_entry, to_name};
use super::record::{self, EntryOwner, Mark};

/// The part of a queue that concerns one candidacy.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) first: Option<KeyValue>,
    pub(super) before: Option<KeyValue>,
    pub(super) own: Option<KeyValue>,
}

impl Part {
    /// The entries of this part, in order.
    pub(super) fn in_order(&self) -> Vec<&KeyValue> {
        let mut entries: Vec<&KeyValue> =
            [&self.first, &self.before, &self.own].into_iter().flatten().collect();
        entries.sort_by_key(|entry| entry.create_revision);
        entries.dedup_by(|a, b| a.key == b.key);
        entries
    }

    /// Picks the part from all keys of the queue, lowest first.
    pub(super) fn of(all: Vec<KeyValue>, entries: &Topic, own: Option<&[u8]>) -> Part {
        let mut part = Part::default();
        for entry in all.into_iter().filter(|entry| is_candidate(entries, entry)) {
            if part.first.is_none() {
                part.first = Some(entry.clone());
            }
            if own == Some(&entry.key[..]) {
                part.own = Some(entry);
                break;
            }
            part.before = Some(entry);
        }
        if part.own.is_none() {
            part.before = None;
        }
        part
    }
}

/// Returns true if a key stands for a candidate.
///
/// A key without a lease does not: it was put there by hand, belongs to no session, and would stand
/// there for ever.
pub(super) fn is_candidate(entries: &Topic, found: &KeyValue) -> bool {
    is_entry(entries, &found.key) && found.lease != 0
}

/// The only key that was read, if it was there.
pub(super) fn only(found: RangeResponse) -> Option<KeyValue> {
    found.kvs.into_iter().next()
}

pub(super) fn entry(found: &KeyValue) -> Entry {
    Entry { name: to_name(&found.key), token: u64::try_from(found.create_revision).unwrap_or(0) }
}

/// The state of a key in a read.
pub(super) fn look(key: bytes::Bytes, found: Option<&KeyValue>, store: i64) -> (Topic, Glimpse) {
    let glimpse = Glimpse {
        document: found.map_or(0, |found| found.mod_revision),
        created: found.map_or(0, |found| found.create_revision),
        store,
    };
    (Topic::one(key), glimpse)
}

/// The holder of an entry, if the record beside it was written with the entry.
///
/// The record of an earlier entry of the same lease may have been left behind when that entry was
/// deleted. Such a record was written before this entry, unless it was written anew with it.
pub(super) fn stood(
    keys: &QueueKeys,
    election: &Key,
    entry: &KeyValue,
    beside: Option<&KeyValue>,
) -> Option<EntryOwner> {
    let beside = beside.filter(|beside| beside.mod_revision >= entry.create_revision)?;
    let same = keys.holder_of(election, &entry.key).is_some_and(|key| key == beside.key);
    same.then(|| record::decode(&beside.value)).flatten()
}

/// The whole queue, with all candidates.
pub(super) fn whole(
    keys: &QueueKeys,
    election: &Key,
    mark: Mark,
    tenure: Option<u64>,
    entries: Vec<KeyValue>,
    records: &[KeyValue],
) -> Queue {
    let topic = keys.entries(election);
    let records: BTreeMap<&[u8], &KeyValue> =
        records.iter().map(|record| (&record.key[..], record)).collect();
    let place = |found: &KeyValue| {
        let beside = keys.holder_of(election, &found.key);
        let beside = beside.and_then(|key| records.get(&key[..]).copied());
        let stood = stood(keys, election, found, beside);
        // A place without a holder is shown, but is no candidate.
        let holder = is_candidate(&topic, found).then(|| record::holder(found, stood.as_ref()));
        Place { entry: entry(found), ticket: stood.map(|stood| stood.ticket), holder }
    };
    let places: Vec<Place> =
        entries.iter().filter(|found| is_entry(&topic, &found.key)).map(place).collect();
    match mark {
        Mark::Missing if places.iter().all(|place| place.holder.is_none()) => Queue::Missing,
        // Candidates of other clients stand in a queue that none of ours has made yet.
        Mark::Missing => Queue::Open { generation: 0, places, unclean: None, highest: 0 },
        Mark::Open { generation } => {
            Queue::Open { generation, places, unclean: tenure, highest: tenure.unwrap_or(0) }
        }
        Mark::Ended { generation } => Queue::Ended { generation, places },
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::keys::Keys;
    use super::*;

    fn found(key: &str, created: i64) -> KeyValue {
        let key = key.to_owned().into();
        KeyValue { key, create_revision: created, lease: 7, ..KeyValue::default() }
    }

    fn topic() -> Topic {
        let election = Key::parse("elections/a").expect("a good key");
        QueueKeys::new(&Keys::new("p")).entries(&election)
    }

    fn tokens(part: &Part) -> Vec<i64> {
        part.in_order().iter().map(|entry| entry.create_revision).collect()
    }

    #[test]
    fn a_part_is_the_first_the_one_before_and_our_own() {
        let all = || vec![found("p/a/1", 3), found("p/a/x/2", 4), found("p/a/2", 5)];
        let more = || [all(), vec![found("p/a/3", 7), found("p/a/4", 9)]].concat();
        let part = |own: Option<&[u8]>| Part::of(more(), &topic(), own);
        assert_eq!(tokens(&part(Some(b"p/a/3"))), [3, 5, 7]);
        assert_eq!(tokens(&part(Some(b"p/a/2"))), [3, 5], "what is nested does not count");
        assert_eq!(tokens(&part(Some(b"p/a/1"))), [3]);
        assert_eq!(tokens(&part(Some(b"p/a/9"))), [3], "it does not stand there");
        assert_eq!(tokens(&part(None)), [3]);
    }

    #[test]
    fn a_key_without_a_lease_is_no_candidate() {
        let by_hand = KeyValue { lease: 0, ..found("p/a/0", 2) };
        let all = vec![by_hand.clone(), found("p/a/1", 3), found("p/a/2", 5)];
        assert_eq!(tokens(&Part::of(all.clone(), &topic(), Some(b"p/a/2"))), [3, 5]);
        assert!(tokens(&Part::of(vec![by_hand], &topic(), None)).is_empty());
        let election = Key::parse("elections/a").expect("a good key");
        let (keys, mark) = (QueueKeys::new(&Keys::new("p")), Mark::Open { generation: 1 });
        let queue = whole(&keys, &election, mark, None, all, &[]);
        let Queue::Open { places, .. } = queue else { panic!("{queue:?}") };
        let shown = |place: &Place| (place.entry.token, place.holder.is_some());
        let shown: Vec<_> = places.iter().map(shown).collect();
        assert_eq!(shown, [(2, false), (3, true), (5, true)], "it is shown, and is none of them");
    }
}
