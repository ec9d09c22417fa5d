//! Leader feeds on the tables of a database.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::Value;
use tenure::feed::{
    Beat, FeedStore, Fields, Found, Handle, Item, LEADER, Origin, Subscription, is_metadata,
};
use tenure::store::{Expect, Fault, MAX_DOCUMENT_BYTES, Put, Reads, StoreError, Version};
use tokio::time::timeout;

use super::connection::{Connection, failed};
use super::fault::{Failure, Kind};
use super::home::Home;
use super::json::Json;
use super::link::Cursor;
use super::response::Response;
use super::term::{self, Term, WHO_ARE_YOU};
use super::{document, refused, table};

/// How often a silent server is asked whether it is still there.
const ASK: Duration = Duration::from_secs(5);

/// The tables of a database, followed over one connection.
#[derive(Clone, Debug)]
pub struct RethinkFeed {
    connection: Connection,
    database: String,
    table: String,
    /// The tables that were asked for, by name. The feed's own protocol decides which tokens count
    /// in them.
    homes: Arc<Mutex<HashMap<String, Arc<Home>>>>,
}

/// The place of a feed.
///
/// It is the result of [`FeedStore::handle`] for a database and for a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Place {
    /// The connection.
    pub connection: Connection,
    /// The name of the database.
    pub database: String,
    /// The name of the table.
    pub table: String,
}

impl RethinkFeed {
    /// Follows the tables of this database. A feed that names no table uses `table`.
    #[must_use]
    pub fn new(connection: Connection, database: &str, table: &str) -> RethinkFeed {
        let (database, table) = (database.to_owned(), table.to_owned());
        RethinkFeed { connection, database, table, homes: Arc::default() }
    }

    fn home(&self, table: &str) -> Arc<Home> {
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        let home = || Arc::new(Home::new(self.connection.clone(), &self.database, table));
        homes.entry(table.to_owned()).or_insert_with(home).clone()
    }

    fn rows(&self, table: &str) -> Term {
        term::table(&self.database, table)
    }

    /// Starts to follow. Every change after the server's first answer is shown.
    async fn follow(&self, table: &str, question: &Term) -> Result<Followed, Failure> {
        let home = self.home(table);
        let mut cursor = home.follow(question).await?;
        let limit = self.connection.request();
        let first = timeout(limit, cursor.next()).await;
        let first = first.map_err(|_| Failure::late(Kind::Read, limit))?;
        let waiting = home.heed(understand(first.map_err(broken)?))?;
        let waiting = waiting.into_iter().map(Shown::Change).collect();
        Ok(Followed { home, cursor, waiting, over: false })
    }

    /// The table's rows, as changes. For the emulator: its feeds do not begin with the rows.
    async fn past(&self, table: &str) -> Result<Vec<Shown>, Failure> {
        let rows = self.home(table).answer(Kind::Read, &self.rows(table).array()).await?;
        let rows = rows.rows().map_err(|garbled| Failure::broken(Kind::Read, garbled))?;
        Ok(rows.into_iter().map(Shown::Held).collect())
    }
}

#[async_trait]
impl FeedStore for RethinkFeed {
    fn reads(&self) -> Reads {
        Reads::Linearizable
    }

    fn table(&self) -> &str {
        &self.table
    }

    async fn create(&self, table: &str) -> Result<(), StoreError> {
        table::open(&self.home(table), &self.database, table, true).await.map(drop)
    }

    async fn start(&self, table: &str) -> Result<(), StoreError> {
        table::settle(&self.home(table), &self.database, table, false).await.map(drop)
    }

    async fn read(&self, table: &str, ids: &[String]) -> Result<Vec<Option<Found>>, StoreError> {
        let question = match ids {
            [] => return Ok(Vec::new()),
            ids => term::settled_table(&self.database, table).get_all(ids.iter().cloned()).array(),
        };
        let doing = || format!("reading {} of {table}", ids.join(", "));
        let rows = self.home(table).answer(Kind::Read, &question).await;
        let rows = rows.map_err(|failure| failed(failure, doing()))?.rows();
        let rows = rows.and_then(|rows| Json::values(&rows));
        let rows = rows.map_err(|garbled| refused(Fault::Unavailable, doing(), garbled))?;
        let with = |id: &String| rows.iter().find(|row| row["id"].as_str() == Some(id));
        Ok(ids.iter().map(|id| with(id).and_then(found)).collect())
    }

    async fn heartbeat(&self, table: &str, beat: Beat) -> Result<Put, StoreError> {
        let doing = || format!("writing {} of {table}", beat.id);
        let size = beat.fields.as_ref().map_or(0, |fields| to_text(fields).len());
        if size > MAX_DOCUMENT_BYTES {
            let says = format!("{size} bytes are more than {MAX_DOCUMENT_BYTES}");
            return Err(refused(Fault::Permanent, doing(), says));
        }
        let op = beat.fields.as_ref().and_then(|fields| fields.get("op")?.as_str());
        let op = op.unwrap_or_default().to_owned();
        let Some(question) = write(self.rows(table), &beat) else { return Ok(Put::Conflict) };
        let answer = self.home(table).ask(Kind::Write, &question).await;
        let answer = answer.map_err(|failure| failed(failure, doing()))?;
        document::outcome(&answer, &op)
            .ok_or_else(|| refused(Fault::Indeterminate, doing(), document::complaint(&answer)))
    }

