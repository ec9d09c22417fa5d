//! Reading and changing the documents of one cluster.

use std::time::Duration;

use bytes::Bytes;
use tenure::lease::record::Op;
use tenure::store::{
    Document, Durability, Expect, Fault, Put, Reads, Store, StoreError, StoreExt, Version, Write,
};
use tenure::{Backend, Key, Name, Timing};

use super::documents::{ClusterConfig, DocumentError, Format, Keys, WakeUp};
use crate::error::ClusterError;

/// How many conflicts or lost answers a change may meet before it is given up.
const MOST_ATTEMPTS: u32 = 64;

/// The documents of one cluster, and the operations that need no membership.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure_cluster::ClusterError> {
/// use tenure::Backend;
/// use tenure_cluster::{ClusterClient, Order};
/// let client = ClusterClient::open(&Backend::memory(), "thumbnails")?;
/// client.submit(vec![Order::new("cat.jpg", "shrink", "cat.jpg")]).await?;
/// assert!(client.totals().await?.waiting);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ClusterClient {
    /// Without a queue: the locks of a cluster are always leases.
    pub(super) backend: Backend,
    pub(super) name: Name,
    pub(super) keys: Keys,
    pub(super) timing: Timing,
}

/// The result of reading one key.
#[derive(Clone, Debug)]
pub enum Shown {
    /// The document at the key, or `None` if there is none.
    Document(Option<Document>),
    /// The store refuses to show it: it is far too large, or no document at all.
    Refused,
}

impl Shown {
    pub(super) fn document(self) -> Option<Document> {
        match self {
            Shown::Document(document) => document,
            Shown::Refused => None,
        }
    }

    /// Decodes the document, if there is one.
    pub(super) fn decode<T: Format>(self) -> Option<Found<T>> {
        match self {
            Shown::Document(document) => {
                let Document { version, body } = document?;
                Some(Found { version, content: T::decode(&body) })
            }
            // No write at this version succeeds.
            Shown::Refused => {
                let content = Err(DocumentError::refused(T::WHAT));
                Some(Found { version: Version::new("refused"), content })
            }
        }
    }
}

/// A document as it was found.
#[derive(Clone, Debug)]
pub(super) struct Found<T> {
    pub(super) version: Version,
    /// The decoded content, or the reason why it makes no sense.
    pub(super) content: Result<T, DocumentError>,
}

impl ClusterClient {
    /// Opens the documents of the cluster of this name.
    ///
    /// Nothing is read or written yet.
    ///
    /// # Errors
    /// [`ClusterError::Name`] when the name is refused; it has at most five segments.
    pub fn open(backend: &Backend, name: &str) -> Result<ClusterClient, ClusterError> {
        let backend = match backend.queue() {
            Some(_) => backend.clone().without_queue(),
            None => backend.clone(),
        };
        let (name, keys) = (Name::parse(name)?, Keys::new(name)?);
        Ok(ClusterClient { backend, name, keys, timing: Timing::default() })
    }

    /// Sets the times of polling and of locks.
    ///
    /// They decide how often to look where the store does not notify of changes, and how long the
    /// locks of tasks last.
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> ClusterClient {
        ClusterClient { timing, ..self }
    }

