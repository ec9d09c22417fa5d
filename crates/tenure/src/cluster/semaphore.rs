//! A semaphore that tasks can carry with them.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};

use super::context::Context;
use super::lock::{Guard, candidate, election};
use crate::name::{MAX_SEGMENT_BYTES, check_segment};
use crate::{Error, NameError};

/// The most permits of a semaphore: whoever waits stands for all of them at once.
pub const MOST_PERMITS: u32 = 64;
/// How many bytes the number of a permit takes, with what stands before it.
const PERMIT_BYTES: usize = 3;

/// So many may hold it at once, in the whole cluster. As data it is a name and a number.
///
/// Each permit is a lease of its own, as a [`Lock`](super::Lock) is. All who use the name must
/// agree on the number: where they do not, as many may hold it as the largest says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Semaphore {
    name: String,
    permits: u32,
}

/// Why there is no such semaphore.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SemaphoreError {
    /// Its name is not one printable segment, or too long.
    #[error("the semaphore's name is refused: {0}")]
    Name(#[from] NameError),
    /// Nobody could ever hold it, or too many.
    #[error("a semaphore has between 1 and {MOST_PERMITS} permits, not {permits}")]
    Permits {
        /// How many it was to have.
        permits: u32,
    },
}

impl Semaphore {
    /// The semaphore of this name, in whichever cluster it is used.
    ///
    /// # Errors
    /// [`SemaphoreError`] when the name is not one printable segment of at most 125 bytes, or the
    /// number is out of range.
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many may hold it at once.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Waits until fewer than all permits are held, and holds one.
    ///
    /// It stands for all of them, keeps the first it gets and withdraws from the others. For a
    /// moment it may so hold more than one, never less than one.
    ///
    /// # Errors
    /// As for [`Lock::acquire`](super::Lock::acquire).
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future frees what it may just have got.
    pub async fn acquire(&self, context: &Context) -> Result<Guard, Error> {
        let mut standing = FuturesUnordered::new();
        for permit in 0..self.permits {
            let election = election(context, "semaphores", &format!("{}-{permit}", self.name))?;
            let mut candidacy = election.stand(candidate(context)?)?;
            standing.push(async move { candidacy.elected().await });
        }
        let mut refused = None;
        while let Some(elected) = standing.next().await {
            match elected {
                // The others are dropped, which withdraws them.
                Ok(leadership) => return Ok(Guard::new(leadership)),
                // A permit that is no more, such as one that an operator ended, leaves the others.
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.expect("there is at least one permit, and it was refused"))
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
