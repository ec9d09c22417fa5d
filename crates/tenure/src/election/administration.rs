//! Creating, ending and deleting: rulings carried out by compare-and-set.

use bytes::Bytes;

use super::{Election, PAGE};
use crate::lease::record::{MAX_NUMBER, Op, Record, State};
use crate::lease::ruling::{self, Ruling};
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
        let mut after = None;
        loop {
            let page = store.list(&self.key, after.as_ref(), PAGE).await?;
            for (key, document) in &page.documents {
                let name = key.below(&Key::elections()).and_then(|name| Name::parse(name).ok());
                if let Some(other) = name.filter(|_| counts(&document.body)) {
                    return Err(Error::Nested { name: self.name.clone(), other });
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Makes sure that the election exists and has not ended.
    pub(super) async fn ensure(&self, create: bool) -> Result<(), Error> {
        let record = self.read().await?.map(|(record, _)| record);
        if let Some(recorded @ Protocol::Queue) = record.as_ref().map(|record| record.protocol) {
            return Err(self.other_protocol(recorded));
        }
        match record.as_ref().filter(|record| !record.is_deleted()) {
            Some(record) => match record.state {
                State::Ended { .. } => Err(Error::Ended { name: self.name.clone() }),
                State::Free { .. } | State::Held(_) => Ok(()),
            },
            None if create => self.create_again().await,
            None => Err(Error::Missing { name: self.name.clone() }),
        }
    }

    pub(super) async fn create_again(&self) -> Result<(), Error> {
        self.rule(self.leases(|record, op| ruling::create(record, self.terms(), op))).await
    }

    pub(super) async fn end_for_all(&self) -> Result<(), Error> {
        self.rule(self.leases(|record, op| ruling::end(record, self.terms(), op))).await
    }

    pub(super) async fn delete_for_all(&self) -> Result<(), Error> {
        self.rule(self.leases(ruling::delete)).await
    }

    /// A ruling for leases only.
    fn leases(
        &self,
        decide: impl Fn(Option<&Record>, Op) -> Ruling,
    ) -> impl Fn(Option<&Record>, Op) -> Result<Ruling, Error> {
        move |record, op| match record.map(|record| record.protocol) {
            Some(Protocol::Lease) | None => Ok(decide(record, op)),
            // The tokens of a lease would begin below the tokens that the queue gave out. So a
            // deleted queue is refused too.
            Some(recorded @ Protocol::Queue) => Err(self.other_protocol(recorded)),
        }
    }

    pub(super) fn other_protocol(&self, recorded: Protocol) -> Error {
        Error::Protocol { name: self.name.clone(), recorded, wanted: self.backend.protocol() }
    }

    /// Carries out a ruling, and tries again when another process is faster.
    pub(super) async fn rule(
        &self,
        decide: impl Fn(Option<&Record>, Op) -> Result<Ruling, Error>,
    ) -> Result<(), Error> {
        let mut sent: Vec<Op> = Vec::new();
        for _ in 0..MOST_ATTEMPTS {
            let found = self.read().await?;
            let record = found.as_ref().map(|(record, _)| record);
            if record.is_some_and(|record| sent.contains(&record.op)) {
                return Ok(());
            }
            let op = self.backend.parts().fresh_op();
            let wanted = match (decide(record, op.clone())?, record) {
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
