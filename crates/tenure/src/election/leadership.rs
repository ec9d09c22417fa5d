//! A candidacy, and the leadership it wins.

mod place;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;

use self::place::Place;
use super::Election;
use crate::candidate::check_value;
use crate::clock::{Clock, Moment};
use crate::driver::{Handle, HandleMessage, Shared};
use crate::mandate::{Mandate, Tenure};
use crate::protocol::{Farewell, Loss, Outcome};
use crate::status::{Status, StatusStream};
use crate::{CandidateId, Error};

/// A candidate that stands in an election. Dropping it withdraws.
///
/// Keep it while you wait, so that a shutdown can withdraw it at once. Otherwise the next candidate
/// waits until the store has noticed that this process is gone.
///
/// ```
/// # async fn shutdown() {}
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// # let backend = tenure::Backend::memory();
/// # let election = tenure::Election::open(&backend, "billing/primary").await?;
/// let mut candidacy = election.stand("host-a".try_into()?)?;
/// tokio::select! {
///     leadership = candidacy.elected() => {
///         leadership?.resign().await;
///     }
///     () = shutdown() => candidacy.withdraw().await,
/// }
/// # Ok(()) }
/// ```
#[must_use = "dropping a candidacy withdraws it"]
pub struct Candidacy {
    place: Arc<Place>,
    /// True if a [`Leadership`] has taken over the place, and decides when to give it up.
    handed_over: bool,
}

impl Candidacy {
    pub(crate) fn new(election: Election, shared: Arc<Shared>, driver: Handle) -> Candidacy {
        let known = election.led();
        let place = Place { election, shared, driver, known, left: AtomicBool::new(false) };
        Candidacy { place: Arc::new(place), handed_over: false }
    }

    /// The id of this candidacy.
    #[must_use]
    pub fn id(&self) -> CandidateId {
        self.place.shared.status.borrow().candidate.clone()
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.place.shared.status.borrow().clone()
    }

    /// The status from now on; the stream ends when the candidacy is over.
    #[must_use]
    pub fn statuses(&self) -> StatusStream {
        StatusStream::new(self.place.shared.status.subscribe())
    }

    /// Publishes another value, for all processes to read.
    ///
    /// # Errors
    /// [`Error::Candidate`] when it is too long, [`Error::Finished`] when the candidacy is over.
    pub fn publish(&self, value: impl Into<Bytes>) -> Result<(), Error> {
        let value = value.into();
        check_value(&value)?;
        self.place.tell(HandleMessage::Publish(value))
    }

    /// Waits until the candidate leads.
    ///
    /// The leadership then decides when the place in the election is given up.
    ///
    /// # Errors
    /// The reason why the candidacy is over: [`Error::Ended`] and others. [`Error::Finished`] when
    /// it was elected before: [`Leadership::regain`] stands again.
    ///
    /// # Cancel safety
    /// Cancel safe: the candidacy goes on standing. Wait again, [withdraw](Candidacy::withdraw) or
    /// drop it.
    pub async fn elected(&mut self) -> Result<Leadership, Error> {
        if self.handed_over {
            return Err(Error::Finished);
        }
        let tenure = self.next_tenure(0).await?;
        self.handed_over = true;
        let candidacy = Candidacy { place: self.place.clone(), handed_over: false };
        Ok(candidacy.lead(tenure))
    }

    pub(crate) fn lead(self, tenure: Arc<Tenure>) -> Leadership {
        Leadership { candidacy: self, tenure }
    }

    /// Withdraws, and waits until nothing of this candidacy is left in the store.
    ///
    /// A leadership that it won is given up too: its mandates are revoked at once.
    ///
    /// # Cancel safety
    /// Cancel safe: the withdrawal goes on in the background.
    pub async fn withdraw(self) {
        self.place.say_goodbye(Farewell::Free);
        self.place.outcome().await;
    }

