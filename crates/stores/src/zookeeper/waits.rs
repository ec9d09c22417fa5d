//! Waits for changes of documents. All waits for the same document share one watch.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::client::{Client, Error, Watching};
use super::record;
use super::wire::{self, Request};
use tenure::Key;
use tenure::store::Version;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// How long a watch is kept after the last wait: the caller mostly waits again.
const LINGER: Duration = Duration::from_secs(20);
/// Below this number of watches, unused ones are not looked for.
const FEW: usize = 64;

/// The waits of a store.
#[derive(Debug, Default)]
pub(super) struct Waits {
    watches: Mutex<Watches>,
}

#[derive(Debug, Default)]
struct Watches {
    by_key: HashMap<Key, Arc<Watch>>,
    /// The number of watches at which unused ones are looked for.
    crowd: usize,
}

/// One watch on a server, from its beginning to the first event.
#[derive(Debug)]
struct Watch {
    state: Mutex<State>,
    changed: Notify,
    /// Aborted when the watch is dropped.
    task: Mutex<Option<AbortHandle>>,
    used: Mutex<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The server was not asked yet, or has not answered.
    Beginning,
    /// The server will report when the document is no longer at this version.
    Watching(Option<Version>),
    /// The server has reported a change, or can no longer report one.
    Over,
}

impl Waits {
    /// Waits until the document may no longer be as it was seen.
    pub(super) async fn changed(
        &self,
        client: &Client,
        key: &Key,
        path: String,
        seen: Option<&Version>,
        request: Duration,
    ) {
        let watch = self.join(client, key, path, seen, request);
        loop {
            let mut changed = pin!(watch.changed.notified());
            // From here on no notification is missed, even before the first poll.
            changed.as_mut().enable();
            match watch.state() {
                State::Beginning => {}
                State::Watching(version) if version.as_ref() == seen => {}
                State::Watching(_) | State::Over => return,
            }
            changed.await;
            watch.touch();
        }
    }

    fn join(
        &self,
        client: &Client,
        key: &Key,
        path: String,
        seen: Option<&Version>,
        request: Duration,
    ) -> Arc<Watch> {
        let mut watches = lock(&self.watches);
        if let Some(watch) = watches.by_key.get(key) {
            let usable = match watch.state() {
                State::Beginning => true,
                State::Watching(version) => version.as_ref() == seen,
                State::Over => false,
            };
            if usable {
                watch.touch();
                return watch.clone();
            }
        }
        if watches.by_key.len() >= watches.crowd.max(FEW) {
            watches.by_key.retain(|_, watch| Arc::strong_count(watch) > 1 || watch.is_fresh());
            watches.crowd = watches.by_key.len() * 2;
        }
        let watch = Watch::begin(client.clone(), path, request);
        watches.by_key.insert(key.clone(), watch.clone());
        watch
    }
}

impl Watch {
    fn begin(client: Client, path: String, request: Duration) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            state: Mutex::new(State::Beginning),
            changed: Notify::new(),
            task: Mutex::default(),
            used: Mutex::new(Instant::now()),
        });
        // Weak, so that the watch ends when its last user drops it.
        let told = Arc::downgrade(&watch);
        let tell = move |state| {
            if let Some(watch) = told.upgrade() {
                *lock(&watch.state) = state;
                watch.changed.notify_waiters();
            }
        };
        let task = tokio::spawn(async move {
            client.up().await;
            let connection = client.connection();
            match timeout(request, ask(&client, &path)).await {
                Ok(Ok((version, watching))) => {
                    tell(State::Watching(version));
                    watching.event().await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "zookeeper: a watch failed"),
                Err(_) => client.give_up(connection),
            }
            tell(State::Over);
        });
        *lock(&watch.task) = Some(task.abort_handle());
        watch
    }

    fn state(&self) -> State {
        lock(&self.state).clone()
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    fn is_fresh(&self) -> bool {
        self.state() != State::Over && lock(&self.used).elapsed() < LINGER
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

/// Reads the document and leaves a watch on it; on its creation if it does not exist.
async fn ask(client: &Client, path: &str) -> Result<(Option<Version>, Watching), Error> {
    loop {
        let request = Request::Data { path: path.into(), watch: true };
        let (read, watching) = client.watch(request, wire::data);
        match read.await {
            Ok((data, stat)) => {
                return Ok((Some(record::document(data, &stat).version), watching));
            }
            Err(Error::NoNode) => {}
            Err(error) => return Err(error),
        }
        // If the document is created in between, read it after all.
        let request = Request::Exists { path: path.into(), watch: true };
        let (read, watching) = client.watch(request, wire::stat);
        match read.await {
            Ok(_) => {}
            Err(Error::NoNode) => return Ok((None, watching)),
            Err(error) => return Err(error),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a single assignment: a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
