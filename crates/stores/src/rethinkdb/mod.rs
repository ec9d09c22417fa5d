//! Documents in a table of RethinkDB, version 2.3 and later.
//!
//! Reads show data that a majority of the table's replicas has on disk, which is linearizable. A
//! write is one question that compares the document's last operation, and is acknowledged when a
//! majority has it on disk. All questions of a process share one connection, and all waits one feed
//! of the table's changes.
//!
//! The wire protocol is implemented here. The existing crates cannot be relied on: a query that is
//! given up wedges their connection, and they know neither time-outs nor TLS.

mod connection;
mod creation;
mod document;
mod fault;
mod feed;
mod frame;
mod handshake;
mod home;
mod json;
mod keys;
mod link;
mod list;
mod listener;
mod response;
mod scram;
#[cfg(test)]
mod scripted;
mod table;
mod term;
mod tls;
mod waits;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use tenure::Key;
use tenure::store::{
    Document, Fault, MAX_DOCUMENT_BYTES, Page, Put, Reads, Store, StoreError, StoreExt as _,
    Version, Write,
};

pub use self::connection::Connection;
use self::connection::{Answer, failed};
use self::fault::Kind;
pub use self::feed::{Place, RethinkFeed};
use self::home::Home;
use self::json::Json;
use self::term::Term;
use self::waits::{State, Waits, Woken};
use crate::background::Background;
use crate::servers::Servers;

/// The default database.
pub const DATABASE: &str = "test";
/// The default table.
pub const TABLE: &str = "tenure";
/// The most documents in one read. So many of the largest are well below the largest answer.
const MOST_READS: usize = 100;

/// Documents in a table of RethinkDB.
pub struct RethinkStore {
    connection: Connection,
    home: Arc<Home>,
    database: String,
    table: String,
    waits: Arc<Waits>,
    listener: Background,
}

