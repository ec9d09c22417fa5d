//! A server's answers, parsed strictly: they come from another machine.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Json, MOST_ROWS};
use crate::bounded::Bounded;

/// A server's answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Response {
    /// One value.
    Atom(Json),
    /// The rest of a sequence.
    Sequence(Vec<Json>),
    /// A part of a sequence, or of a feed, which has no end.
    Partial(Vec<Json>),
    /// An error.
    Refused(Refusal),
}

/// An error of the server's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refusal {
    pub(super) kind: Refused,
    pub(super) message: String,
}

/// The kind of an error, as the server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The question is invalid; it was not carried out.
    Question,
    /// The question was not carried out, mostly because servers were missing.
    Failed,
    /// The question may have been carried out.
    Indeterminate,
    /// We lack the permission.
    Permission,
    /// The question was answered, but the answer is too large for us to read.
    TooLarge,
    /// Another kind, or none was reported.
    Other,
}

/// A problem with a name. The server reports it only in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is no such table, or no such database.
    Missing,
    /// It exists already.
    Exists,
    /// There are several.
    Ambiguous,
}

impl Refusal {
    /// A refusal of an answer that is too large. It ends the question, not the connection.
    pub(super) fn too_large(says: impl std::fmt::Display) -> Refusal {
        Refusal { kind: Refused::TooLarge, message: format!("the answer is too large: {says}") }
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        let about = ["Table `", "Database `"];
        if self.kind != Refused::Failed || !about.iter().any(|name| self.message.starts_with(name))
        {
            return None;
        }
        let says = [
            ("` does not exist", Trouble::Missing),
            ("` already exists", Trouble::Exists),
            ("` is ambiguous", Trouble::Ambiguous),
        ];
        says.into_iter().find(|(says, _)| self.message.contains(says)).map(|(_, trouble)| trouble)
    }
}

/// An answer that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer makes no sense: {0}")]
pub(super) struct Garbled(String);

impl Garbled {
    pub(super) fn new(says: impl Into<String>) -> Garbled {
        Garbled(says.into())
    }
}

const SUCCESS_ATOM: u64 = 1;
const SUCCESS_SEQUENCE: u64 = 2;
const SUCCESS_PARTIAL: u64 = 3;
const WAIT_COMPLETE: u64 = 4;
const SERVER_INFO: u64 = 5;
const CLIENT_ERROR: u64 = 16;
const COMPILE_ERROR: u64 = 17;
const RUNTIME_ERROR: u64 = 18;

const QUERY_LOGIC: u64 = 3_000_000;
const NON_EXISTENCE: u64 = 3_100_000;
const OP_FAILED: u64 = 4_100_000;
const OP_INDETERMINATE: u64 = 4_200_000;
const USER: u64 = 5_000_000;
const PERMISSION_ERROR: u64 = 6_000_000;

/// The longest message of a server's that we keep, for logs.
const LONGEST_MESSAGE: usize = 512;

#[derive(Deserialize)]
struct Wire<'a> {
    /// Missing only in errors of the emulator, when it fails itself.
    #[serde(default)]
    t: u64,
    #[serde(borrow, default)]
    r: Option<&'a RawValue>,
    #[serde(default)]
    e: u64,
}

impl Response {
    /// Parses an answer.
    pub(super) fn parse(text: &Bytes) -> Result<Response, Garbled> {
        let wire: Wire<'_> =
            serde_json::from_slice(text).map_err(|error| Garbled(error.to_string()))?;
        let rows = match wire.r.map(RawValue::get) {
            None => Vec::new(),
            Some(list) if list.starts_with('[') => match serde_json::from_str(list) {
                Ok(Bounded::<&RawValue, MOST_ROWS>(rows)) => rows,
                // It is a list, so only its length can be wrong.
                Err(error) => return Ok(Response::Refused(Refusal::too_large(error))),
            },
            Some(_) => return Err(Garbled("there is no list of rows".into())),
        };
        let parts = || rows.iter().map(|row| Json::part(text, row));
        Ok(match wire.t {
            SUCCESS_ATOM | SERVER_INFO => {
                let mut parts = parts();
                match (parts.next(), parts.next()) {
                    (Some(value), None) => Response::Atom(value),
                    _ => return Err(Garbled("one value was announced".into())),
                }
            }
            SUCCESS_SEQUENCE | WAIT_COMPLETE => Response::Sequence(parts().collect()),
            SUCCESS_PARTIAL => Response::Partial(parts().collect()),
            kind => Response::Refused(refusal(kind, wire.e, parts().next())),
        })
    }
}

