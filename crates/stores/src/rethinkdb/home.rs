//! One table by its name: found, created where it is missing, and told apart from others of that name.
//!
//! [`creation`](super::creation) decides; this asks the server and does as it says.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tenure::Fault;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::connection::{Answer, Connection};
use super::creation::{Limits, Looked, Opening, Rows, Step};
use super::document;
use super::fault::{Failure, Hope, Kind};
use super::link::Cursor;
use super::response::{Refused, Trouble};
use super::term::{self, Term};

/// How long all of it may take: a server that just started, a table that is created, a repair.
const OPENED_WITHIN: Duration = Duration::from_secs(25);
/// A server may take so long to create a table; one was seen to take a second.
const CREATED_WITHIN: Duration = Duration::from_secs(15);
/// How long servers may take to tell each other of a new table.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks, plus up to as much again.
const PAUSE: Duration = Duration::from_millis(100);
/// The row that says that a table, otherwise empty, is settled.
const SETTLED: &str = "tenure/settled";

/// A table that questions go to.
#[derive(Debug)]
pub(super) struct Home {
    connection: Connection,
    database: String,
    table: String,
    /// The table's id when it was opened; unknown on an emulator, and where another one would do as well.
    id: OnceLock<String>,
    /// The name led to no table, or to several: it may lead to another one now.
    wary: AtomicBool,
    looking: Mutex<Option<(Opening, Instant)>>,
}

impl Home {
    pub(super) fn new(connection: Connection, database: &str, table: &str) -> Home {
        let (database, table) = (database.to_owned(), table.to_owned());
        let (id, wary) = (OnceLock::new(), AtomicBool::new(false));
        Home { connection, database, table, id, wary, looking: Mutex::default() }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Waits until the table is there and settled, and gives its id. It is created where it is missing, if it may be.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst a table was created, which another process takes for its own.
    pub(super) async fn open(&self, create: bool) -> Result<String, Failure> {
        let began = Instant::now();
        if let Ok(id) = self.quickly().await {
            return Ok(id);
        }
        let mut opening = Opening::new(create);
        loop {
            let late = began.elapsed() >= OPENED_WITHIN;
            match self.advance(&mut opening, began).await {
                Ok(Some(id)) => match self.ready().await {
                    Ok(()) => {
                        self.mark(&id).await;
                        return Ok(id);
                    }
                    Err(failure) if late || !is_passing(&failure) => return Err(failure),
                    Err(failure) => self.note(&failure),
                },
                Ok(None) if late => {
                    let says = format!("{} did not settle within {OPENED_WITHIN:?}", self.place());
                    return Err(Failure::told(Fault::Unavailable, says));
                }
                Ok(None) => {}
                Err(failure) if late || !is_passing(&failure) => return Err(failure),
                Err(failure) => self.note(&failure),
            }
            let random = u64::from(rand::random::<u8>());
            sleep(PAUSE + PAUSE * u32::try_from(random).unwrap_or(0) / 256).await;
        }
    }

    /// Keeps to this table: another one of its name is refused from now on.
    pub(super) fn keep_to(&self, id: String) {
        // The first one counts.
        let _ = self.id.set(id);
    }

    /// A question to the table, as [`Connection::ask`].
    pub(super) async fn ask(&self, kind: Kind, question: &Term) -> Result<Value, Failure> {
        self.be_sure().await?;
        self.heed(self.connection.ask(kind, question).await)
    }

    /// A question about many documents, as [`Connection::answer`].
    pub(super) async fn answer(&self, kind: Kind, question: &Term) -> Result<Answer, Failure> {
        self.be_sure().await?;
        self.heed(self.connection.answer(kind, question).await)
    }

    /// A feed of the table, as [`Connection::follow`].
    pub(super) async fn follow(&self, question: &Term) -> Result<Cursor, Failure> {
        self.be_sure().await?;
        self.heed(self.connection.follow(question).await)
    }

    /// Notes what an answer says about the name.
    pub(super) fn heed<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &answer {
            match failure.trouble() {
                Some(Trouble::Missing | Trouble::Ambiguous) => self.doubt(),
                Some(Trouble::Exists) | None => {}
            }
        }
        answer
    }

    /// A feed of the table ended. The server ends it with its table; any other end is the connection's.
    pub(super) fn lose(&self, cursor: &Cursor, failure: &Failure) {
        if failure.refusal().is_some() {
            self.doubt();
        }
        match failure.hope {
            Hope::OtherConnection => self.connection.give_up(cursor),
            Hope::None | Hope::OtherServer => {}
        }
    }

    /// The name may lead to another table: the next question finds out first.
    fn doubt(&self) {
        self.wary.store(true, Ordering::Relaxed);
    }

