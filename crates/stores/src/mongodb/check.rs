//! Checks, when a store is opened, that its deployment suits the protocol.

use std::time::Duration;

use mongodb::bson::{Bson, Document as Bsons, doc};
use tenure::Key;
use tenure::store::{Fault, StoreError};

use super::answer::integer;
use super::fault::Failure;
use super::table::Table;

/// The wire version of MongoDB 4.4, the first with the projections that we use.
const OLDEST_WIRE: i64 = 9;
/// The least time allowed for the creation of a collection.
const CREATION: Duration = Duration::from_secs(10);
/// Error codes of the server.
const UNAUTHORIZED: [i32; 2] = [13, 8000];
const EXISTS: [i32; 1] = [48];

/// Checks for a replica set with a majority that journals, and for the collection.
pub(super) async fn deployment(table: &Table, create: bool) -> Result<(), StoreError> {
    let admin = Table { database: table.database.client().database("admin"), ..table.clone() };
    let hello = admin.ask(doc! { "hello": 1 }).await;
    let hello = hello.map_err(|failure| failure.while_doing("asking who is primary"))?;
    replica_set(&hello).map_err(|says| refused("looking at the deployment", says))?;
    match admin.ask(doc! { "replSetGetConfig": 1 }).await {
        Ok(config) => {
            journaled(&config).map_err(|says| refused("looking at the replica set", says))?;
        }
        // Every write asks for the majority's journals anyway. This check would only have caught a
        // mistake.
        Err(failure) if is_any_of(&failure, &UNAUTHORIZED) => {
            let why = "the user may not read the replica set's configuration";
            tracing::debug!("mongodb: not checked whether the majority journals: {why}");
        }
        Err(failure) => return Err(failure.while_doing("reading the replica set's configuration")),
    }
    collection(table, create).await?;
    // Checks that we may read, and that linearizable reads work.
    let probe = table.read(&[Key::elections()]).await;
    probe.map(|_| ()).map_err(|failure| failure.while_doing("reading linearizably"))
}

/// Checks that the collection is a plain one. Creates a missing one if `create` is set.
pub(super) async fn collection(table: &Table, create: bool) -> Result<(), StoreError> {
    let name = &table.collection;
    let place = format!("{}.{name}", table.database.name());
    let doing = format!("looking for the collection {place}");
    let asked = doc! {
        "listCollections": 1, "filter": { "name": name }, "authorizedCollections": true,
    };
    let found = match table.ask(asked).await {
        Ok(answer) => first(&answer),
        // A user who may not list collections may still write to this one.
        Err(failure) if create && is_any_of(&failure, &UNAUTHORIZED) => return Ok(()),
        Err(failure) => return Err(failure.while_doing(doing)),
    };
    match found {
        Some(found) => plain(&found).map_err(|says| refused(doing, says)),
        None if create => {
            // The creation happens once, on a server that has just answered, and writes more than a
            // request.
            let patient = Table { request: table.request.max(CREATION), ..table.clone() };
            match patient.write(doc! { "create": name }).await {
                // Another process has just created it.
                Err(failure) if is_any_of(&failure, &EXISTS) => Ok(()),
                Ok(answer) => match answer.get_document("writeConcernError") {
                    Ok(_) => {
                        let says = "the majority has not confirmed it";
                        Err(Failure::new(Fault::Indeterminate, says))
                    }
                    Err(_) => Ok(()),
                },
                Err(failure) => Err(failure),
            }
            .map_err(|failure| failure.while_doing(format!("creating the collection {place}")))
        }
        None => {
            let says = "it does not exist, and is not to be created";
            Err(refused(doing, says.to_owned()))
        }
    }
}

fn first(answer: &Bsons) -> Option<Bsons> {
    let batch = answer.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
    batch.first().and_then(Bson::as_document).cloned()
}

fn refused(doing: impl Into<String>, says: String) -> StoreError {
    Failure::new(Fault::Permanent, says).while_doing(doing)
}

fn is_any_of(failure: &Failure, codes: &[i32]) -> bool {
    failure.code.is_some_and(|code| codes.contains(&code))
}

fn replica_set(hello: &Bsons) -> Result<(), String> {
    if hello.get_str("msg").is_ok_and(|says| says == "isdbgrid") {
        return Err("this is the router of a sharded cluster; name the members of a replica set, \
                    because linearizable reads and change streams are asked of its primary"
            .into());
    }
    if hello.get_str("setName").is_err() {
        return Err("the server is in no replica set, and without one a write is not kept by a \
                    majority; start mongod with --replSet and run rs.initiate()"
            .into());
    }
    match hello.get("maxWireVersion").and_then(integer) {
        Some(version) if version >= OLDEST_WIRE => Ok(()),
        _ => Err("the server is older than MongoDB 4.4".into()),
    }
}

fn journaled(config: &Bsons) -> Result<(), String> {
    let config = config.get_document("config").ok();
    match config.map(|config| config.get_bool("writeConcernMajorityJournalDefault")) {
        // If it is absent, its default counts, which is true.
        Some(Ok(true) | Err(_)) => Ok(()),
        Some(Ok(false)) => Err("writeConcernMajorityJournalDefault is false: what a majority has \
                                confirmed can be lost when its servers crash; set it to true with \
                                rs.reconfig()"
            .into()),
        None => Err("the answer has no configuration in it".into()),
    }
}

/// Checks that ids are compared byte by byte. Documents must be able to grow and to be deleted.
fn plain(collection: &Bsons) -> Result<(), String> {
    let options = collection.get_document("options").cloned().unwrap_or_default();
    match collection.get_str("type") {
        Ok("collection") | Err(_) => {}
        Ok(other) => return Err(format!("it is a {}", other.escape_debug())),
    }
    if options.get_bool("capped").unwrap_or(false) {
        return Err("it is capped, and would forget who leads".into());
    }
    match options.get_document("collation").map(|collation| collation.get_str("locale")) {
        Err(_) | Ok(Ok("simple")) => Ok(()),
        Ok(_) => Err("it has a collation, in which different names may be equal".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_replica_set_of_a_recent_server_is_accepted() {
        let good = doc! { "setName": "rs", "maxWireVersion": 17 };
        assert_eq!(replica_set(&good), Ok(()));
        for (hello, says) in [
            (doc! { "maxWireVersion": 17 }, "--replSet"),
            (doc! { "msg": "isdbgrid", "maxWireVersion": 17 }, "router"),
            (doc! { "setName": "rs", "maxWireVersion": 8 }, "older"),
        ] {
            assert!(replica_set(&hello).expect_err("refused").contains(says), "{hello}");
        }
    }

    #[test]
    fn only_a_majority_that_journals_is_accepted() {
        let config =
            |value: bool| doc! { "config": { "writeConcernMajorityJournalDefault": value } };
        assert_eq!(journaled(&config(true)), Ok(()));
        assert_eq!(journaled(&doc! { "config": {} }), Ok(()));
        assert!(journaled(&config(false)).is_err() && journaled(&doc! {}).is_err());
    }

    #[test]
    fn only_a_plain_collection_is_accepted() {
        let of = |options: Bsons| plain(&doc! { "type": "collection", "options": options });
        assert_eq!(of(doc! {}), Ok(()));
        assert_eq!(of(doc! { "collation": { "locale": "simple" } }), Ok(()));
        assert!(of(doc! { "capped": true }).is_err());
        assert!(of(doc! { "collation": { "locale": "en", "strength": 2 } }).is_err());
        assert!(plain(&doc! { "type": "view" }).is_err());
    }
}
