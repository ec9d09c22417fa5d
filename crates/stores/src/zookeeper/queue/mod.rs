//! Elections as queues of ephemeral nodes, in the format of Curator and kazoo.
//!
//! An election is a node, and its candidates are ephemeral, sequential nodes below it. The
//! candidate with the lowest number leads. Every other candidate watches the one before it. The
//! election's own node records if the election has ended.

mod administration;
mod entry;
mod names;
mod reading;
mod root;
mod tenures;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::Either;
use tenure::Key;
use tenure::protocol::Holder;
use tenure::queue::{
    Entry, Freshness, Gone, Joined, Left, Pace, Queue, Session, SessionQueue, Ticket,
};
use tenure::store::{Fault, StoreError};
use tokio::sync::watch;
use tokio::time::sleep;

pub use self::names::Recipe;
use self::reading::{Reading, Whose, has_session};
use self::root::Root;
use self::tenures::{Recorded, Tenure};
use super::client::{Client, Error, Event, Watching};
use super::fault::{Kind, failed};
use super::wire::{self, Acl, Lifetime, Request};

/// The pause after a watch could not be set, to spare a server that always refuses.
const PAUSE: Duration = Duration::from_millis(50);

/// The maximum number of nodes to warn of.
const MOST_WARNED: usize = 1024;

/// Queues of candidates in ZooKeeper.
pub struct ZookeeperQueue {
    client: Client,
    base: Arc<str>,
    recipe: Recipe,
    acl: Arc<[Acl]>,
    /// How long administration waits for others.
    request: Duration,
    leads: AtomicBool,
    /// Entries with a tenure that was recorded as begun, or may have been.
    begun: Mutex<HashMap<Arc<str>, Recorded>>,
    /// Nodes that a warning was logged for.
    warned: Mutex<HashSet<Arc<str>>>,
}

impl ZookeeperQueue {
    /// Elections under the node `base`, an absolute path, in this session.
    #[must_use]
    pub fn new(client: Client, base: &str, request: Duration) -> ZookeeperQueue {
        let base = base.trim_matches('/');
        ZookeeperQueue {
            client,
            base: if base.is_empty() { "".into() } else { format!("/{base}").into() },
            recipe: Recipe::default(),
            acl: Acl::open(),
            request,
            leads: AtomicBool::new(false),
            begun: Mutex::default(),
            warned: Mutex::default(),
        }
    }

    /// Sets the recipe, to share a queue with the candidates of another client.
    #[must_use]
    pub fn with_recipe(mut self, recipe: Recipe) -> ZookeeperQueue {
        self.recipe = recipe;
        self
    }

    /// Sets the ACL of the nodes that the queue creates.
    #[must_use]
    pub fn with_acl(mut self, acl: Arc<[Acl]>) -> ZookeeperQueue {
        self.acl = acl;
        self
    }

    fn root(&self, election: &Key) -> Root {
        Root::of(&self.base, election)
    }

    /// Waits for a connection, because nothing is sent without one.
    ///
    /// It waits no longer than the request's time.
    async fn ready(&self, doing: impl FnOnce() -> String) -> Result<(), StoreError> {
        let ready = self.client.connected(self.request).await;
        ready.map_err(|error| failed(error, Kind::Read, doing()))
    }

