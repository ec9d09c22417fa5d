//! The documents of the cluster. For leaders the store loses requests and answers, and answers
//! late. On weak reads it also shows documents that never existed or exist no more.

use std::collections::BTreeMap;
use std::ops::Bound;

use tenure::lease::record::Op;
use tenure::store::{Document, Expect, Fault, Page, Put, StoreError, Version, Write};
use tenure::{CandidateId, Key};
use tenure_cluster::documents::{Format, Progress, Slot};

use super::plot::Manner;
use super::rare::Rare;
use crate::kernel::Rng;

/// How many earlier states of a document a weak read may show.
const MOST_SHOWN: usize = 6;
/// How many reads show a write that never lasts.
const PHANTOM_READS: u32 = 3;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) manner: Manner,
    documents: BTreeMap<Key, Document>,
    versions: u64,
    ops: u64,
    /// Writes that were given up and are still under way.
    late: Vec<Write>,
    /// The documents that reads have shown, the newest last.
    shown: BTreeMap<Key, Vec<Option<Document>>>,
    /// Documents that reads show although no write stored them, and how often still.
    phantoms: BTreeMap<Key, (Document, u32)>,
    /// The rare paths since they were last taken.
    pub(super) saw: Vec<Rare>,
}

impl Store {
    pub(super) fn new(manner: Manner) -> Store {
        Store {
            manner,
            documents: BTreeMap::new(),
            versions: 0,
            ops: 0,
            late: Vec::new(),
            shown: BTreeMap::new(),
            phantoms: BTreeMap::new(),
            saw: Vec::new(),
        }
    }

    /// Makes the store work from now on, with nothing under way any more.
    pub(super) fn heal(&mut self) {
        self.manner = Manner { weak: self.manner.weak, ..Manner::default() };
        self.late.clear();
        self.shown.clear();
        self.phantoms.clear();
    }

    /// An op that no other write has.
    pub(super) fn op(&mut self) -> Op {
        self.ops += 1;
        Op::new(&CandidateId::from_bits(0), self.ops)
    }

    /// The document as it is.
    pub(super) fn truth(&self, key: &Key) -> Option<&Document> {
        self.documents.get(key)
    }

    /// The decoded document as it is.
    pub(super) fn read<T: Format>(&self, key: &Key) -> Option<(Version, T)> {
        let Document { version, body } = self.truth(key)?;
        Some((version.clone(), T::decode(body).expect("only sound documents are written")))
    }

    /// Writes a document without faults.
    pub(super) fn write<T: Format>(&mut self, key: Key, content: &T) -> Version {
        self.versions += 1;
        let version = Version::new(self.versions.to_string());
        self.documents.insert(key, Document { version: version.clone(), body: content.encode() });
        version
    }

    /// The documents under a prefix as they are.
    pub(super) fn under(&self, prefix: &Key) -> impl Iterator<Item = (&Key, &Document)> {
        let from = (Bound::Excluded(prefix), Bound::Unbounded);
        let after = self.documents.range::<Key, _>(from);
        after.take_while(move |(key, _)| key.below(prefix).is_some())
    }

    pub(super) fn list(&self, prefix: &Key, after: Option<&Key>, limit: usize) -> Page {
        let rest = self.under(prefix).filter(|(key, _)| after.is_none_or(|after| *key > after));
        let documents: Vec<(Key, Document)> =
            rest.take(limit).map(|(key, document)| (key.clone(), document.clone())).collect();
        let is_full = documents.len() == limit;
        let next = documents.last().filter(|_| is_full).map(|(key, _)| key.clone());
        Page { documents, next }
    }

    /// A request of a leader arrives. Returns false if it does not.
    pub(super) fn arrives(&mut self, rng: &mut Rng) -> bool {
        let mut index = 0;
        while index < self.late.len() {
            if rng.below(12) == 0 {
                let write = self.late.swap_remove(index);
                self.saw.push(Rare::Late);
                let _: Put = self.put(write);
            } else {
                index += 1;
            }
        }
        let arrives = !one_in(rng, self.manner.refused);
        if !arrives {
            self.saw.push(Rare::Refused);
        }
        arrives
    }

    /// The document that a leader reads.
    pub(super) fn show(&mut self, rng: &mut Rng, key: &Key) -> Option<Document> {
        let truth = self.documents.get(key).cloned();
        let manner = self.manner;
        if !manner.weak || manner.stale == 0 && manner.phantom == 0 {
            return truth;
        }
        let shown = self.shown.entry(key.clone()).or_default();
        let version = |document: &Option<Document>| document.as_ref().map(|it| it.version.clone());
        if shown.last().is_none_or(|last| version(last) != version(&truth)) {
            shown.push(truth.clone());
            let extra = shown.len().saturating_sub(MOST_SHOWN);
            shown.drain(..extra);
        }
        if one_in(rng, manner.stale) {
            self.saw.push(Rare::Stale);
            return rng.pick(shown).clone();
        }
        if let Some((phantom, left)) = self.phantoms.get_mut(key) {
            let phantom = phantom.clone();
            *left -= 1;
            if *left == 0 {
                self.phantoms.remove(key);
            }
            self.saw.push(Rare::Phantom);
            return Some(phantom);
        }
        if manner.phantom > 0
            && rng.below(manner.phantom) == 0
            && let Some(slot) = truth.as_ref().and_then(|it| Slot::decode(&it.body).ok())
            && slot.holding().is_some()
        {
            let body = slot.following(self.op(), Progress::Done { result: None }).encode();
            self.saw.push(Rare::Phantom);
            return Some(Document { version: self.phantom_version(), body });
        }
        truth
    }

    fn phantom_version(&mut self) -> Version {
        self.versions += 1;
        Version::new(format!("phantom-{}", self.versions))
    }

    /// Carries out a write of a leader.
    pub(super) fn try_put(&mut self, rng: &mut Rng, write: Write) -> Result<Put, StoreError> {
        let manner = self.manner;
        if one_in(rng, manner.refused) {
            self.saw.push(Rare::Refused);
            return Err(failure(Fault::Unavailable));
        }
        if one_in(rng, manner.late) {
            self.late.push(write);
            return Err(failure(Fault::Indeterminate));
        }
        if manner.weak
            && one_in(rng, manner.phantom)
            && let Some(body) = write.body.clone()
        {
            let version = self.phantom_version();
            self.phantoms.insert(write.key, (Document { version, body }, PHANTOM_READS));
            return Err(failure(Fault::Indeterminate));
        }
        let outcome = self.put(write);
        if one_in(rng, manner.unanswered) {
            self.saw.push(Rare::Unanswered);
            return Err(failure(Fault::Indeterminate));
        }
        Ok(outcome)
    }

    fn put(&mut self, write: Write) -> Put {
        let found = self.documents.get(&write.key).map(|document| &document.version);
        let holds = match &write.expect {
            Expect::Absent => found.is_none(),
            Expect::At(version) => found == Some(version),
        };
        if !holds {
            return Put::Conflict;
        }
        self.versions += 1;
        let version = Version::new(self.versions.to_string());
        match write.body {
            Some(body) => {
                self.documents.insert(write.key, Document { version: version.clone(), body });
            }
            None => {
                self.documents.remove(&write.key);
            }
        }
        Put::Stored(version)
    }
}

/// Returns true once in `often` times; never if that is 0.
pub(super) fn one_in(rng: &mut Rng, often: u64) -> bool {
    often > 0 && rng.below(often) == 0
}

pub(super) fn failure(fault: Fault) -> StoreError {
    StoreError::new(fault, "simulated", "being rough", "it is")
}
