//! The seam a database with a change feed implements.
//!
//! A feed needs two things of a database: a few small documents of its own with compare-and-set,
//! and the table's changes as they happen. Everything else (who leads, when, for how long, who is
//! told) is decided above this seam by the lease protocol, the same for all of them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value};

use crate::store::{Expect, Put, Reads, StoreError, Version};

/// The id of the document that says who leads.
pub const LEADER: &str = "leader";

/// What the ids of all other documents of ours begin with, whichever part of tenure writes them.
const RESERVED: [&str; 7] =
    ["feeds/", "elections/", "floors/", "candidates/", "clusters/", "protocols/", "tenure/"];

/// Whether a document of the table is one of ours: told by its id, because that is all that is left
/// of a document that was deleted.
///
/// Such documents are metadata. They are never a change that a user of the feed sees, neither when
/// they are written nor when they are deleted.
#[must_use]
pub fn is_metadata(id: &str) -> bool {
    id == LEADER || RESERVED.iter().any(|prefix| id.starts_with(prefix))
}

/// The fields of a document of ours, as JSON.
pub type Fields = Map<String, Value>;

/// One conditional write of a document of ours; without fields, its deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// Which document: [`LEADER`], or one whose id begins with `feeds/`.
    pub id: String,
    /// What must hold for it to happen.
    pub expect: Expect,
    /// The whole new content: `id` is among it, `op` is different in every write that was ever
    /// made, and `timestamp` is the backend's to add.
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
    /// With what the table already holds, or as far back as the database remembers, and then goes
    /// on.
    Start,
    /// After this change, which an earlier subscription showed. A database that cannot go back
    /// begins now; one that no longer remembers the place fails, and is asked again with
    /// [`Origin::Now`].
    After(Cursor),
}

/// A place in a table's history, in the database's own terms. Opaque.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor(pub Value);

/// What a subscription shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A document of the table's users changed.
    Change {
        /// The database's own change object, in its own JSON: what a user of its driver would see.
        change: Value,
        /// Where to go on after it, where the database can.
        cursor: Option<Cursor>,
    },
    /// The document that says who leads was written or deleted.
    ///
    /// A wake-up, and a sign of life: it proves nothing, and may show what is never committed.
    Leader(Option<Found>),
    /// Nothing happened, and the subscription is alive. Never needed; it keeps a cursor fresh.
    Alive(Option<Cursor>),
}

/// The changes of a table from some place on. It ends only when it cannot go on: after an error, or
/// when the stream is over, it is dropped and another is asked for.
pub type Subscription = BoxStream<'static, Result<Item, StoreError>>;

/// Which of the driver's own handles is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handle {
    /// The client or connection.
    Connection,
    /// The database the table is in.
    Database,
    /// The table, or collection.
    Table,
}

/// A table that holds documents of ours beside its users', and whose changes can be followed.
///
/// One value serves any number of tables; each method is told which. Clones of one connection are
/// welcome: a `FeedStore` is what [`Backend::with_feed`](crate::Backend::with_feed) takes, and a
/// caller builds it from a client it already has.
///
/// # The documents
/// The document [`LEADER`] says who leads. People and other programs read it, so its fields stand
/// in the document itself, not in a text inside of it:
///
/// ```json
/// {"id": "leader", "value": "host-a", "timestamp": "the server's own type", "state": "held", "holder":
///  "70ac…", "token": 3, "ttl": 2000, "generation": 1, "revision": 12, "op": "70ac…-9", "expire": 0}
/// ```
///
/// On a database whose key is called otherwise, the id stands there too (MongoDB: `_id`), and
/// `type` may repeat what kind of document it is. A backend keeps every field it is given, whatever
/// its name, gives back every field it finds but those two, and interprets none but `id`, `op` and
/// `timestamp`. Beside it there is one document `feeds/<id>` for each process that takes part.
///
/// # What every backend promises
/// 1. A [`heartbeat`](FeedStore::heartbeat) is one atomic compare-and-set, and once it is
///    acknowledged it lasts: linearizable, majority, on disk, whatever the database calls it. Reads
///    are what [`reads`](FeedStore::reads) says.
/// 2. In the same write the *server's* time is put into `timestamp`. Never this machine's. (It is
///    for people and for hints; who leads is decided by nobody's wall clock.)
/// 3. No write is retried inside a backend once it may have taken effect: that is
///    [`Fault::Indeterminate`](crate::Fault::Indeterminate). A blind retry turns one's own success
///    into a conflict.
/// 4. Every call ends: reads and heartbeats within the time-out the backend was built with, the
///    others, which may have to connect or to create, within ten seconds or so. An established
///    subscription may be silent for as long as nothing happens.
/// 5. Once [`subscribe`](FeedStore::subscribe) has answered, every later write is shown, in order
///    for each document, or the subscription fails. It never goes deaf silently if the driver can
///    tell.
/// 6. A document for which [`is_metadata`] is true is never an [`Item::Change`], not even its
///    deletion. Writes of [`LEADER`] are [`Item::Leader`]; what else is ours is not shown at all.
/// 7. Documents of ours over [`MAX_DOCUMENT_BYTES`](crate::MAX_DOCUMENT_BYTES) as JSON are refused
///    as [`Fault::Permanent`](crate::Fault::Permanent). What is read is untrusted, and is checked
///    above this seam.
///
/// There are no default methods: a wrapper that forgot to forward one would compile.
#[async_trait]
pub trait FeedStore: fmt::Debug + Send + Sync + 'static {
    /// What a [`read`](FeedStore::read) proves.
    fn reads(&self) -> Reads;

    /// The table a feed is on unless it names another: the URL's, else `tenure`.
    fn table(&self) -> &str;

    /// Creates the database and the table where they are missing. What exists is left as it is.
    ///
    /// Called before [`start`](FeedStore::start) unless the caller forbids it.
    ///
    /// # Errors
    /// [`StoreError`] when they could not be created. That somebody else just has is a success.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst they have been created.
    async fn create(&self, table: &str) -> Result<(), StoreError>;

    /// Makes sure that a feed can work here: connected, allowed, the table there, its promises kept
    /// (a replica set, majority acknowledgements).
    ///
    /// # Errors
    /// [`Fault::Permanent`](crate::Fault::Permanent) or `Denied` with words an operator can act on
    /// when it never will; `Unavailable` when it may later. It never waits for a server that does
    /// not come.
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

    /// Writes, or deletes, one document of ours, if what is expected holds, stamped with the
    /// server's time.
    ///
    /// # Errors
    /// [`StoreError`]; its [`Fault`](crate::Fault) says whether it may have taken effect.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves the outcome indeterminate.
    async fn heartbeat(&self, table: &str, beat: Beat) -> Result<Put, StoreError>;

    /// Follows the table's changes. When it answers, the subscription is established.
    ///
    /// # Errors
    /// [`StoreError`] when it could not be.
    ///
    /// # Cancel safety
    /// Cancel safe: what was half established is given up.
    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError>;

    /// Ends a subscription and tells the server so. Dropping one ends it too, perhaps later.
    ///
    /// # Cancel safety
    /// Cancel safe: the subscription is over all the same.
    async fn unsubscribe(&self, subscription: Subscription);

    /// One of the driver's own handles for this table, for its users to downcast; `None` where
    /// there is no such thing.
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
