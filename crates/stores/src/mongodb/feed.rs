//! Leader feeds on the collections of a database.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use mongodb::bson::{self, Bson, Document as Bsons, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use serde_json::Value;
use tenure::feed::{
    Beat, Cursor, FeedStore, Found, Handle, Item, LEADER, Origin, Subscription, is_metadata,
};
use tenure::store::{Expect, Fault, MAX_DOCUMENT_BYTES, Put, Reads, StoreError, Version};
use tokio::time::timeout;

use super::fault::{Failure, Kind};
use super::json::{self, TIMESTAMP};
use super::listener::{TICK, followed};
use super::table::{Table, moved_on};
use super::{answer, check};

/// The largest document that is read. Ours are smaller, also as BSON.
const LARGEST: i32 = 2 * MAX_DOCUMENT_BYTES as i32;

/// The collections of a database, followed by change streams.
#[derive(Clone, Debug)]
pub struct MongodbFeed {
    table: Table,
}

impl MongodbFeed {
    pub(super) fn new(table: Table) -> MongodbFeed {
        MongodbFeed { table }
    }

    fn at(&self, table: &str) -> Table {
        Table { collection: table.to_owned(), ..self.table.clone() }
    }
}

#[async_trait]
impl FeedStore for MongodbFeed {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn table(&self) -> &str {
        &self.table.collection
    }

    async fn create(&self, table: &str) -> Result<(), StoreError> {
        check::collection(&self.at(table), true).await
    }

    async fn start(&self, table: &str) -> Result<(), StoreError> {
        check::deployment(&self.at(table), false).await
    }

    async fn read(&self, table: &str, ids: &[String]) -> Result<Vec<Option<Found>>, StoreError> {
        let failed = |failure: Failure| failure.while_doing(format!("reading {}", ids.join(", ")));
        let documents = read(&self.at(table), ids, "linearizable").await.map_err(failed)?;
        let with = |id: &String| {
            let same = |found: &&(String, Found)| found.0 == *id;
            documents.iter().find(same).map(|(_, found)| found.clone())
        };
        Ok(ids.iter().map(with).collect())
    }

    async fn heartbeat(&self, table: &str, beat: Beat) -> Result<Put, StoreError> {
        let doing = format!("writing {} of {table}", beat.id);
        let outcome = match write(&self.at(table), &beat) {
            Ok(Some((command, version))) => match self.table.write(command).await {
                Ok(answer) if beat.fields.is_none() => answer::deletion(&answer),
                Ok(answer) => answer::outcomes(&answer, vec![version]).pop().unwrap_or_else(|| {
                    Err(Failure::new(Fault::Indeterminate, "the answer tells nothing"))
                }),
                Err(failure) => Err(failure),
            },
            Ok(None) => Ok(Put::Conflict),
            Err(says) => Err(Failure::new(Fault::Permanent, says)),
        };
        outcome.map_err(|failure| failure.while_doing(doing))
    }

    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError> {
        let doing = format!("following {table}");
        let table = self.at(table);
        let past = from == Origin::Start;
        let after = match from {
            Origin::Now | Origin::Start => None,
            Origin::After(cursor) => Some(resume(&cursor).ok_or_else(|| {
                let says = "this is no place in a change stream";
                Failure::new(Fault::Permanent, says).while_doing(doing.clone())
            })?),
        };
        let collection = followed(&table);
        let watch = collection.watch().max_await_time(TICK);
        let watch = match after {
            Some(place) => watch.start_after(place),
            None => watch,
        };
        let stream = match timeout(table.request, async { watch.await }).await {
            Ok(Ok(stream)) => stream.with_type::<Bsons>(),
            Ok(Err(error)) => return Err(Failure::of(&error, Kind::Read).while_doing(doing)),
            Err(_) => return Err(Failure::late(Kind::Read, table.request).while_doing(doing)),
        };
        // The stream begins first, so that no change is lost between the two.
        let present = match past {
            true => Some(present(&table).await.map_err(|failure| failure.while_doing(doing))?),
            false => None,
        };
        let following = Following { table, stream: Some(stream), present };
        Ok(stream::unfold(following, async |mut following| {
            let item = following.next().await?;
            Some((item, following))
        })
        .boxed())
    }

