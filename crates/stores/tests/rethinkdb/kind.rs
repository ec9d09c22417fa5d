//! Starts RethinkDB for these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::feed::FeedStore;
use tenure_conformance::feed::{FeedSubject, Times};

use tenure_harness::{Cluster, Failure, Framing, Rethinkdb, Skipped, Version, rethinkdb};

use crate::faults::Servers;
use crate::support::{Shared, keep};
use tenure_stores::rethinkdb::{Connection, RethinkFeed};
use tenure_stores::{Location, parse};

pub(crate) struct Kind(Rethinkdb);

impl Kind {
    pub(crate) fn server(&self) -> rethinkdb::Kind {
        self.0.kind()
    }
}

impl Deref for Kind {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Servers for Kind {
    const FRAMING: Framing = Framing::Rethinkdb;
    // A busy machine stops these servers for a while.
    const TTL: Duration = Duration::from_secs(6);

    async fn start(_: usize, _: Version) -> Result<Kind, Failure> {
        Ok(Kind(Rethinkdb::single().await?))
    }

    fn url(addresses: &[SocketAddr], prefix: &str) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("rethinkdb://{}/tests?table={prefix}", hosts.join(","))
    }
}

pub(crate) fn single() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var(rethinkdb::URL_VARIABLE) {
        Ok(url) => Ok(Shared::elsewhere("rethinkdb, the one that the environment names", url)),
        Err(_) => keep::<Kind>("rethinkdb, one server", 1),
    })
}

/// The same server, with feeds of its tables.
pub(crate) struct Followed {
    shared: &'static Shared,
    user: tokio::sync::OnceCell<Connection>,
}

pub(crate) fn followed() -> Result<Followed, &'static Skipped> {
    let shared = single().as_ref()?;
    Ok(Followed { shared, user: tokio::sync::OnceCell::new() })
}

impl Followed {
    fn connect(&self) -> (Connection, String) {
        let Ok(Location::Rethinkdb(servers)) = parse(self.shared.url()) else {
            panic!("{} is no URL of RethinkDB", self.shared.url());
        };
        let request = Duration::from_secs(10);
        (Connection::new(&servers, request).expect("a connection"), servers.path)
    }

    /// Asks as a user of the table, over a connection that lives as long as the case.
    async fn ask(&self, question: impl FnOnce(Value) -> Value, table: &str) {
        let user = self.user.get_or_init(async || self.connect().0).await;
        let database = self.connect().1;
        let answer = user.run(&question(json!([15, [[14, [database]], table]]))).await;
        let answer = answer.expect("the database answers");
        assert_eq!(answer["errors"], json!(0), "{answer}");
    }
}

#[async_trait::async_trait]
impl FeedSubject for Followed {
    fn name(&self) -> &str {
        "rethinkdb"
    }

    async fn open(&self) -> Arc<dyn FeedStore> {
        let (connection, database) = self.connect();
        Arc::new(RethinkFeed::new(connection, &database, "tenure"))
    }

    fn times(&self) -> Times {
        // Long enough for an emulator on a busy machine.
        let second = Duration::from_secs(1);
        Times { heartbeat: second / 2, min: second * 4, max: second * 8 }
    }

    fn shows_the_past(&self) -> bool {
        true
    }

    async fn write(&self, table: &str, id: &str, n: u64) {
        let row = json!({ "id": id, "n": n });
        self.ask(|table| json!([56, [table, row], { "conflict": "replace" }]), table).await;
    }

    async fn delete(&self, table: &str, id: &str) {
        self.ask(|table| json!([54, [[16, [table, id]]]]), table).await;
    }

    fn understand(&self, change: &Value) -> (String, Option<u64>) {
        let (new, old) = (&change["new_val"], &change["old_val"]);
        let row = if new.is_null() { old } else { new };
        let id = row["id"].as_str().expect("a document has an id");
        (id.to_owned(), new["n"].as_u64())
    }
}
