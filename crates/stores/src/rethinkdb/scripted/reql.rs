//! The tables of the scripted server, and its answers to questions about them.

mod terms;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::parts::{Asked, Feed, Sequence};

const OP_FAILED: u64 = 4_100_000;

/// The state of the server, and its behaviour.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) connections: usize,
    /// How many creators must find the name free before the first table is created.
    pub(crate) together: usize,
    pub(super) found_free: usize,
    /// The delay between the creation of a table and the answer.
    pub(crate) slow: Duration,
    /// The ids of the next tables; others follow.
    pub(crate) ids: VecDeque<&'static str>,
    /// How many more questions about tables meet a server that has just started.
    pub(crate) starting: usize,
    /// The delay of answers to questions with this outermost term.
    pub(crate) delays: BTreeMap<u64, Duration>,
    /// The refusal of the n-th question with this outermost term.
    pub(crate) refusals: BTreeMap<(u64, usize), &'static str>,
    /// How many rows a part of a sequence has; none for whole sequences.
    pub(crate) rows_in_a_part: Option<usize>,
    /// How many questions the client ended.
    pub(crate) stopped: usize,
    pub(super) severing: Arc<Notify>,
    /// How often each term was the outermost of a question.
    pub(crate) asked: BTreeMap<u64, usize>,
    databases: BTreeSet<String>,
    tables: Vec<Table>,
    created: usize,
    feeds: Vec<Feed>,
    sequences: Vec<Sequence>,
}

#[derive(Clone)]
struct Table {
    id: String,
    database: String,
    name: String,
    rows: BTreeMap<String, Value>,
}

pub(super) enum Outcome {
    Answer(Value),
    /// The answer is sent with the next change.
    Later,
}

/// The value of a term.
enum Worth {
    Datum(Value),
    Database(String),
    /// A table by its id; the system table of configurations has none.
    Table(Option<String>),
    Row(Option<String>, String),
    Rows(Vec<Value>),
    Changes {
        table: String,
        pluck: Option<Value>,
    },
    Most,
}

type Worthy = Result<Worth, Value>;

fn refused(code: u64, says: impl Into<String>) -> Value {
    json!({ "t": 18, "e": code, "r": [says.into()], "b": [] })
}

fn atom(value: Value) -> Value {
    json!({ "t": 1, "r": [value] })
}

impl World {
    /// The ids of the tables of this name, each with its number of rows.
    pub(crate) fn named(&self, database: &str, name: &str) -> Vec<(String, usize)> {
        let mut named: Vec<_> = self
            .tables
            .iter()
            .filter(|table| table.database == database && table.name == name)
            .map(|table| (table.id.clone(), table.rows.len()))
            .collect();
        named.sort();
        named
    }

