//! An election's mark, which tells if the election is open.

use std::time::Duration;

use bytes::Bytes;
use tenure::Key;
use tenure::store::StoreError;
use tokio::time::Instant;

use super::super::proto::KeyValue;
use super::contents::{entry, is_candidate, only};
use super::record::{self, Mark};
use super::requests::Beginning;
use super::{Shared, requests, unavailable};

/// How often a change of a mark is tried while other processes change it.
const ATTEMPTS: usize = 16;

/// How long an end is tried while the first entry of the queue keeps changing.
const LONGEST_END: Duration = Duration::from_secs(10);

impl Shared {
    pub(super) async fn create(&self, election: &Key) -> Result<u64, StoreError> {
        let doing = || format!("creating {election}");
        let mut txn = requests::create(&self.keys, election);
        for _ in 0..ATTEMPTS {
            let mut changed = self.change(election.clone(), txn, doing).await?;
            if changed.succeeded {
                return Ok(u64::try_from(changed.revision).unwrap_or(0));
            }
            let found = changed.found.pop().and_then(only);
            txn = match Mark::read(found.as_ref()) {
                Mark::Open { generation } => {
                    self.saw(&[(self.keys.mark(election), found.as_ref())], changed.revision);
                    return Ok(generation);
                }
                Mark::Missing => requests::create(&self.keys, election),
                Mark::Ended { .. } => {
                    let at = found.map_or(0, |found| found.mod_revision);
                    let open = Bytes::from_static(record::OPEN);
                    requests::mark(&self.keys, election, at, open)
                }
            };
        }
        Err(unavailable(doing(), "others change it all the time"))
    }

    pub(super) async fn end(&self, election: &Key, generation: u64) -> Result<(), StoreError> {
        let Some(at) = i64::try_from(generation).ok().filter(|at| *at > 0) else {
            // No creation of ours has that number.
            return Ok(());
        };
        let doing = || format!("ending {election}");
        let began = Instant::now();
        let mut read = self.read(requests::beginning(&self.keys, election), doing).await?;
        let (mut mark, mut first) = (only(read.next()), only(read.next()));
        let mut revision = read.revision;
        loop {
            if mark.is_none_or(|mark| mark.mod_revision != at) {
                // That generation is already over.
                return Ok(());
            }
            let begins = self.beginning(election, first, revision).await?;
            let body = Mark::ended(generation);
            let txn = requests::end(&self.keys, election, at, body, &begins);
            let changed = self.change(election.clone(), txn, doing).await?;
            if changed.succeeded {
                return Ok(());
            }
            if began.elapsed() > LONGEST_END {
                return Err(unavailable(doing(), "its queue changes all the time"));
            }
            revision = changed.revision;
            let mut found = changed.found.into_iter();
            (mark, first) = (found.next().and_then(only), found.next().and_then(only));
        }
    }

    /// The beginning of a queue, from its first key at this revision.
    async fn beginning(
        &self,
        election: &Key,
        first: Option<KeyValue>,
        revision: i64,
    ) -> Result<Beginning, StoreError> {
        let entries = self.keys.entries(election);
        let first = match first {
            Some(first) if !is_candidate(&entries, &first) => self.all(election, None).await?.first,
            first => first,
        };
        // A later entry makes the comparison fail, and then the queue is read again.
        Ok(first.map_or(Beginning::Empty { revision }, |first| Beginning::With(entry(&first))))
    }

    pub(super) async fn remove(&self, election: &Key) -> Result<bool, StoreError> {
        let doing = || format!("removing {election}");
        let mut read = self.read(requests::anybody(&self.keys, election), doing).await?;
        let revision = read.revision;
        let (mark, some) = (only(read.next()), read.next());
        let topic = self.keys.entries(election);
        self.saw(&[(self.keys.mark(election), mark.as_ref())], revision);
        let mut first = some.kvs.into_iter().find(|found| is_candidate(&topic, found));
        if first.is_none() && some.more {
            first = self.all(election, None).await?.first;
        }
        match Mark::read(mark.as_ref()) {
            Mark::Missing => Ok(first.is_none()),
            Mark::Open { .. } => Ok(false),
            Mark::Ended { .. } if first.is_some() => Ok(false),
            Mark::Ended { .. } => {
                let at = mark.map_or(0, |mark| mark.mod_revision);
                let txn = requests::remove(&self.keys, election, at);
                Ok(self.change(election.clone(), txn, doing).await?.succeeded)
            }
        }
    }
}
