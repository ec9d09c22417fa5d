//! A semaphore that tasks can carry with them.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use tenure::{MAX_SEGMENT_BYTES, NameError, check_segment};

use super::context::Context;
use super::lock::{Guard, candidate, election};
use crate::error::ClusterError;

/// The most permits of a semaphore. A waiting task stands for all of them at once.
pub const MOST_PERMITS: u32 = 64;
/// How many bytes a permit's number takes in a name, with the hyphen before it.
const PERMIT_BYTES: usize = 3;

/// A semaphore of the whole cluster: at most `permits` holders at once.
///
/// It serializes as a name and a number.
///
/// Each permit is its own lease, as a [`Lock`](super::Lock) is. All users of a name must agree on
/// the number of permits. If they do not, the largest number is the limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Semaphore {
    name: String,
    permits: u32,
}

/// The reason why a semaphore is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SemaphoreError {
    /// The name is not one printable segment, or too long.
    #[error("the semaphore's name is refused: {0}")]
    Name(#[from] NameError),
    /// The number of permits is 0 or too large.
    #[error("a semaphore has between 1 and {MOST_PERMITS} permits, not {permits}")]
    Permits {
        /// The number of permits that was asked for.
        permits: u32,
    },
}

impl Semaphore {
    /// Creates the semaphore of this name, for use in any cluster.
    ///
    /// # Errors
    /// [`SemaphoreError`] when the name is not one printable segment of at most 125 bytes, or the
    /// number of permits is out of range.
    pub fn new(name: &str, permits: u32) -> Result<Semaphore, SemaphoreError> {
        check_segment(name)?;
        if name.len() + PERMIT_BYTES > MAX_SEGMENT_BYTES {
            let bytes = name.len() + PERMIT_BYTES;
            return Err(NameError::SegmentTooLong { position: 1, bytes }.into());
        }
        if !(1..=MOST_PERMITS).contains(&permits) {
            return Err(SemaphoreError::Permits { permits });
        }
        Ok(Semaphore { name: name.into(), permits })
    }

    /// The name of the semaphore.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of permits.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Waits until a permit is free, and takes it.
    ///
    /// The task stands for all permits, keeps the first that it gets and withdraws from the others.
    /// So for a moment it may hold more than one, never less than one.
    ///
    /// # Errors
    /// As for [`Lock::acquire`](super::Lock::acquire).
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future frees a permit that was just taken.
    pub async fn acquire(&self, context: &Context) -> Result<Guard, ClusterError> {
        let mut standing = FuturesUnordered::new();
        for permit in 0..self.permits {
            let election = election(context, "semaphores", &format!("{}-{permit}", self.name))?;
            let mut candidacy = election.stand(candidate(context)?)?;
            standing.push(async move { candidacy.elected().await });
        }
        let mut refused = None;
        while let Some(elected) = standing.next().await {
            match elected {
                // The other candidacies are dropped, which withdraws them.
                Ok(leadership) => return Ok(Guard::new(leadership)),
                // If a permit no longer exists, for example because an operator ended it, the
                // others remain.
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.expect("there is at least one permit, and it was refused").into())
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    name: String,
    permits: u32,
}

impl TryFrom<Wire> for Semaphore {
    type Error = SemaphoreError;

    fn try_from(wire: Wire) -> Result<Semaphore, SemaphoreError> {
        Semaphore::new(&wire.name, wire.permits)
    }
}

impl From<Semaphore> for Wire {
    fn from(semaphore: Semaphore) -> Wire {
        Wire { name: semaphore.name, permits: semaphore.permits }
    }
}
