//! A leader feed: leadership on a table, combined with the changes of that table.
//!
//! Every process of a fleet follows the same table. One of them leads, and all of them hear of the
//! table's changes and of new leaders:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::feed::FeedError> {
//! use std::sync::Arc;
//! use futures_util::StreamExt;
//! use tenure::Backend;
//! use tenure::feed::{Event, Feed, MemoryFeed, State};
//!
//! let backend = Backend::memory().with_feed(Arc::new(MemoryFeed::new())); // or MongoDB, RethinkDB
//! let feed = Feed::builder(&backend).id("host-a").table("orders").build()?;
//! let mut events = feed.events();
//! feed.start().await?;
//! while let Some(event) = events.next().await {
//!     match event {
//!         Event::NewState(State::Leader) => {
//!             let Some(working) = feed.working() else { continue };
//!             let token = working.mandate().token();
//!             working.scope(async { println!("leading under token {token}") }).await?;
//!             break;
//!         }
//!         Event::Change(change) => println!("{change}"),
//!         _ => {}
//!     }
//! }
//! feed.stop().await;
//! # Ok(()) }
//! ```
//!
//! # Who leads
//! All feeds start as followers. A record in the table names the leader, and the leader writes it
//! again at each heartbeat. A follower that sees no heartbeat for its election time-out elects
//! itself: it replaces that very record by a compare-and-set with a higher token, and reports
//! itself as leader only when the write has been committed. It is the lease protocol of
//! [`lease`](crate::lease), with its promises: one leader at a time, tokens that rise, and work
//! that is told to stop before its lease can end. The database's changes are only wake-ups; they
//! prove nothing.
//!
//! A follower that can no longer follow the table is deaf: it would elect itself over a healthy
//! leader. So when the subscription of a feed fails, the feed becomes a follower, gives up its
//! leadership, and stands again when its subscription is back.
//!
//! # Time-outs
//! A leader writes its `election_timeout_min` into the record as its `ttl`, and counts its own
//! window from it. Every other feed waits that ttl, regardless of its own settings. It adds a
//! random time between zero and the difference of *its* two time-outs, drawn anew for each
//! heartbeat it sees. Feeds of a table may therefore differ in all settings.
//!
//! # Bring another database
//! Implement [`FeedStore`]; docs/adding-a-feed.md shows how, and [`MemoryFeed`] is the example.

mod error;
mod event;
mod leader;
mod memory;
mod record;
mod run;
mod settings;
mod work;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::backend::Backend;
use crate::candidate::Candidate;
use crate::mandate::Tenure;
use crate::protocol::Loss;
use crate::store::{Fault, StoreError};
use crate::{Election, Error, Mandate, Timing};
use event::Teller;
use leader::LeaderStore;
use run::{Order, Run};
use work::Work;

pub use crate::store::feed::{
    Beat, Cursor, FeedStore, Fields, Found, Handle, Item, LEADER, Origin, Subscription, is_metadata,
};
pub use error::FeedError;
pub use event::{Event, Events, State};
pub use memory::{MemoryFeed, Table};
pub use settings::{Builder, FeedTimingError, Intervals};
pub use work::Working;

/// The time limit for a backend that does not end its calls. Every backend should end a call within
/// its own, far shorter, time-out.
const LONGEST_CALL: Duration = Duration::from_secs(30);

/// One process's part in a leader feed.
///
/// Dropping it revokes its mandates at once and leaves in the background.
pub struct Feed {
    shared: Arc<Shared>,
    running: tokio::sync::Mutex<Option<Running>>,
}

struct Shared {
    id: String,
    candidate: Candidate,
    table: String,
    timing: Timing,
    create: bool,
    from_start: bool,
    teller: Arc<Teller>,
    backend: Mutex<Backend>,
    /// The tenure of this feed, until its work has ended.
    tenure: Mutex<Option<Arc<Tenure>>>,
    work: Arc<Work>,
    /// The reason why the feed stopped by itself.
    failure: watch::Sender<Option<Error>>,
}

