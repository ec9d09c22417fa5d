//! Documents in MongoDB, version 4.4 and later, in a replica set.
//!
//! Reads are linearizable. A write is acknowledged once a majority has it in its journals. The
//! write compares the document's version in the same step. The writes of a batch are a few
//! commands, and the answers tell the outcome of each write. Changes arrive over one change stream,
//! which only wakes.
//!
//! # Retryable writes
//! MongoDB's drivers send a write again when its answer was lost, with a number by which the
//! servers recognize it. That would be safe for most writes here, but not for the answer: the
//! driver chooses which of several failures it reports, and a write would end long after its time.
//! So no write here is retryable, even if the client's `retryWrites` is set. A lost answer is
//! [`Fault::Indeterminate`](tenure::store::Fault::Indeterminate), and the protocol reads.
#![allow(clippy::wildcard_enum_match_arm, reason = "the driver's enums are long, and grow")]

mod answer;
mod batch;
mod check;
mod connect;
mod document;
mod fault;
mod feed;
mod json;
mod listener;
mod table;
mod waits;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use mongodb::bson::doc;
use mongodb::{Client, Database};
use tenure::Key;
use tenure::store::{Document, Page, Put, Reads, Store, StoreError, Version, Write};

use self::batch::{Batch, Numbered, Writes, sort};
use self::fault::Failure;
pub use self::feed::MongodbFeed;
use self::table::{MOST_READS, Table};
use self::waits::Waits;
use crate::background::Background;
use crate::mongodb_url::MongodbUrl;

/// The options for opening a store on MongoDB.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MongodbOptions {
    /// The collection with the documents.
    pub collection: String,
    /// The time-out of each request.
    pub request: Duration,
    /// True to create a missing collection; otherwise it is an error.
    pub create_if_missing: bool,
}

impl MongodbOptions {
    /// Sets the collection.
    #[must_use]
    pub fn with_collection(mut self, collection: impl Into<String>) -> MongodbOptions {
        self.collection = collection.into();
        self
    }

    /// Sets the time-out of requests: [`tenure::Timing::request`].
    #[must_use]
    pub fn with_request(mut self, request: Duration) -> MongodbOptions {
        self.request = request;
        self
    }

    /// Sets whether a missing collection is created, or is an error.
    #[must_use]
    pub fn with_create_if_missing(mut self, create: bool) -> MongodbOptions {
        self.create_if_missing = create;
        self
    }
}

impl Default for MongodbOptions {
    fn default() -> MongodbOptions {
        let request = tenure::Timing::default().request();
        MongodbOptions { collection: "tenure".to_owned(), request, create_if_missing: true }
    }
}

/// Documents in MongoDB.
pub struct MongodbStore {
    table: Table,
    waits: Arc<Waits>,
    listener: Background,
}

