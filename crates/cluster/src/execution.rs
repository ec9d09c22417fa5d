//! A submitted task, for the process that waits for its end.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure::Moment;
use tenure::store::{StoreExt, Version};

use super::cancel::Cancellation;
use super::client::ClusterClient;
use super::documents::{MemberId, Order, Outcome, OutcomeState};
use super::patience::Patience;
use crate::error::ClusterError;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is done, with this result.
    Done(Option<String>),
    /// Its attempts are used up, and it is a dead letter. This is the error of the last attempt.
    Failed(String),
    /// It was cancelled before it was done.
    Cancelled,
    /// The wait timed out ([`Execution::with_timeout`]). The task itself goes on.
    TimedOut,
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Ended {
        match outcome.state {
            OutcomeState::Done => Ended::Done(outcome.note),
            OutcomeState::Dead => Ended::Failed(outcome.note.unwrap_or_default()),
            OutcomeState::Cancelled => Ended::Cancelled,
        }
    }
}

type Callback = Box<dyn FnOnce(&Ended) + Send>;

/// A submitted task: await it for its end. Dropping it changes nothing; the task goes on.
///
/// The outcome is kept in the store until it is read here, for an hour. With the
/// [receipt](Execution::receipt), this or another process can come back for it later
/// ([`ClusterClient::execution`]).
#[must_use = "a submitted task goes on by itself, but its outcome is only read when this is awaited"]
pub struct Execution {
    client: ClusterClient,
    receipt: MemberId,
    deadline: Option<(Moment, Duration)>,
    began: Moment,
    callback: Mutex<Option<Callback>>,
    /// The outcome that was read. Reading it deletes the document.
    read: Mutex<Option<Ended>>,
}

impl ClusterClient {
    /// Submits one task, and returns a handle to wait for its end.
    ///
    /// # Errors
    /// As for [`ClusterClient::submit`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the task was accepted.
    pub async fn submit_one(&self, order: Order) -> Result<Execution, ClusterError> {
        let receipt = order.receipt.clone().unwrap_or_else(|| self.backend.fresh_id());
        let execution = self.execution(receipt.clone());
        self.submit(vec![Order { receipt: Some(receipt), ..order }]).await?;
        Ok(execution)
    }

    /// The task that was submitted with this receipt, earlier or by another process.
    pub fn execution(&self, receipt: MemberId) -> Execution {
        Execution {
            began: self.backend.clock().now(),
            client: self.clone(),
            receipt,
            deadline: None,
            callback: Mutex::new(None),
            read: Mutex::new(None),
        }
    }
}

impl Execution {
    /// The name under which the outcome is kept.
    #[must_use]
    pub fn receipt(&self) -> &MemberId {
        &self.receipt
    }

    /// Sets how long to wait for the task's end.
    ///
    /// The time counts from the submission, or from the call of [`ClusterClient::execution`].
    pub fn with_timeout(self, timeout: Duration) -> Execution {
        let deadline = Some((self.began, timeout));
        Execution { deadline, ..self }
    }

    /// Sets a callback for when the task failed or the wait timed out.
    ///
    /// It is called once the code that awaits this execution learns of that.
    ///
    /// As with every future, nothing happens unless the execution is awaited: spawn it to be called
    /// in the background.
    pub fn on_failure_or_timeout(
        self,
        callback: impl FnOnce(&Ended) + Send + 'static,
    ) -> Execution {
        Execution { callback: Mutex::new(Some(Box::new(callback))), ..self }
    }

    /// Asks to cancel the task. Its outcome shows whether the request came in time.
    ///
    /// # Errors
    /// As for [`ClusterClient::cancel`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves it open whether the task was cancelled.
    pub async fn cancel(&self) -> Result<Cancellation, ClusterError> {
        self.client.cancel_submitted(&self.receipt).await
    }

    /// Waits for the task's end. Once the outcome was read, later calls return it again.
    ///
    /// # Errors
    /// [`ClusterError::Store`] when the store does not serve for more than a minute,
    /// [`ClusterError::Document`] when the outcome makes no sense.
    ///
    /// # Cancel safety
    /// Cancel safe: an outcome that was not read yet is still there.
    pub async fn outcome(&self) -> Result<Ended, ClusterError> {
        let ended = self.wait().await?;
        let callback = match ended {
            Ended::Failed(_) | Ended::TimedOut => lock(&self.callback).take(),
            Ended::Done(_) | Ended::Cancelled => None,
        };
        if let Some(callback) = callback {
            callback(&ended);
        }
        Ok(ended)
    }

    async fn wait(&self) -> Result<Ended, ClusterError> {
        let key = self.client.keys.outcome(&self.receipt);
        let mut patience = Patience::new(&self.client);
        loop {
            if let Some(ended) = lock(&self.read).clone() {
                return Ok(ended);
            }
            match self.client.read::<Outcome>(&key).await {
                Ok(Some((version, outcome))) => return Ok(self.keep(version, outcome).await),
                Ok(None) => patience.renew(),
                Err(error) => {
                    patience.after(error).await?;
                    continue;
                }
            }
            let Some(left) = self.left() else { return Ok(Ended::TimedOut) };
            self.client.wait_for(&key, None, left.min(self.client.poll())).await;
        }
    }

    /// The time that is left to wait, or `None` if it is over.
    fn left(&self) -> Option<Duration> {
        let Some((began, timeout)) = self.deadline else { return Some(Duration::MAX) };
        let waited = self.client.backend.clock().now().at_most_since(began);
        timeout.checked_sub(waited).filter(|left| !left.is_zero())
    }

    async fn keep(&self, version: Version, outcome: Outcome) -> Ended {
        let ended = Ended::from(outcome);
        *lock(&self.read) = Some(ended.clone());
        let key = self.client.keys.outcome(&self.receipt);
        if let Err(error) = self.client.store().delete(&key, version).await {
            // The leader deletes outcomes that are an hour old.
            tracing::debug!(%key, %error, "an outcome that was read is left where it is");
        }
        ended
    }
}

impl IntoFuture for Execution {
    type Output = Result<Ended, ClusterError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.outcome().await })
    }
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution")
            .field("receipt", &self.receipt)
            .field("read", &*lock(&self.read))
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Every change is one assignment: a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
