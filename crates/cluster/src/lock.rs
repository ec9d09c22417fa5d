//! A lock that tasks can carry with them.
//!
//! It is stored with a task, and locks wherever the task runs.

use serde::{Deserialize, Serialize};
use tenure::{Candidate, Election, Leadership, Mandate, NameError, Resignation, check_segment};

use super::context::Context;
use crate::error::ClusterError;

/// A lock of the whole cluster, identified by its name.
///
/// It serializes as that name, so tasks can have it among their fields.
///
/// The lock is its own lease, like an election. A holder that vanishes loses it after the ttl, and
/// each holder has a fencing token greater than all before.
///
/// ```
/// # use tenure_cluster::{Context, Lock, TaskError};
/// # async fn run(context: &Context) -> Result<(), TaskError> {
/// let lock = Lock::new("ledger")?;
/// let guard = lock.acquire(context).await?;
/// // Hand the token to whatever is written to, and let it refuse smaller ones.
/// let _token = guard.mandate().token();
/// guard.release().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Lock {
    name: String,
}

impl Lock {
    /// Creates the lock of this name, for use in any cluster.
    ///
    /// # Errors
    /// [`NameError`] when the name is not one printable segment.
    pub fn new(name: &str) -> Result<Lock, NameError> {
        check_segment(name)?;
        Ok(Lock { name: name.into() })
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the lock is free, and takes it.
    ///
    /// # Errors
    /// [`ClusterError::Election`] when an operator has ended the lock, and every other error that
    /// ends a candidacy. A store that does not answer is waited for.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future frees the lock if it was just taken.
    pub async fn acquire(&self, context: &Context) -> Result<Guard, ClusterError> {
        let election = election(context, "locks", &self.name)?;
        Ok(Guard { leadership: election.campaign(candidate(context)?).await? })
    }
}

impl TryFrom<String> for Lock {
    type Error = NameError;

    fn try_from(name: String) -> Result<Lock, NameError> {
        Lock::new(&name)
    }
}

impl From<Lock> for String {
    fn from(lock: Lock) -> String {
        lock.name
    }
}

/// Holds a [`Lock`], or a permit of a [`Semaphore`](super::Semaphore).
///
/// Dropping the guard gives the lock or permit back, in the background.
///
/// Like every lease, it can be lost while it is held: [`Guard::mandate`] tells in time.
#[derive(Debug)]
#[must_use = "dropping a guard gives the lock back"]
pub struct Guard {
    leadership: Leadership,
}

impl Guard {
    pub(super) fn new(leadership: Leadership) -> Guard {
        Guard { leadership }
    }

    /// The right to hold the lock, with its fencing token.
    #[must_use]
    pub fn mandate(&self) -> Mandate {
        self.leadership.mandate()
    }

    /// Gives the lock or permit back, and returns the result.
    ///
    /// # Cancel safety
    /// Cancel safe: the lock or permit is given back in the background.
    pub async fn release(self) -> Resignation {
        self.leadership.resign().await
    }
}

/// The election behind a lock. Its first winner creates the record.
pub(super) fn election(
    context: &Context,
    kind: &str,
    name: &str,
) -> Result<Election, ClusterError> {
    let client = &context.client;
    let name = format!("clusters/{}/{kind}/{name}", client.name);
    Ok(Election::builder(&client.backend, &name).timing(client.timing).build()?)
}

/// The candidate for a lock: names the member and the task.
pub(super) fn candidate(context: &Context) -> Result<Candidate, ClusterError> {
    Ok(Candidate::new(&format!("{}-{}", context.member(), context.serial()))?)
}