fn refusal(kind: u64, code: u64, first: Option<Json>) -> Refusal {
    let kind = match (kind, code) {
        (CLIENT_ERROR | COMPILE_ERROR, _) => Refused::Question,
        (RUNTIME_ERROR, QUERY_LOGIC | NON_EXISTENCE | USER) => Refused::Question,
        (RUNTIME_ERROR, OP_FAILED) => Refused::Failed,
        (RUNTIME_ERROR, OP_INDETERMINATE) => Refused::Indeterminate,
        (RUNTIME_ERROR, PERMISSION_ERROR) => Refused::Permission,
        _ => Refused::Other,
    };
    let said: Option<String> = first.and_then(|said| said.read().ok());
    let said = said.unwrap_or_else(|| "an error without a message".to_owned());
    let message = said.chars().take(LONGEST_MESSAGE).collect();
    Refusal { kind, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::memory;
    use serde_json::json;

    fn parse(text: &str) -> Result<Response, Garbled> {
        Response::parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn each_kind_of_answer_is_told_apart() {
        assert_eq!(
            parse(r#"{"t":1,"r":[null]}"#),
            Ok(Response::Atom(serde_json::Value::Null.into()))
        );
        assert_eq!(parse(r#"{"t":2,"r":[1]}"#), Ok(Response::Sequence(vec![json!(1).into()])));
        assert_eq!(parse(r#"{"t":3,"r":[],"n":[1]}"#), Ok(Response::Partial(vec![])));
        for (text, kind) in [
            (r#"{"t":16,"r":["x"],"b":[]}"#, Refused::Question),
            (r#"{"t":17,"e":3000000,"r":["x"]}"#, Refused::Question),
            (r#"{"t":18,"e":1000000,"r":["x"]}"#, Refused::Other),
            (r#"{"t":18,"e":2000000,"r":["x"]}"#, Refused::Other),
            (r#"{"t":18,"e":3000000,"r":["x"]}"#, Refused::Question),
            (r#"{"t":18,"e":3100000,"r":["x"]}"#, Refused::Question),
            (r#"{"t":18,"e":4100000,"r":["x"]}"#, Refused::Failed),
            (r#"{"t":18,"e":4200000,"r":["x"]}"#, Refused::Indeterminate),
            (r#"{"t":18,"e":5000000,"r":["x"]}"#, Refused::Question),
            (r#"{"t":18,"e":6000000,"r":["x"]}"#, Refused::Permission),
            (r#"{"t":18,"r":["x"]}"#, Refused::Other),
            (r#"{"r":["x"]}"#, Refused::Other),
        ] {
            let message = "x".to_owned();
            assert_eq!(parse(text), Ok(Response::Refused(Refusal { kind, message })), "{text}");
        }
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_an_error() {
        for text in
            ["", "null", "1", "{", r#"{"t":1,"r":[]}"#, r#"{"t":1,"r":[1,2]}"#, r#"{"t":-1}"#]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        let deep = format!(r#"{{"t":1,"r":[{}{}]}}"#, "[".repeat(100_000), "]".repeat(100_000));
        let Ok(Response::Atom(deep)) = parse(&deep) else { panic!("one value") };
        assert!(deep.value().is_err(), "no stack is that deep");
    }

    /// Parsed into values, the answer took a hundred times its size.
    #[test]
    fn a_huge_answer_takes_little_memory() {
        let test = "rethinkdb::response::tests::a_huge_answer_takes_little_memory";
        let answer = Bytes::from(memory::costly(|items| format!(r#"{{"t":1,"r":[{items}]}}"#)));
        memory::is_spared(test, 16, || {
            let Ok(Response::Atom(value)) = Response::parse(&answer) else { panic!("one value") };
            assert!(value.value().is_err(), "it would take too much");
            assert!(value.items().is_err(), "there are too many");
        });
    }

    /// Before, the limit was for each row alone.
    #[test]
    fn many_rows_that_are_small_each_take_little_memory_together() {
        let test =
            "rethinkdb::response::tests::many_rows_that_are_small_each_take_little_memory_together";
        let row = format!("[{}0],", r#"{"a":0},"#.repeat(80));
        let rows = row.repeat(20_000);
        let answer = Bytes::from(format!(r#"{{"t":2,"r":[{}]}}"#, rows.trim_end_matches(',')));
        memory::is_spared(test, 16, || {
            let Ok(Response::Sequence(rows)) = Response::parse(&answer) else { panic!("rows") };
            assert!(rows[0].value().is_ok(), "one of them is small");
            assert!(Json::values(&rows).is_err(), "all of them would take too much");
        });
    }

    #[test]
    fn more_rows_than_anybody_asks_for_end_the_answer_early() {
        let test =
            "rethinkdb::response::tests::more_rows_than_anybody_asks_for_end_the_answer_early";
        let answer = Bytes::from(memory::costly(|items| format!(r#"{{"t":2,"r":{items}}}"#)));
        memory::is_spared(test, 24, || {
            let parsed = Response::parse(&answer);
            let Ok(Response::Refused(refusal)) = parsed else { panic!("it is no answer") };
            assert_eq!(refusal.kind, Refused::TooLarge);
        });
    }
}
