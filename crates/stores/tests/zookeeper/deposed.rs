//! Reads through a server that led until just now.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tenure::{Backend, Expect, Key, Put, StoreExt, Version};
use tenure_harness::{Direction, Framing, Proxy, Zookeeper, require, zookeeper};

use crate::support::open;

const MULTI: i32 = 14;

fn key(text: &str) -> Key {
    Key::parse(text).expect("a good key")
}

fn options() -> zookeeper::Options {
    let longest = ("maxSessionTimeout".to_owned(), "60000".to_owned());
    zookeeper::Options { settings: vec![longest], ..zookeeper::Options::default() }
}

/// A store with a session longer than the test.
async fn store(addresses: &[SocketAddr], request: Duration) -> Backend {
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let url = format!("zookeeper://{}/deposed?protocol=lease&ttl=30s", hosts.join(","));
    open(&url, request).await
}

/// Writes until it is stored: servers that elect a leader answer nothing.
async fn write(writer: &Backend, key: &Key, expect: Expect, body: &'static str) -> Version {
    for _ in 0..100 {
        let put = writer.store().put(key, expect.clone(), body.into()).await;
        if let Ok(Put::Stored(version)) = put {
            return version;
        }
        let found = writer.store().get(key).await;
        if let Ok(Some(document)) = found
            && document.body == body
        {
            return document.version;
        }
    }
    panic!("{key} was never written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_deposed_shows_no_reader_what_was() {
    let partitions = zookeeper::Options { partitions: true, ..options() };
    let servers = require!(Zookeeper::ensemble(3, partitions).await);
    let cut = servers.settled(None).await.expect("somebody leads");
    let others: Vec<SocketAddr> =
        (0..3).filter(|index| *index != cut).map(|index| servers[index].address()).collect();
    let writer = store(&others, Duration::from_secs(10)).await;
    let read = key("elections/read");
    let old = write(&writer, &read, Expect::Absent, "old").await;
    // Connected, and everything in that document is news to it.
    let reader = store(&[servers[cut].address()], Duration::from_secs(1)).await;
    reader.store().get(&key("elections/another")).await.expect("it is connected");
    servers.isolate(cut).expect("it is cut off");
    // Standing still, it does not notice that the others elect a leader.
    servers[cut].stop().await.expect("it ran");
    servers.settled(Some(cut)).await.expect("two are enough");
    write(&writer, &read, Expect::At(old), "new").await;
    servers[cut].cont().await.expect("it is there");
    let mut asked = 0;
    for _ in 0..200 {
        if let Ok(found) = reader.store().get(&read).await {
            let body = found.map(|document| document.body);
            assert_eq!(body.as_deref(), Some(&b"new"[..]), "after {asked} reads that failed");
        }
        asked += 1;
        let says = zookeeper::ask(servers[cut].address(), "srvr").await.unwrap_or_default();
        if !says.contains("Mode: leader") {
            break;
        }
    }
    println!("{asked} reads of a server that believed it led");
    servers.rejoin(cut).expect("it is back");
    for _ in 0..60 {
        if let Ok(Some(document)) = reader.store().get(&read).await {
            assert_eq!(document.body, "new");
            return;
        }
    }
    panic!("it never shows anything again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_program_share_the_write_before_what_is_new_and_write_nothing_otherwise() {
    let servers = require!(Zookeeper::single(options()).await);
    let writer = store(&[servers[0].address()], Duration::from_secs(10)).await;
    let proxy = Proxy::start(servers[0].address(), Framing::Zookeeper).expect("a proxy");
    let reader = store(&[proxy.address()], Duration::from_secs(10)).await;
    let read = key("elections/shared");
    let mut version = write(&writer, &read, Expect::Absent, "0").await;
    let writes = Arc::new(AtomicUsize::new(0));
    let counter = writes.clone();
    proxy.observe(move |message| {
        let is_write = message.bytes.get(8..12) == Some(&MULTI.to_be_bytes()[..]);
        if message.direction == Direction::ToServer && is_write {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let renewals = 10;
    for _ in 0..renewals {
        version = write(&writer, &read, Expect::At(version), "0").await;
        let waiters = (0..1000).map(|_| reader.store().get(&read));
        for found in join_all(waiters).await {
            let found = found.expect("it is read").expect("it is there");
            assert_eq!(found.version, version);
        }
    }
    let news = writes.swap(0, Ordering::Relaxed);
    println!("{news} writes for {renewals} renewals that 1,000 waiters of one program read");
    assert!((renewals..renewals * 100).contains(&news), "{news}");
    for found in join_all((0..1000).map(|_| reader.store().get(&read))).await {
        assert_eq!(found.expect("it is read").expect("it is there").version, version);
    }
    assert_eq!(writes.load(Ordering::Relaxed), 0, "nothing was new");
}
