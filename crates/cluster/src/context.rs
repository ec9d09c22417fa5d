//! The context in which a task runs.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure::Mandate;
use tokio::sync::{mpsc, watch};

use super::claims::Claim;
use super::client::ClusterClient;
use super::documents::{Assignment, MAX_NOTE_BYTES, MemberId, Order};
use super::shared::Shared;
use crate::error::ClusterError;

/// The reason given to a task that must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// The right to work on the task ends.
    Lost,
    /// The task was cancelled.
    Cancelled,
    /// The task's timeout has passed.
    TimedOut,
    /// The node leaves.
    Leaving,
}

/// The context of a running task: its member, its mandate and its cluster.
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) task: Arc<Assignment>,
    pub(super) attempt: u32,
    pub(super) member: MemberId,
    pub(super) mandate: Mandate,
    pub(super) reporter: StatusReporter,
    pub(super) stop: watch::Receiver<Option<Stopped>>,
    pub(super) client: ClusterClient,
    /// One instance for all tasks of a node.
    pub(super) shared: Shared,
}

impl Context {
    /// The task's name for people.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.task.id
    }

    /// The serial number under which the task was accepted.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.task.serial
    }

    /// The number of this attempt, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The member that runs the task.
    #[must_use]
    pub fn member(&self) -> &MemberId {
        &self.member
    }

    /// The right to work on the task. Its token is greater than that of every earlier attempt.
    #[must_use]
    pub fn mandate(&self) -> &Mandate {
        &self.mandate
    }

    /// Resolves when the work must stop, with the reason.
    ///
    /// Work that does not end by itself soon after is dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stopped(&self) -> Stopped {
        let mut stop = self.stop.clone();
        match stop.wait_for(Option::is_some).await {
            Ok(why) => why.unwrap_or(Stopped::Lost),
            Err(_) => Stopped::Lost,
        }
    }

    /// The reporter of the task's status.
    #[must_use]
    pub fn reporter(&self) -> &StatusReporter {
        &self.reporter
    }

    /// The client of the task's cluster.
    #[must_use]
    pub fn client(&self) -> &ClusterClient {
        &self.client
    }

    /// Submits another task to the same cluster.
    ///
    /// The task is in the store when this returns. Waits while the inbox is full.
    ///
    /// A task that is begun twice submits twice, so derive the ids of submitted tasks from its own
    /// id.
    ///
    /// # Errors
    /// As for [`ClusterClient::submit`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the task was accepted.
    pub async fn emit(&self, order: Order) -> Result<(), ClusterError> {
        self.client.submit(vec![order]).await
    }

    /// Returns a value that the tasks of this node share, such as a connection.
    ///
    /// The first caller makes the value. It is shared for a while, and made again once it is older
    /// than the `ttl` that it was made with.
    ///
    /// The type and the name identify the value. At most 256 values are kept. When there are more,
    /// the oldest is removed, and tasks that use it keep it until they are done.
    ///
    /// # Errors
    /// The error of `make`. The next caller tries again.
    ///
    /// # Cancel safety
    /// Cancel safe: if this call was making the value, another call makes it.
    pub async fn shared<T, E, F>(
        &self,
        name: &str,
        ttl: Duration,
        make: impl FnOnce() -> F + Send,
    ) -> Result<Arc<T>, E>
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send,
    {
        self.shared.obtain(&**self.client.backend.clock(), name, ttl, make).await
    }
}

/// Reports a task's status: a heartbeat that the leader and `tenure tasks` can read.
#[derive(Clone, Debug)]
pub struct StatusReporter {
    pub(super) claim: Claim,
    pub(super) reports: mpsc::UnboundedSender<(Claim, String)>,
}

impl StatusReporter {
    /// Reports a status, shortened to 4 KiB.
    ///
    /// The newest report goes out with the next renewal, and a report brings that renewal forward.
    pub fn report(&self, status: &str) {
        let end = status.floor_char_boundary(MAX_NOTE_BYTES);
        // An error means that the node has stopped, and no longer takes reports.
        let _ = self.reports.send((self.claim, status[..end].to_owned()));
    }
}
