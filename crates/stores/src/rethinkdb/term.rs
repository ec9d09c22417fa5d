//! The questions we ask, in ReQL's JSON.

use serde_json::{Map, Value, json};

// Numbers from ql2.proto, which never change.
const MAKE_ARRAY: u32 = 2;
const VAR: u32 = 10;
const DB: u32 = 14;
const TABLE: u32 = 15;
const GET: u32 = 16;
const EQ: u32 = 17;
const GET_FIELD: u32 = 31;
const PLUCK: u32 = 33;
const FILTER: u32 = 39;
const ORDER_BY: u32 = 41;
const COERCE_TO: u32 = 51;
const UPDATE: u32 = 53;
const DELETE: u32 = 54;
const REPLACE: u32 = 55;
const INSERT: u32 = 56;
const DB_CREATE: u32 = 57;
const DB_LIST: u32 = 59;
const TABLE_CREATE: u32 = 60;
const TABLE_LIST: u32 = 62;
const BRANCH: u32 = 65;
const FUNC: u32 = 69;
const LIMIT: u32 = 71;
const GET_ALL: u32 = 78;
const IS_EMPTY: u32 = 86;
const DEFAULT: u32 = 92;
const NOW: u32 = 103;
const CHANGES: u32 = 152;
const CONFIG: u32 = 174;
const WAIT: u32 = 177;
const MAXVAL: u32 = 181;
const BETWEEN: u32 = 182;

/// Where the server keeps the configuration of every table.
const SYSTEM: &str = "rethinkdb";
const CONFIGS: &str = "table_config";

/// An expression of ReQL.
///
/// A JSON value stands for itself, except that an array is an expression: values that may hold one
/// go through [`datum`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term(Value);

impl Term {
    fn call<const N: usize>(number: u32, arguments: [Term; N]) -> Term {
        let arguments: Vec<Value> = arguments.into_iter().map(|term| term.0).collect();
        Term(json!([number, arguments]))
    }

    /// Adds named arguments.
    fn with<const N: usize>(self, named: [(&str, Term); N]) -> Term {
        let Value::Array(mut parts) = self.0 else { return self };
        parts.push(named.into_iter().map(|(name, term)| (name.to_owned(), term.0)).collect());
        Term(Value::Array(parts))
    }

    /// The question that asks for this expression's value.
    pub(super) fn start(&self) -> Vec<u8> {
        json!([1, self.0, {}]).to_string().into_bytes()
    }

    pub(super) fn get(self, id: &str) -> Term {
        Term::call(GET, [self, text(id)])
    }

    pub(super) fn get_all(self, ids: impl Iterator<Item = String>) -> Term {
        let all = std::iter::once(self.0).chain(ids.map(Value::String));
        Term(json!([GET_ALL, all.collect::<Vec<_>>()]))
    }

    /// A whole sequence in one answer.
    pub(super) fn array(self) -> Term {
        Term::call(COERCE_TO, [self, text("array")])
    }

    /// The value of this field, or null.
    pub(super) fn field(self, name: &str) -> Term {
        let field = Term::call(GET_FIELD, [self, text(name)]);
        Term::call(DEFAULT, [field, null()])
    }

    pub(super) fn equals(self, other: Term) -> Term {
        Term::call(EQ, [self, other])
    }

    /// Up to `limit` documents from one id on, ordered by id.
    pub(super) fn page(self, from: Bound<'_>, until: Option<&str>, limit: usize) -> Term {
        let (from, left) = match from {
            Bound::At(id) => (id, "closed"),
            Bound::After(id) => (id, "open"),
        };
        let until = until.map_or_else(|| Term::call(MAXVAL, []), text);
        let range = Term::call(BETWEEN, [self, text(from), until])
            .with([("index", text("id")), ("left_bound", text(left))]);
        let ordered = Term::call(ORDER_BY, [range]).with([("index", text("id"))]);
        Term::call(LIMIT, [ordered, Term(json!(limit))])
    }

    /// Inserts a document if there is none.
    pub(super) fn insert(self, document: Term) -> Term {
        Term::call(INSERT, [self, document])
            .with([("conflict", text("error")), ("durability", text("hard"))])
    }

    /// Replaces a document by its successor. Null stands for a missing document.
    pub(super) fn replace(self, successor: impl FnOnce(Term) -> Term) -> Term {
        let row = Term::call(VAR, [Term(json!(1))]);
        let parameters = Term::call(MAKE_ARRAY, [Term(json!(1))]);
        let function = Term::call(FUNC, [parameters, successor(row)]);
        Term::call(REPLACE, [self, function]).with([("durability", text("hard"))])
    }

