//! An input of objects in buckets and directories.

mod fetch;
mod listing;
mod opening;
mod source;

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt as _;
use object_store::ObjectStore;
use object_store::path::Path;

use self::fetch::Copies;
use crate::input::{InputError, Template};

pub use self::fetch::{CopyRoom, ObjectCopy};
pub use self::source::ObjectsSource;

/// The objects under a prefix of a store. The leader lists them, and members fetch them.
///
/// ```no_run
/// # async fn example() -> Result<(), tenure_cluster::input::InputError> {
/// use tenure_cluster::input::{Inputs, Template};
/// use tenure_cluster::inputs::Objects;
///
/// let photos = Objects::open("s3://bucket/photos")?;
/// let inputs = Inputs::new().windowed(photos.source(Template::new("resize")));
/// // And in the task:
/// let copy = photos.fetch("2026/cat.jpg").await?;
/// println!("{}", copy.display());
/// # let _ = inputs; Ok(()) }
/// ```
#[derive(Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    in_order: bool,
    copies: Copies,
}

/// The default limit for the bytes of all copies at once. Temporary directories are often in
/// memory.
const USUAL_COPIES: u64 = 1024 * 1024 * 1024;

impl Objects {
    /// The objects under this prefix of a store.
    ///
    /// # Errors
    /// When the prefix is invalid.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Objects, InputError> {
        let prefix = Path::parse(prefix)
            .map_err(|error| InputError::new(format!("the prefix {prefix:?}"), &error))?;
        Ok(Objects { store, prefix, in_order: false, copies: Copies::of_at_most(USUAL_COPIES) })
    }

    /// Sets how many bytes all [copies](Objects::fetch) may take at once.
    ///
    /// The default is 1 GiB, the maximum 4 TiB. A larger object is refused; other copies wait for
    /// room. Clones share the limit.
    #[must_use]
    pub fn copies_of_at_most(mut self, bytes: u64) -> Objects {
        self.copies = Copies::of_at_most(bytes);
        self
    }

    /// Declares that the store lists objects in the order of their keys, byte by byte.
    ///
    /// S3 and Google's store do. Other stores are listed whole for every 65,536 objects.
    #[must_use]
    pub fn in_order(mut self) -> Objects {
        self.in_order = true;
        self
    }

    /// Checks that the objects can be listed: the bucket exists, and we have access.
    ///
    /// # Errors
    /// The store's error, when it refuses or does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn check(&self) -> Result<(), InputError> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        match self.store.list(prefix).next().await {
            Some(Err(error)) => Err(InputError::new("listing objects", &error)),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// These objects as an input. Each is a task of this template.
    #[must_use]
    pub fn source(&self, template: Template) -> ObjectsSource {
        ObjectsSource::new(self.clone(), template)
    }

    /// The location of the object with this key; none if the key is invalid.
    ///
    /// The key is below the prefix.
    fn location(&self, key: &str) -> Option<Path> {
        // Nothing is corrected: text that would become another key is invalid.
        let location = match self.prefix.as_ref() {
            "" => key.to_owned(),
            prefix => format!("{prefix}/{key}"),
        };
        let path = Path::parse(&location).ok()?;
        (!key.is_empty() && path.as_ref() == location).then_some(path)
    }

    /// The key of an object below the prefix; none if the object is not below it.
    fn key<'a>(&self, location: &'a Path) -> Option<&'a str> {
        let key = match self.prefix.as_ref() {
            "" => location.as_ref(),
            prefix => location.as_ref().strip_prefix(prefix)?.strip_prefix('/')?,
        };
        (!key.is_empty()).then_some(key)
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The store's own description, which leaves out its credentials.
        f.debug_struct("Objects")
            .field("store", &format_args!("{}", self.store))
            .field("prefix", &self.prefix)
            .field("in_order", &self.in_order)
            .field("copies", &self.copies)
            .finish()
    }
}
