//! An election: open it, stand in it, watch it, end it.

mod administration;
pub(crate) mod leadership;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use self::leadership::{Candidacy, Leadership};
use crate::backend::Backend;
use crate::candidate::Candidate;
use crate::clock::Clock;
use crate::driver::{Command, LeaseCandidate, LeaseObserver, QueueObserver, Shared};
use crate::lease::floor::BLOCK;
use crate::lease::machine::{Machine, Settings};
use crate::lease::record::Record;
use crate::lease::ruling::Terms;
use crate::observer::{ElectionState, Observer, Standing, line};
use crate::protocol::Holder;
use crate::queue::Freshness;
use crate::registry::Registered;
use crate::status::Status;
use crate::store::{Document, StoreExt};
use crate::{Error, Key, Name, Protocol, Timing};

/// How many documents are asked for at a time.
const PAGE: usize = 256;
/// How long a mere look at an election waits for a proof of death.
const LONGEST_PROBE: Duration = Duration::from_millis(50);

/// An election on a backend.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::{Backend, Election};
/// let backend = Backend::memory();
/// let election = Election::open(&backend, "billing/primary").await?;
/// let leadership = election.campaign("host-a".try_into()?).await?;
/// assert_eq!(leadership.mandate().token(), 1);
/// leadership.resign().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    backend: Backend,
    name: Name,
    key: Key,
    /// The key of its floor, if a floor is kept.
    floor: Option<Key>,
    timing: Timing,
    delay: Option<Duration>,
    /// The highest token that a candidacy of this handle led under.
    ///
    /// A queue remembers its own, and the cursor of a cluster remembers that of its leaders.
    led: Option<Arc<AtomicU64>>,
}

/// The settings for opening an election.
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `open` or `create`"]
pub struct Builder<'a> {
    backend: &'a Backend,
    name: &'a str,
    timing: Timing,
    delay: Option<Duration>,
    create: Option<bool>,
}

impl Builder<'_> {
    /// Sets the times of its leases; the default is a ttl of 15 s.
    ///
    /// In a queue the server grants the ttl of the session when the store is opened. There, only an
    /// explicitly chosen grace has an effect.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets how long a successor waits after a tenure without a clean release.
    ///
    /// Use it for work that cannot check tokens. The delay is stored with the election, so all
    /// candidates agree. It takes effect at the next claim. In a queue it is set when the election
    /// is created; creating the queue again after its end can only lengthen it.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Sets whether to create an election that does not exist.
    ///
    /// The default comes from the backend ([`Backend::with_creation`]): on ZooKeeper the election
    /// is not created, elsewhere it is.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create = Some(create);
        self
    }

    /// Opens the election.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve, [`Error::Missing`] when it does not exist
    /// and is not to be created, [`Error::Ended`] when it has ended, [`Error::Nested`] when there
    /// is an election above or below it, [`Error::Protocol`] when it is held by the other protocol,
    /// [`Error::Name`] and [`Error::Timing`].
    ///
    /// # Cancel safety
    /// Cancel safe: at worst the election has been created.
    pub async fn open(self) -> Result<Election, Error> {
        let create = self.create.unwrap_or(self.backend.creates());
        let election = self.build()?;
        election.check_family().await?;
        match election.backend.queue() {
            Some(queue) => election.ensure_line(queue, create).await?,
            None => election.ensure(create).await?,
        }
        Ok(election)
    }

    /// Creates the election, or the next generation of one that has ended; then opens it.
    ///
    /// An existing open election is left as it is.
    ///
    /// # Errors
    /// As for [`Builder::open`].
    ///
    /// # Cancel safety
    /// Cancel safe: at worst the election has been created.
    pub async fn create(self) -> Result<Election, Error> {
        let election = self.build()?;
        election.check_family().await?;
        match election.backend.queue() {
            Some(queue) => election.create_line(queue).await?,
            None => election.create_again().await?,
        }
        Ok(election)
    }

    /// Names an election without checking that it exists.
    ///
    /// That is enough to look at it, end it or delete it.
    ///
    /// # Errors
    /// [`Error::Name`] when the name is refused.
    pub fn build(self) -> Result<Election, Error> {
        let name = Name::parse(self.name)?;
        if let Some(delay) = self.delay
            && delay > crate::MAX_TTL
        {
            return Err(Error::Timing(crate::TimingError::DelayTooLong { delay }));
        }
        Ok(Election {
            backend: self.backend.clone(),
            key: Key::election(&name),
            floor: self.backend.floor(&name),
            name,
            timing: self.timing,
            delay: self.delay,
            led: self.backend.queue().is_none().then(Arc::default),
        })
    }
}

