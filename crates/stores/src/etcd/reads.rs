//! Reads of many documents in few requests.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::future::try_join_all;
use tenure::Key;
use tenure::store::{Document, Fault};
use tokio::time::Instant;

use super::fault::{Excess, Failure, Kind};
use super::known::Glimpse;
use super::proto::{KeyValue, RangeResponse, TxnResponse};
use super::waits::Topic;
use super::{EtcdStore, kv, message};

/// The fewest neighbours that are read as a range. Fewer are read one by one, with the other keys.
const SHORTEST_RUN: usize = 32;
/// The most keys in a range. This many of the largest documents are half of the largest answer.
const LONGEST_RUN: usize = 512;

/// The documents of one request, as indexes of the keys that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Read as one range, which has few other keys.
    Run(Vec<usize>),
    Each(Vec<usize>),
}

/// A document, and its index among the keys that were asked for.
type Found = (usize, Option<Document>);

impl EtcdStore {
    /// Reads all documents, in as few requests as the servers allow.
    pub(super) async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, Failure> {
        let end = Instant::now() + self.core.client.request();
        let mut parts = parts(keys);
        let mut found: Vec<Found> = Vec::with_capacity(keys.len());
        while !parts.is_empty() {
            let most = self.core.room.reads();
            let requests = parts.iter().flat_map(|part| part.cut(most));
            let reading = requests.map(|part| self.read_part(keys, part, end));
            match try_join_all(reading).await {
                Ok(read) => {
                    parts.clear();
                    for (some, missed) in read {
                        found.extend(some);
                        parts.extend(Some(Part::Each(missed)).filter(|part| !part.is_empty()));
                    }
                }
                Err(failure) if failure.excess == Some(Excess::Parts) && most > 1 => {
                    self.core.room.too_many_reads(most.min(keys.len()));
                }
                // A user with permission for each of them may have none for the keys in between.
                Err(failure)
                    if failure.fault == Fault::Denied && parts.iter().any(Part::is_wide) =>
                {
                    found.clear();
                    parts = vec![Part::Each((0..keys.len()).collect())];
                }
                Err(failure) => return Err(failure),
            }
        }
        found.sort_unstable_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, document)| document).collect())
    }

    /// Reads one part.
    ///
    /// Returns the documents, and the indexes of those that the answer had no room for.
    async fn read_part(
        &self,
        keys: &[Key],
        part: Part,
        end: Instant,
    ) -> Result<(Vec<Found>, Vec<usize>), Failure> {
        let names = part.places().iter().map(|place| self.keys.encode(&keys[*place]));
        let names: Vec<Bytes> = names.collect();
        let (found, revision, seen) = match &part {
            Part::Run(_) => {
                let answer = self.read_run(&names, end).await?;
                let revision = message::at(answer.header.as_ref());
                // If there are other keys in between, the answer's limit may cut off the last of
                // ours.
                let last = answer.kvs.last().filter(|_| answer.more).map(|last| last.key.clone());
                let seen =
                    last.map_or(names.len(), |last| names.partition_point(|name| *name <= last));
                (pick(&names[..seen], answer.kvs), revision, seen)
            }
            Part::Each(_) => {
                let answer = self.read_each(&names, end).await?;
                let revision = message::at(answer.header.as_ref());
                if answer.responses.len() != names.len() {
                    return Err(Failure::garbled(Kind::Read));
                }
                let found = answer.responses.into_iter().map(message::found).collect();
                (found, revision, names.len())
            }
        };
        self.core.waits.saw(names.into_iter().map(Topic::one).zip(found.iter().map(|found| {
            let found = found.as_ref();
            Glimpse {
                document: found.map_or(0, |found| found.mod_revision),
                created: found.map_or(0, |found| found.create_revision),
                store: revision,
            }
        })));
        let documents = found.into_iter().map(|found| found.map(message::document));
        let (read, missed) = part.places().split_at(seen);
        Ok((read.iter().copied().zip(documents).collect(), missed.to_vec()))
    }

    async fn read_run(&self, names: &[Bytes], end: Instant) -> Result<RangeResponse, Failure> {
        let request = match names {
            [] => return Ok(RangeResponse::default()),
            [name] => message::read_one(name.clone()),
            [first, .., last] => {
                // The least key above another is that key with a NUL appended.
                let above = [last, &b"\0"[..]].concat().into();
                message::read_range((first.clone(), above), 2 * names.len())
            }
        };
        let send = |channel, request| async move { kv(channel).range(request).await };
        self.core.client.call_within(left(end), Kind::Read, request, send).await
    }

    async fn read_each(&self, names: &[Bytes], end: Instant) -> Result<TxnResponse, Failure> {
        let request = message::read_all(names.iter().cloned());
        let send = |channel, request| async move { kv(channel).txn(request).await };
        self.core.client.call_within(left(end), Kind::Read, request, send).await
    }
}

impl Part {
    fn places(&self) -> &[usize] {
        match self {
            Part::Run(places) | Part::Each(places) => places,
        }
    }

