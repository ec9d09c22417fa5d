//! Copies of objects that programs can open.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use futures_util::TryStreamExt;
use object_store::{GetResult, ObjectStoreExt};
use tempfile::TempPath;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Objects;
use crate::input::InputError;

/// The unit in which room for copies is counted, in bytes.
const UNIT: u64 = 1024;
/// The longest file extension that a copy keeps, in bytes.
const MOST_ENDING_BYTES: usize = 32;

/// A copy of an object in a temporary file, which is removed when this is dropped.
#[derive(Debug)]
pub struct ObjectCopy {
    path: TempPath,
    room: CopyRoom,
}

impl ObjectCopy {
    /// Opens the copy and removes its name.
    ///
    /// Its bytes stay until the file is closed, so keep the room until then.
    ///
    /// # Errors
    /// When the file can no longer be opened.
    pub fn into_file(self) -> io::Result<(std::fs::File, CopyRoom)> {
        Ok((std::fs::File::open(&self.path)?, self.room))
    }
}

impl Deref for ObjectCopy {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for ObjectCopy {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// A copy's share of the limit for all copies, released when this is dropped.
#[derive(Debug)]
pub struct CopyRoom(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit);

/// The limit for the bytes of all copies at once.
#[derive(Clone)]
pub(super) struct Copies {
    limit: u64,
    /// The whole units of the limit, but at least one.
    units: u32,
    room: Arc<Semaphore>,
}

impl Copies {
    pub(super) fn of_at_most(limit: u64) -> Copies {
        let limit = limit.min(u64::from(u32::MAX) * UNIT);
        let units = u32::try_from(limit / UNIT).unwrap_or(u32::MAX).max(1);
        let most = usize::try_from(units).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Copies { limit, units, room: Arc::new(Semaphore::new(most)) }
    }

    /// How many units a copy of this size takes; none if it is larger than the limit.
    fn units(&self, size: u64) -> Option<u32> {
        // Its name takes room, too. A copy that needs more than all whole units takes all of them.
        let units = u32::try_from(size.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX);
        (size <= self.limit).then_some(units.min(self.units))
    }
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} bytes", self.limit)
    }
}

impl Objects {
    /// Copies an object into a temporary file, removed when the result is dropped.
    ///
    /// The file keeps the extension of the key (`.jpg`), for programs that rely on it. While other
    /// copies take too much room ([`copies_of_at_most`](Objects::copies_of_at_most)), this waits
    /// until they are dropped.
    ///
    /// # Errors
    /// When there is no such object, it is larger than the limit for all copies, the store does not
    /// serve, or the file cannot be written.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is left behind.
    pub async fn fetch(&self, key: &str) -> Result<ObjectCopy, InputError> {
        let says =
            |error: &dyn std::error::Error| InputError::new(format!("fetching {key:?}"), error);
        let Some(location) = self.location(key) else {
            return Err(InputError(format!("fetching {key:?}: this is no key")));
        };
        let (got, room) = self.find_room(key, &location).await?;
        let expected = got.range.end - got.range.start;
        let mut builder = tempfile::Builder::new();
        let (ending, prefix) = (ending_of(key), "tenure-");
        let (file, path) = builder
            .prefix(prefix)
            .suffix(&ending)
            .tempfile()
            .map_err(|error| says(&error))?
            .into_parts();
        let mut file = File::from_std(file);
        let (mut body, mut written) = (got.into_stream(), 0);
        while let Some(bytes) = body.try_next().await.map_err(|error| says(&error))? {
            written += bytes.len() as u64;
            if written > expected {
                break;
            }
            file.write_all(&bytes).await.map_err(|error| says(&error))?;
        }
        file.flush().await.map_err(|error| says(&error))?;
        if written != expected {
            return Err(InputError(format!(
                "fetching {key:?}: {written} bytes came instead of {expected}"
            )));
        }
        Ok(ObjectCopy { path, room })
    }

    /// Requests an object, and acquires room for its copy.
    async fn find_room(
        &self,
        key: &str,
        location: &object_store::path::Path,
    ) -> Result<(GetResult, CopyRoom), InputError> {
        let says =
            |error: &dyn std::error::Error| InputError::new(format!("fetching {key:?}"), error);
        let mut held: Option<(u32, OwnedSemaphorePermit)> = None;
        loop {
            let got = self.store.get(location).await.map_err(|error| says(&error))?;
            let (size, limit) = (got.range.end - got.range.start, self.copies.limit);
            let Some(units) = self.copies.units(size) else {
                return Err(InputError(format!(
                    "fetching {key:?}: it has {size} bytes, and all copies together may have {limit} (tenure share \
                     --copy-limit)"
                )));
            };
            match held.take() {
                Some((enough, permit)) if enough >= units => return Ok((got, CopyRoom(permit))),
                // The object has grown since then.
                Some(_) | None => {}
            }
            let room = Arc::clone(&self.copies.room);
            if let Ok(permit) = Arc::clone(&room).try_acquire_many_owned(units) {
                return Ok((got, CopyRoom(permit)));
            }
            // The store would not keep an unread answer open, so the object is requested again
            // later.
            drop(got);
            let permit = room.acquire_many_owned(units).await.map_err(|error| says(&error))?;
            held = Some((units, permit));
        }
    }
}

/// The extension of a key, with its dot, if it is short and plain.
fn ending_of(key: &str) -> String {
    let ending = Path::new(key).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let is_plain = ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if ending.is_empty() || ending.len() > MOST_ENDING_BYTES || !is_plain {
        return String::new();
    }
    format!(".{ending}")
}
