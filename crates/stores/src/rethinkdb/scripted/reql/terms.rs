//! The ReQL terms that this crate uses, and their values.
// Every other kind of value is the same mistake of the query: the server refuses it.
#![allow(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{World, Worth, Worthy, refused, text};

const QUERY_LOGIC: u64 = 3_000_000;

impl World {
    /// Evaluates a term. `row` is the value of a function's only variable.
    pub(super) fn worth(&mut self, term: &Value, row: &Value) -> Worthy {
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