impl Election {
    /// Opens an election, and creates it if it does not exist.
    ///
    /// On ZooKeeper it is created only on request ([`Builder::create_if_missing`]).
    ///
    /// # Errors
    /// As for [`Builder::open`].
    ///
    /// # Cancel safety
    /// Cancel safe: at worst the election has been created.
    pub async fn open(backend: &Backend, name: &str) -> Result<Election, Error> {
        Election::builder(backend, name).open().await
    }

    /// Opens an election with other settings.
    pub fn builder<'a>(backend: &'a Backend, name: &'a str) -> Builder<'a> {
        Builder { backend, name, timing: Timing::default(), delay: None, create: None }
    }

    /// An election by lease with its record at a key of the caller, such as a cluster's.
    ///
    /// It has no floor: the caller remembers its leaders' token, for the case that the record is
    /// lost.
    /// A backend with a queue must be taken [without it](Backend::without_queue).
    #[must_use]
    pub fn at_key(backend: &Backend, name: Name, key: Key, timing: Timing) -> Election {
        let (backend, floor, delay, led) = (backend.clone(), None, None, None);
        Election { backend, name, key, floor, timing, delay, led }
    }

    /// The highest token that earlier candidacies of this handle know; 0 if there was none.
    pub(crate) fn led(&self) -> u64 {
        self.led.as_ref().map_or(0, |led| led.load(Ordering::Relaxed))
    }

    /// Notes a leader's token: no later candidacy of this handle leads with it.
    pub(crate) fn note_token(&self, token: u64) {
        if let Some(led) = &self.led {
            led.fetch_max(token, Ordering::Relaxed);
        }
    }

    /// Creates the record of an election [at a key of its own](Election::at_key) if there is none.
    ///
    /// # Errors
    /// The store's, or [`Error::Ended`] if the election has ended.
    pub async fn ensure_lease(&self) -> Result<(), Error> {
        self.ensure(true).await
    }

