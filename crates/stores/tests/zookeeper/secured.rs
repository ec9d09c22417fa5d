//! ZooKeeper with users.

use std::time::Duration;

use tenure::Key;
use tenure::store::{Expect, Fault, Put, StoreExt};
use tenure_harness::{Zookeeper, require, zookeeper};

use crate::support::open;

const REQUEST: Duration = Duration::from_secs(5);

fn key() -> Key {
    Key::parse("elections/secured").expect("a good key")
}

#[tokio::test]
async fn what_a_user_creates_is_its_own() {
    let server = require!(Zookeeper::single(zookeeper::Options::default()).await);
    let address = server[0].address();
    let owner = open(&format!("zookeeper://ann:canary%3A%40@{address}/s"), REQUEST).await;
    let put = owner.store().put(&key(), Expect::Absent, "1".into()).await;
    let Ok(Put::Stored(version)) = put else { panic!("{put:?}") };
    let again = open(&format!("zookeeper://ann:canary%3A%40@{address}/s"), REQUEST).await;
    assert!(again.store().get(&key()).await.expect("it is ours").is_some());
    for url in [format!("zookeeper://{address}/s"), format!("zookeeper://bob:canary@{address}/s")] {
        let stranger = open(&url, REQUEST).await;
        let read = stranger.store().get(&key()).await.expect_err("it is not theirs");
        let write = stranger.store().put(&key(), Expect::At(version.clone()), "2".into()).await;
        let write = write.expect_err("it is not theirs");
        assert_eq!((read.fault, write.fault), (Fault::Denied, Fault::Denied));
        assert!(!crate::support::chain(&write).contains("canary"));
    }
}
