//! The leader's work, as far as a feed can know: callers hold a guard while they work.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Error, Mandate};

/// The number of guards.
#[derive(Debug, Default)]
pub(super) struct Work {
    guards: watch::Sender<usize>,
}

impl Work {
    pub(super) fn begin(self: &Arc<Work>, mandate: Mandate) -> Working {
        self.guards.send_modify(|guards| *guards += 1);
        Working { work: self.clone(), mandate }
    }

    /// Resolves when no guard is left.
    pub(super) async fn ended(&self) {
        // The sender is ours, so there is no error to see.
        let _ = self.guards.subscribe().wait_for(|guards| *guards == 0).await;
    }
}

/// A guard that is held while its owner acts as leader.
///
/// The leadership is not given to another feed before the guard is dropped.
///
/// That holds for a hand-over, for a stop and for a feed that fails. It does not hold when the
/// lease runs out because the database does not answer: heed [`Mandate::lost`], or work inside
/// [`Working::scope`].
#[must_use = "dropping it says that the work has ended"]
#[derive(Debug)]
pub struct Working {
    work: Arc<Work>,
    mandate: Mandate,
}

impl Working {
    /// The right to act, with its token.
    #[must_use]
    pub fn mandate(&self) -> &Mandate {
        &self.mandate
    }

    /// Runs work for as long as this feed leads; drops it at the moment it must stop.
    ///
    /// # Errors
    /// [`Error::Lost`] when leadership ended before the work was done.
    ///
    /// # Cancel safety
    /// Cancel safe if the work is.
    pub async fn scope<T>(self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.mandate.scope(work).await
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.work.guards.send_modify(|guards| *guards -= 1);
    }
}
