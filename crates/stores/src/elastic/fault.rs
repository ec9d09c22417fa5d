//! The meaning of a server's errors, and of network errors, for a request.

use std::error::Error;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure::store::Fault;

/// The kind of a request: whether it changes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// A request, or a part of one, that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// True if another server may succeed.
    pub(super) elsewhere: bool,
    pub(super) cause: Cause,
    pub(super) says: String,
}

/// Causes that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The index does not exist.
    IndexMissing,
    /// The index exists already.
    IndexExists,
    /// The answer is larger than we accept.
    Oversized,
    Other,
}

/// A server's description of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    /// For example `index_not_found_exception`; empty if the server gives none.
    pub(super) kind: String,
    pub(super) reason: String,
}

/// The largest error that is parsed. A larger one tells nothing more.
const LARGEST_ERROR: usize = 64 * 1024;

/// Errors of the coordinating node, before it passes on any part of a request.
const NOT_BEGUN: [&str; 2] = ["cluster_block_exception", "master_not_discovered_exception"];

impl Failure {
    pub(super) fn new(fault: Fault, says: impl Into<String>) -> Failure {
        Failure { fault, elsewhere: false, cause: Cause::Other, says: says.into() }
    }

    /// Adds the server's name if another server may succeed.
    pub(super) fn at(self, host: &reqwest::Url) -> Failure {
        if !self.elsewhere {
            return self;
        }
        let port = host.port_or_known_default().unwrap_or_default();
        let host = host.host_str().unwrap_or_default();
        Failure { says: format!("{host}:{port}: {}", self.says), ..self }
    }

    /// No answer came in time.
    pub(super) fn late(kind: Kind, after: Duration) -> Failure {
        let says = format!("no answer within {after:?}");
        Failure { elsewhere: true, ..Failure::new(unknown(kind), says) }
    }

    /// The request was not sent, or it is unknown whether it was.
    pub(super) fn of(error: reqwest::Error, kind: Kind) -> Failure {
        let fault = if error.is_builder() {
            Fault::Permanent
        } else if error.is_connect() {
            // There was no connection, or no TLS on it, to send anything.
            Fault::Unavailable
        } else {
            unknown(kind)
        };
        let elsewhere = fault != Fault::Permanent;
        Failure { elsewhere, ..Failure::new(fault, chain(&error.without_url())) }
    }

    /// The connection broke in the middle of an answer.
    pub(super) fn broken(error: reqwest::Error, kind: Kind) -> Failure {
        let says = chain(&error.without_url());
        Failure { elsewhere: true, ..Failure::new(unknown(kind), says) }
    }

    pub(super) fn oversized(kind: Kind) -> Failure {
        let says = "the answer is too large to be one of ours";
        Failure { cause: Cause::Oversized, ..Failure::new(unknown(kind), says) }
    }

    /// The request was carried out, but its answer makes no sense.
    pub(super) fn garbled(kind: Kind, says: impl Into<String>) -> Failure {
        Failure::new(unknown(kind), says)
    }

    /// A server refused the whole request. Its body need not be JSON.
    pub(super) fn refused(status: u16, body: &[u8], kind: Kind) -> Failure {
        let refusal = Refusal::of_body(body);
        let blocked = NOT_BEGUN.contains(&refusal.kind.as_str());
        let cause = match (status, refusal.kind.as_str()) {
            (404, "index_not_found_exception") => Cause::IndexMissing,
            (400, "resource_already_exists_exception") => Cause::IndexExists,
            _ => Cause::Other,
        };
        let fault = match status {
            403 | 503 if blocked => Fault::Unavailable,
            401 | 403 => Fault::Denied,
            // A full queue: nothing was begun. But a circuit breaker may also act later.
            429 if refusal.kind != "circuit_breaking_exception" => Fault::Unavailable,
            404 if cause == Cause::IndexMissing => Fault::Unavailable,
            300..400 | 400 | 404 | 405 | 406 | 411 | 413..=415 => Fault::Permanent,
            _ => unknown(kind),
        };
        let elsewhere = matches!(fault, Fault::Unavailable | Fault::Indeterminate)
            && cause != Cause::IndexMissing;
        Failure { elsewhere, cause, ..Failure::new(fault, refusal.told(status)) }
    }

    /// A server refused to read one document of many.
    pub(super) fn unread(refusal: &Refusal) -> Failure {
        let fault = match refusal.kind.as_str() {
            "security_exception" => Fault::Denied,
            _ => Fault::Unavailable,
        };
        Failure::new(fault, refusal.told(0))
    }

    /// A server refused one write of many.
    ///
    /// A node tries again by itself when the primary's node is lost, so its last error says nothing
    /// about the first attempt. A fault is certain only if no attempt can have succeeded.
    pub(super) fn unwritten(status: u16, refusal: &Refusal) -> Failure {
        let fault = match (status, refusal.kind.as_str()) {
            (401, _) | (403, "security_exception") => Fault::Denied,
            (404, "index_not_found_exception") => Fault::Unavailable,
            (400, "index_closed_exception") => Fault::Indeterminate,
            (400 | 413, _) => Fault::Permanent,
            _ => Fault::Indeterminate,
        };
        Failure::new(fault, refusal.told(status))
    }
}

