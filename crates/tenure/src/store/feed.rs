//! The interface that a database with a change feed implements.
//!
//! A feed needs two features of a database: a few small documents of its own with compare-and-set,
//! and the table's changes as they happen. Everything else (which feed leads, when, for how long,
//! and the notifications) is decided above this interface by the lease protocol, the same for all
//! databases.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value};

use super::{Expect, Put, Reads, StoreError, Version};

/// The id of the document that names the leader.
pub const LEADER: &str = "leader";

/// The prefixes of the ids of all other documents of ours, written by any part of tenure.
const RESERVED: [&str; 7] =
    ["feeds/", "elections/", "floors/", "candidates/", "clusters/", "protocols/", "tenure/"];

/// Returns true if a document of the table is one of ours.
///
/// The id decides, because nothing else is left of a deleted document.
///
/// Such documents are metadata. A user of the feed never sees them as a change, neither when they
/// are written nor when they are deleted.
#[must_use]
pub fn is_metadata(id: &str) -> bool {
    id == LEADER || RESERVED.iter().any(|prefix| id.starts_with(prefix))
}

/// The fields of a document of ours, as JSON.
pub type Fields = Map<String, Value>;

/// One conditional write of a document of ours; without fields, its deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// The document: [`LEADER`], or one with an id that begins with `feeds/`.
    pub id: String,
    /// The condition for the write.
    pub expect: Expect,
    /// The whole new content. It includes `id`, and an `op` that differs in every write that was
    /// ever made. The backend adds `timestamp`.
    pub fields: Option<Fields>,
}

/// A document of ours as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The revision that was read. The document's own `op` serves well.
    pub version: Version,
    /// Its content, with `timestamp` in milliseconds since 1970.
    pub fields: Fields,
}

/// Where a subscription begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// With the first change after it was made. Nothing of the past is shown.
    Now,
    /// With the present content of the table, or as far back as the database remembers.
    ///
    /// Later changes follow.
    Start,
    /// After this change, which an earlier subscription showed. A database that cannot go back
    /// begins now. A database that no longer remembers the place fails, and is asked again with
    /// [`Origin::Now`].
    After(Cursor),
}

/// A place in a table's history, in the database's own terms. Opaque.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor(pub Value);

/// An item of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A document of the table's users changed.
    Change {
        /// The database's own change object, in its own JSON, as a user of its driver would see it.
        change: Value,
        /// The place to go on from after this change, where the database can.
        cursor: Option<Cursor>,
    },
    /// The document that names the leader was written or deleted.
    ///
    /// This is a wake-up and a sign of life. It proves nothing, and may show a write that never
    /// commits.
    Leader(Option<Found>),
    /// Nothing happened, and the subscription is alive. Never needed; it keeps a cursor fresh.
    Alive(Option<Cursor>),
}

/// The changes of a table from some place on.
///
/// It ends only when it cannot go on: after an error or the end of the stream, the feed drops it
/// and asks for another.
pub type Subscription = BoxStream<'static, Result<Item, StoreError>>;

/// One of the driver's own handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handle {
    /// The client or connection.
    Connection,
    /// The database the table is in.
    Database,
    /// The table, or collection.
    Table,
}

