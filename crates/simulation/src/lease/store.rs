//! The store: a record and a floor, changed by compare-and-set. The weak kind may have an isolated
//! primary.

use tenure::lease::record::Record;
use tenure::store::{Expect, Version};

/// How many old versions a lagging replica may still show.
const KEPT: usize = 24;

/// One version of a document.
#[derive(Clone, Debug)]
pub(super) struct Stored<T = Record> {
    pub(super) version: Version,
    pub(super) record: T,
    /// The candidate that wrote it.
    pub(super) by: Option<u32>,
}

/// The document at one key.
#[derive(Clone, Debug)]
pub(super) struct Document<T = Record> {
    /// The lasting versions, oldest first. `None` is absence.
    committed: Vec<Option<Stored<T>>>,
    /// How many lasting changes there were.
    commits: u64,
    /// The writes of an isolated primary on top of `base`. None of them was ever acknowledged.
    branch: Option<Branch<T>>,
    /// Set while the document is unreadable.
    garbled: Option<Version>,
    versions: u64,
}

#[derive(Clone, Debug)]
struct Branch<T> {
    base: Option<Version>,
    commits: u64,
    /// `None` is a deletion.
    writes: Vec<Option<Stored<T>>>,
}

/// The fate of an isolated primary's writes.
#[derive(Debug)]
pub(super) enum Rejoined<T = Record> {
    /// They last, in this order.
    Lasting(Vec<Option<Stored<T>>>),
    /// They are undone.
    RolledBack(Vec<Option<Stored<T>>>),
}

impl<T> Default for Document<T> {
    fn default() -> Document<T> {
        Document { committed: Vec::new(), commits: 0, branch: None, garbled: None, versions: 0 }
    }
}

impl<T: Clone> Document<T> {
    pub(super) fn current(&self) -> Option<&Stored<T>> {
        self.committed.last().and_then(Option::as_ref)
    }

    pub(super) fn version(&self) -> Option<&Version> {
        self.current().map(|stored| &stored.version)
    }

    /// The version that a replica shows when it lags `behind` versions.
    pub(super) fn old(&self, behind: usize) -> Option<&Stored<T>> {
        let at = self.committed.len().checked_sub(behind + 1)?;
        self.committed[at].as_ref()
    }

    pub(super) fn depth(&self) -> usize {
        self.committed.len()
    }

    pub(super) fn allows(&self, expect: &Expect) -> bool {
        self.garbled.is_none() && matches(self.version(), expect)
    }

    pub(super) fn garbled(&self) -> Option<&Version> {
        self.garbled.as_ref()
    }

    /// Overwrites the record with something unreadable.
    pub(super) fn garble(&mut self) {
        let version = self.next_version();
        self.garbled.get_or_insert(version);
    }

    /// Puts the record back. Returns true if it was unreadable.
    pub(super) fn mend(&mut self) -> bool {
        let mended = self.garbled.take().is_some();
        if let (true, Some(Stored { record, by, .. })) = (mended, self.current().cloned()) {
            let _ = self.commit(record, by);
        }
        mended
    }

    pub(super) fn commit(&mut self, record: T, by: Option<u32>) -> Version {
        let version = self.next_version();
        self.keep(Some(Stored { version: version.clone(), record, by }));
        version
    }

    pub(super) fn vanish(&mut self) {
        self.keep(None);
    }

    pub(super) fn isolate(&mut self) {
        if self.branch.is_none() {
            let base = self.version().cloned();
            self.branch = Some(Branch { base, commits: self.commits, writes: Vec::new() });
        }
    }

    pub(super) fn is_isolated(&self) -> bool {
        self.branch.is_some()
    }

    /// The version that the isolated primary shows.
    pub(super) fn isolated(&self) -> Option<&Stored<T>> {
        let branch = self.branch.as_ref()?;
        let shows = |kept: &&Option<Stored<T>>| {
            kept.as_ref().map(|stored| &stored.version) == branch.base.as_ref()
        };
        let base = || self.committed.iter().rev().find(shows);
        branch.writes.last().or_else(base).and_then(Option::as_ref)
    }

    /// Applies a write to the isolated primary. It is never acknowledged; `false` is a conflict.
    pub(super) fn write_isolated(&mut self, expect: &Expect, record: T, by: Option<u32>) -> bool {
        let shown = self.isolated().map(|stored| stored.version.clone());
        if !matches(shown.as_ref(), expect) {
            return false;
        }
        let version = self.next_version();
        if let Some(branch) = &mut self.branch {
            branch.writes.push(Some(Stored { version, record, by }));
        }
        true
    }

    /// A deletion that reaches the isolated primary.
    pub(super) fn vanish_isolated(&mut self) {
        if let Some(branch) = &mut self.branch {
            branch.writes.push(None);
        }
    }

    /// The isolated primary is back. Its writes last only if nothing was written elsewhere.
    pub(super) fn rejoin(&mut self, may_last: bool) -> Rejoined<T> {
        let Some(branch) = self.branch.take() else { return Rejoined::Lasting(Vec::new()) };
        if may_last && branch.commits == self.commits {
            Rejoined::Lasting(branch.writes)
        } else {
            Rejoined::RolledBack(branch.writes)
        }
    }

    /// The content of a version, if it is not too old.
    pub(super) fn find(&self, version: &Version) -> Option<&Stored<T>> {
        let branch = self.branch.iter().flat_map(|branch| branch.writes.iter().flatten());
        let mut known = self.committed.iter().flatten().rev().chain(branch);
        known.find(|stored| stored.version == *version)
    }

    pub(super) fn adopt(&mut self, stored: Option<Stored<T>>) {
        self.keep(stored);
    }

    fn keep(&mut self, stored: Option<Stored<T>>) {
        self.commits += 1;
        if self.committed.len() == KEPT {
            self.committed.remove(0);
        }
        self.committed.push(stored);
    }

    fn next_version(&mut self) -> Version {
        self.versions += 1;
        Version::new(format!("v{}", self.versions))
    }
}

fn matches(current: Option<&Version>, expect: &Expect) -> bool {
    match (current, expect) {
        (None, Expect::Absent) => true,
        (Some(version), Expect::At(expected)) => version == expected,
        (None, Expect::At(_)) | (Some(_), Expect::Absent) => false,
    }
}
