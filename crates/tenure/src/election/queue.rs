//! Elections that are queues: opened, entered, ended and deleted.
//!
//! The document of such an election says that it is a queue, so that no process holds it by a
//! lease; everything else is in the queue itself. The document is written before any candidate
//! joins, and never says more than the queue does.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::Election;
use super::kind::Kind;
use crate::backend::Backend;
use crate::driver::{Participant, QueueCandidate, QueueObserver, Shared};
use crate::lease::record::Record;
use crate::lease::ruling::{self, Ruling};
use crate::observer::{ElectionState, Seen, Standing, queue};
use crate::protocol::Holder;
use crate::queue::{Freshness, Queue, Session, SessionQueue};
use crate::registry::Registered;
use crate::store::{Document, Expect, Fault, Put, StoreError};
use crate::{Error, Key, Protocol};

/// How long candidates may take to leave, beside the time for their sessions to end.
const LONGEST_WIND_DOWN: Duration = Duration::from_secs(10);
/// The time after which a second read makes up for a lost notification.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// How often a call with an unknown outcome is repeated. All of these calls may be repeated.
const MOST_ATTEMPTS: u32 = 5;
/// How often a deletion may lose a race against a creation.
const MOST_RACES: u32 = 64;

/// An election that is decided by a queue of entries.
#[derive(Debug)]
pub(super) struct ByQueue {
    pub(super) queue: Arc<dyn SessionQueue>,
}

#[async_trait]
impl Kind for ByQueue {
    async fn ensure(&self, of: &Election, create: bool) -> Result<(), Error> {
        match made(self.queue.survey(&of.key).await?) {
            Queue::Open { .. } => record(of, false).await,
            Queue::Ended { .. } => {
                record(of, false).await?;
                Err(Error::Ended { name: of.name.clone() })
            }
            Queue::Missing if create => self.make(of).await.map(|_| ()),
            Queue::Missing => {
                // A lease of this name is another matter than none at all.
                self.look(of, Freshness::Session).await?;
                Err(Error::Missing { name: of.name.clone() })
            }
        }
    }

    async fn create(&self, of: &Election) -> Result<(), Error> {
        let queue = match made(self.queue.survey(&of.key).await?) {
            // It may have ended since, and no later step here would notice, as a join does.
            Queue::Open { .. } => self.made(of).await?,
            queue @ (Queue::Ended { .. } | Queue::Missing) => queue,
        };
        match queue {
            Queue::Open { .. } => record(of, false).await,
            Queue::Ended { .. } | Queue::Missing => self.make(of).await.map(|_| ()),
        }
    }

    async fn end(&self, of: &Election) -> Result<(), Error> {
        let generation = match self.made(of).await? {
            Queue::Ended { .. } => return record(of, false).await,
            Queue::Open { generation, .. } => {
                record(of, false).await?;
                generation
            }
            Queue::Missing => self.make(of).await?,
        };
        insistently(|| self.queue.end(&of.key, generation)).await
    }

    /// The queue is removed when all candidates have left.
    ///
    /// The record is hidden before the queue is removed, and only if it is still the version that
    /// was read before the queue was looked at. The creation of the next generation rewrites the
    /// record, and that generation stays.
    async fn delete(&self, of: &Election) -> Result<(), Error> {
        let mut ended = None;
        for _ in 0..MOST_RACES {
            let found = of.read().await?;
            if let Some((record, _)) = &found
                && record.protocol == Protocol::Lease
                && !record.is_deleted()
            {
                return Err(of.other_protocol(record.protocol));
            }
            match self.made(of).await? {
                Queue::Missing => {}
                Queue::Ended { generation, .. } => ended = Some(generation),
                // Another process has created the queue again since: that one is not ours to
                // delete.
                Queue::Open { .. } if ended.is_some() => return Ok(()),
                Queue::Open { generation, .. } => {
                    insistently(|| self.queue.end(&of.key, generation)).await?;
                    ended = Some(generation);
                }
            }
            if hide(of, found).await? {
                return match ended {
                    Some(generation) => self.remove(of, generation).await,
                    None => Ok(()),
                };
            }
        }
        Err(Error::Contended { attempts: MOST_RACES })
    }

    async fn standing(&self, of: &Election) -> Result<Standing, Error> {
        let seen = self.look(of, Freshness::Session).await?;
        // Callers take a missing election for final.
        if seen.state == ElectionState::Missing {
            return self.look(of, Freshness::Barrier).await;
        }
        Ok(seen)
    }

    async fn candidates(&self, of: &Election) -> Result<Vec<Registered>, Error> {
        Ok(queue::candidates(&self.queue.look(&of.key, Freshness::Session).await?))
    }

    async fn complete(&self, on: &Backend, listed: Standing) -> Result<Standing, Error> {
        if listed.state != ElectionState::Unseen {
            return Ok(listed);
        }
        let (name, key) = (&listed.election, Key::election(&listed.election));
        Ok(queue::look(on.store(), &self.queue, name, &key, Freshness::Session).await?.standing)
    }

