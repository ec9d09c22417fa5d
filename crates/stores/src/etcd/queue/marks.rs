//! An election's mark: whether it is open.

use bytes::Bytes;
use tenure::{Key, StoreError};

use super::keys::is_entry;
use super::line::only;
use super::record::{self, Mark};
use super::{Shared, requests, unavailable};

/// How often a mark that somebody else is changing is tried to be changed.
const ATTEMPTS: usize = 16;

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
        let txn = requests::mark(&self.keys, election, at, Mark::ended(generation));
        let doing = || format!("ending {election}");
        // Where it is no longer at that revision, that generation is over already.
        self.change(election.clone(), txn, doing).await.map(|_| ())
    }

    pub(super) async fn remove(&self, election: &Key) -> Result<bool, StoreError> {
        let doing = || format!("removing {election}");
        let mut read = self.read(requests::anybody(&self.keys, election), doing).await?;
        let revision = read.revision;
        let (mark, some) = (only(read.next()), read.next());
        let topic = self.keys.entries(election);
        self.saw(&[(self.keys.mark(election), mark.as_ref())], revision);
        let mut first = some.kvs.into_iter().find(|found| is_entry(&topic, &found.key));
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