    /// The first tenure won at a token above `after`. Cancel safe.
    pub(crate) async fn next_tenure(&self, after: u64) -> Result<Arc<Tenure>, Error> {
        self.place.next_tenure(after).await
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        if !self.handed_over {
            self.place.say_goodbye(Farewell::Free);
        }
    }
}

impl fmt::Debug for Candidacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidacy")
            .field("election", self.place.election.name())
            .field("status", &*self.place.shared.status.borrow())
            .finish_non_exhaustive()
    }
}

/// Leadership, while it lasts.
///
/// Dropping it revokes every mandate at once and resigns in the background.
///
/// Drop or resign it only when the leader's work has ended, because that frees the election for
/// others. A drop just before the runtime ends sends nothing, and others wait until the lease has
/// run out. So before `main` returns, [`resign`](Leadership::resign) or [close the
/// backend](crate::Backend::close). After a loss of leadership, nothing is released either until
/// then: the work winds down in the rest of the lease.
#[must_use = "dropping a leadership resigns it"]
pub struct Leadership {
    candidacy: Candidacy,
    tenure: Arc<Tenure>,
}

/// The result of a resignation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resignation {
    /// The store has freed the election: others may lead at once.
    Released,
    /// There was nothing left to give up.
    AlreadyLost,
    /// The store did not answer. The driver keeps trying, and at worst the lease runs out.
    Unknown {
        /// After this long others may lead in any case.
        frees_within: Duration,
    },
}

impl Leadership {
    /// The right to act, to be cloned into each part of the work.
    #[must_use]
    pub fn mandate(&self) -> Mandate {
        self.tenure.mandate()
    }

    /// The id of the candidacy that won.
    #[must_use]
    pub fn id(&self) -> CandidateId {
        self.candidacy.id()
    }

    /// The current status of the candidacy.
    #[must_use]
    pub fn status(&self) -> Status {
        self.candidacy.status()
    }

    /// The status of the candidacy from now on; the stream ends when it is over.
    #[must_use]
    pub fn statuses(&self) -> StatusStream {
        self.candidacy.statuses()
    }

    /// Publishes another value, for all processes to read.
    ///
    /// # Errors
    /// [`Error::Candidate`] when it is too long, [`Error::Finished`] when the candidacy is over.
    pub fn publish(&self, value: impl Into<Bytes>) -> Result<(), Error> {
        self.candidacy.publish(value)
    }

