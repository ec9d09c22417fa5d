//! Reads through a server that led until just now.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tenure::store::{Document, Expect, Put, StoreExt, Version};
use tenure::{Backend, Key};
use tenure_harness::{Direction, Failure, Framing, Proxy, Zookeeper, require, zookeeper};
use tenure_stores::zookeeper::{Acl, Client, ClientOptions, Lifetime};

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
    let url = format!("zookeeper://{}/deposed?protocol=lease&ttl=60s", hosts.join(","));
    open(&url, request).await
}

/// Another client. Its reads follow a `sync` and nothing else.
async fn control(server: SocketAddr) -> Client {
    let options = ClientOptions::new([server.to_string()]);
    let client = Client::new(options.with_session(Duration::from_secs(60)));
    client.connected(Duration::from_secs(30)).await.expect("it connects");
    client
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

/// The server that leads: with equal data the highest number wins.
const CUT: usize = 2;

/// Three servers, of which one notices only after a minute that it no longer leads.
async fn ensemble() -> Result<Zookeeper, Failure> {
    let patience = (CUT, "syncLimit".to_owned(), "300".to_owned());
    let own_settings = vec![patience];
    Zookeeper::ensemble(3, zookeeper::Options { partitions: true, own_settings, ..options() }).await
}

/// Sees to it that this server leads.
async fn make_lead(servers: &Zookeeper) {
    for _ in 0..5 {
        let leader = servers.settled(None).await.expect("somebody leads");
        if leader == CUT {
            return;
        }
        // It began before the other was there.
        servers[leader].restart().await.expect("it comes back");
    }
    panic!("server {CUT} never leads");
}

/// Deposes a leader that does not notice, and reads through it.
///
/// The reader knows an earlier version of the document, or everything in it is news.
async fn depose(servers: &Zookeeper, knows: bool) {
    make_lead(servers).await;
    let cut = servers[CUT].address();
    let others: Vec<SocketAddr> =
        (0..3).filter(|index| *index != CUT).map(|index| servers[index].address()).collect();
    let writer = store(&others, Duration::from_secs(10)).await;
    let read = key("elections/read");
    let first = write(&writer, &read, Expect::Absent, "first").await;
    let reader = store(&[cut], Duration::from_secs(1)).await;
    if knows {
        let known = until_read(&reader, &read).await;
        assert_eq!(known.map(|document| document.version), Some(first.clone()));
    } else {
        until_read(&reader, &key("elections/another")).await;
    }
    let old = write(&writer, &read, Expect::At(first), "old").await;
    let (control, node) = (control(cut).await, "/control");
    let made = control.create(node, "old", Lifetime::Lasting, &Acl::open()).await;
    made.expect("made");
    servers.isolate(CUT).expect("it is cut off");
    // Once the others have elected a leader.
    write(&writer, &read, Expect::At(old), "new").await;
    let elsewhere = self::control(others[0]).await;
    while elsewhere.set_data(node, "new", None).await.is_err() {
        let _ = elsewhere.connected(Duration::from_secs(10)).await;
    }
    let (synced, shown) = (control.sync(node), control.data(node));
    synced.await.expect("it believes that it leads");
    assert_eq!(shown.await.expect("it answers").0, b"old", "it has not heard of the others");
    let is_new = |document: &Document| document.body == "new";
    let found = reader.store().get(&read).await;
    let honest = found.as_ref().is_ok_and(|found| found.as_ref().is_some_and(is_new));
    assert!(found.is_err() || honest, "{found:?}");
    // What the reader wrote keeps a `sync` waiting, and no read.
    let (shown, _) = control.data(node).await.expect("it answers");
    assert_eq!(shown, b"old", "it had not heard of the others when it was read");
    servers.rejoin(CUT).expect("it is back");
    let document = until_read(&reader, &read).await;
    assert!(document.as_ref().is_some_and(is_new), "{document:?}");
}

/// Reads until a server answers.
async fn until_read(reader: &Backend, key: &Key) -> Option<Document> {
    for _ in 0..100 {
        if let Ok(found) = reader.store().get(key).await {
            return found;
        }
    }
    panic!("{key} is never shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_deposed_shows_no_reader_what_was() {
    for knows in [false, true] {
        // Fresh ones, because a write that waits for the others would keep a `sync` waiting too.
        let servers = require!(ensemble().await);
        depose(&servers, knows).await;
    }
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