    fn known_of(&self, entry: &Entry) -> Option<Recorded> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).get(&entry.name).copied()
    }

    fn note_begun(&self, entry: &Entry, begun: Option<Recorded>) {
        let mut entries = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        match begun {
            Some(begun) => drop(entries.insert(entry.name.clone(), begun)),
            None => drop(entries.remove(&entry.name)),
        }
    }

    /// Returns true if this node has not been warned of yet, and remembers it.
    fn is_news(&self, node: &Arc<str>) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.len() < MOST_WARNED && warned.insert(node.clone())
    }

    /// Forgets an entry that is gone.
    fn forget(&self, entry: &Entry) {
        self.note_begun(entry, None);
        self.client.stands(&entry.name, false);
        self.client.stands(without_number(&entry.name), false);
    }

    /// Returns true if an entry's join was not answered, nor the entry seen since.
    fn is_in_doubt(&self, entry: &Entry) -> bool {
        self.client.owns(without_number(&entry.name)) && !self.client.owns(&entry.name)
    }

    /// Deletes an entry that must not stand, and returns true if it is gone.
    async fn retract(&self, entry: &Entry) -> bool {
        let gone = self.delete(entry, false).await.is_ok();
        if gone {
            self.forget(entry);
        }
        gone
    }

    /// Watches an entry, unless it is gone.
    async fn watch_entry(&self, entry: &Entry) -> Result<Watching, Gone> {
        loop {
            self.client.up().await;
            // Not `exists`: it would leave a watch on a node that never comes back.
            let request = Request::Data { path: entry.name.clone(), watch: true };
            let (read, watching) = self.client.watch(request, wire::data);
            match read.await {
                Ok((_, stat)) if root::number(stat.created) == entry.token => return Ok(watching),
                Ok(_) | Err(Error::NoNode) => return Err(self.deleted(entry)),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Watches an election's own node, unless this generation of it is over.
    async fn watch_root(&self, root: &Root, generation: u64) -> Option<Watching> {
        loop {
            self.client.up().await;
            let request = Request::Data { path: root.path.clone(), watch: true };
            let (read, watching) = self.client.watch(request, wire::data);
            match read.await {
                Ok((data, stat)) => {
                    if root::generation(&stat) != generation || root::has_ended(&data, &stat) {
                        return None;
                    }
                    self.client.confirm(&root.path, &watching);
                    return Some(watching);
                }
                Err(Error::NoNode) => return None,
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// The meaning of an entry's deletion.
    ///
    /// A leader that ends its election first marks the election as ended, and then leaves. The next
    /// candidate must not lead for a moment in between. Events come in order, so the mark's event
    /// comes before the deletion's. Unless the election is known to have been open up to this
    /// event, the candidate has to look.
    fn deleted(&self, entry: &Entry) -> Gone {
        let root = Root::of_entry(&self.base, &entry.name);
        if self.client.is_unchanged(&root.path) { Gone::Deleted } else { Gone::DeletedMaybeEnded }
    }
}

#[async_trait]
impl SessionQueue for ZookeeperQueue {
    async fn join(
        &self,
        election: &Key,
        ticket: &Ticket,
        holder: &Arc<Holder>,
    ) -> Result<Joined, StoreError> {
        let root = self.root(election);
        let doing = || format!("joining the queue of {}", root.path);
        let path = root.child(&self.recipe.name(ticket));
        let data = entry::encode(&holder.name, &holder.value);
        let (lifetime, acl) = (Lifetime::EphemeralSequential, self.acl.clone());
        let create = Request::Create { path: path.clone(), data, lifetime, acl };
        let (made, listed) = self.client.join(&root.path, create);
        let reading = Reading { listed, tenure: self.client.data(&root.tenure) };
        let made = match made.await.unwrap_or(Err(Error::Lost)) {
            Ok(made) => made,
            Err(Error::NoNode) => {
                let session = self.client.session().borrow().number;
                return Ok(Joined { session, entry: None, queue: Queue::Missing });
            }
            Err(error) => {
                let error = failed(error, Kind::Write, doing());
                if error.fault == Fault::Indeterminate {
                    self.client.stands(&path, true);
                }
                return Err(error);
            }
        };
        self.client.stands(&made.path, true);
        let entry = Entry { name: made.path.into(), token: root::number(made.stat.created) };
        if self.recipe.sequence(&entry.name).is_none() {
            // ZooKeeper counts to 2^31 and goes on below zero: the next candidate would stand
            // before all others.
            let _ = self.delete(&entry, false).await;
            let says = "the numbers of this election's node are used up; end, delete and create it";
            return Err(StoreError::new(Fault::Permanent, "zookeeper", doing(), says));
        }
        let whose = Whose::Candidacy { ticket, own: Some((&entry, holder)) };
        // Boxed, because thousands may join at once, and most of them wait for the entry.
        let error = match Box::pin(self.read_queue(&root, whose, Some(reading))).await {
            Ok(queue) => return Ok(Joined { session: made.session, entry: Some(entry), queue }),
            Err(error) => error,
        };
        let refused = matches!(error.fault, Fault::Permanent | Fault::Denied);
        if refused && self.retract(&entry).await {
            // The entry may not stand here, and no longer does.
            return Err(error);
        }
        // The entry was made. After any later failure, only a look at the queue can tell its state.
        self.client.stands(&path, true);
        self.client.stands(&entry.name, false);
        Err(StoreError::new(Fault::Indeterminate, "zookeeper", doing(), error))
    }

    async fn read(
        &self,
        election: &Key,
        ticket: &Ticket,
        freshness: Freshness,
    ) -> Result<Queue, StoreError> {
        let root = self.root(election);
        let asked = self.ask_queue(&root, freshness == Freshness::Barrier);
        Box::pin(self.read_queue(&root, Whose::Candidacy { ticket, own: None }, Some(asked))).await
    }

    async fn gone(&self, entry: &Entry) -> Gone {
        loop {
            // Boxed, because thousands wait here, and each needs only the watch.
            let watching = match Box::pin(self.watch_entry(entry)).await {
                Ok(watching) => watching,
                Err(gone) => return gone,
            };
            match watching.event().await {
                Event::Deleted => return self.deleted(entry),
                // The candidate publishes another value.
                Event::Changed | Event::Created => return Gone::Perhaps,
                Event::Lost => {}
            }
        }
    }

    async fn ended(&self, election: &Key, generation: u64) {
        let root = self.root(election);
        while let Some(watching) = Box::pin(self.watch_root(&root, generation)).await {
            watching.event().await;
        }
    }

    async fn begin(&self, entry: &Entry) -> Result<(), StoreError> {
        let before = self.known_of(entry);
        self.note_begun(entry, Some(Recorded::Perhaps));
        let recorded = self.record(entry, Tenure::Begun(entry.token)).await;
        match &recorded {
            Ok(()) => self.note_begun(entry, Some(Recorded::Known)),
            Err(error) if error.fault == Fault::Indeterminate => {}
            Err(_) => self.note_begun(entry, before),
        }
        recorded
    }

    async fn note(&self, entry: &Entry) -> Result<(), StoreError> {
        self.record(entry, Tenure::Led(entry.token)).await
    }

    async fn leave(&self, entry: &Entry, clean: bool) -> Result<Left, StoreError> {
        let left = self
            .delete(entry, clean)
            .await
            .map_err(|error| failed(error, Kind::Write, format!("leaving {}", entry.name)))?;
        self.forget(entry);
        Ok(left)
    }

    async fn publish(&self, entry: &Entry, value: &Bytes) -> Result<(), StoreError> {
        let fail = |error, kind| failed(error, kind, format!("publishing at {}", entry.name));
        let read = self.client.data(&entry.name).await;
        let (data, stat) = read.map_err(|error| fail(error, Kind::Read))?;
        let node = entry.name.rsplit('/').next().unwrap_or_default();
        let holder = entry::decode(self.recipe.owner(node), node, &data);
        let data = entry::encode(&holder.name, value);
        let written = self.client.set_data(&entry.name, data, Some(stat.version)).await;
        written.map(drop).map_err(|error| fail(error, Kind::Write))
    }

    async fn create(&self, election: &Key) -> Result<u64, StoreError> {
        let root = self.root(election);
        self.ready(|| format!("creating {}", root.path)).await?;
        self.make(&root).await
    }

    async fn end(&self, election: &Key, generation: u64) -> Result<(), StoreError> {
        let root = self.root(election);
        self.ready(|| format!("ending {}", root.path)).await?;
        self.finish(&root, generation).await
    }

    async fn remove(&self, election: &Key) -> Result<bool, StoreError> {
        let root = self.root(election);
        self.ready(|| format!("removing {}", root.path)).await?;
        self.clear(&root).await
    }

    async fn look(&self, election: &Key, freshness: Freshness) -> Result<Queue, StoreError> {
        let root = self.root(election);
        self.ready(|| format!("looking at {}", root.path)).await?;
        let asked = self.ask_queue(&root, freshness == Freshness::Barrier);
        self.read_queue(&root, Whose::Everyone, Some(asked)).await
    }

    async fn survey(&self, election: &Key) -> Result<Queue, StoreError> {
        let root = self.root(election);
        self.ready(|| format!("looking at {}", root.path)).await?;
        self.survey_queue(&root).await
    }

    async fn moved(&self, election: &Key, first: Option<&Entry>) {
        let root = self.root(election);
        self.client.up().await;
        let path = root.path.clone();
        let own = Request::Exists { path: path.clone(), watch: true };
        let (own, election_moves) = self.client.watch(own, wire::stat);
        let (queue, queue_moves) = match first {
            Some(first) => {
                let request = Request::Data { path: first.name.clone(), watch: true };
                let (read, watching) = self.client.watch(request, wire::data);
                let token = first.token;
                let same =
                    async move { read.await.map(|(_, stat)| root::number(stat.created) == token) };
                (Either::Left(same), watching)
            }
            None => {
                let request = Request::Children { path: path.clone(), watch: true };
                let (read, watching) = self.client.watch(request, wire::children);
                let data = self.client.data(&path);
                let empty = async move {
                    let ((names, _), (data, _)) = (read.await?, data.await?);
                    let recipe = root::recorded(&data).unwrap_or_else(|| self.recipe.clone());
                    for name in names.iter().filter(|name| recipe.sequence(name).is_some()) {
                        match self.client.exists(&root.child(name)).await {
                            Ok(stat) if has_session(&stat) => return Ok(false),
                            // It is no candidate, or has left already.
                            Ok(_) | Err(Error::NoNode) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    Ok(true)
                };
                (Either::Right(empty), watching)
            }
        };
        match (own.await, queue.await) {
            (Ok(_), Ok(true)) => {}
            // There is no queue to watch while there is no election.
            (Err(Error::NoNode), Err(Error::NoNode)) if first.is_none() => {
                election_moves.event().await;
                return;
            }
            (Ok(_) | Err(_), Ok(_) | Err(_)) => return sleep(PAUSE).await,
        }
        tokio::select! {
            _ = election_moves.event() => {}
            _ = queue_moves.event() => {}
        }
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.client.session()
    }

    fn trouble(&self) -> Option<StoreError> {
        // Without a session there is no connection, and every request reports that.
        None
    }

    fn pace(&self, pace: Pace) {
        let leads = pace == Pace::Leading;
        if self.leads.swap(leads, Ordering::AcqRel) != leads {
            self.client.leads(leads);
        }
    }
}

impl Drop for ZookeeperQueue {
    fn drop(&mut self) {
        if self.leads.load(Ordering::Acquire) {
            self.client.leads(false);
        }
    }
}

impl fmt::Debug for ZookeeperQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperQueue")
            .field("base", &self.base)
            .field("recipe", &self.recipe)
            .finish_non_exhaustive()
    }
}

/// The name under which an entry was asked for.
fn without_number(name: &str) -> &str {
    name.get(..name.len().saturating_sub(10)).unwrap_or(name)
}