    async fn subscribe(&self, table: &str, from: Origin) -> Result<Subscription, StoreError> {
        let failed = |failure| failed(failure, format!("following {table}"));
        // Feeds cannot resume at a position: changes made meanwhile are not shown.
        let past = from == Origin::Start;
        let emulated = table::is_emulated(&self.connection).await?;
        let question = match past && !emulated {
            true => self.rows(table).changes_from_the_start(),
            false => self.rows(table).changes(),
        };
        let mut followed = self.follow(table, &question).await.map_err(failed)?;
        if past && emulated {
            followed.waiting.extend(self.past(table).await.map_err(failed)?);
        }
        let items = stream::unfold(followed, async |mut followed| {
            let item = followed.item().await?;
            let failed = |failure| super::connection::failed(failure, "following a table");
            Some((item.map_err(failed), followed))
        });
        Ok(items.boxed())
    }

    async fn unsubscribe(&self, subscription: Subscription) {
        // The cursor inside tells the server.
        drop(subscription);
    }

    fn handle(&self, table: &str, handle: Handle) -> Option<Arc<dyn Any + Send + Sync>> {
        let (connection, database) = (self.connection.clone(), self.database.clone());
        Some(match handle {
            Handle::Connection => Arc::new(connection),
            Handle::Database | Handle::Table => {
                Arc::new(Place { connection, database, table: table.to_owned() })
            }
        })
    }
}

/// A change or a row, to be shown to the subscriber.
enum Shown {
    Change(Json),
    /// A row from before the feed began. On the emulator it is read from the table.
    Held(Json),
}

impl Shown {
    /// The change as its subscriber sees it. Parsed only now, so one at a time is in memory as a
    /// value.
    fn value(&self) -> Result<Value, Failure> {
        let value = match self {
            Shown::Change(change) => change.value(),
            Shown::Held(row) => row.value().map(|row| serde_json::json!({ "new_val": row })),
        };
        value.map_err(|garbled| Failure::told(Fault::Unavailable, garbled.to_string()))
    }
}

/// A feed that has begun.
struct Followed {
    home: Arc<Home>,
    cursor: Cursor,
    /// Changes that arrived and were not shown yet. No more are requested until they were.
    waiting: VecDeque<Shown>,
    over: bool,
}

impl Followed {
    /// The next item; nothing after an error.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn item(&mut self) -> Option<Result<Item, Failure>> {
        if self.over {
            return None;
        }
        loop {
            while let Some(change) = self.waiting.pop_front() {
                match change.value().and_then(show) {
                    Ok(None) => {}
                    Ok(Some(item)) => return Some(Ok(item)),
                    Err(failure) => return Some(Err(self.end(failure))),
                }
            }
            match self.hear().await {
                Ok(changes) => self.waiting = changes.into_iter().map(Shown::Change).collect(),
                Err(failure) => return Some(Err(self.end(failure))),
            }
        }
    }

    async fn hear(&mut self) -> Result<Vec<Json>, Failure> {
        if !self.cursor.is_asked() {
            self.cursor.more().await.map_err(broken)?;
        }
        loop {
            let link = self.cursor.link().clone();
            tokio::select! {
                part = timeout(ASK, self.cursor.next()) => match part {
                    Ok(part) => return understand(part.map_err(broken)?),
                    Err(_) => {
                        let limit = self.home.connection().request();
                        let answer = timeout(limit, link.ask(WHO_ARE_YOU)).await;
                        answer.map_err(|_| Failure::late(Kind::Read, limit))?.map_err(broken)?;
                    }
                },
                () = link.retirement() => {
                    return Err(Failure::broken(Kind::Read, "the connection was given up"));
                }
            }
        }
    }

    fn end(&mut self, failure: Failure) -> Failure {
        self.over = true;
        self.home.lose(&self.cursor, &failure);
        failure
    }
}

/// The changes in one part of a feed.
fn understand(part: Response) -> Result<Vec<Json>, Failure> {
    match part {
        Response::Partial(rows) => Ok(rows),
        Response::Refused(refusal) => Err(Failure::refused(Kind::Read, refusal)),
        Response::Atom(_) | Response::Sequence(_) => {
            Err(Failure::broken(Kind::Read, "the server ended the feed"))
        }
    }
}

