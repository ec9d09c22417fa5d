//! Creating, ending and deleting: rulings carried out by compare-and-set.

use bytes::Bytes;

use super::{Election, all_under};
use crate::lease::record::{MAX_NUMBER, Op, Record};
use crate::lease::ruling::Ruling;
use crate::store::{Durability, Expect, Fault, Put, Reads, StoreExt, Write};
use crate::{Error, Key, Name, Protocol};

/// The most lost races before an administrative change is given up.
///
/// A record changes every few seconds, so losing this many means that the store is broken.
const MOST_ATTEMPTS: u32 = 64;

impl Election {
    /// Refuses an election above or below another one.
    pub(super) async fn check_family(&self) -> Result<(), Error> {
        let store = self.backend.store();
        let above: Vec<Name> = self.name.ancestors().collect();
        let keys: Vec<Key> = above.iter().map(Key::election).collect();
        if !keys.is_empty() {
            for (other, document) in above.into_iter().zip(store.get_many(&keys).await?) {
                if document.is_some_and(|document| counts(&document.body)) {
                    return Err(Error::Nested { name: self.name.clone(), other });
                }
            }
        }
        for (key, document) in all_under(&self.backend, &self.key).await? {
            let name = key.below(&Key::elections()).and_then(|name| Name::parse(name).ok());
            if let Some(other) = name.filter(|_| counts(&document.body)) {
                return Err(Error::Nested { name: self.name.clone(), other });
            }
        }
        Ok(())
    }

    pub(super) fn other_protocol(&self, recorded: Protocol) -> Error {
        Error::Protocol { name: self.name.clone(), recorded, wanted: self.backend.protocol() }
    }

    /// Carries out a ruling, unless the other protocol holds the election; tries again when another process is faster.
    pub(super) async fn rule(
        &self,
        decide: impl Fn(Option<&Record>, Op) -> Result<Ruling, Protocol>,
    ) -> Result<(), Error> {
        let mut sent: Vec<Op> = Vec::new();
        for _ in 0..MOST_ATTEMPTS {
            let found = self.read().await?;
            let record = found.as_ref().map(|(record, _)| record);
            if record.is_some_and(|record| sent.contains(&record.op)) {
                return Ok(());
            }
            let op = self.backend.parts().fresh_op();
            let ruling = decide(record, op.clone()).map_err(|other| self.other_protocol(other))?;
            let wanted = match (ruling, record) {
                (Ruling::Write(wanted), _) => wanted,
                // A weak read is proven by rewriting the record.
                (Ruling::Stands, Some(record)) if self.reads_are_weak() => {
                    record.following(op.clone())
                }
                (Ruling::Stands, _) => return Ok(()),
            };
            if wanted.revision > MAX_NUMBER {
                return Err(Error::Exhausted);
            }
            let expect = found.map_or(Expect::Absent, |(_, document)| Expect::At(document.version));
            sent.push(op);
            match self.write(expect, wanted.encode()).await {
                Ok(Put::Stored(_)) => return Ok(()),
                Ok(Put::Conflict) => {}
                Err(Error::Store(error)) if error.fault == Fault::Indeterminate => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended { attempts: MOST_ATTEMPTS })
    }

    pub(super) async fn write(&self, expect: Expect, body: Bytes) -> Result<Put, Error> {
        let key = self.key.clone();
        let write = Write { key, expect, body: Some(body), durability: Durability::Lasting };
        Ok(self.backend.store().put_one(write).await?)
    }

    fn reads_are_weak(&self) -> bool {
        self.backend.store().reads() == Reads::Weak
    }
}

/// Returns true if the document counts as an election. An unreadable document might be one.
fn counts(body: &[u8]) -> bool {
    Record::decode(body).map_or(true, |record| !record.is_deleted())
}