    async fn unsubscribe(&self, subscription: Subscription) {
        // The driver tells the server.
        drop(subscription);
    }

    fn handle(&self, table: &str, handle: Handle) -> Option<Arc<dyn Any + Send + Sync>> {
        let database = &self.table.database;
        Some(match handle {
            Handle::Connection => Arc::new(database.client().clone()),
            Handle::Database => Arc::new(database.clone()),
            Handle::Table => Arc::new(database.collection::<Bsons>(table)),
        })
    }
}

/// Reads our documents by their ids, in no order.
async fn read(table: &Table, ids: &[String], level: &str) -> Result<Vec<(String, Found)>, Failure> {
    let short = doc! { "$lte": [{ "$bsonSize": "$$ROOT" }, LARGEST] };
    let projection = doc! { "found": { "$cond": [short, "$$ROOT", {}] } };
    let filter = doc! { "_id": { "$in": ids } };
    let documents = table.find(filter, projection, ids.len(), level).await?;
    let decoded = documents.into_iter().filter_map(|mut document| {
        let Some(Bson::Document(found)) = document.remove("found") else { return None };
        Some((document.get_str("_id").ok()?.to_owned(), json::decode(found)))
    });
    Ok(decoded.collect())
}

/// The command for a write, and its new version.
///
/// None for the deletion of a missing document.
fn write(table: &Table, beat: &Beat) -> Result<Option<(Bsons, Version)>, String> {
    let collection = &table.collection;
    let Some(fields) = &beat.fields else {
        let Expect::At(version) = &beat.expect else { return Ok(None) };
        let filter = doc! { "_id": &beat.id, "$expr": is_at(version) };
        let deletes = vec![doc! { "q": filter, "limit": 1 }];
        return Ok(Some((doc! { "delete": collection, "deletes": deletes }, version.clone())));
    };
    let size = Value::Object(fields.clone()).to_string().len();
    if size > MAX_DOCUMENT_BYTES {
        return Err(format!("{size} bytes are more than {MAX_DOCUMENT_BYTES}"));
    }
    let op = fields.get("op").and_then(Value::as_str).filter(|op| !op.starts_with('{'));
    let version = Version::new(op.ok_or("the document has no `op`")?);
    let new = json::encode(&beat.id, fields).ok_or("a number is larger than MongoDB has")?;
    let new = doc! { "$mergeObjects": [{ "$literal": new }, { TIMESTAMP: "$$NOW" }] };
    let (filter, new) = match &beat.expect {
        // No document matches this. An existing one of that id then prevents the insert, and is
        // reported.
        Expect::Absent => (doc! { "_id": &beat.id, "tenure": "absent" }, new),
        Expect::At(version) => {
            let new = doc! { "$cond": [is_at(version), new, moved_on()] };
            (doc! { "_id": &beat.id }, new)
        }
    };
    let update = doc! { "q": filter, "u": [{ "$replaceWith": new }], "upsert": true };
    Ok(Some((doc! { "update": collection, "updates": [update] }, version)))
}

fn is_at(version: &Version) -> Bsons {
    match json::foreign(version) {
        Some(document) => doc! { "$eq": ["$$ROOT", { "$literal": document }] },
        None => doc! { "$eq": ["$op", { "$literal": version.as_str() }] },
    }
}

/// The documents in the collection. They are read after the stream of later changes began.
async fn present(table: &Table) -> Result<mongodb::Cursor<Bsons>, Failure> {
    let collection = followed(table);
    let reading = async { collection.find(doc! {}).await };
    match timeout(table.request, reading).await {
        Ok(cursor) => cursor.map_err(|error| Failure::of(&error, Kind::Read)),
        Err(_) => Err(Failure::late(Kind::Read, table.request)),
    }
}