impl MongodbStore {
    /// Opens the store that a URL names, and checks its deployment.
    ///
    /// It must be a replica set that keeps acknowledged writes.
    ///
    /// # Errors
    /// [`StoreError`] when the password cannot be found, no primary answers in time or lets us in,
    /// the server is in no replica set or its majority does not journal, or the collection is
    /// missing and not to be created.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open(
        url: &MongodbUrl,
        request: Duration,
        create_if_missing: bool,
    ) -> Result<MongodbStore, StoreError> {
        let client = connect::client(url, request).await?;
        let collection = url.collection.clone();
        let options = MongodbOptions { collection, request, create_if_missing };
        let opened = MongodbStore::from_database(client.database(url.database()), options).await;
        // The driver does not name the servers that it could not reach.
        opened.map_err(|error| match error.fault {
            tenure::store::Fault::Unavailable | tenure::store::Fault::Indeterminate => {
                let doing = format!("{} of {}", error.doing, url.hosts.join(", "));
                StoreError { doing, ..error }
            }
            tenure::store::Fault::Permanent | tenure::store::Fault::Denied => error,
        })
    }

    /// Opens the store in a database of the program's own client, which may be shared.
    ///
    /// # Errors
    /// As for [`MongodbStore::from_database`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn from_client(
        client: &Client,
        database: &str,
        options: MongodbOptions,
    ) -> Result<MongodbStore, StoreError> {
        MongodbStore::from_database(client.database(database), options).await
    }

    /// Opens the store in a database of the program's own client, which may be shared.
    ///
    /// The client's concerns, preferences and retries make no difference. Its
    /// `serverSelectionTimeout`, `connectTimeout` and `heartbeatFrequency` decide how soon another
    /// primary is found. The driver's defaults, half a minute and ten seconds, suit long leases
    /// only.
    ///
    /// # Errors
    /// As for [`MongodbStore::open`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn from_database(
        database: Database,
        options: MongodbOptions,
    ) -> Result<MongodbStore, StoreError> {
        let MongodbOptions { collection, request, create_if_missing } = options;
        let table = Table { database, collection, request };
        check::deployment(&table, create_if_missing).await?;
        Ok(MongodbStore { table, waits: Arc::default(), listener: Background::default() })
    }

    /// The collections of the same database, for leader feeds.
    #[must_use]
    pub fn feed(&self) -> MongodbFeed {
        MongodbFeed::new(self.table.clone())
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let doing = || match keys {
            [key] => format!("reading {key}"),
            [key, others @ ..] => format!("reading {key} and {} others", others.len()),
            [] => "reading nothing".to_owned(),
        };
        let place = self.waits.place();
        let found = self.table.read(keys).await.map_err(|failure| failure.while_doing(doing()))?;
        let version = |found: &Option<Document>| found.as_ref().map(|found| found.version.clone());
        self.waits.saw(place, keys.iter().cloned().zip(found.iter().map(version)));
        Ok(found)
    }

    /// Carries out a batch of writes: all inserts, all replacements, or one deletion.
    async fn write(&self, batch: Batch) -> Vec<Numbered> {
        let place = self.waits.place();
        let Batch { numbers, keys, writes } = batch;
        let deletion = matches!(writes, Writes::Delete(..));
        let outcomes = match writes {
            Writes::Insert(writes) => self.table.insert(writes).await,
            Writes::Replace(writes) => self.table.replace(writes).await,
            Writes::Delete(key, version) => vec![self.table.delete(&key, &version).await],
        };
        let stored = keys.iter().zip(&outcomes).filter_map(|(key, outcome)| match outcome {
            Ok(Put::Stored(version)) => Some((key.clone(), (!deletion).then(|| version.clone()))),
            Ok(Put::Conflict) | Err(_) => None,
        });
        self.waits.saw(place, stored);
        let outcomes = keys.iter().zip(outcomes).map(|(key, outcome)| {
            outcome.map_err(|failure| failure.while_doing(format!("writing {key}")))
        });
        numbers.into_iter().zip(outcomes).collect()
    }

    fn listen(&self) {
        self.listener.ensure(|| listener::listen(self.table.clone(), self.waits.clone()));
    }
}

#[async_trait]
impl Store for MongodbStore {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn notifies(&self) -> bool {
        self.waits.listening()
    }

    fn forgets_deleted(&self) -> bool {
        true
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let parts = try_join_all(keys.chunks(MOST_READS).map(|some| self.read(some))).await?;
        Ok(parts.into_iter().flatten().collect())
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let count = writes.len();
        let (batches, refused) = sort(writes);
        let done = join_all(batches.into_iter().map(|batch| self.write(batch))).await;
        let mut outcomes: Vec<(usize, _)> = done.into_iter().flatten().chain(refused).collect();
        outcomes.sort_by_key(|(number, _)| *number);
        debug_assert_eq!(outcomes.len(), count, "each write has its outcome");
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let first = format!("{prefix}/");
        // `0` is the byte after `/`, so it ends the keys that begin with the prefix and a slash.
        let end = format!("{prefix}0");
        let mut after = after.map(ToString::to_string).filter(|after| *after > first);
        let mut page = Page::default();
        // The loop repeats only for long lists, and if others have written documents that are not
        // ours.
        loop {
            let missing = limit.saturating_sub(page.documents.len()).clamp(1, MOST_READS);
            let bound = match &after {
                Some(after) => doc! { "$gt": after, "$lt": &end },
                None => doc! { "$gte": &first, "$lt": &end },
            };
            let failed = |failure: Failure| failure.while_doing(format!("listing {prefix}"));
            let (found, seen, last) = self.table.range(bound, missing).await.map_err(failed)?;
            page.documents.extend(found);
            page.documents.truncate(limit);
            match last.filter(|_| seen >= missing) {
                None => return Ok(page),
                Some(_) if page.documents.len() >= limit => break,
                Some(last) => after = Some(last),
            }
        }
        page.next = page.documents.last().map(|(key, _)| key.clone());
        Ok(page)
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.listen();
        self.waits.changed(key, seen).await;
    }
}

impl fmt::Debug for MongodbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongodbStore")
            .field("database", &self.table.database.name())
            .field("collection", &self.table.collection)
            .finish_non_exhaustive()
    }
}
