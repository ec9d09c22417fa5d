//! The right to act as leader, checked without I/O.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tracing::Span;

use crate::Error;
use crate::clock::Clock;
use crate::protocol::{Lease, Loss};

/// The right to act as leader in one tenure. Clones share that tenure.
///
/// Pass the [`token`](Mandate::token) to every system the leader writes to, and let that system
/// refuse smaller tokens. That holds even if a paused process overruns its lease.
#[derive(Clone)]
pub struct Mandate {
    tenure: Arc<Tenure>,
}

/// One tenure, shared by its guard, its mandates and the one who renews its lease.
pub struct Tenure {
    token: u64,
    process: u32,
    clock: Arc<dyn Clock>,
    /// Everything that is logged about the tenure, and by the work in it.
    span: Span,
    state: Mutex<State>,
    /// Notified of every change of `state`.
    changed: watch::Sender<()>,
}

#[derive(Clone, Debug)]
enum State {
    Valid { lease: Lease, stopping: bool },
    Over(Loss),
}

impl Tenure {
    /// The tenure of a lease that this process was just granted.
    ///
    /// [`Mandate::scope`] runs work in the span.
    #[must_use]
    pub fn new(lease: Lease, clock: Arc<dyn Clock>, span: Span) -> Arc<Tenure> {
        Arc::new(Tenure {
            token: lease.token,
            process: std::process::id(),
            clock,
            span,
            state: Mutex::new(State::Valid { lease, stopping: false }),
            changed: watch::Sender::new(()),
        })
    }

    /// The right to act in it.
    #[must_use]
    pub fn mandate(self: &Arc<Tenure>) -> Mandate {
        Mandate { tenure: self.clone() }
    }

    /// The span of its log.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Publishes a renewal, unless the deadline has already passed.
    pub fn extend(&self, renewed: Lease) {
        if let State::Valid { lease, .. } = &mut *self.expired() {
            *lease = renewed;
        }
        self.changed.send_replace(());
    }

    /// Tells the work to stop. A renewal does not take this back.
    pub fn stop(&self) {
        if let State::Valid { stopping, .. } = &mut *self.lock() {
            *stopping = true;
        }
        self.changed.send_replace(());
    }

    /// Ends the tenure for every mandate at once.
    pub fn close(&self, loss: Loss) {
        let mut state = self.lock();
        if matches!(&*state, State::Valid { .. }) {
            *state = State::Over(loss);
        }
        drop(state);
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment: a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state as of now: the first call after the deadline closes the tenure.
    fn expired(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if let State::Valid { lease, .. } = &*state
            && lease.remaining(self.clock.now()).is_zero()
        {
            *state = State::Over(Loss::Expired);
        }
        state
    }
}

impl Mandate {
    /// The fencing token: greater than that of every earlier tenure of this election.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.tenure.token
    }

    /// Checks that this process still leads. No I/O; about a tenth of a microsecond.
    ///
    /// # Errors
    /// [`Loss`] is the reason why not. Once lost, a mandate never becomes valid again.
    pub fn check(&self) -> Result<(), Loss> {
        if std::process::id() != self.tenure.process {
            // A forked child has our memory, but no driver renews on its behalf.
            return Err(Loss::OtherProcess);
        }
        match &*self.tenure.expired() {
            State::Valid { .. } => Ok(()),
            State::Over(loss) => Err(loss.clone()),
        }
    }

