//! What a server answers, read strictly: it is another machine's word.

use serde::Deserialize;
use serde_json::Value;

/// What the server made of a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Response {
    /// One value.
    Atom(Value),
    /// All that is left of a sequence.
    Sequence(Vec<Value>),
    /// Part of a sequence, or of a feed, which has no end.
    Partial(Vec<Value>),
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

/// What kind of error the server says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The question cannot be understood, or makes no sense; it was not carried out.
    Question,
    /// It was not carried out, for want of servers mostly.
    Failed,
    /// It may have been carried out.
    Indeterminate,
    /// We are not allowed to.
    Permission,
    /// Something else, or nothing was said about its kind.
    Other,
}

/// An answer that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer makes no sense: {0}")]
pub(super) struct Garbled(String);

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

/// Longer messages of the server's are cut: they go to logs.
const LONGEST_MESSAGE: usize = 512;

#[derive(Deserialize)]
struct Wire {
    /// Missing only where the emulator trips over itself, which is an error.
    #[serde(default)]
    t: u64,
    #[serde(default)]
    r: Vec<Value>,
    #[serde(default)]
    e: u64,
}

impl Response {
    /// Reads an answer.
    pub(super) fn parse(text: &[u8]) -> Result<Response, Garbled> {
        let wire: Wire =
            serde_json::from_slice(text).map_err(|error| Garbled(error.to_string()))?;
        Ok(match wire.t {
            SUCCESS_ATOM | SERVER_INFO => {
                let mut rows = wire.r.into_iter();
                match (rows.next(), rows.next()) {
                    (Some(value), None) => Response::Atom(value),
                    _ => return Err(Garbled("one value was announced".into())),
                }
            }
            SUCCESS_SEQUENCE | WAIT_COMPLETE => Response::Sequence(wire.r),
            SUCCESS_PARTIAL => Response::Partial(wire.r),
            kind => Response::Refused(refusal(kind, wire.e, &wire.r)),
        })
    }
}

fn refusal(kind: u64, code: u64, rows: &[Value]) -> Refusal {
    let kind = match (kind, code) {
        (CLIENT_ERROR | COMPILE_ERROR, _) => Refused::Question,
        (RUNTIME_ERROR, QUERY_LOGIC | NON_EXISTENCE | USER) => Refused::Question,
        (RUNTIME_ERROR, OP_FAILED) => Refused::Failed,
        (RUNTIME_ERROR, OP_INDETERMINATE) => Refused::Indeterminate,
        (RUNTIME_ERROR, PERMISSION_ERROR) => Refused::Permission,
        _ => Refused::Other,
    };
    let said = rows.first().and_then(Value::as_str).unwrap_or("an error without a message");
    let message = said.chars().take(LONGEST_MESSAGE).collect();
    Refusal { kind, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(text: &str) -> Result<Response, Garbled> {
        Response::parse(text.as_bytes())
    }

    #[test]
    fn each_kind_of_answer_is_told_apart() {
        assert_eq!(parse(r#"{"t":1,"r":[null]}"#), Ok(Response::Atom(Value::Null)));
        assert_eq!(parse(r#"{"t":2,"r":[1]}"#), Ok(Response::Sequence(vec![json!(1)])));
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
        assert!(parse(&deep).is_err(), "no stack is that deep");
    }
}