/// A feed that was started.
struct Running {
    orders: mpsc::Sender<Order>,
    store: Arc<LeaderStore>,
    task: JoinHandle<()>,
}

impl Feed {
    /// A builder for a feed on this backend.
    pub fn builder(backend: &Backend) -> Builder {
        Builder::new(backend)
    }

    /// The id of this feed.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// The name of its table.
    #[must_use]
    pub fn table_name(&self) -> &str {
        &self.shared.table
    }

    /// The times of its lease.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.shared.timing
    }

    /// Every event from now on, across all starts and stops of the feed.
    #[must_use]
    pub fn events(&self) -> Events {
        self.shared.teller.events()
    }

    /// Starts: creates a missing table, follows it, and stands.
    ///
    /// A feed that is already started stays so.
    ///
    /// # Errors
    /// The error of the database. Nothing is left behind, and the feed may be started again.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst the table has been created.
    pub async fn start(&self) -> Result<(), FeedError> {
        let mut running = self.running.lock().await;
        if running.as_ref().is_some_and(|running| !running.task.is_finished()) {
            return Ok(());
        }
        let started = self.shared.clone().start().await?;
        *running = Some(started);
        Ok(())
    }

    /// Starts on another backend, such as a connection of the caller. A running feed stops first.
    ///
    /// # Errors
    /// As for [`Feed::start`].
    ///
    /// # Cancel safety
    /// Cancel safe: at worst it is stopped.
    pub async fn start_on(&self, backend: &Backend) -> Result<(), FeedError> {
        self.stop().await;
        *self.shared.lock_backend() = backend.clone();
        self.start().await
    }

    /// Stops: waits until the leader's work has ended, frees the record, and leaves.
    ///
    /// When it returns, this feed is a follower and has reported so. All other work is told to stop
    /// by its mandate. A feed that is not started is left as it is.
    ///
    /// # Cancel safety
    /// Cancel safe: it goes on stopping in the background.
    pub async fn stop(&self) {
        let mut running = self.running.lock().await;
        let Some(run) = running.as_mut() else { return };
        // An error means that the feed has stopped by itself.
        let _ = run.orders.send(Order::Stop).await;
        if let Err(error) = (&mut run.task).await {
            tracing::error!(%error, "the feed's task failed");
        }
        *running = None;
    }

    /// Stops, and starts again.
    ///
    /// # Errors
    /// As for [`Feed::start`].
    ///
    /// # Cancel safety
    /// Cancel safe: at worst it is stopped.
    pub async fn restart(&self) -> Result<(), FeedError> {
        self.stop().await;
        self.start().await
    }

    /// Hands the leadership to the feed with this id.
    ///
    /// Returns `false` when no feed of that id takes part.
    ///
    /// The leader first stops its work and then frees the record for that feed. All other feeds
    /// hold back for half a ttl. Any feed may call this. `true` means that the leader has handed
    /// over, or has been asked to.
    ///
    /// # Errors
    /// [`FeedError::NotStarted`] when this feed is not started, and any error of the database.
    ///
    /// # Cancel safety
    /// Not cancel safe: after dropping the future, the leader may or may not have been asked.
    pub async fn elect(&self, id: &str) -> Result<bool, FeedError> {
        let (store, orders) = {
            let running = self.running.lock().await;
            let running = running.as_ref().filter(|running| !running.task.is_finished());
            let running = running.ok_or(FeedError::NotStarted)?;
            (running.store.clone(), running.orders.clone())
        };
        if !within("looking for a feed", store.is_registered(id)).await? {
            return Ok(false);
        }
        if self.is_leader() {
            if id == self.shared.id {
                return Ok(true);
            }
            let (done, handed_over) = oneshot::channel();
            let order = Order::HandOver { to: id.to_owned(), done };
            if orders.send(order).await.is_ok() && handed_over.await == Ok(true) {
                return Ok(true);
            }
        }
        store.ask_for(id).await?;
        Ok(true)
    }

    /// Returns true if this feed leads and its work need not stop yet. No I/O.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.mandate().is_some()
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> State {
        if self.is_leader() { State::Leader } else { State::Follower }
    }

    /// The right to act as leader, with its token, while this feed leads.
    #[must_use]
    pub fn mandate(&self) -> Option<Mandate> {
        let tenure = self.shared.lock_tenure().clone()?;
        Some(tenure.mandate()).filter(|mandate| mandate.must_stop().is_none())
    }

    /// Declares that work as leader goes on until the guard is dropped.
    ///
    /// Returns `None` when this feed does not lead.
    #[must_use]
    pub fn working(&self) -> Option<Working> {
        let tenure = self.shared.lock_tenure().clone()?;
        // Count first, then check the mandate. The side that stops us does the opposite: it stops
        // the tenure first, and then reads the count.
        let working = self.shared.work.begin(tenure.mandate());
        working.mandate().must_stop().is_none().then_some(working)
    }

    /// Resolves with the reason when the feed has stopped by itself.
    ///
    /// Its record was deleted, or the database refuses for good. The feed may be started again.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn failed(&self) -> Error {
        let mut failure = self.shared.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(error) => error.clone().unwrap_or(Error::Stopped),
            // The sender is ours.
            Err(_) => Error::Stopped,
        }
    }

    /// The driver's own client or connection, if it is of this type.
    #[must_use]
    pub fn connection<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.handle(Handle::Connection)
    }

    /// The driver's own handle of the database, if it is of this type.
    #[must_use]
    pub fn database<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.handle(Handle::Database)
    }

    /// The driver's own handle of the table, if it is of this type.
    #[must_use]
    pub fn table<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.handle(Handle::Table)
    }

    /// The same as [`Feed::table`], for databases that call it a collection.
    #[must_use]
    pub fn collection<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.table()
    }

    fn handle<T: Any + Send + Sync>(&self, handle: Handle) -> Option<Arc<T>> {
        let backend = self.shared.lock_backend().clone();
        backend.feed()?.handle(&self.shared.table, handle)?.downcast().ok()
    }
}