    /// Looks anew after the name led to no table, or to several. One look for each question: none of them takes long.
    async fn be_sure(&self) -> Result<(), Failure> {
        if !self.wary.load(Ordering::Relaxed) || self.connection.is_emulated().await? {
            return Ok(());
        }
        let unsettled = || {
            let says = format!("it is not yet clear which table {} is", self.place());
            Failure::told(Fault::Unavailable, says)
        };
        let Ok(mut looking) = self.looking.try_lock() else { return Err(unsettled()) };
        let (opening, began) = looking.get_or_insert_with(|| (Opening::new(false), Instant::now()));
        let began = *began;
        let id = self.advance(opening, began).await?.ok_or_else(unsettled)?;
        if let Some(known) = self.id.get().filter(|known| **known != id) {
            let says = format!(
                "{} is another table than before (it has the id {id}, and had {known}): it was dropped and \
                 created anew, so its tokens begin again at 1; end every process that uses it, then start again",
                self.place()
            );
            return Err(Failure::told(Fault::Permanent, says));
        }
        *looking = None;
        self.wary.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The one table of this name, if it has rows: it is in use.
    async fn quickly(&self) -> Result<String, Failure> {
        let config = self.connection.ask(Kind::Read, &self.rows().config()).await?;
        let id = config.get("id").and_then(Value::as_str).map(str::to_owned);
        match (id, self.rows_of(&self.table).await) {
            (Some(id), Rows::Some) => Ok(id),
            _ => Err(Failure::told(Fault::Unavailable, "it is not settled")),
        }
    }

    /// Looks once and does what follows from it; gives the table's id once it may be used.
    async fn advance(
        &self,
        opening: &mut Opening,
        began: Instant,
    ) -> Result<Option<String>, Failure> {
        let sent = began.elapsed();
        let (looked, listed) = self.look().await?;
        let step = opening.step(sent, &looked, &Limits::REAL);
        if !matches!(step, Step::Look | Step::Use(_)) {
            tracing::debug!(?step, ?looked, "rethinkdb: {}", self.place());
        }
        match step {
            Step::Use(id) => return Ok(Some(id)),
            Step::Look => {}
            Step::Create if listed => self.create(opening, began).await?,
            Step::Drop(_) | Step::SetAside(_) | Step::PutBack(_) | Step::Create if !listed => {
                return Err(self.not_allowed());
            }
            Step::Create => {}
            Step::Drop(id) => {
                self.change(&term::drop_table(&id)).await?;
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
            Step::Missing => {
                let says = format!("the table {} does not exist", self.place());
                return Err(Failure::told(Fault::Unavailable, says));
            }
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
        Ok(None)
    }

    /// The tables of this name, and whether they could be listed; one who may not list them sees one at most.
    async fn look(&self) -> Result<(Looked, bool), Failure> {
        let mut looked = Looked::default();
        let listed = self.connection.ask(Kind::Read, &term::configs(&self.database)).await;
        let listed = match listed {
            Err(failure) if failure.fault == Fault::Denied => return self.look_by_name().await,
            listed => listed?,
        };
        for row in listed.as_array().into_iter().flatten() {
            let text = |name: &str| row.get(name).and_then(Value::as_str);
            let (Some(id), Some(name)) = (text("id"), text("name")) else { continue };
            if name == self.table {
                looked.named.insert(id.to_owned(), Rows::Unknown);
            } else if name == aside(&self.table, id) {
                looked.aside.insert(id.to_owned(), self.rows_of(name).await);
            }
        }
        if looked.named.len() == 1 {
            let rows = self.rows_of(&self.table).await;
            looked.named.values_mut().for_each(|known| *known = rows);
        }
        Ok((looked, true))
    }

    async fn look_by_name(&self) -> Result<(Looked, bool), Failure> {
        let mut looked = Looked::default();
        let config = self.connection.ask(Kind::Read, &self.rows().config()).await;
        let config = match config {
            Err(failure) if failure.trouble() == Some(Trouble::Missing) => {
                return Ok((looked, false));
            }
            config => config?,
        };
        let id = config.get("id").and_then(Value::as_str).unwrap_or_default();
        looked.named.insert(id.to_owned(), self.rows_of(&self.table).await);
        Ok((looked, false))
    }

    async fn rows_of(&self, table: &str) -> Rows {
        let question = term::settled_table(&self.database, table).emptiness();
        match self.connection.ask(Kind::Read, &question).await {
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
        match self.connection.ask_patiently(&question, CREATED_WITHIN).await {
            Ok(answer) => {
                let id = answer.pointer("/config_changes/0/new_val/id").and_then(Value::as_str);
                if let Some(id) = id {
                    opening.created(id.to_owned(), sent);
                }
            }
            Err(failure) if failure.trouble() == Some(Trouble::Exists) => {}
            // Whether one was created, the next look shows; it counts as a stranger's.
            Err(failure) if failure.fault == Fault::Indeterminate => self.note(&failure),
            Err(failure) => return Err(failure),
        }
        // A server that has not yet heard of another table would show ours as the only one.
        sleep(TOLD_WITHIN).await;
        Ok(())
    }

    /// A change of the server's own tables. One that another process was faster with changes nothing.
    async fn change(&self, question: &Term) -> Result<(), Failure> {
        let answer = match self.connection.ask_patiently(question, CREATED_WITHIN).await {
            Err(failure) if failure.fault == Fault::Denied => return Err(self.not_allowed()),
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

    /// Waits until the table takes writes.
    async fn ready(&self) -> Result<(), Failure> {
        // The server counts in whole seconds.
        let seconds = (self.connection.request() / 2).as_secs().max(1);
        self.connection.ask(Kind::Read, &self.rows().wait_for_writes(seconds)).await.map(drop)
    }

    /// Leaves a row, so that the next process need not watch an empty table.
    async fn mark(&self, id: &str) {
        let op = document::fresh_op();
        let body = format!("the table with the id {id} is the one to use");
        let row = [("id", SETTLED), ("op", &op), ("body", &body)];
        let row = term::object(row.map(|(name, value)| (name, term::text(value))));
        let marked = self.connection.ask(Kind::Write, &self.rows().insert(row)).await;
        if let Err(failure) = marked {
            // One who may not write leaves the wait to the next.
            self.note(&failure);
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

/// What a table is called while it is not clear whether it counts.
fn aside(table: &str, id: &str) -> String {
    format!("{table}_duplicate_{}", id.replace('-', ""))
}

/// Whether waiting may help: the server answers, and its table does not serve yet.
fn is_passing(failure: &Failure) -> bool {
    failure.refusal().is_some_and(|refusal| refusal.kind == Refused::Failed)
}

#[cfg(test)]
#[path = "home_tests.rs"]
mod tests;
