//! Elections as lines of ephemeral nodes, as Curator and kazoo hold them.
//!
//! An election is a node; its candidates are ephemeral, sequential nodes below it. Whoever has the lowest number leads,
//! everybody else watches the one before. What an election's own node says is whether it has ended.

mod administration;
mod entry;
mod line;
mod names;
mod root;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::Either;
use tenure::lease::record::Holder;
use tenure::queue::{
    Entry, Freshness, Gone, Joined, Left, Line, Pace, Session, SessionQueue, Ticket,
};
use tenure::{Fault, Key, StoreError};
use tokio::sync::watch;
use tokio::time::sleep;

use self::line::Whose;
pub use self::names::Recipe;
use self::root::Root;
use super::client::{Client, Error, Event, Watching};
use super::fault::{Kind, failed, unsent};
use super::wire::{self, Acl, Code, Lifetime, Request};

/// The pause after a watch could not be set, lest a server that always refuses be asked all the time.
const PAUSE: Duration = Duration::from_millis(50);

/// Lines of candidates in ZooKeeper.
pub struct ZookeeperQueue {
    client: Client,
    base: Arc<str>,
    recipe: Recipe,
    acl: Arc<[Acl]>,
    /// How long administration waits for others.
    request: Duration,
    leads: AtomicBool,
    /// Entries whose tenure was recorded as begun.
    begun: Mutex<HashSet<Arc<str>>>,
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
        }
    }

    /// The same, in one line with the candidates of another client.
    #[must_use]
    pub fn with_recipe(mut self, recipe: Recipe) -> ZookeeperQueue {
        self.recipe = recipe;
        self
    }

    /// The same, with nodes that these may use.
    #[must_use]
    pub fn with_acl(mut self, acl: Arc<[Acl]>) -> ZookeeperQueue {
        self.acl = acl;
        self
    }

    fn root(&self, election: &Key) -> Root {
        Root::of(&self.base, election)
    }

    /// Nothing is asked while there is no connection; for a moment one is waited for.
    async fn ready(&self, doing: impl FnOnce() -> String) -> Result<(), StoreError> {
        let ready = self.client.connected(self.request).await;
        ready.map_err(|error| failed(error, Kind::Read, doing()))
    }

    fn has_begun(&self, entry: &Entry) -> bool {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).contains(&entry.name)
    }

    fn note_begun(&self, entry: &Entry, begun: bool) {
        let mut entries = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun {
            entries.insert(entry.name.clone());
        } else {
            entries.remove(&entry.name);
        }
    }

    /// An entry that is gone, or whose fate is nobody's business any more.
    fn forget(&self, entry: &Entry) {
        self.note_begun(entry, false);
        self.client.stands(&entry.name, false);
        self.client.stands(without_number(&entry.name), false);
    }

    /// Watches an entry, unless it is gone.
    async fn watch_entry(&self, entry: &Entry) -> Result<Watching, Gone> {
        loop {
            self.client.up().await;
            // Not `exists`: that would leave a watch at a server on what never comes back.
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

    /// What the deletion of an entry says.
    ///
    /// A leader that ends its election marks that first and leaves then; whoever hears of both must not lead for a
    /// moment. Of the mark it has heard before, since events come in order: unless its election is known to have
    /// been open up to this one, it has to look.
    fn deleted(&self, entry: &Entry) -> Gone {
        let root = Root::of_entry(&entry.name);
        if self.client.owns(&entry.name) || self.client.is_unchanged(&root.path) {
            Gone::Deleted
        } else {
            Gone::Perhaps
        }
    }

    async fn delete(&self, entry: &Entry, clean: bool) -> Result<Left, Error> {
        if clean && self.has_begun(entry) {
            // While our entry stands, no later tenure can have begun: the record is ours.
            let root = Root::of_entry(&entry.name);
            let parts = vec![
                Request::Delete { path: entry.name.to_string(), version: -1 },
                Request::Delete { path: root.unclean(), version: -1 },
            ];
            match self.client.transaction(parts).await? {
                Ok(_) => return Ok(Left::Deleted),
                Err((0, Code::NoNode)) => return Ok(Left::Absent),
                // Somebody has deleted the record, and none of this was done.
                Err((_, Code::NoNode)) => {}
                Err((_, code)) => return Err(code.into()),
            }
        }
        match self.client.delete(&entry.name, None).await {
            Ok(()) => Ok(Left::Deleted),
            Err(Error::NoNode) => Ok(Left::Absent),
            Err(error) => Err(error),
        }
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
        let doing = || format!("joining the line of {}", root.path);
        let path = root.child(&self.recipe.name(ticket));
        let data = entry::encode(&holder.name, &holder.value);
        let (lifetime, acl) = (Lifetime::EphemeralSequential, self.acl.clone());
        let create = Request::Create { path: path.clone(), data, lifetime, acl };
        let (made, listed) = self.client.join(&root.path, create);
        let made = match made.await.unwrap_or(Err(Error::Lost)) {
            Ok(made) => made,
            Err(Error::NoNode) => {
                let session = self.client.session().borrow().number;
                return Ok(Joined { session, entry: None, line: Line::Missing });
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
            // ZooKeeper counts to 2^31 and goes on below zero: whoever came then would stand before everybody.
            let _ = self.delete(&entry, false).await;
            let says = "the numbers of this election's node are used up; end, delete and create it";
            return Err(StoreError::new(Fault::Permanent, "zookeeper", doing(), says));
        }
        let whose = Whose::Candidacy { ticket, own: Some((&entry, holder)) };
        // Made it is: whatever goes wrong from here on, a look must tell. (In a box of its own: thousands may join at
        // once, and most of them wait for the entry.)
        let line = Box::pin(self.read_line(&root, whose, Some(listed)))
            .await
            .map_err(|error| StoreError::new(Fault::Indeterminate, "zookeeper", doing(), error))?;
        Ok(Joined { session: made.session, entry: Some(entry), line })
    }

    async fn line(
        &self,
        election: &Key,
        ticket: &Ticket,
        freshness: Freshness,
    ) -> Result<Line, StoreError> {
        let root = self.root(election);
        let asked = self.client.list(&root.path, freshness == Freshness::Barrier);
        Box::pin(self.read_line(&root, Whose::Candidacy { ticket, own: None }, Some(asked))).await
    }

    async fn gone(&self, entry: &Entry) -> Gone {
        loop {
            // In a box of its own: thousands wait here, and each needs only the watch.
            let watching = match Box::pin(self.watch_entry(entry)).await {
                Ok(watching) => watching,
                Err(gone) => return gone,
            };
            match watching.event().await {
                Event::Deleted => return self.deleted(entry),
                // It publishes something else.
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
        let doing = || format!("recording the tenure of {}", entry.name);
        let fail = |error| failed(error, Kind::Write, doing());
        let path = Root::of_entry(&entry.name).unclean();
        let data = Bytes::from(entry.token.to_string());
        let stands = Request::Check { path: entry.name.to_string(), version: -1 };
        let replace = Request::SetData { path: path.clone(), data: data.clone(), version: -1 };
        let (lifetime, acl) = (Lifetime::Lasting, self.acl.clone());
        let create = Request::Create { path, data, lifetime, acl };
        // Which of the two does it is known only by trying; the other has no effect.
        for record in [replace, create] {
            match self.client.transaction(vec![stands.clone(), record]).await.map_err(fail)? {
                Ok(_) => {
                    self.note_begun(entry, true);
                    return Ok(());
                }
                Err((1, Code::NoNode | Code::NodeExists)) => {}
                Err((_, Code::NoNode)) => return Err(unsent(doing(), "the entry is gone")),
                Err((_, code)) => return Err(fail(code.into())),
            }
        }
        Err(unsent(doing(), "somebody else records one at this moment"))
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

    async fn look(&self, election: &Key) -> Result<Line, StoreError> {
        let root = self.root(election);
        self.ready(|| format!("looking at {}", root.path)).await?;
        self.read_line(&root, Whose::Everyone, None).await
    }

    async fn moved(&self, election: &Key, first: Option<&Entry>) {
        let root = self.root(election);
        self.client.up().await;
        let path = root.path.clone();
        let own = Request::Exists { path: path.clone(), watch: true };
        let (own, election_moves) = self.client.watch(own, wire::stat);
        let (line, line_moves) = match first {
            Some(first) => {
                let request = Request::Data { path: first.name.clone(), watch: true };
                let (read, watching) = self.client.watch(request, wire::data);
                let token = first.token;
                let same =
                    async move { read.await.map(|(_, stat)| root::number(stat.created) == token) };
                (Either::Left(same), watching)
            }
            None => {
                let request = Request::Children { path, watch: true };
                let (read, watching) = self.client.watch(request, wire::children);
                let empty = async move {
                    let (names, _) = read.await?;
                    Ok(!names.iter().any(|name| self.recipe.sequence(name).is_some()))
                };
                (Either::Right(empty), watching)
            }
        };
        match (own.await, line.await) {
            (Ok(_), Ok(true)) => {}
            // There is no line to watch as long as there is no election.
            (Err(Error::NoNode), Err(Error::NoNode)) if first.is_none() => {
                election_moves.event().await;
                return;
            }
            (Ok(_) | Err(_), Ok(_) | Err(_)) => return sleep(PAUSE).await,
        }
        tokio::select! {
            _ = election_moves.event() => {}
            _ = line_moves.event() => {}
        }
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.client.session()
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
