//! One table by its name: finding, creating and recognizing it.
//!
//! [`creation`](super::creation) decides on each step; this module asks the server and carries the
//! steps out.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tenure::store::Fault;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::connection::{Answer, Connection};
use super::creation::{Limits, Looked, Opening, Rows, Step};
use super::document;
use super::fault::{Failure, Hope, Kind};
use super::link::Cursor;
use super::response::Trouble;
use super::term::{self, Term};

/// The time-out of a look while a table is opened, even where requests are short. A server that
/// creates tables is slow to answer.
pub(super) const LOOKED_WITHIN: Duration = Duration::from_secs(5);
/// How long a server waits for a table that does not serve yet, in whole seconds.
const SERVES_WITHIN: u64 = 2;
/// How long a server may take to create a table; one was seen to take a second.
const CREATED_WITHIN: Duration = Duration::from_secs(15);
/// How long servers may take to tell each other of a new table.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// The pause between two looks, plus up to as much again.
const PAUSE: Duration = Duration::from_millis(100);
/// The id of the row that marks a table, otherwise empty, as settled.
const SETTLED: &str = "tenure/settled";

/// The result of a look.
enum Found {
    /// The table with this id may be used.
    Settled(String),
    Unsettled,
    /// There is no table, and creating one was not asked for.
    Missing,
}

/// A table that questions go to.
#[derive(Debug)]
pub(super) struct Home {
    connection: Connection,
    database: String,
    table: String,
    /// The table's id when it was opened. It is unset on an emulator, and where another table would
    /// do as well.
    id: OnceLock<String>,
    /// True after the name led to no table or to several. It may lead to another now.
    wary: AtomicBool,
    /// The number of the connection over which the table was last seen to be the same. The table
    /// may have changed when there is another connection.
    seen_over: AtomicU64,
    limits: Limits,
    looking: Mutex<Option<(Opening, Instant)>>,
}

impl Home {
    pub(super) fn new(connection: Connection, database: &str, table: &str) -> Home {
        let (database, table) = (database.to_owned(), table.to_owned());
        let (id, wary, seen_over) = (OnceLock::new(), AtomicBool::new(false), AtomicU64::new(0));
        let (limits, looking) = (Limits::REAL, Mutex::default());
        Home { connection, database, table, id, wary, seen_over, limits, looking }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Waits until the table exists and is settled, and returns its id.
    ///
    /// If `create` is set, a missing table is created; otherwise the result is none.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst a table was created, and another process uses it.
    pub(super) async fn open(&self, create: bool, end: Instant) -> Result<Option<String>, Failure> {
        if let Ok(id) = self.quickly().await {
            return Ok(Some(id));
        }
        let began = Instant::now();
        let mut opening = Opening::new(create);
        loop {
            let late = Instant::now() >= end;
            let settled = match self.advance(&mut opening, began, LOOKED_WITHIN).await {
                Ok(Found::Settled(id)) => self.take(&id).await.map(|()| Some(id)),
                Ok(Found::Unsettled) => Ok(None),
                Ok(Found::Missing) => return Ok(None),
                Err(failure) => Err(failure),
            };
            match settled {
                Ok(Some(id)) => return Ok(Some(id)),
                Ok(None) if late => {
                    let says = format!("{} did not settle in time", self.place());
                    return Err(Failure::told(Fault::Unavailable, says));
                }
                Ok(None) => {}
                Err(failure) if late || !is_passing(&failure) => return Err(failure),
                Err(failure) => self.note(&failure),
            }
            pause().await;
        }
    }

    /// Fixes the table to this id: another table of its name is refused from now on.
    pub(super) fn keep_to(&self, id: String) {
        // The first id counts.
        let _ = self.id.set(id);
    }

    /// Asks the table a question, as [`Connection::ask`].
    pub(super) async fn ask(&self, kind: Kind, question: &Term) -> Result<Value, Failure> {
        let made = self.be_sure().await?;
        let answer = self.heed(self.connection.ask(kind, question).await)?;
        self.be_sure_still(kind, made).await.map(|()| answer)
    }

    /// Asks a question about many documents, as [`Connection::answer`].
    pub(super) async fn answer(&self, kind: Kind, question: &Term) -> Result<Answer, Failure> {
        let made = self.be_sure().await?;
        let answer = self.heed(self.connection.answer(kind, question).await)?;
        self.be_sure_still(kind, made).await.map(|()| answer)
    }

    /// Follows the table, as [`Connection::follow`].
    pub(super) async fn follow(&self, question: &Term) -> Result<Cursor, Failure> {
        let made = self.be_sure().await?;
        let cursor = self.heed(self.connection.follow(question).await)?;
        self.be_sure_still(Kind::Read, made).await.map(|()| cursor)
    }

    /// Notes an answer that casts doubt on the name.
    pub(super) fn heed<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &answer {
            match failure.trouble() {
                Some(Trouble::Missing | Trouble::Ambiguous) => self.doubt(),
                Some(Trouble::Exists) | None => {}
            }
        }
        answer
    }