    /// The name of the cluster.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The keys of the cluster's documents.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(super) fn store(&self) -> &dyn Store {
        &**self.backend.store()
    }

    pub(super) fn is_weak(&self) -> bool {
        self.store().reads() == Reads::Weak
    }

    pub(super) fn fresh_op(&self) -> Op {
        self.backend.fresh_op()
    }

    /// Milliseconds since 1970. Only people read it.
    pub(super) fn wall(&self) -> u64 {
        self.backend.clock().wall()
    }

    pub(super) async fn sleep(&self, span: Duration) {
        let clock = self.backend.clock();
        clock.timer().until(clock.now() + span).await;
    }

    /// How long to wait for a notification before looking again.
    pub(super) fn poll(&self) -> Duration {
        self.timing.poll(self.store().notifies())
    }

    /// Waits until the document may have changed, but at most for `span`.
    pub(super) async fn wait_for(&self, key: &Key, seen: Option<&Version>, span: Duration) {
        tokio::select! {
            () = self.store().changed(key, seen) => {}
            () = self.sleep(span) => {}
        }
    }

    /// The number of slots to look at; 0 before the first leader.
    pub(super) async fn slots(&self) -> Result<usize, ClusterError> {
        let cluster_config = self.read::<ClusterConfig>(&self.keys.cluster_config()).await?;
        Ok(cluster_config.map_or(0, |(_, cluster_config)| cluster_config.slots))
    }

    /// Reads all keys. One document that the store refuses to show does not hide the others.
    pub(super) async fn look_at(&self, keys: &[Key]) -> Result<Vec<Shown>, StoreError> {
        match self.store().get_many(keys).await {
            Ok(documents) => return Ok(documents.into_iter().map(Shown::Document).collect()),
            Err(error) if error.fault != Fault::Permanent => return Err(error),
            Err(_) => {}
        }
        let mut shown = Vec::with_capacity(keys.len());
        for key in keys {
            shown.push(match self.store().get(key).await {
                Ok(document) => Shown::Document(document),
                Err(error) if error.fault == Fault::Permanent => {
                    tracing::debug!(%key, %error, "a document cannot be read, and is left alone");
                    Shown::Refused
                }
                Err(error) => return Err(error),
            });
        }
        Ok(shown)
    }

    pub(super) async fn find_many<T: Format>(
        &self,
        keys: &[Key],
    ) -> Result<Vec<Option<Found<T>>>, ClusterError> {
        Ok(self.look_at(keys).await?.into_iter().map(Shown::decode).collect())
    }

    /// Reads a document that must make sense.
    pub(super) async fn read<T: Format>(
        &self,
        key: &Key,
    ) -> Result<Option<(Version, T)>, ClusterError> {
        let Some(document) = self.store().get(key).await? else { return Ok(None) };
        let content = T::decode(&document.body)
            .map_err(|source| ClusterError::Document { key: key.clone(), source })?;
        Ok(Some((document.version, content)))
    }

    /// Changes a document, and retries until the change is in the store.
    ///
    /// `change` gets the current content and an op, and returns the new content under that op, or
    /// `None` to leave the document as it is. It may be called several times, because other
    /// processes write too. Returns the content that was written, or that `change` left as it was.
    /// If the answer to a write is lost, the op in the document shows that the write took effect.
    pub(super) async fn update<T: Format>(
        &self,
        key: &Key,
        op_of: fn(&T) -> &Op,
        mut change: impl FnMut(Option<&T>, Op) -> Result<Option<T>, ClusterError>,
    ) -> Result<Option<T>, ClusterError> {
        let mut sent: Vec<Op> = Vec::new();
        for _ in 0..MOST_ATTEMPTS {
            let found = self.read::<T>(key).await?;
            let is_mine = found.as_ref().is_some_and(|(_, found)| sent.contains(op_of(found)));
            if is_mine && !self.is_weak() {
                return Ok(found.map(|(_, found)| found));
            }
            let op = self.fresh_op();
            let (expect, before) = match &found {
                Some((version, found)) => (Expect::At(version.clone()), Some(found)),
                None => (Expect::Absent, None),
            };
            let Some(after) = change(before, op.clone())? else {
                return Ok(found.map(|(_, found)| found));
            };
            let body = encoded(key, &after)?;
            sent.push(op);
            match self.store().put(key, expect, body).await {
                Ok(Put::Stored(_)) => return Ok(Some(after)),
                Ok(Put::Conflict) => {}
                Err(error) if error.fault == Fault::Indeterminate => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ClusterError::Contended { attempts: MOST_ATTEMPTS })
    }

    /// Wakes the leader.
    ///
    /// This is a hint: the leader looks by itself sooner or later, so a failure is only logged.
    pub(super) async fn call_leader(&self) {
        if let Err(error) = self.ring(&self.keys.leader_wake_up()).await {
            tracing::debug!(cluster = %self.name, %error, "the leader could not be called");
        }
    }

    /// Changes a wake-up document, to wake the processes that wait on it.
    ///
    /// A conflict is fine: another process changed it meanwhile.
    pub(super) async fn ring(&self, wake_up: &Key) -> Result<(), ClusterError> {
        let (expect, rung) = match self.store().get(wake_up).await? {
            Some(document) => {
                let rung = WakeUp::decode(&document.body).map_or(0, |wake_up| wake_up.rung);
                (Expect::At(document.version), rung)
            }
            None => (Expect::Absent, 0),
        };
        let body = Some(WakeUp { rung: rung + 1, op: self.fresh_op() }.encode());
        let durability = Durability::UntilPowerCut;
        let write = Write { key: wake_up.clone(), expect, body, durability };
        let _: Put = self.store().put_one(write).await?;
        Ok(())
    }
}

/// Encodes a document for this key, unless a later read would refuse it.
///
/// That can only happen if a number was already at its limit, which a person put there by hand.
///
/// # Errors
/// [`ClusterError::Document`] names the field.
pub(super) fn encoded<T: Format>(key: &Key, content: &T) -> Result<Bytes, ClusterError> {
    content.check().map_err(|source| ClusterError::Document { key: key.clone(), source })?;
    Ok(content.encode())
}
