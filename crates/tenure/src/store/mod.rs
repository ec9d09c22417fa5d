//! Versioned documents: the least that a backend must offer.

pub mod feed;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Key;

/// The largest document a store must hold, and the largest that is ever parsed.
pub const MAX_DOCUMENT_BYTES: usize = 64 * 1024;

/// A backend's own name for one revision of one document.
///
/// It is opaque: only equality has a meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(Arc<str>);

impl Version {
    /// Wraps the backend's name for this revision.
    pub fn new(name: impl Into<Arc<str>>) -> Version {
        Version(name.into())
    }

    /// The backend's name for this revision.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A document as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The revision that was read.
    pub version: Version,
    /// Its content.
    pub body: Bytes,
}

/// The condition for a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expect {
    /// No document has this key.
    Absent,
    /// The document is at this version.
    At(Version),
}

/// How a conditional write ended. Losing a race is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Put {
    /// Written; the document is now at this version. (After a deletion the version means nothing.)
    Stored(Version),
    /// The expectation did not hold; nothing was written.
    Conflict,
}

/// How far a read of this store can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reads {
    /// It shows every write acknowledged before it was sent, and only writes that last.
    Linearizable,
    /// A read proves nothing.
    ///
    /// It may be old, or show a write that never commits (an isolated Elasticsearch primary).
    Weak,
}

/// How lasting a write must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut, once it was acknowledged. For writes that raise a token or end an
    /// election.
    Lasting,
    /// It survives only the death of processes. For a renewal or a release: a store on the machine
    /// of its users may lose such a write in a power cut and show the last lasting document again,
    /// because that power cut ended every leader too. Stores on other machines make no difference.
    UntilPowerCut,
}

/// One conditional write; without a body, a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key of the document.
    pub key: Key,
    /// The condition for the write.
    pub expect: Expect,
    /// The new content.
    pub body: Option<Bytes>,
    /// How lasting the write must be once it is acknowledged.
    pub durability: Durability,
}

/// Some of the documents under a prefix, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The documents.
    pub documents: Vec<(Key, Document)>,
    /// The key to go on after, when there may be more.
    pub next: Option<Key>,
}

/// Versioned documents with compare-and-set.
///
/// # What every backend promises
/// 1. An acknowledged write is atomic and linearizable per key. Reads prove as much as
///    [`Store::reads`] says.
/// 2. Bodies that differ never share a [`Version`]. (Equal bodies may: an S3 ETag is a hash. The
///    lease protocol therefore writes a fresh nonce each time.)
/// 3. No call is retried inside a backend once it may have taken effect; that is reported as
///    [`Fault::Indeterminate`]. A blind retry turns one's own success into a conflict.
/// 4. Every call ends within the request time-out the backend was built with.
/// 5. A body over [`MAX_DOCUMENT_BYTES`] is refused as [`Fault::Permanent`], and a stored one is
///    never read whole when it is larger than that.
///
/// There are no default methods: a wrapper that forgot to forward one would compile.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// How far a read can be trusted.
    fn reads(&self) -> Reads;

    /// Returns true if live notifications serve [`Store::changed`] at the moment.
    ///
    /// With notifications, followers poll rarely; without them, every second or so.
    fn notifies(&self) -> bool;

    /// Returns true if a document that an operator deletes by hand is gone for good.
    ///
    /// If so, elections keep a second document beside each record: its
    /// [floor](crate::lease::floor). A store that restores such documents by itself returns
    /// `false`.
    fn forgets_deleted(&self) -> bool;

    /// Reads documents, in the order asked for; `None` where there is none.
    ///
    /// # Errors
    /// [`StoreError`] when not all of them could be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError>;

    /// Carries out writes that do not depend on each other, each with its own outcome.
    ///
    /// No two of them have the same key. There are as many outcomes as writes, in their order.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves every outcome indeterminate.
    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>>;

    /// Up to `limit` documents strictly under `prefix`, after `after`, in key order.
    ///
    /// They may be stale.
    ///
    /// # Errors
    /// [`StoreError`] when the page could not be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError>;

    /// Resolves when the document may no longer be at `seen` (`None`: absent).
    ///
    /// A hint, level-triggered: it may wake early, and a store without notifications never
    /// wakes (`std::future::pending().await`). The caller always sets its own timer and re-reads.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, because `seen` says where to resume.
    async fn changed(&self, key: &Key, seen: Option<&Version>);
}