    /// Resolves when work must stop, and says why. See [`Mandate::lost`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> Loss {
        self.mandate().lost().await
    }

    /// Runs work for as long as this leads; drops it at the moment it must stop.
    ///
    /// The mandate is also checked before each poll of the work. So work that was paused does not
    /// take another step after the lease has gone.
    ///
    /// # Errors
    /// [`Error::Lost`] when leadership was lost before the work was done.
    ///
    /// # Cancel safety
    /// Cancel safe if the work is.
    pub async fn scope<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.mandate().scope(work).await
    }

    /// Gives the leadership up, so that others may lead.
    ///
    /// All mandates are revoked before any request is sent.
    ///
    /// Calling it again changes nothing. It returns the same result, or a newer one if more is
    /// known since. A leadership that was lost is [`Resignation::AlreadyLost`]. It returns within
    /// about the time of three requests; after that the driver keeps trying in the background.
    ///
    /// # Cancel safety
    /// Cancel safe: the resignation goes on in the background.
    pub async fn resign(&self) -> Resignation {
        self.part(Farewell::Free).await
    }

    /// Ends the election for all candidates, this leader included.
    ///
    /// # Errors
    /// [`Error::Store`] when the store did not serve. It can occur only if the leader's own release
    /// did not end the election, because leadership was already lost or the store did not answer.
    /// Then the end is written again, as any process could do it.
    ///
    /// # Cancel safety
    /// Not cancel safe: after dropping the future, the election may or may not have ended.
    pub async fn end(&self) -> Result<Resignation, Error> {
        let election = self.candidacy.place.election.clone();
        let resignation = self.part(Farewell::End).await;
        match resignation {
            Resignation::Released => {}
            Resignation::AlreadyLost | Resignation::Unknown { .. } => election.end().await?,
        }
        Ok(resignation)
    }

    /// Stands again as the same candidate, after a loss and after the work has ended.
    ///
    /// # Errors
    /// The reason why the candidacy is over: [`Error::Ended`] and others. [`Error::Finished`] while
    /// it still leads.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future withdraws the candidacy.
    pub async fn regain(self) -> Result<Leadership, Error> {
        let token = self.mandate().token();
        let candidacy = self.stand_again()?;
        let tenure = candidacy.next_tenure(token).await?;
        Ok(candidacy.lead(tenure))
    }

    /// The candidacy again, after leadership was lost and its work has ended.
    pub(crate) fn stand_again(self) -> Result<Candidacy, Error> {
        if self.mandate().must_stop().is_none() {
            return Err(Error::Finished);
        }
        self.tenure.close(Loss::Resigned);
        self.candidacy.place.tell(HandleMessage::WorkEnded)?;
        Ok(self.candidacy)
    }

    /// Stops renewing and frees nothing.
    ///
    /// Others may lead only when the lease has run out by itself.
    ///
    /// Use it for work that cannot be ended and may still act as leader. All mandates are revoked
    /// at once, and the lease is not written any more. Some stores take the death of this process
    /// as proof that its work is over (the file store does). On those, stay alive until
    /// [`Abandoned::expired`].
    pub fn abandon(self) -> Abandoned {
        let election = &self.candidacy.place.election;
        let (clock, frees_within) = (election.clock().clone(), election.frees_within());
        self.candidacy.place.leave(HandleMessage::Abandon);
        Abandoned { since: clock.now(), clock, frees_within }
    }

    /// Takes the leadership away, as a failing store would; for programs under test.
    #[cfg(feature = "test-util")]
    pub fn force_loss(&self) {
        // A candidacy that is over has no leadership left to lose.
        let _ = self.candidacy.place.tell(HandleMessage::ForceLoss);
    }

    async fn part(&self, farewell: Farewell) -> Resignation {
        let remaining = self.mandate().remaining();
        self.candidacy.place.say_goodbye(farewell);
        let patience = self.candidacy.place.election.timing().request() * 3;
        let clock = self.candidacy.place.election.clock();
        let mut timer = clock.timer();
        let outcome = tokio::select! {
            biased;
            outcome = self.candidacy.place.outcome() => outcome,
            () = timer.until(clock.now() + patience) => {
                let frees_within = self.candidacy.place.election.frees_within().max(remaining);
                return Resignation::Unknown { frees_within };
            }
        };
        match outcome {
            Outcome::Released => Resignation::Released,
            Outcome::Unknown { frees_within } => Resignation::Unknown { frees_within },
            Outcome::AlreadyLost
            | Outcome::Withdrawn
            | Outcome::Ended
            | Outcome::Vanished
            | Outcome::Regressed { .. }
            | Outcome::Refused(_)
            | Outcome::Exhausted => Resignation::AlreadyLost,
        }
    }
}

/// A leadership that was left to run out. Dropping this changes nothing.
#[derive(Clone, Debug)]
pub struct Abandoned {
    clock: Arc<dyn Clock>,
    since: Moment,
    frees_within: Duration,
}

impl Abandoned {
    /// How long after the abandonment the lease has run out in the store.
    #[must_use]
    pub fn frees_within(&self) -> Duration {
        self.frees_within
    }

    /// Resolves when the lease has run out in the store.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn expired(&self) {
        let mut timer = self.clock.timer();
        // Timers may be early, and one of the clocks may be behind the other.
        while self.clock.now().at_least_since(self.since) < self.frees_within {
            let left = self.frees_within - self.clock.now().at_least_since(self.since);
            timer.until(self.clock.now() + left).await;
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("mandate", &self.mandate())
            .field("candidacy", &self.candidacy)
            .finish()
    }
}
