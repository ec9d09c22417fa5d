//! What the leader's work is, as far as a feed can know: whoever says that it works.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Error, Mandate};

/// How much work there is.
#[derive(Debug, Default)]
pub(super) struct Work {
    guards: watch::Sender<usize>,
}

impl Work {
    pub(super) fn begin(self: &Arc<Work>, mandate: Mandate) -> Working {
        self.guards.send_modify(|guards| *guards += 1);
        Working { work: self.clone(), mandate }
    }

    /// Resolves when nobody works any more.
    pub(super) async fn ended(&self) {
        // The sender is ours, so there is no error to see.
        let _ = self.guards.subscribe().wait_for(|guards| *guards == 0).await;
    }
}

/// Held while somebody acts as the leader: the leadership is not given to another feed before it is
/// dropped.
///
/// That holds for a hand-over, for a stop and for a feed that fails. It does not hold for a lease
/// that runs out because the database does not answer: heed [`Mandate::lost`], or work inside
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

    /// Runs work for as long as this feed leads: it is dropped the moment it must stop.
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