    /// The names of all tables.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.tables.iter().map(|table| table.name.as_str()).collect()
    }

    /// Adds a table, as an operator or another client would.
    pub(crate) fn add(&mut self, id: &str, database: &str, name: &str, rows: &[Value]) {
        self.databases.insert(database.to_owned());
        let keyed = |row: &Value| (row["id"].as_str().expect("an id").to_owned(), row.clone());
        let rows = rows.iter().map(keyed).collect();
        let (id, database, name) = (id.to_owned(), database.to_owned(), name.to_owned());
        self.tables.push(Table { id, database, name, rows });
    }

    /// Removes the tables of this name, as an operator would. Their feeds end.
    pub(crate) fn drop_named(&mut self, database: &str, name: &str) {
        for (id, _) in self.named(database, name) {
            self.remove(&id);
        }
    }

    /// Ends every connection.
    pub(crate) fn sever(&self) {
        self.severing.notify_waiters();
    }

    /// Tells every feed that changes were left out.
    pub(crate) fn skip_changes(&mut self, says: &str) {
        for feed in &mut self.feeds {
            feed.show(json!({ "error": says }));
        }
    }

    fn remove(&mut self, id: &str) -> bool {
        let before = self.tables.len();
        self.tables.retain(|table| table.id != id);
        self.feeds.retain(|feed| {
            let over = feed.table == id;
            if over {
                let answer = refused(OP_FAILED, "Changefeed aborted (table unavailable).");
                let _ = feed.asked.answers.send((feed.asked.token, answer));
            }
            !over
        });
        self.tables.len() < before
    }

    /// Checks that the name of a new table is free; none for any other question.
    pub(super) fn check_creation(&mut self, term: &Value) -> Option<Result<(), Value>> {
        let (database, name) = new_table(term)?;
        *self.asked.entry(60).or_default() += 1;
        Some(match self.named(&database, &name).is_empty() {
            true => {
                self.found_free += 1;
                Ok(())
            }
            false => Err(refused(OP_FAILED, format!("Table `{database}.{name}` already exists."))),
        })
    }

    pub(super) fn create(&mut self, term: &Value) -> Value {
        let (database, name) = new_table(term).expect("it was checked");
        self.created += 1;
        let id = self.ids.pop_front().map(str::to_owned);
        let id = id.unwrap_or_else(|| format!("{:08x}-0000-4000-8000-000000000000", self.created));
        self.add(&id, &database, &name, &[]);
        let config = json!({ "id": id, "name": name, "db": database });
        let changes = json!([{ "new_val": config, "old_val": null }]);
        atom(json!({ "tables_created": 1, "config_changes": changes }))
    }

    pub(super) fn start(&mut self, term: &Value, asked: Asked) -> Outcome {
        let number = term[0].as_u64().unwrap_or(0);
        let count = self.asked.entry(number).or_default();
        *count += 1;
        if let Some(says) = self.refusals.get(&(number, *count)) {
            return Outcome::Answer(refused(OP_FAILED, *says));
        }
        let worth = match self.worth(term, &Value::Null) {
            Ok(Worth::Table(Some(table))) => {
                Ok(Worth::Rows(self.table(&table).rows.values().cloned().collect()))
            }
            worth => worth,
        };
        Outcome::Answer(match worth {
            Err(refused) => refused,
            Ok(Worth::Datum(value)) => atom(value),
            Ok(Worth::Rows(left)) => {
                let mut sequence = Sequence { asked, left };
                let part = sequence.part(self.rows_in_a_part.unwrap_or(usize::MAX));
                self.sequences.push(sequence);
                part
            }
            Ok(Worth::Row(table, id)) => atom(self.row(table.as_ref(), &id)),
            Ok(Worth::Changes { table, pluck }) => {
                self.feeds.push(Feed { asked, table, pluck, waiting: vec![], owed: false });
                json!({ "t": 3, "r": [], "n": [1] })
            }
            Ok(Worth::Table(_) | Worth::Database(_) | Worth::Most) => {
                panic!("nothing here asks for {term}")
            }
        })
    }

    pub(super) fn go_on(
        &mut self,
        token: u64,
        answers: &mpsc::UnboundedSender<(u64, Value)>,
    ) -> Outcome {
        if let Some(feed) = self.feed(token, answers) {
            feed.owed = true;
            feed.tell();
            return Outcome::Later;
        }
        let rows = self.rows_in_a_part.unwrap_or(usize::MAX);
        let mut sequences = self.sequences.iter_mut();
        let sequence = sequences.find(|sequence| sequence.asked.is_of(token, answers));
        sequence.map_or(Outcome::Later, |sequence| Outcome::Answer(sequence.part(rows)))
    }

    pub(super) fn stop(
        &mut self,
        token: u64,
        answers: &mpsc::UnboundedSender<(u64, Value)>,
    ) -> Outcome {
        self.stopped += 1;
        self.sequences.retain(|sequence| !sequence.asked.is_of(token, answers));
        self.feeds.retain(|feed| !feed.asked.is_of(token, answers));
        Outcome::Answer(json!({ "t": 2, "r": [] }))
    }

    fn feed(
        &mut self,
        token: u64,
        answers: &mpsc::UnboundedSender<(u64, Value)>,
    ) -> Option<&mut Feed> {
        self.feeds.iter_mut().find(|feed| feed.asked.is_of(token, answers))
    }

    fn table(&mut self, id: &str) -> &mut Table {
        self.tables.iter_mut().find(|table| table.id == id).expect("it was found")
    }

    fn row(&mut self, table: Option<&String>, id: &str) -> Value {
        match table {
            Some(table) => self.table(table).rows.get(id).cloned().unwrap_or_default(),
            None => self.configs().into_iter().find(|row| row["id"] == id).unwrap_or_default(),
        }
    }

    fn configs(&self) -> Vec<Value> {
        let config = |table: &Table| {
            json!({ "id": table.id, "name": table.name, "db": table.database,
                    "write_acks": "majority", "primary_key": "id" })
        };
        self.tables.iter().map(config).collect()
    }

    /// The table of this name, as the real server finds it.
    fn find(&mut self, database: &str, name: &str) -> Worthy {
        if (database, name) == ("rethinkdb", "table_config") {
            return Ok(Worth::Table(None));
        }
        let place = format!("`{database}.{name}`");
        match &self.named(database, name)[..] {
            [] => Err(refused(OP_FAILED, format!("Table {place} does not exist."))),
            [_] if self.starting > 0 => {
                self.starting -= 1;
                let says =
                    format!("Cannot perform read: primary replica for {place} not available");
                Err(refused(OP_FAILED, says))
            }
            [(id, _)] => Ok(Worth::Table(Some(id.clone()))),
            [_, _, ..] => {
                let says = "is ambiguous; there are multiple tables with that name.";
                Err(refused(OP_FAILED, format!("Table {place} {says}")))
            }
        }
    }

    fn write(&mut self, table: &str, id: &str, new: Option<Value>) {
        let rows = &mut self.table(table).rows;
        let old = match &new {
            Some(new) => rows.insert(id.to_owned(), new.clone()),
            None => rows.remove(id),
        };
        for feed in self.feeds.iter_mut().filter(|feed| feed.table == table) {
            feed.show(json!({ "new_val": new, "old_val": old }));
        }
    }
}

fn new_table(term: &Value) -> Option<(String, String)> {
    let create = term[0] == 60;
    create.then(|| (text(&term[1][0][1][0]), text(&term[1][1])))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}
