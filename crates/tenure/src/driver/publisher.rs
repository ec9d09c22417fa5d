//! The state that a candidacy shows its handles, for either protocol.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tracing::Span;

use super::SlotId;
use crate::clock::Clock;
use crate::mandate::Tenure;
use crate::protocol::Holder;
use crate::protocol::{Farewell, Lease, Loss, Outcome};
use crate::status::{Leader, Role, Status};
use crate::store::StoreError;
use crate::{Error, Name};

/// A message from a candidate's handles to its machine.
#[derive(Clone, Debug)]
pub(crate) enum HandleMessage {
    /// The work of a lost tenure has ended: the candidate stands again.
    WorkEnded,
    /// All work has ended: give everything up.
    Release(Farewell),
    /// The work cannot be ended: leave, and let the lease or entry run out by itself.
    Abandon,
    /// Publish another value.
    Publish(Bytes),
    /// Take the leadership away.
    #[cfg(feature = "test-util")]
    ForceLoss,
}

/// The state that the candidate's handles and the driver share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) status: watch::Sender<Status>,
    campaign: Span,
    state: Mutex<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    slot: Option<SlotId>,
    tenure: Option<Arc<Tenure>>,
    /// The handle has said goodbye: a tenure won from now on is resigned at once.
    left: bool,
}

impl Shared {
    pub(crate) fn new(election: &Name, status: Status) -> Arc<Shared> {
        let campaign = tracing::info_span!("campaign", %election, candidate = %status.candidate);
        Arc::new(Shared { status: watch::Sender::new(status), campaign, state: Mutex::default() })
    }

    /// The tenure that was won last.
    pub(crate) fn tenure(&self) -> Option<Arc<Tenure>> {
        self.lock().tenure.clone()
    }

    pub(super) fn slot(&self) -> Option<SlotId> {
        self.lock().slot
    }

    /// Revokes every mandate at once, including mandates yet to come.
    pub(crate) fn leave(&self) {
        let tenure = {
            let mut state = self.lock();
            state.left = true;
            state.tenure.clone()
        };
        if let Some(tenure) = tenure {
            tenure.close(Loss::Resigned);
        }
    }

    fn elect(&self, tenure: Arc<Tenure>) {
        let mut state = self.lock();
        if state.left {
            tenure.close(Loss::Resigned);
        }
        state.tenure = Some(tenure);
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver's side of [`Shared`].
///
/// It receives every output of a machine that is meant for people.
pub(super) struct StatusPublisher {
    shared: Arc<Shared>,
    over: bool,
}

impl StatusPublisher {
    pub(super) fn new(shared: Arc<Shared>) -> StatusPublisher {
        StatusPublisher { shared, over: false }
    }

    /// Notes where messages of the handles go from now on.
    pub(super) fn admitted(&self, id: SlotId) {
        self.shared.lock().slot = Some(id);
    }

    /// Returns true if the handles were told how the candidacy ended.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Ends the leadership, because the handles are gone or the backend is closed.
    pub(super) fn goodbye(&self) {
        self.shared.leave();
    }

    pub(super) fn leaving(&self) {
        if !self.over {
            self.tell(|status| status.role = Role::Leaving);
        }
    }

    pub(super) fn elect(&self, lease: Lease, clock: &Arc<dyn Clock>) {
        let token = lease.token;
        let span = tracing::info_span!(parent: &self.shared.campaign, "tenure", token);
        span.in_scope(|| tracing::info!("the election is won"));
        self.shared.elect(Tenure::new(lease, clock.clone(), span));
        self.tell(|status| {
            status.role = Role::Leading { token: lease.token };
            status.error = None;
        });
    }

    pub(super) fn extend(&self, lease: Lease) {
        self.with_tenure(|tenure| tenure.extend(lease));
    }

    pub(super) fn must_stop(&self) {
        self.with_tenure(Tenure::stop);
        self.tell(|status| {
            if let Some(token) = status.role.token() {
                self.log(|| {
                    tracing::warn!(
                        token,
                        "the lease may not be renewed in time: the work must stop"
                    );
                });
                status.role = Role::Stopping { token };
            }
        });
    }

    pub(super) fn lose(&self, token: u64, loss: &Loss) {
        self.with_tenure(|tenure| tenure.close(loss.clone()));
        self.log(|| tracing::warn!(token, why = %loss, "the leadership is lost"));
        self.tell(|status| status.role = Role::Lost { token, loss: loss.clone() });
    }

    pub(super) fn suspend(&self, remaining: Duration) {
        self.tell(|status| {
            if let Role::Leading { token } = status.role {
                let error = status.error.as_ref().map(tracing::field::display);
                self.log(|| {
                    tracing::info!(
                        token,
                        ?remaining,
                        error,
                        "the store does not answer: suspended"
                    );
                });
                status.role = Role::Suspended { token, remaining };
            }
        });
    }

    pub(super) fn resume(&self) {
        self.tell(|status| {
            if let Role::Suspended { token, .. } = status.role {
                self.log(|| tracing::info!(token, "the store answers again: resumed"));
                status.role = Role::Leading { token };
            }
            status.error = None;
        });
    }

    pub(super) fn follow(&self, holder: Option<&Holder>) {
        let leader = holder.map(Leader::from);
        self.tell(|status| {
            let before = std::mem::replace(&mut status.follows, leader);
            if before.is_some() {
                status.followed = before;
            }
        });
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        self.over = true;
        self.with_tenure(|tenure| tenure.close(Loss::Resigned));
        self.tell(|status| status.role = Role::Over(outcome));
    }

    /// Shows an error until the next success.
    pub(super) fn warn(&self, error: Error) {
        self.tell(|status| status.error = Some(error));
    }

    /// Keeps the last error in the status, until the next success.
    pub(super) fn note(&self, error: Option<&StoreError>) {
        let known = self.shared.status.borrow().error.is_some();
        if error.is_some() || known {
            self.tell(|status| status.error = error.cloned().map(Error::Store));
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Status)) {
        self.shared.status.send_modify(change);
    }

    /// Logs in the span of the tenure.
    fn log(&self, event: impl FnOnce()) {
        match self.shared.tenure() {
            Some(tenure) => tenure.span().in_scope(event),
            None => self.shared.campaign.in_scope(event),
        }
    }

    fn with_tenure(&self, change: impl FnOnce(&Tenure)) {
        if let Some(tenure) = self.shared.tenure() {
            change(&tenure);
        }
    }
}

impl Drop for StatusPublisher {
    /// If the driver is dropped with its runtime, the lease is no longer renewed.
    fn drop(&mut self) {
        self.with_tenure(|tenure| tenure.close(Loss::Stopped));
        self.shared.lock().slot = None;
        if !self.over {
            self.tell(|status| {
                status.error = Some(Error::Stopped);
                status.role = Role::Over(Outcome::AlreadyLost);
            });
        }
    }
}
