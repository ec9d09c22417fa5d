//! Objects as an input that the leader lists.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use object_store::{Error, ObjectStoreExt};
use tenure::cluster::documents::Order;
use tenure::cluster::input::{End, InputError, Template, Window, Windowed};
use tenure::cluster::inputs::Recent;
use tokio::sync::Mutex;

use super::Objects;
use super::listing::Listing;

/// How often a bucket that is followed is listed, unless somebody says otherwise.
const USUAL_POLL: Duration = Duration::from_secs(5);
/// The most items of one window, however many are asked for.
const MOST_ITEMS: usize = 4096;

/// The objects under a prefix, each a task whose id and item are its key below that prefix.
///
/// They come in the order of their keys, byte by byte, and the position is the last key that was
/// given out. The marks that some tools leave for empty folders are no objects; keys of more than
/// 1,024 bytes are reported and left out.
pub struct ObjectsSource {
    objects: Objects,
    template: Template,
    follow: Option<Duration>,
    deletes: bool,
    /// How far the last window got; taken while a window is being put together.
    reading: Mutex<Option<Reading>>,
}

struct Reading {
    listing: Listing,
    recent: Recent,
    /// There is nothing after `recent`.
    ended: bool,
}

impl ObjectsSource {
    pub(super) fn new(objects: Objects, template: Template) -> ObjectsSource {
        let reading = Mutex::const_new(None);
        ObjectsSource { objects, template, follow: None, deletes: false, reading }
    }

    /// The same, which never ends: it waits for objects whose keys come after the last one, such as
    /// those named by date.
    #[must_use]
    pub fn following(self) -> ObjectsSource {
        self.polling(USUAL_POLL)
    }

    /// The same as [`following`](ObjectsSource::following), listing this often.
    #[must_use]
    pub fn polling(mut self, poll: Duration) -> ObjectsSource {
        self.follow = Some(poll);
        self
    }

    /// The same, which deletes objects once they are done. Those that failed for good, or were
    /// cancelled, stay.
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
        // Anybody may submit a task with any id: only what this source would have given out is
        // deleted.
        let is_own = self.order(id).payload == payload;
        let location = self.objects.location(id).filter(|_| is_own);
        match location {
            Some(location) if self.deletes && end == End::Done => {
                match self.objects.store.delete(&location).await {
                    // Told twice, or somebody else was faster.
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
