//! Objects as an input that the leader lists.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use object_store::{Error, ObjectStoreExt};
use tokio::sync::Mutex;

use super::Objects;
use super::listing::Listing;
use crate::documents::Order;
use crate::input::{End, InputError, Template, Window, Windowed};
use crate::inputs::Recent;

/// The default interval for listing a bucket that is followed.
const USUAL_POLL: Duration = Duration::from_secs(5);
/// The most items of one window, even if more are requested.
const MOST_ITEMS: usize = 4096;

/// The objects under a prefix, each a task. Its id and item are the key below that prefix.
///
/// They come in the order of their keys, byte by byte, and the position is the last key returned.
/// Markers that some tools leave for empty folders are not objects. Keys of more than 1,024 bytes
/// are reported and left out.
pub struct ObjectsSource {
    objects: Objects,
    template: Template,
    follow: Option<Duration>,
    deletes: bool,
    /// The progress of the last window; taken while a window is built.
    reading: Mutex<Option<Reading>>,
}

struct Reading {
    listing: Listing,
    recent: Recent,
    /// True if there is nothing after `recent`.
    ended: bool,
}

impl ObjectsSource {
    pub(super) fn new(objects: Objects, template: Template) -> ObjectsSource {
        let reading = Mutex::const_new(None);
        ObjectsSource { objects, template, follow: None, deletes: false, reading }
    }

    /// Makes the source endless: it waits for objects with keys after the last one.
    ///
    /// This suits objects that are named by date.
    #[must_use]
    pub fn following(self) -> ObjectsSource {
        self.polling(USUAL_POLL)
    }

    /// Waits as [`following`](ObjectsSource::following) does, and lists at this interval.
    #[must_use]
    pub fn polling(mut self, poll: Duration) -> ObjectsSource {
        self.follow = Some(poll);
        self
    }

    /// Deletes objects once they are done. Objects that failed for good or were cancelled stay.
    #[must_use]
    pub fn deleting(mut self) -> ObjectsSource {
        self.deletes = true;
        self
    }

    async fn window(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        let kept = self.reading.lock().await.take();
        let kept = kept.and_then(|mut kept| kept.recent.go_on_after(position).then_some(kept));
        let mut reading = match kept {
            Some(kept) => kept,
            None => Reading::after(&self.objects, position)?,
        };
        reading.fill(max).await?;
        let keys: Vec<String> = reading.recent.first(max).cloned().collect();
        let position = reading.recent.position_after(keys.len());
        let at_the_end = reading.ended && keys.len() == reading.recent.len();
        if !at_the_end {
            *self.reading.lock().await = Some(reading);
        }
        let orders = keys.into_iter().map(|key| self.order(&key)).collect();
        Ok(Window { orders, position, drained: at_the_end && self.follow.is_none() })
    }

    fn order(&self, key: &str) -> Order {
        self.template.order(key, key.as_bytes().to_vec())
    }
}

impl Reading {
    fn after(objects: &Objects, position: Option<&str>) -> Result<Reading, InputError> {
        let listing = Listing::after(objects.clone(), position)?;
        Ok(Reading { listing, recent: Recent::after(position), ended: false })
    }

    async fn fill(&mut self, max: usize) -> Result<(), InputError> {
        while self.recent.len() < max && !self.ended {
            match self.listing.next().await? {
                Some(key) => self.recent.push(key),
                None => self.ended = true,
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Windowed for ObjectsSource {
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        let max = max.clamp(1, MOST_ITEMS);
        loop {
            let window = self.window(position, max).await?;
            match self.follow {
                Some(poll) if window.orders.is_empty() => tokio::time::sleep(poll).await,
                Some(_) | None => return Ok(window),
            }
        }
    }

    async fn commit(&self, id: &str, payload: &[u8], end: End) -> Result<(), InputError> {
        // Any client may submit a task with any id: only objects that this source would have
        // returned are deleted.
        let is_own = self.order(id).payload == payload;
        let location = self.objects.location(id).filter(|_| is_own);
        match location {
            Some(location) if self.deletes && end == End::Done => {
                match self.objects.store.delete(&location).await {
                    // The commit was repeated, or another client was faster.
                    Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(InputError::new(format!("deleting {location}"), &error)),
                }
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Debug for ObjectsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectsSource")
            .field("objects", &self.objects)
            .field("template", &self.template)
            .field("follow", &self.follow)
            .field("deletes", &self.deletes)
            .finish_non_exhaustive()
    }
}
