//! Tables that several processes create at once, on any kind of server.

use std::time::Duration;

use futures_util::future::join_all;
use tenure::Key;
use tenure::store::{Expect, Put, StoreExt};
use tenure_harness::{Rethinkdb, require};
use tenure_stores::rethinkdb::RethinkStore;
use tenure_stores::{Location, parse};

/// A real server left several tables in every round of this test. Its other behaviour is scripted
/// in the crate itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_use_one_table() {
    let server = require!(Rethinkdb::single().await);
    for count in 2..=5 {
        let url = format!("rethinkdb://{}/d?table=t{count}", server[0].address());
        let Ok(Location::Rethinkdb(servers)) = parse(&url) else { panic!("{url}") };
        // Each store has a connection of its own, as in processes.
        let opened = (0..count).map(|_| RethinkStore::open(&servers, Duration::from_secs(5), true));
        let stores: Result<Vec<RethinkStore>, _> = join_all(opened).await.into_iter().collect();
        let stores = stores.unwrap_or_else(|error| panic!("{count}: {error:?}"));
        let key = Key::parse("elections/a").expect("a good key");
        let put = stores[0].put(&key, Expect::Absent, "1".into()).await;
        assert!(matches!(put, Ok(Put::Stored(_))), "{count}: {put:?}");
        for store in &stores {
            let found = store.get(&key).await.expect("an answer");
            assert!(found.is_some(), "{count}: all use the same table");
        }
    }
}