    fn candidacy(&self, of: &Election, who: Holder, shared: Arc<Shared>) -> Box<dyn Participant> {
        let (name, key, grace) = (of.name.clone(), of.key.clone(), of.timing.chosen_grace());
        Box::new(QueueCandidate::new(name, key, who, grace, shared))
    }

    fn observer(&self, of: &Election, seen: watch::Sender<Option<Seen>>) -> Box<dyn Participant> {
        Box::new(QueueObserver::new(of.name.clone(), of.key.clone(), seen))
    }

    fn sessions(&self) -> Option<watch::Receiver<Session>> {
        Some(self.queue.session())
    }

    /// The queue remembers its tokens itself.
    fn led(&self) -> Option<&AtomicU64> {
        None
    }
}

impl ByQueue {
    async fn look(&self, of: &Election, freshness: Freshness) -> Result<Standing, Error> {
        let store = of.backend.store();
        Ok(queue::look(store, &self.queue, &of.name, &of.key, freshness).await?.standing)
    }

    /// The queue, for a decision that is final.
    async fn made(&self, of: &Election) -> Result<Queue, Error> {
        Ok(made(self.queue.look(&of.key, Freshness::Barrier).await?))
    }

    /// Creates the queue, between two writes of its record.
    ///
    /// The first write says that it is a queue, before any candidate can join. The second says that
    /// the queue exists, so that a concurrent deletion notices.
    async fn make(&self, of: &Election) -> Result<u64, Error> {
        record(of, true).await?;
        let generation = insistently(|| self.queue.create(&of.key)).await?;
        of.rule(|record, op| ruling::queue_made(record, of.terms(), op)).await?;
        Ok(generation)
    }

    async fn remove(&self, of: &Election, generation: u64) -> Result<(), Error> {
        let (queue, clock) = (&self.queue, of.backend.clock());
        let limit = queue.session().borrow().ttl * 2 + LONGEST_WIND_DOWN;
        let began = clock.now();
        let mut timer = clock.timer();
        let mut freshness = Freshness::Session;
        loop {
            if insistently(|| queue.remove(&of.key)).await? {
                return Ok(());
            }
            let seen = queue.look(&of.key, freshness).await?;
            let first = match &seen {
                Queue::Ended { generation: found, places } if *found == generation => {
                    places.first().map(|place| place.entry.clone())
                }
                // Perhaps it was read before this generation was made.
                Queue::Missing | Queue::Open { .. } | Queue::Ended { .. }
                    if freshness == Freshness::Session =>
                {
                    freshness = Freshness::Barrier;
                    continue;
                }
                // It is gone, and perhaps created again.
                Queue::Missing | Queue::Open { .. } | Queue::Ended { .. } => return Ok(()),
            };
            freshness = Freshness::Session;
            if clock.now().at_least_since(began) >= limit {
                let (name, who) = (of.name.clone(), queue::names(&seen));
                return Err(Error::Occupied { name, who });
            }
            tokio::select! {
                biased;
                () = queue.moved(&of.key, first.as_ref()) => {
                    // Hints that keep coming must not make us ask without a pause.
                    timer.until(clock.now() + SECOND_LOOK / 20).await;
                }
                () = timer.until(clock.now() + SECOND_LOOK) => {}
            }
        }
    }
}

/// Marks this very record as deleted; returns true if it had not changed meanwhile.
async fn hide(of: &Election, found: Option<(Record, Document)>) -> Result<bool, Error> {
    let Some((record, document)) = found else { return Ok(true) };
    let op = of.backend.parts().fresh_op();
    let ruling =
        ruling::delete_queue(Some(&record), op).map_err(|recorded| of.other_protocol(recorded))?;
    let Ruling::Write(hidden) = ruling else { return Ok(true) };
    match of.write(Expect::At(document.version), hidden.encode()).await {
        Ok(Put::Stored(_)) => Ok(true),
        Ok(Put::Conflict) => Ok(false),
        // The next round reads again and finds out.
        Err(Error::Store(error)) if error.fault == Fault::Indeterminate => Ok(false),
        Err(error) => Err(error),
    }
}

/// Records that this election is a queue.
///
/// `again` means that its last generation has ended, so that its settings may change.
async fn record(of: &Election, again: bool) -> Result<(), Error> {
    of.rule(|record, op| ruling::queue(record, of.terms(), again, op)).await
}

/// The queue as tenure made it. A queue that only other clients of the store have used is not made
/// yet.
fn made(queue: Queue) -> Queue {
    match queue {
        Queue::Open { generation: 0, .. } => Queue::Missing,
        queue @ (Queue::Open { .. } | Queue::Ended { .. } | Queue::Missing) => queue,
    }
}

/// Repeats an idempotent call until its outcome is known.
async fn insistently<'a, T>(
    mut call: impl FnMut() -> BoxFuture<'a, Result<T, StoreError>> + Send,
) -> Result<T, Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match call().await {
            Ok(done) => return Ok(done),
            Err(error) if error.fault == Fault::Indeterminate && attempts < MOST_ATTEMPTS => {}
            Err(error) => return Err(Error::Store(error)),
        }
    }
}
