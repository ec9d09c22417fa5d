//! The tables of the scripted server, and the ReQL terms that this crate uses.
// Every other kind of value is the same mistake of the query: the server refuses it.
#![allow(clippy::wildcard_enum_match_arm)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};

use super::parts::{Asked, Feed, Sequence};

const OP_FAILED: u64 = 4_100_000;
const QUERY_LOGIC: u64 = 3_000_000;

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

    /// Evaluates a term. `row` is the value of a function's only variable.
    fn worth(&mut self, term: &Value, row: &Value) -> Worthy {
        let parts = match term {
            Value::Array(parts) => parts,
            Value::Object(fields) => {
                let mut worth = Map::new();
                for (name, term) in fields {
                    worth.insert(name.clone(), self.datum(term, row)?);
                }
                return Ok(Worth::Datum(worth.into()));
            }
            plain => return Ok(Worth::Datum(plain.clone())),
        };
        let number = parts[0].as_u64().expect("a term has a number");
        let arguments = parts.get(1).and_then(Value::as_array).cloned().unwrap_or_default();
        let named = parts.get(2).cloned().unwrap_or_default();
        let datum = |value: Value| Ok(Worth::Datum(value));
        match number {
            // MAKE_ARRAY, VAR, NOW, MAXVAL
            2 => {
                let items: Result<Vec<Value>, Value> =
                    arguments.iter().map(|item| self.datum(item, row)).collect();
                datum(items?.into())
            }
            10 => datum(row.clone()),
            103 => datum(json!({ "$reql_type$": "TIME", "epoch_time": 1.5, "timezone": "+00:00" })),
            181 => Ok(Worth::Most),
            // DB, TABLE
            14 => Ok(Worth::Database(text(&arguments[0]))),
            15 => match self.worth(&arguments[0], row)? {
                Worth::Database(database) => self.find(&database, &text(&arguments[1])),
                _ => panic!("{term}"),
            },
            // GET, GET_ALL
            16 => match self.worth(&arguments[0], row)? {
                Worth::Table(table) => Ok(Worth::Row(table, text(&arguments[1]))),
                _ => panic!("{term}"),
            },
            78 => {
                let rows = self.rows(&arguments[0], row)?;
                let wanted = |row: &Value| arguments[1..].contains(&row["id"]);
                Ok(Worth::Rows(rows.into_iter().filter(wanted).collect()))
            }
            // EQ, GET_FIELD, DEFAULT, BRANCH
            17 => {
                datum((self.datum(&arguments[0], row)? == self.datum(&arguments[1], row)?).into())
            }
            31 => {
                let of = self.datum(&arguments[0], row)?;
                let name = text(&arguments[1]);
                let missing = || refused(3_100_000, format!("No attribute `{name}` in object"));
                datum(of.get(&name).cloned().ok_or_else(missing)?)
            }
            92 => match self.datum(&arguments[0], row) {
                Ok(Value::Null) => self.worth(&arguments[1], row),
                Ok(value) => datum(value),
                Err(refused) if refused["e"] == 3_100_000 => self.worth(&arguments[1], row),
                Err(refused) => Err(refused),
            },
            65 => match self.datum(&arguments[0], row)? {
                Value::Null | Value::Bool(false) => self.worth(&arguments[2], row),
                _ => self.worth(&arguments[1], row),
            },
            // PLUCK, FILTER, BETWEEN, ORDER_BY, LIMIT, COERCE_TO, IS_EMPTY
            33 => match self.worth(&arguments[0], row)? {
                Worth::Changes { table, .. } => {
                    let mut pluck = self.datum(&arguments[1], row)?;
                    for name in &arguments[2..] {
                        pluck[text(name)] = json!(true);
                    }
                    Ok(Worth::Changes { table, pluck: Some(pluck) })
                }
                Worth::Rows(rows) => {
                    let kept = |row: &Value| {
                        let names = arguments[1..].iter().map(text);
                        names.map(|name| (name.clone(), row[&name].clone())).collect()
                    };
                    Ok(Worth::Rows(rows.iter().map(kept).collect()))
                }
                _ => panic!("{term}"),
            },
            39 => {
                let like = self.datum(&arguments[1], row)?;
                let like = like.as_object().expect("fields to match").clone();
                let rows = self.rows(&arguments[0], row)?;
                let kept = |row: &Value| like.iter().all(|(name, value)| row[name] == *value);
                Ok(Worth::Rows(rows.into_iter().filter(kept).collect()))
            }
            182 => {
                let rows = self.rows(&arguments[0], row)?;
                let (from, until) = (text(&arguments[1]), arguments[2].as_str().map(str::to_owned));
                let open = named["left_bound"] == "open";
                let within = |row: &Value| {
                    let id = row["id"].as_str().expect("an id");
                    (if open { id > &*from } else { id >= &*from })
                        && until.as_deref().is_none_or(|until| id < until)
                };
                Ok(Worth::Rows(rows.into_iter().filter(within).collect()))
            }
            41 | 51 => match self.rows(&arguments[0], row)? {
                rows if number == 51 => datum(rows.into()),
                rows => Ok(Worth::Rows(rows)),
            },
            71 => {
                let most = arguments[1].as_u64().expect("a number") as usize;
                let rows = self.rows(&arguments[0], row)?;
                Ok(Worth::Rows(rows.into_iter().take(most).collect()))
            }
            86 => datum(self.rows(&arguments[0], row)?.is_empty().into()),
            // UPDATE, DELETE, REPLACE, INSERT
            53..=55 => match self.worth(&arguments[0], row)? {
                Worth::Row(None, id) => datum(self.configure(number, &id, arguments.get(1))),
                Worth::Row(Some(table), id) => {
                    let old = self.row(Some(&table), &id);
                    let new = match number {
                        54 => Value::Null,
                        // The second argument of FUNC is its body.
                        _ => self.datum(&arguments[1][1][1], &old)?,
                    };
                    let done = match (old.is_null(), new.is_null()) {
                        (true, true) => "skipped",
                        (false, true) => "deleted",
                        (true, false) => "inserted",
                        (false, false) if old == new => "unchanged",
                        (false, false) => "replaced",
                    };
                    if !matches!(done, "skipped" | "unchanged") {
                        self.write(&table, &id, Some(new).filter(|new| !new.is_null()));
                    }
                    datum(json!({ done: 1, "errors": 0 }))
                }
                _ => panic!("{term}"),
            },
            56 => match self.worth(&arguments[0], row)? {
                Worth::Table(Some(table)) => {
                    let new = self.datum(&arguments[1], row)?;
                    let id = text(&new["id"]);
                    if self.table(&table).rows.contains_key(&id) {
                        let says = "Duplicate primary key `id`:\n{}";
                        return datum(json!({ "errors": 1, "first_error": says }));
                    }
                    self.write(&table, &id, Some(new));
                    datum(json!({ "inserted": 1, "errors": 0 }))
                }
                _ => panic!("{term}"),
            },
            // DB_CREATE, DB_LIST, TABLE_LIST
            57 => {
                self.databases.insert(text(&arguments[0]));
                datum(json!({ "dbs_created": 1 }))
            }
            59 => datum(self.databases.iter().cloned().collect::<Vec<_>>().into()),
            62 => match self.worth(&arguments[0], row)? {
                Worth::Database(database) => {
                    let names = self.tables.iter().filter(|table| table.database == database);
                    let names: BTreeSet<_> = names.map(|table| table.name.clone()).collect();
                    datum(names.into_iter().collect::<Vec<_>>().into())
                }
                _ => panic!("{term}"),
            },
            // CHANGES, CONFIG, WAIT
            152 => match self.worth(&arguments[0], row)? {
                Worth::Table(Some(table)) => Ok(Worth::Changes { table, pluck: None }),
                _ => panic!("{term}"),
            },
            174 => match self.worth(&arguments[0], row)? {
                Worth::Table(Some(table)) => datum(self.row(None, &table)),
                _ => panic!("{term}"),
            },
            177 => match self.worth(&arguments[0], row)? {
                Worth::Table(Some(_)) => datum(json!({ "ready": 1 })),
                _ => panic!("{term}"),
            },
            number => Err(refused(QUERY_LOGIC, format!("the term {number} is not scripted"))),
        }
    }

    fn datum(&mut self, term: &Value, row: &Value) -> Result<Value, Value> {
        Ok(match self.worth(term, row)? {
            Worth::Datum(value) => value,
            Worth::Row(table, id) => self.row(table.as_ref(), &id),
            Worth::Rows(rows) => rows.into(),
            Worth::Database(_) | Worth::Table(_) | Worth::Changes { .. } | Worth::Most => {
                panic!("{term} is no value")
            }
        })
    }

    fn rows(&mut self, term: &Value, row: &Value) -> Result<Vec<Value>, Value> {
        Ok(match self.worth(term, row)? {
            Worth::Rows(rows) => rows,
            Worth::Table(Some(table)) => self.table(&table).rows.values().cloned().collect(),
            Worth::Table(None) => self.configs(),
            _ => panic!("{term} has no rows"),
        })
    }

    /// Writes to the system table: renames or removes a table.
    fn configure(&mut self, number: u64, id: &str, new: Option<&Value>) -> Value {
        let done = match (number, new) {
            (54, None) if self.remove(id) => "deleted",
            (53, Some(new)) => match self.tables.iter_mut().find(|table| table.id == id) {
                None => "skipped",
                Some(table) => {
                    table.name = text(&new["name"]);
                    "replaced"
                }
            },
            _ => "skipped",
        };
        json!({ done: 1, "errors": 0 })
    }
}

fn new_table(term: &Value) -> Option<(String, String)> {
    let create = term[0] == 60;
    create.then(|| (text(&term[1][0][1][0]), text(&term[1][1])))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}