impl RethinkStore {
    /// Opens the store that a URL names.
    ///
    /// If `create` is set, a missing database or table is created.
    ///
    /// # Errors
    /// [`StoreError`] when a file cannot be read, no server answers or lets us in, the table is
    /// missing, or it acknowledges writes that can be lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open(
        servers: &Servers,
        request: Duration,
        create: bool,
    ) -> Result<RethinkStore, StoreError> {
        let database = if servers.path.is_empty() { DATABASE } else { &servers.path };
        let table = servers.table.as_deref().unwrap_or(TABLE);
        let connection = Connection::new(servers, request)?;
        RethinkStore::from_connection(connection, database, table, create).await
    }

    /// The documents in a table, over a connection that the caller shares with others.
    ///
    /// # Errors
    /// As for [`RethinkStore::open`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn from_connection(
        connection: Connection,
        database: &str,
        table: &str,
        create: bool,
    ) -> Result<RethinkStore, StoreError> {
        // Connecting may take longer than a question.
        table::is_emulated(&connection).await?;
        let home = Arc::new(Home::new(connection.clone(), database, table));
        let id = table::settle(&home, database, table, create).await?;
        // Another table of this name has other tokens.
        id.into_iter().for_each(|id| home.keep_to(id));
        let (database, table) = (database.to_owned(), table.to_owned());
        let (waits, listener) = (Arc::default(), Background::default());
        Ok(RethinkStore { connection, home, database, table, waits, listener })
    }

    /// The connection, for the caller's own questions.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The feed of the same database, over the same connection.
    ///
    /// Its default table is the store's.
    #[must_use]
    pub fn feed(&self) -> RethinkFeed {
        RethinkFeed::new(self.connection.clone(), &self.database, &self.table)
    }

    /// The name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The name of the table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    fn rows(&self) -> Term {
        term::table(&self.database, &self.table)
    }

    fn settled_rows(&self) -> Term {
        term::settled_table(&self.database, &self.table)
    }

    async fn read_some(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let (question, doing) = match keys {
            [] => return Ok(Vec::new()),
            [key] => (self.settled_rows().get(&keys::id(key)), format!("reading {key}")),
            [first, others @ ..] => {
                let all = self.settled_rows().get_all(keys.iter().map(keys::id)).array();
                (all, format!("reading {first} and {} others", others.len()))
            }
        };
        let moment = self.waits.moment();
        let answer = self.home.answer(Kind::Read, &question).await;
        let answer = answer.map_err(|failure| failed(failure, &doing))?;
        let rows = match (keys.len(), answer) {
            (1, Answer::One(row)) if row.is_null() => Ok(Vec::new()),
            (1, Answer::One(row)) => Ok(vec![row]),
            (_, answer) => answer.rows(),
        };
        let rows = rows.map_err(|garbled| refused(Fault::Unavailable, &doing, garbled))?;
        let identify = |row: &Json| {
            // A row that cannot be read must not pass for an absent document.
            document::identify(row).ok_or_else(|| {
                let says = format!("the answer is no document: {}", shown(row));
                refused(Fault::Unavailable, &doing, says)
            })
        };
        let found: Result<HashMap<String, Document>, StoreError> =
            rows.iter().map(identify).collect();
        let found = found?;
        // A key may be asked for twice.
        let documents: Vec<_> = keys.iter().map(|key| found.get(&keys::id(key)).cloned()).collect();
        for (key, document) in keys.iter().zip(&documents) {
            self.waits.saw(moment, key, document.as_ref().map(state));
        }
        Ok(documents)
    }

    async fn write(&self, write: Write) -> Result<Put, StoreError> {
        let doing = || format!("writing {}", write.key);
        if let Some(body) = &write.body
            && body.len() > MAX_DOCUMENT_BYTES
        {
            let says = format!("{} bytes are more than {MAX_DOCUMENT_BYTES}", body.len());
            return Err(refused(Fault::Permanent, doing(), says));
        }
        let op = document::fresh_op();
        let (expect, body) = (&write.expect, write.body.as_ref());
        let Some(question) = document::write(self.rows(), &write.key, expect, body, &op) else {
            // None of our documents was ever at a version that is not ours.
            return Ok(Put::Conflict);
        };
        let moment = self.waits.moment();
        let answer = self.home.ask(Kind::Write, &question).await;
        let answer = answer.map_err(|failure| failed(failure, doing()))?;
        let put = document::outcome(&answer, &op)
            .ok_or_else(|| refused(Fault::Indeterminate, doing(), document::complaint(&answer)))?;
        match put {
            Put::Stored(_) => self.waits.saw(moment, &write.key, body.map(|_| op)),
            Put::Conflict if document::was_absent(&answer) => {
                // The document existed: it was deleted, or its table was dropped and created again.
                self.home.make_sure().await.map_err(|failure| failed(failure, doing()))?;
            }
            Put::Conflict => {}
        }
        Ok(put)
    }

    fn listen(&self) {
        let begin = || listener::listen(self.home.clone(), self.rows(), self.waits.clone());
        self.listener.ensure(begin);
    }
}

#[async_trait]
impl Store for RethinkStore {
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
        let parts = try_join_all(keys.chunks(MOST_READS).map(|some| self.read_some(some))).await?;
        Ok(parts.into_iter().flatten().collect())
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        join_all(writes.into_iter().map(|write| self.write(write))).await
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        list::page(&self.home, &self.rows(), prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        let state: State = seen.map(|seen| seen.as_str().into());
        self.listen();
        loop {
            match self.waits.changed(key, &state).await {
                Woken::Changed => return,
                Woken::LookFirst => match self.get(key).await {
                    Ok(found) if found.as_ref().map(|found| &found.version) == seen => {}
                    // It changed or could not be read: the caller reads it next.
                    Ok(_) | Err(_) => return,
                },
            }
        }
    }
}

impl fmt::Debug for RethinkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RethinkStore")
            .field("connection", &self.connection)
            .field("database", &self.database)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

fn state(document: &Document) -> Arc<str> {
    document.version.as_str().into()
}

/// The beginning of an unexpected value, for an error message.
fn shown(value: &Json) -> String {
    value.text().chars().take(100).collect()
}

fn refused(
    fault: Fault,
    doing: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::new(fault, "rethinkdb", doing, source)
}