/// A table with documents of ours beside its users', and with changes that can be followed.
///
/// One value serves any number of tables; each method takes the table's name. Clones of one
/// connection are welcome: [`Backend::with_feed`](crate::Backend::with_feed) takes a `FeedStore`,
/// and a caller builds it from a client it already has.
///
/// # The documents
/// The document [`LEADER`] names the leader. People and other programs read it, so its fields stand
/// in the document itself, not in a text inside of it:
///
/// ```json
/// {"id": "leader", "value": "host-a", "timestamp": "the server's own type", "state": "held", "holder":
///  "70ac…", "token": 3, "ttl": 2000, "generation": 1, "revision": 12, "op": "70ac…-9", "expire": 0}
/// ```
///
/// On a database with another name for the key, the id stands there too (MongoDB: `_id`), and
/// `type` may repeat the kind of the document. A backend keeps every field it is given, under any
/// name. It gives back every field it finds but those two, and interprets none but `id`, `op` and
/// `timestamp`. Beside it there is one document `feeds/<id>` for each process that takes part.
///
/// # What every backend promises
/// 1. A [`heartbeat`](FeedStore::heartbeat) is one atomic compare-and-set, and once it is
///    acknowledged it lasts: linearizable, majority, on disk, by any name the database has for it.
///    Reads prove as much as [`reads`](FeedStore::reads) says.
/// 2. The same write puts the *server's* time into `timestamp`. Never this machine's. (It is for
///    people and for hints; no wall clock decides the leader.)
/// 3. No write is retried inside a backend once it may have taken effect: that is
///    [`Fault::Indeterminate`](crate::store::Fault::Indeterminate). A blind retry turns one's own success
///    into a conflict.
/// 4. Every call ends: reads and heartbeats within the time-out the backend was built with, the
///    others, which may have to connect or to create, within ten seconds or so. An established
///    subscription may be silent for as long as nothing happens.
/// 5. Once [`subscribe`](FeedStore::subscribe) has answered, every later write is shown, in order
///    for each document, or the subscription fails. It never goes deaf silently if the driver can
///    tell.
/// 6. A document for which [`is_metadata`] is true is never an [`Item::Change`], not even its
///    deletion. Writes of [`LEADER`] are [`Item::Leader`]; other documents of ours are not shown at
///    all.
/// 7. Documents of ours over [`MAX_DOCUMENT_BYTES`](crate::store::MAX_DOCUMENT_BYTES) as JSON are refused
///    as [`Fault::Permanent`](crate::store::Fault::Permanent). Content that is read is untrusted, and is
///    checked above this interface.
///
/// There are no default methods: a wrapper that forgot to forward one would compile.
#[async_trait]
pub trait FeedStore: fmt::Debug + Send + Sync + 'static {
    /// How far a [`read`](FeedStore::read) can be trusted.
    fn reads(&self) -> Reads;

    /// The default table of a feed: the one in the URL, else `tenure`.
    fn table(&self) -> &str;

    /// Creates the database and the table where they are missing.
    ///
    /// Existing ones are left as they are.
    ///
    /// Called before [`start`](FeedStore::start) unless the caller forbids it.
    ///
    /// # Errors
    /// [`StoreError`] when they could not be created. It is a success if another process just has.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst they have been created.
    async fn create(&self, table: &str) -> Result<(), StoreError>;

    /// Makes sure that a feed can work here.
    ///
    /// It must be connected and allowed, the table must exist, and its promises must hold (a
    /// replica set, majority acknowledgements).
    ///
    /// # Errors
    /// [`Fault::Permanent`](crate::store::Fault::Permanent) or `Denied`, with words an operator can act
    /// on, when it will never work; `Unavailable` when it may work later. It never waits for a
    /// server that does not come.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn start(&self, table: &str) -> Result<(), StoreError>;

    /// Reads documents of ours, in the order asked for; `None` where there is none.
    ///
    /// # Errors
    /// [`StoreError`] when not all of them could be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn read(&self, table: &str, ids: &[String]) -> Result<Vec<Option<Found>>, StoreError>;

    /// Writes or deletes one document of ours, if the expectation holds.
    ///
    /// The document is stamped with the server's time.
    ///
    /// # Errors
    /// [`StoreError`]; its [`Fault`](crate::store::Fault) says whether the write may have taken effect.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves the outcome indeterminate.
    async fn heartbeat(&self, table: &str, beat: Beat) -> Result<Put, StoreError>;

    /// Follows the table's changes. When it answers, the subscription is established.
    ///
    /// # Errors
    /// [`StoreError`] when the subscription could not be established.
    ///
    /// # Cancel safety
    /// Cancel safe: a half-established subscription is given up.
    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError>;

    /// Ends a subscription and tells the server so. Dropping one ends it too, perhaps later.
    ///
    /// # Cancel safety
    /// Cancel safe: the subscription is over all the same.
    async fn unsubscribe(&self, subscription: Subscription);

    /// One of the driver's own handles for this table, for its users to downcast.
    ///
    /// `None` where there is no such handle.
    fn handle(&self, table: &str, handle: Handle) -> Option<Arc<dyn Any + Send + Sync>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_documents_are_known_by_their_ids_and_nobody_elses_are() {
        for ours in ["leader", "feeds/host-a", "elections/a/b", "candidates/a/7"] {
            assert!(is_metadata(ours), "{ours}");
        }
        let name = crate::Name::parse("a/b").expect("a good name");
        let floor = crate::Key::floor(&name);
        assert!(is_metadata(floor.as_str()), "{floor}");
        for theirs in ["leaders", "Leader", "feeds", "leader/a", "order-1", "", "elections"] {
            assert!(!is_metadata(theirs), "{theirs}");
        }
    }
}