    /// Handles the end of a feed. The server ends a feed with its table; any other end is the
    /// connection's.
    pub(super) fn lose(&self, cursor: &Cursor, failure: &Failure) {
        if failure.refusal().is_some() {
            self.doubt();
        }
        match failure.hope {
            Hope::OtherConnection => self.connection.give_up(cursor),
            Hope::None | Hope::OtherServer => {}
        }
    }

    /// Notes that the name may lead to another table: the next question checks first.
    fn doubt(&self) {
        self.wary.store(true, Ordering::Relaxed);
    }

    /// Fails unless the table is still the one that was opened.
    pub(super) async fn make_sure(&self) -> Result<(), Failure> {
        self.seen_over.store(0, Ordering::Relaxed);
        self.be_sure().await.map(drop)
    }

    /// Checks the table again if the question may have gone over another connection.
    async fn be_sure_still(&self, kind: Kind, made: u64) -> Result<(), Failure> {
        if self.connection.made() == made {
            return Ok(());
        }
        match (kind, self.be_sure().await) {
            (_, Ok(_)) => Ok(()),
            // The write was answered, and may have had an effect.
            (Kind::Write, Err(failure)) if failure.fault == Fault::Unavailable => {
                Err(Failure { fault: Fault::Indeterminate, ..failure })
            }
            (Kind::Read | Kind::Write, Err(failure)) => Err(failure),
        }
    }

    /// Checks that the table is the one that was opened. Returns the connection's number.
    ///
    /// Looks again after the name led to no table or to several, and over each new connection: the
    /// table may have been dropped and created again while nothing was asked.
    async fn be_sure(&self) -> Result<u64, Failure> {
        self.connection.connect().await?;
        let made = self.connection.made();
        let wary = self.wary.load(Ordering::Relaxed);
        if (self.is_seen_over(made) && !wary) || self.connection.is_emulated().await? {
            return Ok(made);
        }
        match wary {
            true => self.look_anew().await?,
            false => {
                // One look serves all waiting questions.
                let _looking = self.looking.lock().await;
                if self.is_seen_over(made) {
                    return Ok(made);
                }
                let config =
                    self.heed(self.connection.ask(Kind::Read, &self.rows().config()).await)?;
                let id = config.get("id").and_then(Value::as_str).unwrap_or_default();
                self.recognize(id).inspect_err(|_| self.doubt())?;
            }
        }
        self.seen_over.store(made, Ordering::Relaxed);
        Ok(made)
    }

    fn is_seen_over(&self, made: u64) -> bool {
        self.id.get().is_none() || self.seen_over.load(Ordering::Relaxed) == made
    }