/// The fault if it is unknown whether the request took effect. A read has no effect.
fn unknown(kind: Kind) -> Fault {
    match kind {
        Kind::Read => Fault::Unavailable,
        Kind::Write => Fault::Indeterminate,
    }
}

impl Refusal {
    fn of_body(body: &[u8]) -> Refusal {
        #[derive(Deserialize)]
        struct Body<'a> {
            #[serde(borrow)]
            error: &'a RawValue,
        }
        match serde_json::from_slice::<Body<'_>>(body) {
            Ok(Body { error }) => Refusal::of(error),
            // Plain text, or the page of a proxy.
            Err(_) => {
                let text = String::from_utf8_lossy(body);
                let line = text.lines().map(str::trim).find(|line| !line.is_empty());
                Refusal { kind: String::new(), reason: line.unwrap_or_default().to_owned() }
            }
        }
    }

    pub(super) fn of(error: &RawValue) -> Refusal {
        let size = error.get().len();
        if size > LARGEST_ERROR {
            let reason = format!("an error in {size} bytes, which is too large to read");
            return Refusal { kind: String::new(), reason };
        }
        let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
        if let Some(reason) = error.as_str() {
            return Refusal { kind: String::new(), reason: reason.to_owned() };
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (reason, root) = (text(&error["reason"]), text(&error["root_cause"][0]["reason"]));
        // If a search fails on all shards, only the root cause says why.
        let vague = reason == "all shards failed" && !root.is_empty();
        Refusal { kind: text(&error["type"]), reason: if vague { root } else { reason } }
    }

    /// The server's text, shortened and without control characters.
    fn told(&self, status: u16) -> String {
        let words = [self.kind.as_str(), self.reason.as_str()];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let words = match words.join(": ") {
            words if words.is_empty() => format!("the server answered with status {status}"),
            words if status == 0 => words,
            words => format!("{words} (status {status})"),
        };
        words.chars().filter(|character| !character.is_control()).take(500).collect()
    }
}

/// An error with its causes. The outermost error alone says too little.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(kind: &str) -> String {
        format!(r#"{{"error":{{"root_cause":[],"type":"{kind}","reason":"because"}},"status":0}}"#)
    }

    #[test]
    fn a_write_is_in_doubt_unless_nothing_was_begun() {
        for (status, kind, fault) in [
            (429, "es_rejected_execution_exception", Fault::Unavailable),
            (429, "circuit_breaking_exception", Fault::Indeterminate),
            (503, "cluster_block_exception", Fault::Unavailable),
            (503, "master_not_discovered_exception", Fault::Unavailable),
            (403, "cluster_block_exception", Fault::Unavailable),
            (503, "unavailable_shards_exception", Fault::Indeterminate),
            (503, "process_cluster_event_timeout_exception", Fault::Indeterminate),
            (500, "node_not_connected_exception", Fault::Indeterminate),
            (502, "", Fault::Indeterminate),
            (504, "", Fault::Indeterminate),
            (408, "", Fault::Indeterminate),
            (401, "security_exception", Fault::Denied),
            (403, "security_exception", Fault::Denied),
            (404, "index_not_found_exception", Fault::Unavailable),
            (413, "", Fault::Permanent),
            (302, "", Fault::Permanent),
        ] {
            let failure = Failure::refused(status, body(kind).as_bytes(), Kind::Write);
            assert_eq!(failure.fault, fault, "{status} {kind}");
        }
    }

    #[test]
    fn a_write_of_many_is_in_doubt_unless_no_attempt_can_have_survived() {
        for (status, kind, fault) in [
            (429, "es_rejected_execution_exception", Fault::Indeterminate),
            (503, "unavailable_shards_exception", Fault::Indeterminate),
            (403, "cluster_block_exception", Fault::Indeterminate),
            (400, "index_closed_exception", Fault::Indeterminate),
            (409, "", Fault::Indeterminate),
            (400, "strict_dynamic_mapping_exception", Fault::Permanent),
            (404, "index_not_found_exception", Fault::Unavailable),
            (403, "security_exception", Fault::Denied),
        ] {
            let refusal = Refusal { kind: kind.to_owned(), reason: "because".to_owned() };
            assert_eq!(Failure::unwritten(status, &refusal).fault, fault, "{status} {kind}");
        }
    }

    #[test]
    fn a_read_that_fails_has_no_effect() {
        for status in [408, 500, 502, 503, 504] {
            assert_eq!(Failure::refused(status, b"", Kind::Read).fault, Fault::Unavailable);
        }
        assert_eq!(Failure::late(Kind::Read, Duration::ZERO).fault, Fault::Unavailable);
        assert_eq!(Failure::late(Kind::Write, Duration::ZERO).fault, Fault::Indeterminate);
    }

    #[test]
    fn an_error_need_not_be_json() {
        for (body, says) in [
            (&b"Unauthorized"[..], "Unauthorized (status 401)"),
            (b"", "the server answered with status 401"),
            (b"<html>\n\xff", "<html> (status 401)"),
            (br#"{"error":"no handler"}"#, "no handler (status 401)"),
            (br#"{"error":{"type":"a","reason":"b\u001b[2J"}}"#, "a: b[2J (status 401)"),
        ] {
            let failure = Failure::refused(401, body, Kind::Read);
            assert_eq!((failure.fault, failure.says.as_str()), (Fault::Denied, says));
        }
    }
}