/// Calls for one document, implemented on top of the batch calls.
#[async_trait]
pub trait StoreExt {
    /// Reads one document.
    ///
    /// # Errors
    /// [`StoreError`] when it could not be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn get(&self, key: &Key) -> Result<Option<Document>, StoreError>;

    /// Carries out one write.
    ///
    /// # Errors
    /// [`StoreError`]; look at its [`Fault`] before you try again.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves the outcome indeterminate.
    async fn put_one(&self, write: Write) -> Result<Put, StoreError>;

    /// Writes one document, lasting.
    ///
    /// # Errors
    /// [`StoreError`]; look at its [`Fault`] before you try again.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves the outcome indeterminate.
    async fn put(&self, key: &Key, expect: Expect, body: Bytes) -> Result<Put, StoreError>;

    /// Deletes one document that is at this version.
    ///
    /// # Errors
    /// [`StoreError`]; look at its [`Fault`] before you try again.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves the outcome indeterminate.
    async fn delete(&self, key: &Key, version: Version) -> Result<Put, StoreError>;
}

#[async_trait]
impl<S: Store + ?Sized> StoreExt for S {
    async fn get(&self, key: &Key) -> Result<Option<Document>, StoreError> {
        let documents = self.get_many(std::slice::from_ref(key)).await?;
        Ok(documents.into_iter().next().flatten())
    }

    async fn put_one(&self, write: Write) -> Result<Put, StoreError> {
        let doing = format!("writing {}", write.key);
        let outcome = self.put_many(vec![write]).await.into_iter().next();
        outcome.unwrap_or_else(|| {
            let says = "the backend gave no outcome";
            Err(StoreError::new(Fault::Indeterminate, "store", doing, says))
        })
    }

    async fn put(&self, key: &Key, expect: Expect, body: Bytes) -> Result<Put, StoreError> {
        let (key, body) = (key.clone(), Some(body));
        self.put_one(Write { key, expect, body, durability: Durability::Lasting }).await
    }

    async fn delete(&self, key: &Key, version: Version) -> Result<Put, StoreError> {
        let (key, expect) = (key.clone(), Expect::At(version));
        self.put_one(Write { key, expect, body: None, durability: Durability::Lasting }).await
    }
}

/// A process's proof of life, as it stands in the documents it holds.
///
/// Only the [`Presence`] that made it understands it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mark(pub serde_json::Map<String, serde_json::Value>);

impl std::hash::Hash for Mark {
    /// JSON values have no hash; the names of the fields tell marks apart well enough.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
        self.0.keys().for_each(|name| name.hash(state));
    }
}

/// A proof that a holder's process is dead.
///
/// A store on the machine of its users can offer it. It makes a take-over after a crash immediate.
/// It must never be wrong: in doubt, wait out the lease.
#[async_trait]
pub trait Presence: fmt::Debug + Send + Sync + 'static {
    /// This process's mark, to be written into the documents it holds.
    ///
    /// # Errors
    /// When the proof could not be set up. The caller goes on without one.
    fn mark(&self) -> Result<Mark, StoreError>;

    /// Resolves once the process, and the work it had started, are proven dead; else never.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn gone(&self, mark: &Mark);
}

/// The meaning of a failed request for the caller.
///
/// It tells Jepsen's `:fail` from `:info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It had no effect and never will: credentials, configuration, malformed data.
    Permanent,
    /// It had no effect and never will, because we are not allowed to do it.
    Denied,
    /// It had no effect; trying again may help.
    Unavailable,
    /// It may have taken effect, or may yet.
    Indeterminate,
}

/// A request that was not answered, or was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{backend}: {doing}")]
pub struct StoreError {
    /// How to react. Programs look only at this part.
    pub fault: Fault,
    /// The backend, as in its URL scheme.
    pub backend: &'static str,
    /// The attempted action, in words an operator can act on.
    pub doing: String,
    /// The error of the client library.
    #[source]
    pub source: Arc<dyn std::error::Error + Send + Sync>,
}

impl StoreError {
    /// Describes the attempted action and its error.
    pub fn new(
        fault: Fault,
        backend: &'static str,
        doing: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> StoreError {
        StoreError { fault, backend, doing: doing.into(), source: Arc::from(source.into()) }
    }
}
