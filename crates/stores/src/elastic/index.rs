//! The index: its name, its creation, and checks that it can be trusted.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use tenure::Key;
use tenure::store::Fault;
use tokio::time::Instant;

use super::client::{Client, Request, size_of};
use super::fault::{Cause, Failure, Kind};
use super::{read, record};

/// The time for the creation of an index, which may take longer than a request.
const CREATED_WITHIN: Duration = Duration::from_secs(10);
/// The time for the first answer, which a server that is just starting may need. No lease depends
/// on opening.
const OPENED_WITHIN: Duration = Duration::from_secs(5);
/// The pause between two checks that the index can be read.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_NAME: usize = 255;
/// The largest description of an index. One of ours has two thousand bytes.
const LARGEST_DESCRIPTION: usize = 64 * 1024;

/// How searches come to see new writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refreshed {
    /// The servers refresh the index within a second.
    BySelf,
    /// A listing has to ask for a refresh. A template or an operator has set another interval than
    /// the usual one.
    WhenAsked,
}

impl Refreshed {
    fn of(settings: &Value) -> Refreshed {
        match settings["refresh_interval"].as_str() {
            None | Some("1s") => Refreshed::BySelf,
            // Shorter intervals, too: refreshing an index that is already fresh delays no listing.
            Some(_) => Refreshed::WhenAsked,
        }
    }
}

/// Checks the name of an index by the servers' rules.
///
/// A name that breaks them could name several indexes, or an action.
pub(super) fn name(text: &str) -> Result<String, String> {
    let odd = |c: char| c.is_uppercase() || c.is_control() || "\\/*?\"<>| ,#:%".contains(c);
    if let Some(odd) = text.chars().find(|c| odd(*c)) {
        return Err(format!("the name of an index has no {odd:?}"));
    }
    if text.starts_with(['-', '_', '+']) || matches!(text, "" | "." | "..") {
        return Err("the name of an index begins with none of `-`, `_` and `+`".into());
    }
    if text.len() > LONGEST_NAME {
        return Err(format!("the name of an index has at most {LONGEST_NAME} bytes"));
    }
    Ok(text.to_owned())
}

/// Creates the index if it is missing, and checks that it can be trusted and read.
pub(super) async fn prepare(client: &Client) -> Result<Refreshed, Failure> {
    let refreshed = match look(client).await {
        Err(failure) if failure.cause == Cause::IndexMissing => make(client).await?,
        looked => looked?,
    };
    serves(client).await?;
    Ok(refreshed)
}

async fn make(client: &Client) -> Result<Refreshed, Failure> {
    match create(client).await {
        // Another process was faster, or the outcome is unknown: the next look tells.
        Err(failure)
            if failure.cause == Cause::IndexExists || failure.fault == Fault::Indeterminate => {}
        Err(failure) => return Err(failure),
        Ok(()) => {}
    }
    look(client).await
}

async fn look(client: &Client) -> Result<Refreshed, Failure> {
    let end = Instant::now() + client.request.max(OPENED_WITHIN);
    let refused = |says| Failure::new(Fault::Permanent, says);
    let answer = match client.call(about(Kind::Read, Method::GET, Bytes::new()), end).await {
        Err(failure) if failure.cause == Cause::Oversized => {
            return Err(refused(
                "its description is larger than any of tenure's indices has".to_owned(),
            ));
        }
        answer => answer?,
    };
    let answer: Value = serde_json::from_slice(&answer)
        .map_err(|_| refused("there is no Elasticsearch and no OpenSearch here".to_owned()))?;
    check(&client.index, &answer).map_err(refused)?;
    Ok(Refreshed::of(&answer[&client.index]["settings"]["index"]))
}

async fn create(client: &Client) -> Result<(), Failure> {
    let body = definition().to_string();
    let end = Instant::now() + client.request.max(CREATED_WITHIN);
    client.call(about(Kind::Write, Method::PUT, body.into()), end).await.map(drop)
}

/// Waits until the index can be read. An index that was just created cannot be read at once.
async fn serves(client: &Client) -> Result<(), Failure> {
    let end = Instant::now() + client.request.max(CREATED_WITHIN);
    loop {
        match read::versions(client, &[Key::elections()], end).await {
            Err(failure) if failure.fault == Fault::Unavailable && Instant::now() + PAUSE < end => {
                tokio::time::sleep(PAUSE).await;
            }
            answered => return answered.map(drop),
        }
    }
}

fn about(kind: Kind, method: Method, body: Bytes) -> Request {
    let most = size_of(1, LARGEST_DESCRIPTION);
    Request { kind, method, action: "", query: String::new(), body, most }
}

fn definition() -> Value {
    json!({
        "settings": {"index": {
            "number_of_shards": 1,
            // A copy on up to two more nodes, if there are any.
            "auto_expand_replicas": "0-2",
            // Acknowledged writes are on disk. This is the default, but a template may change it.
            "translog.durability": "request",
        }},
        "mappings": mappings(),
    })
}

