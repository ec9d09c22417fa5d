//! The requests to one collection, each with its time-out.
//!
//! All of them are commands that we build, not calls of the driver's methods. So the settings of
//! the caller's client for concerns, preferences and retries make no difference, and no write is
//! ever sent twice.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use mongodb::Database;
use mongodb::bson::{Bson, Document as Bsons, doc};
use mongodb::error::{Error, ErrorKind};
use tenure::Key;
use tenure::store::{Document, Fault, Put, Version};
use tokio::time::{Instant, timeout_at};

use super::fault::{Failure, Kind};
use super::{answer, document};

/// The most documents in one read. So many of the largest fit into an answer.
pub(super) const MOST_READS: usize = 200;

/// A collection, and the time-out of requests to it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) database: Database,
    pub(super) collection: String,
    pub(super) request: Duration,
}

/// One conditional write that has a body.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) key: Key,
    /// The version that the document must have; none if it must be absent.
    pub(super) expected: Option<Version>,
    pub(super) version: Version,
    pub(super) body: Bytes,
}

impl Table {
    /// Reads up to [`MOST_READS`] documents, linearizably, in the order of `keys`.
    ///
    /// MongoDB promises linearizable reads only of one document by its id: it promises no snapshot
    /// of several. But each document was read while this server was primary, and a majority
    /// confirmed that afterwards. That is enough.
    pub(super) async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, Failure> {
        let ids: Vec<&str> = keys.iter().map(Key::as_str).collect();
        let filter = match ids[..] {
            [id] => doc! { "_id": id },
            _ => doc! { "_id": { "$in": &ids } },
        };
        let projection = document::projection();
        let documents = self.find(filter, projection, keys.len(), "linearizable").await?;
        let found: HashMap<Key, Document> =
            documents.into_iter().filter_map(document::decode).collect();
        // Cloned, because a key may be requested twice.
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// Our documents in a range of ids, in order.
    ///
    /// Also returns how many documents were read, and the last of their ids.
    pub(super) async fn range(
        &self,
        bound: Bsons,
        limit: usize,
    ) -> Result<(Vec<(Key, Document)>, usize, Option<String>), Failure> {
        let (filter, projection) = (doc! { "_id": bound }, document::projection());
        let documents = self.find(filter, projection, limit, "majority").await?;
        let last = documents.last().and_then(|last| last.get_str("_id").ok()).map(str::to_owned);
        let seen = documents.len();
        Ok((documents.into_iter().filter_map(document::decode).collect(), seen, last))
    }

    /// The first documents of a filter, by id. The answer has room for all of them.
    pub(super) async fn find(
        &self,
        filter: Bsons,
        projection: Bsons,
        most: usize,
        level: &str,
    ) -> Result<Vec<Bsons>, Failure> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let command = doc! {
            "find": &self.collection,
            "filter": filter,
            "projection": projection,
            "sort": { "_id": 1 },
            "limit": most,
            "batchSize": most,
            "singleBatch": true,
            "readConcern": { "level": level },
        };
        let mut answer = self.ask(command).await?;
        let cursor = match answer.remove("cursor") {
            Some(Bson::Document(mut cursor)) => cursor.remove("firstBatch"),
            _ => None,
        };
        let Some(Bson::Array(batch)) = cursor else {
            return Err(Failure::new(Fault::Unavailable, "the answer has no documents in it"));
        };
        let document = |found| match found {
            Bson::Document(found) => Some(found),
            _ => None,
        };
        Ok(batch.into_iter().filter_map(document).collect())
    }

    /// Creates documents that must be absent, in one command.
    pub(super) async fn insert(&self, writes: Vec<Replacement>) -> Vec<Result<Put, Failure>> {
        let documents: Vec<Bsons> = writes
            .iter()
            .map(|write| document::encode(&write.key, &write.version, &write.body))
            .collect();
        let command = doc! { "insert": &self.collection, "documents": documents, "ordered": false };
        self.batch(command, writes).await
    }

