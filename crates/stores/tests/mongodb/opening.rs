//! The checks before a store on MongoDB is used.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use tenure::store::{Expect, Fault, Put, StoreError, StoreExt};
use tenure::{Backend, Candidate, Election, Key};
use tenure_harness::mongodb::Options;
use tenure_harness::{Mongodb, require};
use tenure_stores::mongodb::{MongodbOptions, MongodbStore};
use tenure_stores::{OpenError, OpenOptions};

use crate::faults::Servers as _;
use crate::kind::{Kind, client};
use crate::support::{chain, open};

const REQUEST: Duration = Duration::from_secs(5);

fn key() -> Key {
    Key::parse("elections/opened").expect("a good key")
}

fn url(server: &Mongodb, database: &str) -> String {
    Kind::url(&server.addresses(), database)
}

fn options() -> OpenOptions {
    OpenOptions::default().with_request(REQUEST)
}

async fn refused(url: &str, options: &OpenOptions) -> StoreError {
    match tenure_stores::open(url, options).await {
        Err(OpenError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_in_no_replica_set_is_refused_with_what_to_do() {
    let server =
        require!(Mongodb::single(Options { standalone: true, ..Options::default() }).await);
    for url in [url(&server, "a"), format!("mongodb://{}/a", server[0].address())] {
        let error = refused(&url, &options()).await;
        assert_eq!(error.fault, Fault::Permanent);
        assert!(chain(&error).contains("--replSet"), "{}", chain(&error));
    }
}

#[tokio::test]
async fn a_majority_that_does_not_journal_is_refused() {
    let server =
        require!(Mongodb::single(Options { journaled: false, ..Options::default() }).await);
    let error = refused(&url(&server, "a"), &options()).await;
    assert_eq!(error.fault, Fault::Permanent);
    assert!(chain(&error).contains("writeConcernMajorityJournalDefault"), "{}", chain(&error));
}

#[tokio::test]
async fn collections_are_made_unless_forbidden_and_odd_ones_are_refused() {
    let server = require!(Mongodb::single(Options::default()).await);
    let forbidding = options().with_create_if_missing(false);
    let error = refused(&url(&server, "a"), &forbidding).await;
    assert_eq!(error.fault, Fault::Permanent);
    assert!(chain(&error).contains("a.tenure: it does not exist"), "{}", chain(&error));

    let backend = open(&url(&server, "a"), REQUEST).await;
    let client = client(&url(&server, "a")).await;
    let names = client.database("a").list_collection_names().await.expect("a list");
    assert_eq!(names, ["tenure"], "it is made, and nothing else is");
    tenure_stores::open(&url(&server, "a"), &forbidding).await.expect("it is there now");
    drop(backend);

    let elsewhere = format!("{}&collection=other.leaders", url(&server, "a"));
    open(&elsewhere, REQUEST).await;
    let mut names = client.database("a").list_collection_names().await.expect("a list");
    names.sort();
    assert_eq!(names, ["other.leaders", "tenure"]);

    for (name, odd, says) in [
        ("capped", doc! { "create": "capped", "capped": true, "size": 4096 }, "capped"),
        ("blurred", doc! { "create": "blurred", "collation": { "locale": "en" } }, "collation"),
        ("view", doc! { "create": "view", "viewOn": "tenure", "pipeline": [] }, "view"),
    ] {
        client.database("a").run_command(odd).await.expect("created");
        let error = refused(&format!("{}&collection={name}", url(&server, "a")), &options()).await;
        assert_eq!(error.fault, Fault::Permanent);
        assert!(chain(&error).contains(says), "{}", chain(&error));
    }
}

#[tokio::test]
async fn a_client_of_the_program_whatever_it_was_told_serves_elections() {
    let server = require!(Mongodb::single(Options::default()).await);
    // Every setting is the opposite of the right one.
    let told = "&w=1&journal=false&readConcernLevel=local&retryWrites=true&readPreference=nearest";
    let client = client(&format!("{}{told}", url(&server, "a"))).await;
    let options = MongodbOptions::default().with_collection("mine").with_request(REQUEST);
    let store = MongodbStore::from_client(&client, "jobs", options.clone()).await;
    let store = std::sync::Arc::new(store.expect("it serves"));
    let backend = Backend::new(store.clone());
    let election = Election::open(&backend, "nightly").await.expect("it opens");
    let candidate = Candidate::new("a").expect("a good name");
    let leader = election.campaign(candidate).await.expect("elected");
    assert_eq!(leader.mandate().token(), 1);
    let collection = client.database("jobs").collection::<Document>("mine");
    let found = collection.find_one(doc! { "_id": "elections/nightly" }).await.expect("read");
    let body = found.expect("it is there").get_str("body").expect("text").to_owned();
    assert!(body.contains("\"held\""), "people can read it: {body}");
    leader.resign().await;
    let missing = options.with_collection("missing").with_create_if_missing(false);
    let error = MongodbStore::from_client(&client, "jobs", missing).await.expect_err("missing");
    assert_eq!(error.fault, Fault::Permanent);
}

#[tokio::test]
async fn what_others_wrote_is_unreadable_and_never_read_whole() {
    let server = require!(Mongodb::single(Options::default()).await);
    let backend = open(&url(&server, "a"), REQUEST).await;
    let collection =
        client(&url(&server, "a")).await.database("a").collection::<Document>("tenure");
    let huge = "x".repeat(4 << 20);
    for odd in [
        doc! { "_id": "elections/opened", "version": "1", "body": &huge },
        doc! { "_id": "elections/opened", "version": &huge, "body": "{}" },
        doc! { "_id": "elections/opened", "version": 7, "body": { "a": 1 } },
        doc! { "_id": "elections/opened" },
    ] {
        let stored = collection.replace_one(doc! { "_id": "elections/opened" }, odd).upsert(true);
        stored.await.expect("written");
        let found = backend.store().get(&key()).await.expect("readable").expect("it is there");
        assert!(found.body.len() <= tenure::store::MAX_DOCUMENT_BYTES + 1);
        let listed = backend.store().list(&Key::elections(), None, 10).await.expect("a list");
        assert_eq!(listed.documents, [(key(), found)]);
    }
    // No write expects its version, so it is not overwritten by mistake.
    let found = backend.store().get(&key()).await.expect("readable").expect("it is there");
    let put = backend.store().put(&key(), Expect::At(found.version), "{}".into()).await;
    assert_eq!(put.expect("an answer"), Put::Conflict);
}