    /// A feed of future changes.
    pub(super) fn changes(self) -> Term {
        Term::call(CHANGES, [self])
    }

    /// A feed of the existing rows and then of future changes.
    pub(super) fn changes_from_the_start(self) -> Term {
        Term::call(CHANGES, [self]).with([("include_initial", Term(Value::Bool(true)))])
    }

    /// Reduces changes to the documents' ids, keys and operations.
    pub(super) fn identities(self) -> Term {
        let fields = json!([MAKE_ARRAY, ["id", "key", "op"]]);
        // The server reports changes that it left out in a row that has only the field `error`.
        let kept = Term(json!({ "new_val": fields, "old_val": fields }));
        Term::call(PLUCK, [self, kept, text("error")])
    }

    pub(super) fn emptiness(self) -> Term {
        Term::call(IS_EMPTY, [self])
    }

    pub(super) fn config(self) -> Term {
        Term::call(CONFIG, [self])
    }

    /// Waits, for up to `seconds`, until the table takes writes.
    pub(super) fn wait_for_writes(self, seconds: u64) -> Term {
        Term::call(WAIT, [self])
            .with([("wait_for", text("ready_for_writes")), ("timeout", Term(json!(seconds)))])
    }
}

/// Where a page begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound<'a> {
    At(&'a str),
    After(&'a str),
}

/// Asks for the server's identity: a cheap question to see that it answers.
pub(super) const WHO_ARE_YOU: &[u8] = b"[5]";
/// Asks for more of a sequence.
pub(super) const CONTINUE: &[u8] = b"[2]";
/// Ends a sequence.
pub(super) const STOP: &[u8] = b"[3]";

pub(super) fn databases() -> Term {
    Term::call(DB_LIST, [])
}

pub(super) fn create_database(name: &str) -> Term {
    Term::call(DB_CREATE, [text(name)])
}

pub(super) fn tables(database: &str) -> Term {
    Term::call(TABLE_LIST, [Term::call(DB, [text(database)])])
}

pub(super) fn create_table(database: &str, name: &str) -> Term {
    Term::call(TABLE_CREATE, [Term::call(DB, [text(database)]), text(name)])
}

/// The ids and names of a database's tables. A name may occur twice.
pub(super) fn configs(database: &str) -> Term {
    let mine = Term(json!({ "db": database }));
    let configs = Term::call(FILTER, [table(SYSTEM, CONFIGS), mine]);
    Term::call(PLUCK, [configs, text("id"), text("name")]).array()
}

/// Gives the table with this id another name.
pub(super) fn rename_table(id: &str, name: &str) -> Term {
    let named = Term(json!({ "name": name }));
    Term::call(UPDATE, [table(SYSTEM, CONFIGS).get(id), named])
}

/// Drops the table with this id if it is empty and is the only one with this name.
pub(super) fn drop_empty_table(id: &str, database: &str, name: &str) -> Term {
    let dropped = Term::call(DELETE, [table(SYSTEM, CONFIGS).get(id)]);
    // The question fails if no table, or several, have this name.
    branch(settled_table(database, name).emptiness(), dropped, null())
}

/// A table, to write to and to follow. Reads of it may show writes that are lost later.
pub(super) fn table(database: &str, name: &str) -> Term {
    Term::call(TABLE, [Term::call(DB, [text(database)]), text(name)])
}

/// A table with reads that show only data that a majority has on disk.
pub(super) fn settled_table(database: &str, name: &str) -> Term {
    table(database, name).with([("read_mode", text("majority"))])
}

pub(super) fn branch(condition: Term, then: Term, otherwise: Term) -> Term {
    Term::call(BRANCH, [condition, then, otherwise])
}

pub(super) fn text(text: &str) -> Term {
    Term(text.into())
}

pub(super) fn null() -> Term {
    Term(Value::Null)
}

/// The server's time.
pub(super) fn now() -> Term {
    Term::call(NOW, [])
}

/// A document with these fields.
pub(super) fn object<N: Into<String>>(fields: impl IntoIterator<Item = (N, Term)>) -> Term {
    let fields = fields.into_iter().map(|(name, term)| (name.into(), term.0));
    Term(Value::Object(fields.collect()))
}

/// Bytes, as the server keeps them.
pub(super) fn binary(bytes: &[u8]) -> Term {
    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(bytes);
    Term(json!({ "$reql_type$": "BINARY", "data": data }))
}

/// A value, with its arrays turned into expressions.
pub(super) fn datum(value: Value) -> Term {
    Term(match value {
        Value::Array(items) => {
            let items: Vec<Value> = items.into_iter().map(|item| datum(item).0).collect();
            json!([MAKE_ARRAY, items])
        }
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, datum(value).0));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(term: &Term) -> String {
        String::from_utf8(term.start()).expect("it is JSON")
    }

    #[test]
    fn questions_are_as_the_protocol_has_them() {
        let table = || table("d", "t");
        let at = r#"[15,[[14,["d"]],"t"]]"#;
        let settled = r#"[15,[[14,["d"]],"t"],{"read_mode":"majority"}]"#;
        let read = settled_table("d", "t").get("a");
        assert_eq!(asked(&read), format!(r#"[1,[16,[{settled},"a"]],{{}}]"#));
        let waiting = r#"{"timeout":3,"wait_for":"ready_for_writes"}"#;
        let wait = table().wait_for_writes(3);
        assert_eq!(asked(&wait), format!(r#"[1,[177,[{at}],{waiting}],{{}}]"#));
        let both = table().get_all(["a".to_owned(), "b".to_owned()].into_iter()).array();
        assert_eq!(asked(&both), format!(r#"[1,[51,[[78,[{at},"a","b"]],"array"]],{{}}]"#));
        let insert = table().insert(object([("id", text("a"))]));
        let named = r#"{"conflict":"error","durability":"hard"}"#;
        assert_eq!(asked(&insert), format!(r#"[1,[56,[{at},{{"id":"a"}}],{named}],{{}}]"#));
        let replace = table()
            .get("a")
            .replace(|row| branch(row.field("op").equals(text("1")), null(), now()));
        let row = "[10,[1]]";
        let body = format!(r#"[65,[[17,[[92,[[31,[{row},"op"]],null]],"1"]],null,[103,[]]]]"#);
        let function = format!("[69,[[2,[1]],{body}]]");
        let hard = r#"{"durability":"hard"}"#;
        assert_eq!(
            asked(&replace),
            format!(r#"[1,[55,[[16,[{at},"a"]],{function}],{hard}],{{}}]"#)
        );
        let page = table().page(Bound::After("a"), None, 3);
        let range = format!(r#"[182,[{at},"a",[181,[]]],{{"index":"id","left_bound":"open"}}]"#);
        assert_eq!(asked(&page), format!(r#"[1,[71,[[41,[{range}],{{"index":"id"}}],3]],{{}}]"#));
    }

    #[test]
    fn a_feed_of_identities_keeps_the_servers_errors() {
        let feed = asked(&table("d", "t").changes().identities());
        assert!(feed.ends_with(r#"},"error"]],{}]"#), "{feed}");
    }

    #[test]
    fn bytes_are_the_servers_own_type() {
        let bytes = r#"{"$reql_type$":"BINARY","data":"/wA="}"#;
        assert_eq!(asked(&binary(b"\xff\0")), format!("[1,{bytes},{{}}]"));
    }

    #[test]
    fn tables_are_named_and_dropped_by_their_ids() {
        let configs = r#"[15,[[14,["rethinkdb"]],"table_config"]]"#;
        assert_eq!(
            asked(&super::configs("d")),
            format!(r#"[1,[51,[[33,[[39,[{configs},{{"db":"d"}}]],"id","name"]],"array"]],{{}}]"#)
        );
        let row = format!(r#"[16,[{configs},"i"]]"#);
        let renamed = asked(&rename_table("i", "n"));
        assert_eq!(renamed, format!(r#"[1,[53,[{row},{{"name":"n"}}]],{{}}]"#));
        let aside = r#"[15,[[14,["d"]],"n"],{"read_mode":"majority"}]"#;
        let dropped = asked(&drop_empty_table("i", "d", "n"));
        assert_eq!(dropped, format!("[1,[65,[[86,[{aside}]],[54,[{row}]],null]],{{}}]"));
    }

    #[test]
    fn a_value_that_holds_an_array_is_no_expression() {
        let value = json!({ "a": [1, [2]], "b": "c" });
        assert_eq!(datum(value).0, json!({ "a": [2, [1, [2, [2]]]], "b": "c" }));
    }
}
