//! What a task is told of where it runs.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::books::Books;
use super::claims::Claim;
use super::documents::{Assignment, MAX_NOTE_BYTES, MemberId};
use super::node::Stopped;
use crate::Mandate;

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

    /// Resolves when the work must stop, and says why. What does not end by itself soon after is dropped.
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
}

/// Says how far a task is: a heartbeat that the leader and `tenure tasks` can read.
#[derive(Clone, Debug)]
pub struct StatusReporter {
    pub(super) claim: Claim,
    pub(super) reports: mpsc::UnboundedSender<(Claim, String)>,
}

impl StatusReporter {
    /// Reports; the newest report goes out with the next renewal, which this brings forward. Shortened to 4 KiB.
    pub fn report(&self, status: &str) {
        let end = status.floor_char_boundary(MAX_NOTE_BYTES);
        // A node that has stopped has nobody left to tell.
        let _ = self.reports.send((self.claim, status[..end].to_owned()));
    }
}