/// The resume token in a feed's cursor.
fn resume(cursor: &Cursor) -> Option<ResumeToken> {
    bson::deserialize_from_bson(Bson::try_from(cursor.0.clone()).ok()?).ok()
}

/// A subscription that has begun.
struct Following {
    table: Table,
    /// None after an error: it is over.
    stream: Option<ChangeStream<Bsons>>,
    /// The documents of the collection that were not shown yet.
    present: Option<mongodb::Cursor<Bsons>>,
}

impl Following {
    async fn next(&mut self) -> Option<Result<Item, StoreError>> {
        let mut stream = self.stream.take()?;
        match self.item(&mut stream).await {
            Ok(item) => {
                self.stream = Some(stream);
                Some(Ok(item))
            }
            Err(failure) => {
                let doing = format!("following {}", self.table.collection);
                Some(Err(failure.while_doing(doing)))
            }
        }
    }

    async fn item(&mut self, stream: &mut ChangeStream<Bsons>) -> Result<Item, Failure> {
        while let Some(present) = &mut self.present {
            match timeout(self.table.request, present.next()).await {
                Ok(Some(Ok(document))) => {
                    if let Some(item) = show(&self.table, inserted(&self.table, document)).await? {
                        return Ok(item);
                    }
                }
                Ok(Some(Err(error))) => return Err(Failure::of(&error, Kind::Read)),
                Ok(None) => self.present = None,
                Err(_) => return Err(Failure::late(Kind::Read, self.table.request)),
            }
        }
        let patience = TICK + self.table.request;
        while stream.is_alive() {
            match timeout(patience, stream.next_if_any()).await {
                Ok(Ok(Some(event))) => {
                    if let Some(item) = show(&self.table, event).await? {
                        return Ok(item);
                    }
                }
                Ok(Ok(None)) => return Ok(Item::Alive(stream.resume_token().and_then(place))),
                Ok(Err(error)) => return Err(Failure::of(&error, Kind::Read)),
                Err(_) => return Err(Failure::late(Kind::Read, patience)),
            }
        }
        Err(Failure::new(Fault::Unavailable, "the server ended the change stream"))
    }
}

/// The item that a subscriber sees for a change; none for our other metadata.
async fn show(table: &Table, event: Bsons) -> Result<Option<Item>, Failure> {
    let gone = match event.get_str("operationType") {
        Ok("insert" | "update" | "replace") => false,
        Ok("delete") => true,
        other => {
            let says = format!("the collection is no longer what it was: {other:?}");
            return Err(Failure::new(Fault::Unavailable, says));
        }
    };
    let id = event.get_document("documentKey").ok().and_then(|key| key.get("_id"));
    match id.and_then(Bson::as_str) {
        Some(LEADER) if gone => Ok(Some(Item::Leader(None))),
        Some(LEADER) => match event.get_document("fullDocument") {
            Ok(document) => Ok(Some(Item::Leader(Some(json::decode(document.clone()))))),
            // An update shows the changed fields, not the whole document.
            Err(_) => {
                let mut found = read(table, &[LEADER.to_owned()], "majority").await?;
                Ok(Some(Item::Leader(found.pop().map(|(_, found)| found))))
            }
        },
        Some(id) if is_metadata(id) => Ok(None),
        Some(_) | None => {
            // A document that was read, not changed, has no position in the stream.
            let cursor = event.get("_id").cloned().map(Bson::into_relaxed_extjson).map(Cursor);
            let change = Bson::Document(event).into_relaxed_extjson();
            Ok(Some(Item::Change { change, cursor }))
        }
    }
}

/// A change event for a document that was read, as if it had just been inserted.
fn inserted(table: &Table, document: Bsons) -> Bsons {
    let ns = doc! { "db": table.database.name(), "coll": &table.collection };
    let id = document.get("_id").cloned().unwrap_or(Bson::Null);
    doc! {
        "operationType": "insert", "ns": ns, "documentKey": { "_id": id }, "fullDocument": document,
    }
}

fn place(token: ResumeToken) -> Option<Cursor> {
    serde_json::to_value(token).ok().map(Cursor)
}
