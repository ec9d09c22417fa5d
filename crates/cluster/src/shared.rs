//! Values that the tasks of one node share for a while: a connection, a token, a table.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{Clock, Moment};
use tokio::sync::OnceCell;

/// The most things that are shared at a time. When there are more, the oldest is removed; tasks
/// that use it keep it until they are done.
const MOST_SHARED: usize = 256;

type Thing = Arc<dyn Any + Send + Sync>;

/// Shared things, by their types and names. Clones share the same things.
#[derive(Clone, Default)]
pub struct Shared {
    things: Arc<Mutex<BTreeMap<(TypeId, String), Entry>>>,
}

#[derive(Clone)]
struct Entry {
    /// The first caller makes the thing; all others wait for that.
    cell: Arc<OnceCell<Thing>>,
    asked: Moment,
    ttl: Duration,
}

impl Shared {
    /// Returns the thing of this type and name, and makes it if needed.
    ///
    /// It is made anew once it is older than the ttl that it was made with.
    pub(super) async fn obtain<T, E, F>(
        &self,
        clock: &dyn Clock,
        name: &str,
        ttl: Duration,
        make: impl FnOnce() -> F + Send,
    ) -> Result<Arc<T>, E>
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send,
    {
        let cell = self.cell((TypeId::of::<T>(), name.to_owned()), clock.now(), ttl);
        let thing = cell
            .get_or_try_init(|| async { make().await.map(|made| Arc::new(made) as Thing) })
            .await?;
        Ok(thing.clone().downcast().expect("the type is part of what it is kept under"))
    }

    fn cell(&self, key: (TypeId, String), now: Moment, ttl: Duration) -> Arc<OnceCell<Thing>> {
        let mut things = self.lock();
        things.retain(|_, entry| now.at_most_since(entry.asked) < entry.ttl);
        if let Some(entry) = things.get(&key) {
            return entry.cell.clone();
        }
        if things.len() >= MOST_SHARED
            && let Some(oldest) =
                things.iter().min_by_key(|(_, entry)| entry.asked).map(|(key, _)| key.clone())
        {
            things.remove(&oldest);
        }
        let entry = Entry { cell: Arc::default(), asked: now, ttl };
        let cell = entry.cell.clone();
        things.insert(key, entry);
        cell
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(TypeId, String), Entry>> {
        // Every change is a single insert or remove: a panic leaves nothing half done.
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("things", &self.lock().len()).finish()
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tenure::TestClock;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn number(shared: &Shared, clock: &TestClock, name: &str, made: u32) -> u32 {
        let made =
            shared.obtain(clock, name, MINUTE, || async move { Ok::<_, Infallible>(made) }).await;
        *made.expect("infallible")
    }

    #[tokio::test]
    async fn it_is_made_once_and_again_when_its_time_is_over() {
        let (shared, clock) = (Shared::default(), TestClock::default());
        assert_eq!(number(&shared, &clock, "a", 1).await, 1);
        clock.advance(MINUTE / 2);
        assert_eq!(number(&shared.clone(), &clock, "a", 2).await, 1);
        assert_eq!(number(&shared, &clock, "b", 3).await, 3);
        clock.advance(MINUTE / 2);
        assert_eq!(number(&shared, &clock, "a", 4).await, 4);
    }

    #[tokio::test]
    async fn the_same_name_of_another_type_is_another_thing() {
        let (shared, clock) = (Shared::default(), TestClock::default());
        assert_eq!(number(&shared, &clock, "a", 1).await, 1);
        let text =
            shared.obtain(&clock, "a", MINUTE, || async { Ok::<_, Infallible>("text") }).await;
        assert_eq!(text.map(|text| *text), Ok("text"));
    }

    #[tokio::test]
    async fn many_who_ask_at_once_share_what_one_of_them_makes() {
        let (shared, clock, made) = (Shared::default(), TestClock::default(), AtomicU32::new(0));
        let asked = (0..20).map(|_| {
            shared.obtain(&clock, "a", MINUTE, || async {
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(made.fetch_add(1, Ordering::Relaxed))
            })
        });
        let all = futures_util::future::join_all(asked).await;
        assert!(all.into_iter().all(|number| number.map(|number| *number) == Ok(0)));
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_could_not_be_made_is_tried_again_by_the_next() {
        let (shared, clock) = (Shared::default(), TestClock::default());
        let failed: Result<Arc<u32>, &str> =
            shared.obtain(&clock, "a", MINUTE, || async { Err("no") }).await;
        assert_eq!(failed, Err("no"));
        assert_eq!(number(&shared, &clock, "a", 2).await, 2);
    }

    #[tokio::test]
    async fn no_more_are_kept_than_there_may_be() {
        let (shared, clock) = (Shared::default(), TestClock::default());
        for made in 0..2 * MOST_SHARED {
            clock.advance(Duration::from_millis(1));
            number(&shared, &clock, &made.to_string(), 0).await;
        }
        assert_eq!(shared.lock().len(), MOST_SHARED);
    }
}