    /// Replaces documents that must be at a version, in one command.
    pub(super) async fn replace(&self, writes: Vec<Replacement>) -> Vec<Result<Put, Failure>> {
        let updates: Vec<Bsons> = writes.iter().map(replacement).collect();
        let command = doc! { "update": &self.collection, "updates": updates, "ordered": false };
        self.batch(command, writes).await
    }

    /// Deletes a document that must be at a version.
    pub(super) async fn delete(&self, key: &Key, expected: &Version) -> Result<Put, Failure> {
        let filter = doc! { "_id": key.as_str(), "version": expected.as_str() };
        let deletes = vec![doc! { "q": filter, "limit": 1 }];
        let command = doc! { "delete": &self.collection, "deletes": deletes };
        answer::deletion(&self.write(command).await?)
    }

    async fn batch(&self, command: Bsons, writes: Vec<Replacement>) -> Vec<Result<Put, Failure>> {
        match self.write(command).await {
            Ok(answer) => {
                answer::outcomes(&answer, writes.into_iter().map(|write| write.version).collect())
            }
            Err(failure) => {
                let same = || Failure::new(failure.fault, failure.says.clone());
                writes.iter().map(|_| Err(same())).collect()
            }
        }
    }

    /// Sends a command that changes data, once.
    pub(super) async fn write(&self, mut command: Bsons) -> Result<Bsons, Failure> {
        let millis = self.millis();
        command.insert("writeConcern", doc! { "w": "majority", "j": true, "wtimeout": millis });
        command.insert("maxTimeMS", millis);
        let deadline = Instant::now() + self.request;
        match timeout_at(deadline, self.database.run_command(command)).await {
            Ok(answer) => answer.map_err(|error| Failure::of(&error, Kind::Write)),
            Err(_) => Err(Failure::late(Kind::Write, self.request)),
        }
    }

    /// Sends a command that changes nothing. Repeats it once if another server may succeed.
    pub(super) async fn ask(&self, mut command: Bsons) -> Result<Bsons, Failure> {
        command.insert("maxTimeMS", self.millis());
        let deadline = Instant::now() + self.request;
        let mut again = true;
        loop {
            match timeout_at(deadline, self.database.run_command(command.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if again && may_help(&error) => again = false,
                Ok(Err(error)) => return Err(Failure::of(&error, Kind::Read)),
                Err(_) => return Err(Failure::late(Kind::Read, self.request)),
            }
        }
    }

    pub(super) fn millis(&self) -> i64 {
        i64::try_from(self.request.as_millis()).unwrap_or(i64::MAX).max(1)
    }
}

/// Returns true if another attempt may succeed.
///
/// The connection broke, or the server is no longer primary. The driver has noted it, and finds
/// another server.
fn may_help(error: &Error) -> bool {
    // Not primary, stepped down, shutting down, or interrupted by any of these.
    const CODES: [i32; 7] = [10107, 13435, 13436, 189, 91, 11600, 11602];
    match &*error.kind {
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => true,
        ErrorKind::Command(command) => CODES.contains(&command.code),
        _ => false,
    }
}

/// An update that reports its own outcome.
///
/// The answer to a command with many updates says how many documents they matched, not which. So
/// each update matches its document by the id alone, compares the version inside, and fails if it
/// differs: failures are reported one by one. With `upsert` a missing document has no version
/// either, so the update fails in the same way, and creates nothing.
fn replacement(write: &Replacement) -> Bsons {
    let expected = write.expected.as_ref().map_or("", Version::as_str);
    let new = document::encode(&write.key, &write.version, &write.body);
    let same = doc! { "$eq": ["$version", { "$literal": expected }] };
    let replaced = doc! { "$cond": [same, { "$literal": new }, moved_on()] };
    doc! {
        "q": { "_id": write.key.as_str() },
        "u": [{ "$replaceWith": replaced }],
        "upsert": true,
    }
}

/// An expression that makes an update fail.
pub(super) fn moved_on() -> Bsons {
    // This text is not a number. It contains a field, so that the server cannot evaluate it before
    // it compares the versions.
    doc! { "$toInt": { "$concat": ["another version of ", "$_id"] } }
}