    /// The name of the election.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The times of its leases, as requested.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// How long the store respects a silent leader.
    ///
    /// That is the ttl of its leases, or the ttl that the server granted for the session.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        match self.backend.queue() {
            Some(queue) => queue.session().borrow().ttl,
            None => self.timing.ttl(),
        }
    }

    /// The stop budget: how long before the lease can end the work is told to stop.
    #[must_use]
    pub fn grace(&self) -> Duration {
        match self.backend.queue() {
            Some(_) => self.timing.chosen_grace().unwrap_or(self.ttl() / 10),
            None => self.timing.grace(),
        }
    }

    /// Stands in the election and waits to lead.
    ///
    /// # Errors
    /// [`Error::Ended`] when the election ends, and any other error that ends a candidacy. If the
    /// store does not answer, the call waits; with [`Election::stand`] the caller can see that.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future withdraws the candidacy, and frees a leadership it may just
    /// have won.
    pub async fn campaign(&self, candidate: Candidate) -> Result<Leadership, Error> {
        let mut candidacy = self.stand(candidate)?;
        candidacy.elected().await
    }

    /// Stands in the election. The candidacy runs in the background until it is dropped.
    ///
    /// # Errors
    /// [`Error::Stopped`] outside a tokio runtime.
    pub fn stand(&self, candidate: Candidate) -> Result<Candidacy, Error> {
        if self.backend.queue().is_some() {
            return self.stand_in_line(candidate);
        }
        let parts = self.backend.parts();
        let id = parts.fresh_id();
        let (name, value) = candidate.into_parts();
        let presence = parts.presence.as_ref().and_then(|presence| match presence.mark() {
            Ok(mark) => Some(mark),
            Err(error) => {
                // Without it a take-over after a crash takes the ttl; nothing else is lost.
                tracing::warn!(%error, "no proof of presence");
                None
            }
        });
        let settings = Settings {
            candidate: Holder { id: id.clone(), name, value, presence },
            timing: self.timing,
            delay: self.delay,
            reads: parts.store.reads(),
            floor: self.floor.as_ref().map(|_| BLOCK),
            seed: parts.random(),
        };
        let shared = Shared::new(&self.name, Status::waiting(id));
        let (key, floor, machine) = (self.key.clone(), self.floor.clone(), Machine::new(settings));
        let candidate = LeaseCandidate::new(&self.name, key, floor, machine, shared.clone());
        let driver = self.backend.driver()?;
        if !driver.send(Command::Admit(Box::new(candidate))) {
            return Err(Error::Stopped);
        }
        Ok(Candidacy::new(self.clone(), shared, driver))
    }

    /// The current state of the election, read now.
    ///
    /// If the store can prove whether the leader still lives, that proof decides. Otherwise the
    /// leader's own wall clock decides, and the answer is only as good as that clock. In a queue,
    /// others see the first candidate in line as the leader.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve, [`Error::Record`] when the record is
    /// invalid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn standing(&self) -> Result<Standing, Error> {
        if let Some(queue) = self.backend.queue() {
            let (store, name, key) = (self.backend.store(), &self.name, &self.key);
            let mut view = line::look(store, queue, name, key, Freshness::Session).await?;
            // Callers take that for final.
            if view.standing.state == ElectionState::Missing {
                view = line::look(store, queue, name, key, Freshness::Barrier).await?;
            }
            return Ok(view.standing);
        }
        let record = self.read().await?.map(|(record, _)| record);
        let alive = record.as_ref().filter(|record| !record.is_deleted());
        if let Some(recorded @ Protocol::Queue) = alive.map(|record| record.protocol) {
            return Err(self.other_protocol(recorded));
        }
        let wall = self.backend.clock().wall();
        let expired = record.as_ref().is_some_and(|record| record.expire <= wall);
        let lapsed = expired || self.is_proven_gone(record.as_ref()).await;
        Ok(Standing::of(&self.name, record.as_ref(), lapsed))
    }

    async fn is_proven_gone(&self, record: Option<&Record>) -> bool {
        let mark =
            record.and_then(|record| record.holder()).and_then(|holder| holder.presence.as_ref());
        let (Some(mark), Some(presence)) = (mark, self.backend.presence()) else { return false };
        tokio::time::timeout(LONGEST_PROBE, presence.gone(mark)).await.is_ok()
    }

    /// Follows the election without standing in it.
    ///
    /// # Errors
    /// [`Error::Stopped`] outside a tokio runtime.
    pub fn observe(&self) -> Result<Observer, Error> {
        let (seen, latest) = watch::channel(None);
        let (name, key) = (self.name.clone(), self.key.clone());
        let command = match self.backend.queue() {
            Some(_) => Command::Admit(Box::new(QueueObserver::new(name, key, seen))),
            None => Command::Admit(Box::new(LeaseObserver::new(name, key, self.timing, seen))),
        };
        if !self.backend.driver()?.send(command) {
            return Err(Error::Stopped);
        }
        Ok(Observer::new(latest))
    }

    /// All candidates, the leader included.
    ///
    /// In a queue they come in the order of the line, otherwise in no order.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn candidates(&self) -> Result<Vec<Registered>, Error> {
        if let Some(queue) = self.backend.queue() {
            return Ok(line::candidates(&queue.look(&self.key, Freshness::Session).await?));
        }
        let prefix = Key::candidates(&self.name);
        let wall = self.backend.clock().wall();
        let mut found = Vec::new();
        for (key, document) in all_under(&self.backend, &prefix).await? {
            let Some(id) = key.below(&prefix).filter(|id| !id.contains('/')) else { continue };
            match Registered::decode(id, &document.body, wall) {
                Some(entry) => found.push(entry),
                None => tracing::warn!(%key, "skipping an entry that makes no sense"),
            }
        }
        Ok(found)
    }

    /// All elections on a backend, those that have ended included, in order of their names.
    ///
    /// Queues are looked at one by one, a few at a time.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn list(backend: &Backend) -> Result<Vec<Standing>, Error> {
        let prefix = Key::elections();
        let wall = backend.clock().wall();
        let mut found = Vec::new();
        for (key, document) in all_under(backend, &prefix).await? {
            let Some(name) = key.below(&prefix).and_then(|name| Name::parse(name).ok()) else {
                continue;
            };
            match Record::decode(&document.body) {
                Ok(record) if record.is_deleted() => {}
                Ok(record) => {
                    found.push(Standing::of(&name, Some(&record), record.expire <= wall));
                }
                Err(error) => tracing::warn!(%key, %error, "skipping a document"),
            }
        }
        if let Some(queue) = backend.queue() {
            line::look_at_all(backend.store(), queue, &mut found).await?;
        }
        Ok(found)
    }

    /// Ends the election for all its candidates, the leader included.
    ///
    /// Ending an election that does not exist, or has ended, is a success.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Not cancel safe: after dropping the future, the election may or may not have ended.
    pub async fn end(&self) -> Result<(), Error> {
        match self.backend.queue() {
            Some(queue) => self.end_line(queue).await,
            None => self.end_for_all().await,
        }
    }

    /// Ends the election and hides it, as if its name had never been used.
    ///
    /// Only its token is kept, so that a new election of that name goes on counting. A queue is
    /// deleted once all candidates have left it, and this call waits for that.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve, [`Error::Occupied`] when some candidates do
    /// not leave a queue.
    ///
    /// # Cancel safety
    /// Not cancel safe: after dropping the future, the election may or may not be deleted.
    pub async fn delete(&self) -> Result<(), Error> {
        match self.backend.queue() {
            Some(queue) => self.delete_line(queue).await,
            None => self.delete_for_all().await,
        }
    }

    /// How long until nothing of an abandoned leadership is left in the store.
    pub(crate) fn frees_within(&self) -> Duration {
        match self.backend.queue() {
            // The server adds time of its own to a session's ttl: ticks, a change of its leader.
            Some(_) => self.ttl() * 2,
            None => self.timing.ttl(),
        }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.backend.clock()
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms { ttl: self.timing.ttl(), delay: self.delay, floor: self.floor.is_some() }
    }

    async fn read(&self) -> Result<Option<(Record, Document)>, Error> {
        let Some(document) = self.backend.store().get(&self.key).await? else { return Ok(None) };
        let record = Record::decode(&document.body)
            .map_err(|source| Error::Record { name: self.name.clone(), source })?;
        Ok(Some((record, document)))
    }
}

async fn all_under(backend: &Backend, prefix: &Key) -> Result<Vec<(Key, Document)>, Error> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = backend.store().list(prefix, after.as_ref(), PAGE).await?;
        found.extend(page.documents);
        match page.next {
            // A backend that does not move on would keep this loop running forever.
            Some(next) if after.as_ref().is_none_or(|after| *after < next) => after = Some(next),
            Some(_) | None => return Ok(found),
        }
    }
}