/// The item that a subscriber sees for a change; none for our other metadata rows.
fn show(change: Value) -> Result<Option<Item>, Failure> {
    if let Some(error) = change.get("error").and_then(Value::as_str) {
        return Err(Failure::skipped(error));
    }
    let row = |name: &str| change.get(name).filter(|row| !row.is_null());
    let new = row("new_val");
    let Some(id) = new.or(row("old_val")).and_then(|row| row.get("id")) else { return Ok(None) };
    Ok(match id.as_str() {
        Some(LEADER) => Some(Item::Leader(new.and_then(found))),
        Some(id) if is_metadata(id) => None,
        Some(_) | None => Some(Item::Change { change, cursor: None }),
    })
}

/// The single question for a write; none for the deletion of a missing row.
fn write(rows: Term, beat: &Beat) -> Option<Term> {
    let row = beat.fields.as_ref().map(|fields| {
        let fields = fields.iter().map(|(name, value)| (name, term::datum(value.clone())));
        term::object(
            fields.map(|(name, term)| (name.as_str(), term)).chain([("timestamp", term::now())]),
        )
    });
    match (&beat.expect, row) {
        (Expect::Absent, row) => row.map(|row| rows.insert(row)),
        (Expect::At(version), row) => {
            let successor = row.unwrap_or_else(term::null);
            Some(rows.get(&beat.id).replace(|current| {
                let at_seen = match foreign(version) {
                    Some(row) => current.clone().equals(term::datum(row)),
                    None => current.clone().field("op").equals(term::text(version.as_str())),
                };
                document::swap(current, at_seen, successor)
            }))
        }
    }
}

/// The leader row in a table. Its version is its `op`.
///
/// We did not write a row without an `op`; its version is the whole row.
fn found(row: &Value) -> Option<Found> {
    let mut fields: Fields = row.as_object()?.clone();
    let op = fields.get("op").and_then(Value::as_str).filter(|op| !op.starts_with('{'));
    let version = op.map_or_else(|| Version::new(row.to_string()), Version::new);
    if let Some(stamp) = fields.get_mut("timestamp")
        && let Some(seconds) = stamp.get("epoch_time").and_then(Value::as_f64)
    {
        // The server counts in seconds, with three decimal places.
        *stamp = Value::from((seconds * 1000.0).round().max(0.0) as u64);
    }
    Some(Found { version, fields })
}

/// The row that a version holds; none if the version is one of ours.
fn foreign(version: &Version) -> Option<Value> {
    let text = Some(version.as_str()).filter(|text| text.starts_with('{'))?;
    serde_json::from_str(text).ok()
}

fn to_text(fields: &Fields) -> String {
    Value::Object(fields.clone()).to_string()
}

fn broken(lost: super::link::Lost) -> Failure {
    Failure::broken(Kind::Read, lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(change: Value) -> Option<Item> {
        show(change).expect("no error")
    }

    #[test]
    fn changes_of_users_are_shown_as_they_are_and_ours_are_not() {
        for theirs in [
            json!({ "new_val": { "id": "order-1", "n": 1 }, "old_val": null }),
            json!({ "new_val": null, "old_val": { "id": 7 } }),
            json!({ "new_val": { "id": ["a", 1] } }),
        ] {
            let item = Item::Change { change: theirs.clone(), cursor: None };
            assert_eq!(shown(theirs), Some(item));
        }
        for ours in ["feeds/a", "elections/a", "candidates/a/b"] {
            assert_eq!(shown(json!({ "new_val": { "id": ours }, "old_val": null })), None);
            assert_eq!(shown(json!({ "new_val": null, "old_val": { "id": ours } })), None);
        }
        assert_eq!(shown(json!({ "state": "ready" })), None);
        let gone = json!({ "new_val": null, "old_val": { "id": "leader" } });
        assert_eq!(shown(gone), Some(Item::Leader(None)));
    }

    #[test]
    fn changes_that_were_left_out_end_the_feed() {
        let error = "Changefeed cache over array size limit, skipped 3 elements.";
        let failure = show(json!({ "error": error })).expect_err("something is missing");
        assert!(failure.source.to_string().contains("skipped 3"));
    }

    #[test]
    fn the_servers_time_is_in_milliseconds() {
        let stamp =
            json!({ "$reql_type$": "TIME", "epoch_time": 1794797254.012, "timezone": "+00:00" });
        let row = json!({ "id": "leader", "op": "x-1", "timestamp": stamp });
        let found = found(&row).expect("an object");
        assert_eq!(found.version.as_str(), "x-1");
        assert_eq!(found.fields["timestamp"], json!(1_794_797_254_012_u64));
    }

    #[test]
    fn a_document_of_another_program_is_replaced_only_as_it_was_seen() {
        let row = json!({ "id": "leader", "value": "old" });
        let version = found(&row).expect("an object").version;
        let beat = Beat { id: "leader".into(), expect: Expect::At(version), fields: None };
        let question = write(term::table("d", "t"), &beat).expect("a question");
        let asked = String::from_utf8(question.start()).expect("JSON");
        assert!(asked.contains(r#"[17,[[10,[1]],{"id":"leader","value":"old"}]]"#), "{asked}");
    }
}
