//! An election: open it, stand in it, watch it, end it.

mod administration;
mod kind;
pub(crate) mod leadership;
mod lease;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::watch;

use self::kind::Kind;
use self::leadership::{Candidacy, Leadership};
use self::lease::ByLease;
use self::queue::ByQueue;
use crate::backend::Backend;
use crate::candidate::Candidate;
use crate::clock::Clock;
use crate::driver::{Command, Handle, Participant, Shared};
use crate::lease::record::Record;
use crate::lease::ruling::Terms;
use crate::observer::{Observer, Standing};
use crate::protocol::Holder;
use crate::queue::Session;
use crate::registry::Registered;
use crate::status::Status;
use crate::store::{Document, StoreExt};
use crate::timing::check_session_grace;
use crate::{Error, Key, Name, Protocol, Timing};

/// How many documents are asked for at a time.
const PAGE: usize = 256;
/// How many elections are looked at the same time.
const TOGETHER: usize = 16;

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
    kind: Arc<dyn Kind>,
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
        election.check_grace().await?;
        election.kind.ensure(&election, create).await?;
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
        election.check_grace().await?;
        election.kind.create(&election).await?;
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
            kind: kind(self.backend),
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
    ///
    /// # Errors
    /// [`Error::Protocol`] on a backend with a queue: take it
    /// [without the queue](Backend::without_queue).
    pub fn at_key(
        backend: &Backend,
        name: Name,
        key: Key,
        timing: Timing,
    ) -> Result<Election, Error> {
        let kind = Arc::new(ByLease { led: None });
        let (backend, floor, delay) = (backend.clone(), None, None);
        let election = Election { backend, name, key, floor, timing, delay, kind };
        match election.backend.protocol() {
            Protocol::Lease => Ok(election),
            Protocol::Queue => Err(election.other_protocol(Protocol::Lease)),
        }
    }

    /// The highest token that earlier candidacies of this handle know; 0 if there was none.
    pub(crate) fn led(&self) -> u64 {
        self.kind.led().map_or(0, |led| led.load(Ordering::Relaxed))
    }

    /// Notes a leader's token: no later candidacy of this handle leads with it.
    pub(crate) fn note_token(&self, token: u64) {
        if let Some(led) = self.kind.led() {
            led.fetch_max(token, Ordering::Relaxed);
        }
    }

    /// Creates the record of an election [at a key of its own](Election::at_key) if there is none.
    ///
    /// # Errors
    /// The store's, or [`Error::Ended`] if the election has ended.
    pub async fn ensure_lease(&self) -> Result<(), Error> {
        self.kind.ensure(self, true).await
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
        self.session_ttl().unwrap_or(self.timing.ttl())
    }

    /// The stop budget: how long before the lease can end the work is told to stop.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.session_ttl()
            .map_or(self.timing.grace(), |ttl| self.timing.chosen_grace().unwrap_or(ttl / 10))
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
        let id = self.backend.fresh_id();
        let (name, value) = candidate.into_parts();
        let shared = Shared::new(&self.name, Status::waiting(id.clone()));
        let holder = Holder { id, name, value, presence: None };
        let driver = self.admit(self.kind.candidacy(self, holder, shared.clone()))?;
        Ok(Candidacy::new(self.clone(), shared, driver))
    }

    fn admit(&self, participant: Box<dyn Participant>) -> Result<Handle, Error> {
        let driver = self.backend.driver()?;
        if driver.send(Command::Admit(participant)) { Ok(driver) } else { Err(Error::Stopped) }
    }

    /// The current state of the election, read now.
    ///
    /// If the store can prove whether the leader still lives, that proof decides. Otherwise the
    /// leader's own wall clock decides, and the answer is only as good as that clock. In a queue,
    /// others see the first candidate in the queue as the leader.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve, [`Error::Record`] when the record is
    /// invalid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn standing(&self) -> Result<Standing, Error> {
        self.kind.standing(self).await
    }

    /// Follows the election without standing in it.
    ///
    /// # Errors
    /// [`Error::Stopped`] outside a tokio runtime.
    pub fn observe(&self) -> Result<Observer, Error> {
        let (seen, latest) = watch::channel(None);
        self.admit(self.kind.observer(self, seen))?;
        Ok(Observer::new(latest))
    }

    /// All candidates, the leader included.
    ///
    /// In a queue they come in its order, otherwise in no order.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not serve.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn candidates(&self) -> Result<Vec<Registered>, Error> {
        self.kind.candidates(self).await
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
        let kind = kind(backend);
        let found = stream::iter(found).map(|listed| kind.complete(backend, listed));
        found.buffered(TOGETHER).try_collect().await
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
        self.kind.end(self).await
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
        self.kind.delete(self).await
    }

    /// How long until nothing of an abandoned leadership is left in the store.
    pub(crate) fn frees_within(&self) -> Duration {
        // The server adds time of its own to a session's ttl: ticks, a change of its leader.
        self.session_ttl().map_or(self.timing.ttl(), |ttl| ttl * 2)
    }

    fn session_ttl(&self) -> Option<Duration> {
        self.kind.sessions().map(|sessions| sessions.borrow().ttl)
    }

    /// The sessions that its stop budget must fit in, if it was chosen, and the budget.
    fn limits(&self) -> Option<(watch::Receiver<Session>, Duration)> {
        self.kind.sessions().zip(self.timing.chosen_grace())
    }

    /// Refuses a stop budget that is too long for the session.
    async fn check_grace(&self) -> Result<(), Error> {
        let Some((mut sessions, grace)) = self.limits() else { return Ok(()) };
        // Before the first session its ttl is not known, and some stores begin one only now.
        let first = sessions.wait_for(|session| session.number > 0);
        let granted = match tokio::time::timeout(self.timing.request(), first).await {
            Ok(Ok(session)) => session.ttl,
            Ok(Err(_)) | Err(_) => return Ok(()),
        };
        Ok(check_session_grace(grace, granted)?)
    }

    /// Resolves once a session is granted that is too short for the stop budget. Cancel safe.
    ///
    /// The session may have come too late for the check in [`Election::open`], or a new session has
    /// replaced it since.
    pub(crate) async fn refused_grace(&self) -> Error {
        if let Some((mut sessions, grace)) = self.limits() {
            let refused = |ttl| check_session_grace(grace, ttl).err();
            let unfit =
                sessions.wait_for(|session| session.number > 0 && refused(session.ttl).is_some());
            // A queue that is gone grants no more sessions.
            if let Some(error) = unfit.await.ok().and_then(|session| refused(session.ttl)) {
                return error.into();
            }
        }
        std::future::pending().await
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

/// The kind of all elections on a backend.
fn kind(backend: &Backend) -> Arc<dyn Kind> {
    match backend.queue() {
        Some(queue) => Arc::new(ByQueue { queue: queue.clone() }),
        None => Arc::new(ByLease { led: Some(AtomicU64::new(0)) }),
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