impl Shared {
    async fn start(self: Arc<Shared>) -> Result<Running, FeedError> {
        let backend = self.lock_backend().clone();
        let feed = backend.feed().cloned().ok_or(FeedError::NoFeed)?;
        if self.create {
            within("creating the table", feed.create(&self.table)).await?;
        }
        within("starting on the table", feed.start(&self.table)).await?;
        let from = if self.from_start { Origin::Start } else { Origin::Now };
        let subscription = within("following the table", feed.subscribe(&self.table, from)).await?;
        let hearing = watch::Sender::new(true);
        let store = Arc::new(LeaderStore::new(
            feed.clone(),
            self.table.clone(),
            self.id.clone(),
            backend.parts().clone(),
            self.teller.clone(),
            hearing.subscribe(),
        ));
        let private = backend.on_store(store.clone());
        let election = Election::builder(&private, LEADER).timing(self.timing).build()?;
        self.failure.send_replace(None);
        self.teller.tell(Event::SubscribeStarted);
        self.teller.tell(Event::NewState(State::Follower));
        let (orders, received) = mpsc::channel(16);
        let run = Run::new(self, feed, store.clone(), private, election, received, hearing);
        let task = tokio::spawn(run.run(subscription));
        Ok(Running { orders, store, task })
    }

    fn lock_backend(&self) -> MutexGuard<'_, Backend> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_tenure(&self) -> MutexGuard<'_, Option<Arc<Tenure>>> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // The mandates end here. The task notices that no orders can come any more, and leaves.
        if let Some(tenure) = &*self.shared.lock_tenure() {
            tenure.close(Loss::Resigned);
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("id", &self.shared.id)
            .field("table", &self.shared.table)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// The answer of a call, or an error if it takes too long.
async fn within<T>(
    doing: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(LONGEST_CALL, call).await.unwrap_or_else(|_| {
        let says = "the backend did not end its call";
        Err(StoreError::new(Fault::Unavailable, "feed", doing, says))
    })
}
