//! Lists objects in the order of their keys.

use std::collections::{BinaryHeap, VecDeque};

use futures_util::stream::{BoxStream, Fuse};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt};

use super::Objects;
use crate::documents::MAX_ID_BYTES;
use crate::input::InputError;

/// How many objects of each listing are kept, for a store that lists in any order.
const MOST_KEPT: usize = 64 * 1024;

type Stream = Fuse<BoxStream<'static, object_store::Result<ObjectMeta>>>;

/// The objects after some key, one by one.
pub(super) struct Listing {
    objects: Objects,
    /// The last location that was returned.
    passed: Option<Path>,
    way: Way,
}

enum Way {
    /// The store lists in order: its pages are read as needed.
    InOrder(Stream),
    /// The store lists in any order. The first objects after `passed` are picked from a whole
    /// listing.
    Picked { kept: VecDeque<Found>, more: bool },
}

/// An object, ordered by its location, which is the first field.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    location: Path,
    is_empty: bool,
}

impl Found {
    fn of(meta: ObjectMeta) -> Found {
        Found { location: meta.location, is_empty: meta.size == 0 }
    }
}

impl Listing {
    /// Lists the objects after this key; all objects if there is none.
    pub(super) fn after(objects: Objects, key: Option<&str>) -> Result<Listing, InputError> {
        let passed = match key {
            None => None,
            Some(key) => match objects.location(key) {
                Some(location) => Some(location),
                None => return Err(InputError(format!("{key:?} is no position in a bucket"))),
            },
        };
        let way = if objects.in_order {
            Way::InOrder(list(&objects, passed.as_ref()))
        } else {
            Way::Picked { kept: VecDeque::new(), more: true }
        };
        Ok(Listing { objects, passed, way })
    }

    /// The next key below the prefix.
    pub(super) async fn next(&mut self) -> Result<Option<String>, InputError> {
        while let Some(found) = self.next_found().await.map_err(says)? {
            let is_passed = self.passed.as_ref().is_some_and(|passed| *passed >= found.location);
            if found.is_empty && (is_passed || is_marker(&self.objects, &found.location).await?) {
                continue;
            }
            if is_passed {
                // Going on would leave objects out silently.
                return Err(InputError(format!(
                    "the store does not list in order: {} came after {}",
                    found.location,
                    self.passed.as_ref().map_or("", Path::as_ref)
                )));
            }
            let key = self.objects.key(&found.location).map(str::to_owned);
            self.passed = Some(found.location);
            match key {
                Some(key) if key.len() <= MAX_ID_BYTES => return Ok(Some(key)),
                Some(key) => tracing::warn!(key, "an object is left out: its key is too long"),
                None => {}
            }
        }
        Ok(None)
    }

    async fn next_found(&mut self) -> object_store::Result<Option<Found>> {
        match &mut self.way {
            Way::InOrder(stream) => Ok(stream.try_next().await?.map(Found::of)),
            Way::Picked { kept, more } => {
                if kept.is_empty() && *more {
                    (*kept, *more) = pick(&self.objects, self.passed.as_ref(), MOST_KEPT).await?;
                }
                Ok(kept.pop_front())
            }
        }
    }
}

fn list(objects: &Objects, passed: Option<&Path>) -> Stream {
    let prefix = Some(&objects.prefix);
    match passed {
        Some(passed) => objects.store.list_with_offset(prefix, passed),
        None => objects.store.list(prefix),
    }
    .fuse()
}

/// The first objects after `passed`, in order, and true if there are more.
async fn pick(
    objects: &Objects,
    passed: Option<&Path>,
    most: usize,
) -> object_store::Result<(VecDeque<Found>, bool)> {
    let mut listed = list(objects, passed);
    let (mut first, mut more) = (BinaryHeap::new(), false);
    while let Some(meta) = listed.try_next().await? {
        first.push(Found::of(meta));
        if first.len() > most {
            first.pop();
            more = true;
        }
    }
    Ok((first.into_sorted_vec().into(), more))
}

/// Returns true if an empty entry is the marker of a folder, and no object.
///
/// The key of a marker ends with `/`, which listings leave out. So it seems to be an object with
/// the folder's name, or to be listed out of order after such an object.
async fn is_marker(objects: &Objects, location: &Path) -> Result<bool, InputError> {
    match objects.store.head(location).await {
        Ok(meta) => Ok(meta.size > 0),
        Err(Error::NotFound { .. }) => Ok(true),
        Err(error) => Err(says(error)),
    }
}

fn says(error: Error) -> InputError {
    InputError::new("listing objects", &error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn the_first_are_picked_out_of_a_listing_whatever_its_order() {
        let store = Arc::new(InMemory::new());
        for name in ["p/c", "p/a", "p/e", "p/b", "p/d", "q/a"] {
            store.put(&Path::from(name), "x".into()).await.expect("memory takes it");
        }
        let objects = Objects::new(store, "p").expect("a prefix");
        let names = |found: VecDeque<Found>| {
            found.into_iter().map(|found| found.location.to_string()).collect::<Vec<_>>()
        };
        let (found, more) = pick(&objects, None, 2).await.expect("a listing");
        assert_eq!((names(found), more), (vec!["p/a".into(), "p/b".into()], true));
        let after = Path::from("p/b");
        let (found, more) = pick(&objects, Some(&after), 3).await.expect("a listing");
        assert_eq!(names(found), ["p/c", "p/d", "p/e"]);
        assert!(!more);
    }
}
