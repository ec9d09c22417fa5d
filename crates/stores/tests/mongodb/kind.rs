//! Starts MongoDB for these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection};
use serde_json::Value;
use tenure::feed::FeedStore;
use tenure_conformance::feed::{FeedSubject, Times};
use tenure_harness::mongodb::Options;
use tenure_harness::{Cluster, Failure, Framing, Mongodb, Skipped, Version};

use crate::faults::Servers;
use crate::support::{Shared, keep, open};

pub(crate) struct Kind(pub(crate) Mongodb);

impl Deref for Kind {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Kind {
    const FRAMING: Framing = Framing::Mongodb;
    // A busy machine stops these servers for a while.
    const TTL: Duration = Duration::from_secs(4);

    /// Ignores the version: there is only one.
    async fn start(count: usize, _: Version) -> Result<Kind, Failure> {
        Ok(Kind(Mongodb::set(count, Options::default()).await?))
    }

    /// A single server is addressed directly. It may be a proxy's address, which the servers do not
    /// know.
    fn url(addresses: &[SocketAddr], database: &str) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let direct = if hosts.len() == 1 { "?directConnection=true" } else { "" };
        format!("mongodb://{}/{database}{direct}", hosts.join(","))
    }
}

pub(crate) fn single() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep::<Kind>("mongodb, one server", 1))
}

pub(crate) fn three() -> &'static Result<Shared, Skipped> {
    static SERVERS: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVERS.get_or_init(|| keep::<Kind>("mongodb, three servers", 3))
}

/// The same server, with feeds of its collections.
pub(crate) struct Followed {
    shared: &'static Shared,
    user: tokio::sync::OnceCell<Client>,
}

pub(crate) fn followed() -> Result<Followed, &'static Skipped> {
    let shared = single().as_ref()?;
    Ok(Followed { shared, user: tokio::sync::OnceCell::new() })
}

impl Followed {
    /// A collection of one of its users, over a client that lives as long as the case.
    async fn collection(&self, table: &str) -> Collection<Document> {
        let user = self.user.get_or_init(async || client(self.shared.url()).await).await;
        user.database("suite").collection(table)
    }
}

/// A client as in a program of its own.
pub(crate) async fn client(url: &str) -> Client {
    let options = ClientOptions::parse(url).await.expect("a connection string");
    Client::with_options(options).expect("a client")
}

#[async_trait::async_trait]
impl FeedSubject for Followed {
    fn name(&self) -> &str {
        "mongodb"
    }

    async fn open(&self) -> Arc<dyn FeedStore> {
        let backend = open(self.shared.url(), Duration::from_secs(10)).await;
        backend.feed().expect("MongoDB has feeds").clone()
    }

    fn times(&self) -> Times {
        Times::brisk()
    }

    fn shows_the_past(&self) -> bool {
        true
    }

    async fn write(&self, table: &str, id: &str, n: u64) {
        let n = i64::try_from(n).expect("a small number");
        let document = doc! { "_id": id, "n": n };
        let collection = self.collection(table).await;
        let written = collection.replace_one(doc! { "_id": id }, document).upsert(true).await;
        written.expect("the server answers");
    }

    async fn delete(&self, table: &str, id: &str) {
        let deleted = self.collection(table).await.delete_one(doc! { "_id": id }).await;
        deleted.expect("the server answers");
    }

    fn understand(&self, change: &Value) -> (String, Option<u64>) {
        let id = change["documentKey"]["_id"].as_str().expect("a change has its document's key");
        (id.to_owned(), change["fullDocument"]["n"].as_u64())
    }
}
