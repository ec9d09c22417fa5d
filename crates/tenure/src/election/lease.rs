//! Elections that are decided by a lease in their record.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::kind::Kind;
use super::{Election, all_under};
use crate::backend::Backend;
use crate::driver::{LeaseCandidate, LeaseObserver, Participant, Shared};
use crate::lease::floor::BLOCK;
use crate::lease::machine::{Machine, Settings};
use crate::lease::record::{Op, Record, State};
use crate::lease::ruling::{self, Ruling};
use crate::observer::{Seen, Standing};
use crate::protocol::Holder;
use crate::queue::Session;
use crate::registry::Registered;
use crate::{Error, Key, Protocol};

/// How long a mere look at an election waits for a proof of death.
const LONGEST_PROBE: Duration = Duration::from_millis(50);

/// An election that is decided by a lease in its record.
#[derive(Debug)]
pub(super) struct ByLease {
    /// `None` if the caller remembers its leaders' tokens, as the cursor of a cluster does.
    pub(super) led: Option<AtomicU64>,
}

#[async_trait]
impl Kind for ByLease {
    async fn ensure(&self, of: &Election, create: bool) -> Result<(), Error> {
        let record = of.read().await?.map(|(record, _)| record);
        if let Some(recorded @ Protocol::Queue) = record.as_ref().map(|record| record.protocol) {
            return Err(of.other_protocol(recorded));
        }
        match record.as_ref().filter(|record| !record.is_deleted()) {
            Some(record) => match record.state {
                State::Ended { .. } => Err(Error::Ended { name: of.name.clone() }),
                State::Free { .. } | State::Held(_) => Ok(()),
            },
            None if create => self.create(of).await,
            None => Err(Error::Missing { name: of.name.clone() }),
        }
    }

    async fn create(&self, of: &Election) -> Result<(), Error> {
        rule(of, |record, op| ruling::create(record, of.terms(), op)).await
    }

    async fn end(&self, of: &Election) -> Result<(), Error> {
        rule(of, |record, op| ruling::end(record, of.terms(), op)).await
    }

    async fn delete(&self, of: &Election) -> Result<(), Error> {
        rule(of, ruling::delete).await
    }

    async fn standing(&self, of: &Election) -> Result<Standing, Error> {
        let record = of.read().await?.map(|(record, _)| record);
        let alive = record.as_ref().filter(|record| !record.is_deleted());
        if let Some(recorded @ Protocol::Queue) = alive.map(|record| record.protocol) {
            return Err(of.other_protocol(recorded));
        }
        let wall = of.backend.clock().wall();
        let expired = record.as_ref().is_some_and(|record| record.expire <= wall);
        let lapsed = expired || is_proven_gone(of, record.as_ref()).await;
        Ok(Standing::of(&of.name, record.as_ref(), lapsed))
    }

    async fn candidates(&self, of: &Election) -> Result<Vec<Registered>, Error> {
        let prefix = Key::candidates(&of.name);
        let wall = of.backend.clock().wall();
        let mut found = Vec::new();
        for (key, document) in all_under(&of.backend, &prefix).await? {
            let Some(id) = key.below(&prefix).filter(|id| !id.contains('/')) else { continue };
            match Registered::decode(id, &document.body, wall) {
                Some(entry) => found.push(entry),
                None => tracing::warn!(%key, "skipping an entry that makes no sense"),
            }
        }
        Ok(found)
    }

    async fn complete(&self, _: &Backend, listed: Standing) -> Result<Standing, Error> {
        Ok(listed)
    }

    fn candidacy(&self, of: &Election, who: Holder, shared: Arc<Shared>) -> Box<dyn Participant> {
        let parts = of.backend.parts();
        let presence = parts.presence.as_ref().and_then(|presence| match presence.mark() {
            Ok(mark) => Some(mark),
            Err(error) => {
                // Without it a take-over after a crash takes the ttl; nothing else is lost.
                tracing::warn!(%error, "no proof of presence");
                None
            }
        });
        let machine = Machine::new(Settings {
            candidate: Holder { presence, ..who },
            timing: of.timing,
            delay: of.delay,
            reads: parts.store.reads(),
            floor: of.floor.as_ref().map(|_| BLOCK),
            seed: parts.random(),
        });
        let (key, floor) = (of.key.clone(), of.floor.clone());
        Box::new(LeaseCandidate::new(&of.name, key, floor, machine, shared))
    }

    fn observer(&self, of: &Election, seen: watch::Sender<Option<Seen>>) -> Box<dyn Participant> {
        Box::new(LeaseObserver::new(of.name.clone(), of.key.clone(), of.timing, seen))
    }

    fn sessions(&self) -> Option<watch::Receiver<Session>> {
        None
    }

    fn led(&self) -> Option<&AtomicU64> {
        self.led.as_ref()
    }
}

/// Carries out a ruling for leases only.
async fn rule(
    of: &Election,
    decide: impl Fn(Option<&Record>, Op) -> Ruling + Send + Sync,
) -> Result<(), Error> {
    let decide = |record: Option<&Record>, op| match record.map(|record| record.protocol) {
        Some(Protocol::Lease) | None => Ok(decide(record, op)),
        // The tokens of a lease would begin below the tokens that the queue gave out. So a deleted
        // queue is refused too.
        Some(recorded @ Protocol::Queue) => Err(recorded),
    };
    of.rule(decide).await
}

async fn is_proven_gone(of: &Election, record: Option<&Record>) -> bool {
    let mark =
        record.and_then(|record| record.holder()).and_then(|holder| holder.presence.as_ref());
    let (Some(mark), Some(presence)) = (mark, of.backend.presence()) else { return false };
    tokio::time::timeout(LONGEST_PROBE, presence.gone(mark)).await.is_ok()
}
