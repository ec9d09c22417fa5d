//! The effects of a broken network on leaders, waits and subscriptions.

use std::time::Duration;

use futures_util::StreamExt as _;
use tenure::feed::{FeedStore, Item, Origin};
use tenure::store::{Expect, Fault, Put, StoreExt};
use tenure::{Backend, Candidate, Election, Key, Leadership, Timing};
use tenure_harness::rethinkdb::Kind as Server;
use tenure_harness::{Direction, Framing, Proxy, Rethinkdb, require};

use crate::faults::{self, Servers};
use crate::kind::Kind;
use crate::support::open;

fn url(proxy: &Proxy) -> String {
    Kind::url(&[proxy.address()], "broken")
}

/// A lease long enough for an outage of the network, even on a busy machine.
fn calm() -> Timing {
    Timing::new(Duration::from_secs(20)).expect("room for every part")
}

fn brisk() -> Timing {
    Timing::new(Duration::from_secs(4)).expect("room for every part")
}

async fn behind_a_proxy(server: &Rethinkdb) -> Proxy {
    Proxy::start(server[0].address(), Framing::Rethinkdb).expect("a proxy")
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(40), future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain until {what}"),
    }
}

async fn lead(url: &str, timing: Timing, name: &str) -> (Backend, Leadership) {
    let backend = open(url, timing.request()).await;
    let election = Election::builder(&backend, "jobs").timing(timing).open().await;
    let election = election.expect("it opens");
    let candidate = Candidate::new(name).expect("a good name");
    let leader = soon("elected", election.campaign(candidate)).await.expect("elected");
    (backend, leader)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_that_is_cut_for_a_moment_costs_nothing() {
    let server = require!(Rethinkdb::single().await);
    let proxy = behind_a_proxy(&server).await;
    let (_backend, leader) = lead(&url(&proxy), calm(), "a").await;
    for _ in 0..3 {
        proxy.cut().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.heal().await;
        soon("renewed", leader.mandate().renewed()).await;
    }
    assert!(leader.mandate().is_leader());
    assert_eq!(leader.mandate().token(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_that_is_cut_for_too_long_costs_the_leadership_before_another_leads() {
    let server = require!(Rethinkdb::single().await);
    let proxy = behind_a_proxy(&server).await;
    let (_backend, leader) = lead(&url(&proxy), brisk(), "a").await;
    let mandate = leader.mandate();
    proxy.cut().await;
    let direct = Kind::url(&server.addresses(), "broken");
    let (_other, next) = lead(&direct, brisk(), "b").await;
    assert!(!mandate.is_leader(), "nobody may be left when another leads");
    assert!(next.mandate().token() > mandate.token());
    proxy.heal().await;
    soon("told", mandate.lost()).await;
    assert!(next.mandate().is_leader());
}

/// A real server keeps its data when it is killed; the emulator does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_back_in_time_costs_nothing() {
    let server = require!(Kind::start(1, tenure_harness::Version::Newest).await);
    match server.server() {
        Server::Real => faults::a_server_killed_and_back_in_time_costs_nothing(server).await,
        Server::Emulator => {
            // Not eprintln!, which the test runner would hide.
            use std::io::Write as _;
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED a_server_killed_and_back_in_time_costs_nothing: the emulator keeps nothing"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_survives_its_connection_and_polling_is_asked_for_meanwhile() {
    let server = require!(Rethinkdb::single().await);
    let proxy = behind_a_proxy(&server).await;
    let waiting = open(&url(&proxy), Duration::from_secs(2)).await;
    let direct = open(&Kind::url(&server.addresses(), "broken"), Duration::from_secs(5)).await;
    let key = Key::parse("elections/watched").expect("a good key");
    let stored = |put| match put {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    };
    let mut version = stored(direct.store().put(&key, Expect::Absent, "0".into()).await);
    for round in 0..3 {
        proxy.cut().await;
        // A wait is woken, or finds that the store does not listen.
        let told = async {
            while waiting.store().notifies() {
                let wait = waiting.store().changed(&key, Some(&version));
                let _ = tokio::time::timeout(Duration::from_millis(100), wait).await;
            }
        };
        soon("followers are told to poll", told).await;
        proxy.heal().await;
        let wait = async {
            while !waiting.store().notifies() {
                let wait = waiting.store().changed(&key, Some(&version));
                let _ = tokio::time::timeout(Duration::from_millis(100), wait).await;
            }
        };
        soon("the feed is back", wait).await;
        let seen = version.clone();
        let wait = waiting.store().changed(&key, Some(&seen));
        let write = async {
            let expect = Expect::At(seen.clone());
            stored(direct.store().put(&key, expect, round.to_string().into()).await)
        };
        let ((), next) = soon("the change is noticed", async { tokio::join!(wait, write) }).await;
        version = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_fails_when_its_connection_breaks_or_falls_silent() {
    let server = require!(Rethinkdb::single().await);
    let proxy = behind_a_proxy(&server).await;
    let backend = open(&url(&proxy), Duration::from_secs(2)).await;
    let feed = backend.feed().expect("there are feeds").clone();
    let table = feed.table().to_owned();
    for silent in [false, true] {
        let subscribed = soon("it is subscribed", async {
            loop {
                match feed.subscribe(&table, Origin::Now).await {
                    Ok(subscribed) => return subscribed,
                    Err(error) => assert_ne!(error.fault, Fault::Permanent, "{error:?}"),
                }
            }
        });
        let mut subscription = subscribed.await;
        match silent {
            false => proxy.sever().await,
            true => proxy.blackhole(Direction::ToClient),
        }
        let error = soon("it fails", subscription.next()).await.expect("an item");
        let error = error.expect_err("nothing can be heard any more");
        assert_eq!(error.fault, Fault::Unavailable, "{error:?}");
        assert!(soon("it ends", subscription.next()).await.is_none());
        proxy.heal().await;
    }
    let subscribed = soon("it is subscribed again", async {
        loop {
            if let Ok(subscribed) = feed.subscribe(&table, Origin::Now).await {
                return subscribed;
            }
        }
    });
    let mut subscription = subscribed.await;
    write_as_a_user(&*feed, &table).await;
    let item = soon("a change", subscription.next()).await.expect("an item");
    assert!(matches!(item, Ok(Item::Change { .. })), "{item:?}");
}

async fn write_as_a_user(feed: &dyn FeedStore, table: &str) {
    let connection = feed.handle(table, tenure::feed::Handle::Connection).expect("a connection");
    let connection = connection.downcast::<tenure_stores::rethinkdb::Connection>();
    let rows = serde_json::json!([15, [[14, ["tests"]], table]]);
    let insert = serde_json::json!([56, [rows, { "id": "order-1" }]]);
    connection.expect("ours").run(&insert).await.expect("an answer");
}