/// The mappings: the key for listings, some fields of records for people, bodies of other kinds.
///
/// Every other field is kept as it is, and is not indexed.
fn mappings() -> Value {
    let mut properties = record::properties();
    properties["key"] = json!({"type": "keyword"});
    properties["text"] = json!({"type": "keyword", "index": false, "doc_values": false});
    properties["base64"] = json!({"type": "binary"});
    json!({"dynamic": "false", "properties": properties})
}

/// Fails unless the index keeps acknowledged writes and documents as they are.
fn check(name: &str, answer: &Value) -> Result<(), String> {
    let Some(index) = answer.get(name) else {
        return Err("this name is an alias; the URL must name the index itself".into());
    };
    let (settings, mappings) = (&index["settings"]["index"], &index["mappings"]);
    let durability = settings["translog"]["durability"].as_str().unwrap_or("request");
    if !durability.eq_ignore_ascii_case("request") {
        return Err(format!(
            "its index.translog.durability is {durability:?}: it forgets what it has acknowledged"
        ));
    }
    for pipeline in ["default_pipeline", "final_pipeline"] {
        if settings[pipeline].as_str().is_some_and(|name| name != "_none") {
            return Err(format!("its index.{pipeline} would change documents"));
        }
    }
    if !mappings["_source"].is_null() || !settings["mapping"]["source"].is_null() {
        return Err("it does not keep the source of documents as it is".into());
    }
    if mappings["dynamic"] != "false" {
        return Err("its mapping is dynamic: tenure did not create it".into());
    }
    let expected = self::mappings();
    let expected = expected["properties"].as_object().into_iter().flatten();
    for (field, mapping) in expected {
        if mappings["properties"][field] != *mapping {
            return Err(format!("its mapping has another `{field}`: tenure did not create it"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of Elasticsearch 8.7.1.
    fn answer() -> Value {
        json!({"tenure": {"aliases": {}, "mappings": mappings(), "settings": {"index": {
            "routing": {"allocation": {"include": {"_tier_preference": "data_content"}}},
            "number_of_shards": "1", "auto_expand_replicas": "0-2", "provided_name": "tenure",
            "number_of_replicas": "0", "uuid": "x", "version": {"created": "8070199"},
            "translog": {"durability": "request"},
        }}}})
    }

    #[test]
    fn an_index_of_ours_is_trusted_and_others_are_not() {
        assert_eq!(check("tenure", &answer()), Ok(()));
        let changed = |path: &str, value: Value| {
            let mut answer = answer();
            *answer.pointer_mut(path).expect("it is there") = value;
            check("tenure", &answer).expect_err(path)
        };
        for (path, value, says) in [
            ("/tenure/settings/index/translog/durability", json!("async"), "forgets"),
            ("/tenure/settings/index/routing", json!({}), ""),
            ("/tenure/mappings/dynamic", json!("true"), "dynamic"),
            ("/tenure/mappings/properties/key", json!({"type": "text"}), "another `key`"),
            ("/tenure/mappings", json!({}), "dynamic"),
        ] {
            if !says.is_empty() {
                let told = changed(path, value);
                assert!(told.contains(says), "{told}");
            }
        }
        let mut source = answer();
        source["tenure"]["mappings"]["_source"] = json!({"enabled": false});
        assert!(check("tenure", &source).is_err());
        let mut pipeline = answer();
        pipeline["tenure"]["settings"]["index"]["default_pipeline"] = json!("x");
        assert!(check("tenure", &pipeline).is_err());
        assert!(check("alias", &answer()).expect_err("an alias").contains("alias"));
    }

    #[test]
    fn an_index_that_does_not_refresh_every_second_is_asked_to() {
        let settings = |interval: Value| json!({"refresh_interval": interval});
        assert_eq!(Refreshed::of(&answer()["tenure"]["settings"]["index"]), Refreshed::BySelf);
        assert_eq!(Refreshed::of(&settings(json!("1s"))), Refreshed::BySelf);
        for other in ["-1", "30s", "1m", "100ms"] {
            assert_eq!(Refreshed::of(&settings(json!(other))), Refreshed::WhenAsked);
        }
    }

    #[test]
    fn names_of_indices_are_checked() {
        for good in ["tenure", "tenure-2", ".tenure", "a.b_c+d"] {
            assert_eq!(name(good), Ok(good.to_owned()));
        }
        let long = "x".repeat(256);
        for bad in ["", ".", "..", "_all", "-x", "+x", "a,b", "a/b", "a*", "Tenure", "a b", &long] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_definition_is_as_the_documentation_says() {
        let documentation = include_str!("../../../../docs/keys.md");
        let written: String = documentation.split_whitespace().collect();
        let defined = definition().to_string();
        assert!(written.contains(&defined), "docs/keys.md lacks {defined}");
    }
}
