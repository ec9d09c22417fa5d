//! What a task is told of where it runs.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::books::Books;
use super::claims::Claim;
use super::documents::{Assignment, MAX_NOTE_BYTES, MemberId, Order};
use super::node::Stopped;
use super::shared::Shared;
use crate::{Error, Mandate};

/// Where a task runs, and under which right.
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) task: Arc<Assignment>,
    pub(super) attempt: u32,
    pub(super) member: MemberId,
    pub(super) mandate: Mandate,
    pub(super) reporter: StatusReporter,
    pub(super) stop: watch::Receiver<Option<Stopped>>,
    pub(super) books: Books,
    /// One for all tasks of a process.
    pub(super) shared: Shared,
}

impl Context {
    /// What people call the task.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.task.id
    }

    /// The number under which it was accepted.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.task.serial
    }

    /// Which attempt this is, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// On which member it runs.
    #[must_use]
    pub fn member(&self) -> &MemberId {
        &self.member
    }

    /// The right to do it. Its token is greater than that of every earlier attempt.
    #[must_use]
    pub fn mandate(&self) -> &Mandate {
        &self.mandate
    }

    /// Resolves when the work must stop, and says why. What does not end by itself soon after is
    /// dropped.
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

    /// Says how far it is.
    #[must_use]
    pub fn reporter(&self) -> &StatusReporter {
        &self.reporter
    }

    /// The books of the cluster that it is a task of.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// Submits another task to the same cluster: when this returns it is in the store. Waits while
    /// the inbox is full.
    ///
    /// A task that is begun twice submits twice; give what it submits ids that follow from its own.
    ///
    /// # Errors
    /// As for [`Books::submit`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether it was accepted.
    pub async fn emit(&self, order: Order) -> Result<(), Error> {
        self.books.submit(vec![order]).await
    }

    /// Something that the tasks of this process share for a while, such as a connection: made by
    /// whoever asks first, and again once it is older than `ttl`.
    ///
    /// What is shared is known by its type and its name. At most 256 things are; the oldest goes
    /// when there are more, and whoever uses it keeps it until it is done.
    ///
    /// # Errors
    /// What `make` says. The next who asks tries again.
    ///
    /// # Cancel safety
    /// Cancel safe: if this was the one who made it, another does.
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
        self.shared.obtain(&**self.books.backend.clock(), name, ttl, make).await
    }
}

/// Says how far a task is: a heartbeat that the leader and `tenure tasks` can read.
#[derive(Clone, Debug)]
pub struct StatusReporter {
    pub(super) claim: Claim,
    pub(super) reports: mpsc::UnboundedSender<(Claim, String)>,
}

impl StatusReporter {
    /// Reports; the newest report goes out with the next renewal, which this brings forward.
    /// Shortened to 4 KiB.
    pub fn report(&self, status: &str) {
        let end = status.floor_char_boundary(MAX_NOTE_BYTES);
        // A node that has stopped has nobody left to tell.
        let _ = self.reports.send((self.claim, status[..end].to_owned()));
    }
}