    /// Returns true if this process still leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.check().is_ok()
    }

    /// How long the lease lasts if it is never renewed again.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.of_lease(Lease::remaining)
    }

    /// How long until work must stop if the lease is never renewed again.
    #[must_use]
    pub fn until_stop(&self) -> Duration {
        self.of_lease(Lease::until_stop)
    }

    fn of_lease(&self, measure: fn(&Lease, crate::Moment) -> Duration) -> Duration {
        match &*self.tenure.expired() {
            State::Valid { lease, .. } => measure(lease, self.tenure.clock.now()),
            State::Over(_) => Duration::ZERO,
        }
    }

    /// The reason why work must stop, once it must.
    ///
    /// Work must stop when the leadership is lost, or when only the stop budget of the lease is
    /// left.
    #[must_use]
    pub fn must_stop(&self) -> Option<Loss> {
        if let Err(loss) = self.check() {
            return Some(loss);
        }
        match &*self.tenure.lock() {
            State::Valid { lease, stopping } => {
                let over = *stopping || lease.until_stop(self.tenure.clock.now()).is_zero();
                over.then_some(Loss::Expired)
            }
            State::Over(loss) => Some(loss.clone()),
        }
    }

    /// Resolves when work must stop, and says why.
    ///
    /// If the store does not answer, it resolves the stop budget *before* the lease can end. If the
    /// leadership is lost for another reason, it resolves at once.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> Loss {
        let mut changed = self.tenure.changed.subscribe();
        loop {
            if let Some(loss) = self.must_stop() {
                return loss;
            }
            // The driver keeps one timer for all tenures and notifies each when its time has come.
            // The sender lives in the tenure that this mandate holds, so there is no error to see.
            let _ = changed.changed().await;
        }
    }

    /// Runs work for as long as this leads; drops it at the moment it must stop.
    ///
    /// What the work logs is in the tracing span `tenure`, which has the token, inside the span
    /// `campaign`, which has the election and the candidate.
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
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        std::future::poll_fn(|context| {
            if let Some(loss) = self.must_stop() {
                return Poll::Ready(Err(Error::Lost(loss)));
            }
            if let Poll::Ready(loss) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(Error::Lost(loss)));
            }
            self.tenure.span.in_scope(|| work.as_mut().poll(context)).map(Ok)
        })
        .await
    }

    /// Resolves when the lease was renewed, or is over.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn renewed(&self) {
        let mut changed = self.tenure.changed.subscribe();
        // The sender lives in the tenure that this mandate holds.
        let _ = changed.changed().await;
    }
}

impl fmt::Debug for Mandate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mandate")
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use super::*;
    use crate::TestClock;

    const WINDOW: Duration = Duration::from_secs(12);
    const GRACE: Duration = Duration::from_secs(2);

    fn lease(clock: &TestClock) -> Lease {
        Lease { token: 7, from: clock.now(), window: WINDOW, grace: GRACE }
    }

    fn tenure(clock: &TestClock) -> Arc<Tenure> {
        Tenure::new(lease(clock), Arc::new(clock.clone()), Span::none())
    }

    #[test]
    fn a_renewal_that_comes_after_the_deadline_revives_no_mandate() {
        let clock = TestClock::default();
        let tenure = tenure(&clock);
        clock.advance(WINDOW);
        // No call has checked the mandate since the deadline passed: the renewal itself must check.
        tenure.extend(lease(&clock));
        assert_eq!(tenure.mandate().check(), Err(Loss::Expired));
        assert_eq!(tenure.mandate().remaining(), Duration::ZERO);
    }

    #[test]
    fn a_renewal_in_time_extends_every_mandate() {
        let clock = TestClock::default();
        let tenure = tenure(&clock);
        let mandate = tenure.mandate();
        clock.advance(WINDOW - Duration::from_millis(1));
        tenure.extend(lease(&clock));
        clock.advance(WINDOW - Duration::from_millis(1));
        assert_eq!(mandate.check(), Ok(()));
    }

    #[test]
    fn work_must_stop_by_its_own_clock_although_the_driver_has_said_nothing() {
        let clock = TestClock::default();
        let mandate = tenure(&clock).mandate();
        clock.advance(WINDOW - GRACE - Duration::from_millis(1));
        assert_eq!(mandate.must_stop(), None);
        clock.advance(Duration::from_millis(1));
        assert_eq!(mandate.check(), Ok(()), "the lease still lasts for the grace");
        assert_eq!(mandate.must_stop(), Some(Loss::Expired));
    }

    #[test]
    fn a_forked_process_has_no_mandate() {
        let clock = TestClock::default();
        let (lease, changed) = (lease(&clock), watch::Sender::new(()));
        // A forked child sees this: the memory of a process with another id.
        let tenure = Arc::new(Tenure {
            span: Span::none(),
            token: lease.token,
            process: std::process::id().wrapping_add(1),
            clock: Arc::new(clock),
            state: Mutex::new(State::Valid { lease, stopping: false }),
            changed,
        });
        assert_eq!(tenure.mandate().check(), Err(Loss::OtherProcess));
        assert_eq!(tenure.mandate().must_stop(), Some(Loss::OtherProcess));
        assert!(!tenure.mandate().is_leader());
    }
}