    fn is_empty(&self) -> bool {
        self.places().is_empty()
    }

    fn is_wide(&self) -> bool {
        matches!(self, Part::Run(places) if places.len() > 1)
    }

    /// Splits a part into requests, with up to `most` keys that are read one by one.
    fn cut(&self, most: usize) -> Vec<Part> {
        match self {
            Part::Run(places) => {
                places.chunks(LONGEST_RUN).map(|some| Part::Run(some.to_vec())).collect()
            }
            Part::Each(places) => {
                places.chunks(most).map(|some| Part::Each(some.to_vec())).collect()
            }
        }
    }
}

/// Divides keys into runs of numbered neighbours, and single keys.
///
/// The slots of a cluster are such neighbours. One range of keys is read much faster than each of
/// them.
fn parts(keys: &[Key]) -> Vec<Part> {
    if keys.len() == 1 {
        return vec![Part::Run(vec![0])];
    }
    let mut each = Vec::new();
    let mut numbered: HashMap<(&str, usize), Vec<(u64, usize)>> = HashMap::new();
    for (place, key) in keys.iter().enumerate() {
        match number(key) {
            Some((parent, digits, number)) if keys.len() >= SHORTEST_RUN => {
                numbered.entry((parent, digits)).or_default().push((number, place));
            }
            Some(_) | None => each.push(place),
        }
    }
    let mut parts = Vec::new();
    for mut family in numbered.into_values() {
        family.sort_unstable();
        let places = family.iter().map(|(_, place)| *place);
        if is_run(&family) { parts.push(Part::Run(places.collect())) } else { each.extend(places) }
    }
    parts.push(Part::Each(each));
    parts.retain(|part| !part.is_empty());
    parts
}

/// The parent of a numbered key, the count of its digits, and its number.
///
/// Numbers with the same count of digits are in order as text.
fn number(key: &Key) -> Option<(&str, usize, u64)> {
    let (parent, digits) = key.as_str().rsplit_once('/')?;
    let number = digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()));
    Some((parent, digits.len(), number?))
}

/// Returns true if the range has few other keys, to avoid reading too many.
fn is_run(family: &[(u64, usize)]) -> bool {
    family.len() >= SHORTEST_RUN
        && family.chunks(LONGEST_RUN).all(|some| match some {
            [(first, _), .., (last, _)] => (last - first) / 2 < some.len() as u64,
            [] | [_] => true,
        })
}

/// Picks the keys that were asked for from those found in a range. Both are in order.
fn pick(names: &[Bytes], found: Vec<KeyValue>) -> Vec<Option<KeyValue>> {
    let mut found = found.into_iter().peekable();
    let mut pick = |name: &Bytes| {
        while found.next_if(|next| next.key < *name).is_some() {}
        // It stays, because the same key may have been asked for twice.
        found.peek().filter(|next| next.key == *name).cloned()
    };
    names.iter().map(&mut pick).collect()
}

fn left(end: Instant) -> std::time::Duration {
    end.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: impl Iterator<Item = String>) -> Vec<Key> {
        names.map(|name| Key::parse(&name).expect("a good key")).collect()
    }

    fn numbers(numbers: impl Iterator<Item = usize>) -> Vec<Key> {
        keys(numbers.map(|number| format!("slots/{number:05}")))
    }

    #[test]
    fn neighbours_are_read_as_a_run_and_the_rest_one_by_one() {
        let mut asked = keys(["cursor".into(), "slots/x".into()].into_iter());
        asked.extend(numbers((0..100).rev()));
        asked.extend(keys(["slots/7".into()].into_iter()));
        let run = (2..102).rev().collect();
        let mut found = parts(&asked);
        let Some(Part::Each(each)) = found.last_mut() else { panic!("{found:?}") };
        each.sort_unstable();
        assert_eq!(found, [Part::Run(run), Part::Each(vec![0, 1, 102])]);
    }

    #[test]
    fn few_or_scattered_documents_are_no_run() {
        let each = |count| [Part::Each((0..count).collect())];
        assert_eq!(parts(&numbers(0..31)), each(31));
        assert_eq!(parts(&numbers((0..300).step_by(3))), each(100));
        assert!(matches!(&parts(&numbers((0..200).step_by(2)))[..], [Part::Run(_)]));
        assert_eq!(parts(&numbers(7..8)), [Part::Run(vec![0])]);
        assert_eq!(parts(&[]), []);
    }

    #[test]
    fn what_was_asked_for_is_picked_as_often_as_it_was() {
        let found = |key: &'static str| KeyValue { key: key.into(), ..KeyValue::default() };
        let names = ["a", "b", "b", "d"].map(Bytes::from);
        let picked = pick(&names, ["a/x", "b", "b0", "c"].map(found).to_vec());
        let picked: Vec<_> = picked.into_iter().map(|found| found.map(|found| found.key)).collect();
        assert_eq!(picked, [None, Some("b".into()), Some("b".into()), None]);
    }
}