    /// Looks once for each question, so that none of them takes long.
    async fn look_anew(&self) -> Result<(), Failure> {
        let unsettled = || {
            let says = format!("it is not yet clear which table {} is", self.place());
            Failure::told(Fault::Unavailable, says)
        };
        let Ok(mut looking) = self.looking.try_lock() else { return Err(unsettled()) };
        let (opening, began) = looking.get_or_insert_with(|| (Opening::new(false), Instant::now()));
        let began = *began;
        let id = match self.advance(opening, began, self.connection.request()).await? {
            Found::Settled(id) => id,
            Found::Unsettled => return Err(unsettled()),
            Found::Missing => {
                let says = format!("the table {} does not exist", self.place());
                return Err(Failure::told(Fault::Unavailable, says));
            }
        };
        self.recognize(&id)?;
        *looking = None;
        self.wary.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Fails if this id is not the id of the table that was opened.
    fn recognize(&self, id: &str) -> Result<(), Failure> {
        if let Some(known) = self.id.get().filter(|known| *known != id) {
            let says = format!(
                "{} is another table than before (it has the id {id}, and had {known}): it was dropped and \
                 created anew, so its tokens begin again at 1; end every process that uses it, then start again",
                self.place()
            );
            return Err(Failure::told(Fault::Permanent, says));
        }
        Ok(())
    }

    /// The id of the only table of this name, if it has rows: it is in use.
    async fn quickly(&self) -> Result<String, Failure> {
        let config = self.look_at(&self.rows().config(), LOOKED_WITHIN).await?;
        let id = config.get("id").and_then(Value::as_str).map(str::to_owned);
        match (id, self.rows_of(&self.table, LOOKED_WITHIN).await) {
            (Some(id), Rows::Some) => Ok(id),
            _ => Err(Failure::told(Fault::Unavailable, "it is not settled")),
        }
    }

    /// Looks once and carries out the next step.
    async fn advance(
        &self,
        opening: &mut Opening,
        began: Instant,
        patience: Duration,
    ) -> Result<Found, Failure> {
        let sent = began.elapsed();
        let (looked, listed) = self.look(patience).await?;
        let step = opening.step(sent, &looked, &self.limits);
        if !matches!(step, Step::Look | Step::Use(_)) {
            tracing::debug!(?step, ?looked, "rethinkdb: {}", self.place());
        }
        match step {
            Step::Use(id) => return Ok(Found::Settled(id)),
            Step::Look => {}
            Step::Create if listed => self.create(opening, began).await?,
            Step::GiveWay(_)
            | Step::Drop(_)
            | Step::SetAside(_)
            | Step::PutBack(_)
            | Step::Create
                if !listed =>
            {
                return Err(self.not_allowed());
            }
            Step::Create => {}
            Step::GiveWay(id) => {
                self.change(&term::rename_table(&id, &aside(&self.table, &id))).await?;
            }
            Step::Drop(id) => {
                let name = aside(&self.table, &id);
                self.change(&term::drop_empty_table(&id, &self.database, &name)).await?;
            }
            Step::SetAside(ids) => {
                let names: Vec<String> = ids.iter().map(|id| aside(&self.table, id)).collect();
                tracing::warn!(
                    "rethinkdb: there are {} tables {}: they are renamed to {} until it is clear which one counts",
                    ids.len(),
                    self.place(),
                    names.join(", ")
                );
                let renames = ids
                    .iter()
                    .zip(&names)
                    .map(async |(id, name)| self.change(&term::rename_table(id, name)).await);
                futures_util::future::try_join_all(renames).await?;
            }
            Step::PutBack(id) => {
                tracing::warn!("rethinkdb: {} is the table with the id {id}", self.place());
                self.change(&term::rename_table(&id, &self.table)).await?;
            }
            Step::Missing => return Ok(Found::Missing),
            Step::Refuse(ids) => {
                let names: Vec<String> =
                    ids.iter().map(|id| format!("{id} (now {})", aside(&self.table, id))).collect();
                let says = format!(
                    "several tables were {}, and more than one has rows: {}; give one of them its name back with \
                     r.db('rethinkdb').table('table_config').get(ID).update({{name: '{}'}})",
                    self.place(),
                    names.join(", "),
                    self.table
                );
                return Err(Failure::told(Fault::Permanent, says));
            }
        }
        Ok(Found::Unsettled)
    }

    async fn look_at(&self, question: &Term, patience: Duration) -> Result<Value, Failure> {
        self.connection.ask_patiently(Kind::Read, question, patience).await
    }

    /// The tables of this name, and true if they could be listed.
    ///
    /// A user without the right to list them sees at most one.
    async fn look(&self, patience: Duration) -> Result<(Looked, bool), Failure> {
        let mut looked = Looked::default();
        let listed = self.look_at(&term::configs(&self.database), patience).await;
        let listed = match listed {
            Err(failure) if failure.fault == Fault::Denied => {
                return self.look_by_name(patience).await;
            }
            listed => listed?,
        };
        for row in listed.as_array().into_iter().flatten() {
            let text = |name: &str| row.get(name).and_then(Value::as_str);
            let (Some(id), Some(name)) = (text("id"), text("name")) else { continue };
            if name == self.table {
                looked.named.insert(id.to_owned(), Rows::Unknown);
            } else if name == aside(&self.table, id) {
                looked.aside.insert(id.to_owned(), self.rows_of(name, patience).await);
            }
        }
        if looked.named.len() == 1 {
            let rows = self.rows_of(&self.table, patience).await;
            looked.named.values_mut().for_each(|known| *known = rows);
        }
        Ok((looked, true))
    }

    async fn look_by_name(&self, patience: Duration) -> Result<(Looked, bool), Failure> {
        let mut looked = Looked::default();
        let config = self.look_at(&self.rows().config(), patience).await;
        let config = match config {
            Err(failure) if failure.trouble() == Some(Trouble::Missing) => {
                return Ok((looked, false));
            }
            config => config?,
        };
        let id = config.get("id").and_then(Value::as_str).unwrap_or_default();
        looked.named.insert(id.to_owned(), self.rows_of(&self.table, patience).await);
        Ok((looked, false))
    }

    async fn rows_of(&self, table: &str, patience: Duration) -> Rows {
        let question = term::settled_table(&self.database, table).emptiness();
        match self.look_at(&question, patience).await {
            Ok(Value::Bool(true)) => Rows::None,
            Ok(Value::Bool(false)) => Rows::Some,
            Ok(_) => Rows::Unknown,
            Err(failure) => {
                self.note(&failure);
                Rows::Unknown
            }
        }
    }

    async fn create(&self, opening: &mut Opening, began: Instant) -> Result<(), Failure> {
        let sent = began.elapsed();
        let question = term::create_table(&self.database, &self.table);
        match self.connection.ask_patiently(Kind::Write, &question, CREATED_WITHIN).await {
            Ok(answer) => {
                let id = answer.pointer("/config_changes/0/new_val/id").and_then(Value::as_str);
                if let Some(id) = id {
                    opening.created(id.to_owned(), sent);
                }
            }
            Err(failure) if failure.trouble() == Some(Trouble::Exists) => {}
            // The next look shows whether a table was created. It counts as another process's.
            Err(failure) if failure.fault == Fault::Indeterminate => self.note(&failure),
            Err(failure) => return Err(failure),
        }
        // A server that has not heard of another table yet would show ours as the only one.
        sleep(TOLD_WITHIN).await;
        Ok(())
    }

    /// Changes the server's own tables. It changes nothing if another process was faster.
    async fn change(&self, question: &Term) -> Result<(), Failure> {
        let answer = self.connection.ask_patiently(Kind::Write, question, CREATED_WITHIN).await;
        let answer = match answer {
            Err(failure) if failure.fault == Fault::Denied => return Err(self.not_allowed()),
            Err(failure) if failure.trouble() == Some(Trouble::Missing) => return Ok(()),
            answer => answer?,
        };
        match answer.get("first_error").and_then(Value::as_str) {
            Some(_) => {
                let says = document::complaint(&answer);
                tracing::debug!(%says, "rethinkdb: {} was not changed", self.place());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Waits until the table takes writes, and marks it as settled with a row.
    ///
    /// The row spares the next process from watching an empty table.
    async fn take(&self, id: &str) -> Result<(), Failure> {
        self.look_at(&self.rows().wait_for_writes(SERVES_WITHIN), LOOKED_WITHIN).await?;
        let op = document::fresh_op();
        let body = format!("the table with the id {id} is the one to use");
        let row = [("id", SETTLED), ("op", &op), ("body", &body)];
        let row = term::object(row.map(|(name, value)| (name, term::text(value))));
        let row = self.rows().insert(row);
        match self.connection.ask_patiently(Kind::Write, &row, LOOKED_WITHIN).await {
            Err(failure) if is_passing(&failure) => Err(failure),
            Err(failure) => {
                // Without the right to write there is no row, and the next process has to watch.
                self.note(&failure);
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    fn rows(&self) -> Term {
        term::table(&self.database, &self.table)
    }

    fn place(&self) -> String {
        format!("`{}.{}`", self.database, self.table)
    }

    fn note(&self, failure: &Failure) {
        tracing::debug!(error = %failure.source, "rethinkdb: waiting for {}", self.place());
    }

    fn not_allowed(&self) -> Failure {
        let says = format!(
            "creating {} so that one table is left takes the permissions `read` and `write` on \
             `rethinkdb.table_config`: grant them, or create the table by hand",
            self.place()
        );
        Failure::told(Fault::Denied, says)
    }
}

/// The name of a table that is set aside while it is not clear whether it counts.
fn aside(table: &str, id: &str) -> String {
    format!("{table}_duplicate_{}", id.replace('-', ""))
}

/// Returns true if waiting may help. The server is slow, or its table does not serve yet.
fn is_passing(failure: &Failure) -> bool {
    match failure.fault {
        Fault::Unavailable | Fault::Indeterminate => true,
        Fault::Permanent | Fault::Denied => false,
    }
}

/// Pauses for a random time between two looks, so that processes drift apart.
pub(super) async fn pause() {
    sleep(PAUSE + PAUSE * u32::from(rand::random::<u8>()) / 256).await;
}

#[cfg(test)]
#[path = "home_tests.rs"]
mod tests;
