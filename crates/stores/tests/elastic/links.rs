//! Connections that break, fall silent or are slow, on one shared server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tenure::Key;
use tenure::store::{Durability, Expect, Fault, Put, Store, StoreExt, Version, Write};
use tenure_harness::{Direction, Framing, Port, Proxy};
use tenure_stores::OpenOptions;

use crate::kind::{elasticsearch, shared};
use crate::support::{chain, open};

const REQUEST: Duration = Duration::from_secs(5);

/// The shared server's address.
fn server() -> Option<SocketAddr> {
    let url = &shared(elasticsearch())?.url;
    let address = url.split('/').nth(2).expect("a URL with a host");
    Some(address.parse().expect("an address"))
}

fn proxied(server: SocketAddr) -> Proxy {
    Proxy::start(server, Framing::Raw).expect("a proxy")
}

fn url(hosts: &[SocketAddr], index: &str) -> String {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    format!("elasticsearch+http://{}/{index}", hosts.join(","))
}

fn key(name: &str) -> Key {
    Key::parse(&format!("elections/{name}")).expect("a good key")
}

fn write(name: &str, expect: Expect) -> Write {
    let durability = Durability::Lasting;
    Write { key: key(name), expect, body: Some("1".into()), durability }
}

async fn until_read(store: &dyn Store, name: &str) -> Option<tenure::store::Document> {
    let began = Instant::now();
    loop {
        match store.get(&key(name)).await {
            Ok(found) => return found,
            Err(error) if began.elapsed() > Duration::from_secs(30) => panic!("{}", chain(&error)),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The write happened, but its answer was lost: the outcome is unknown, and it is not sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_in_doubt_and_happened_once() {
    let Some(server) = server() else { return };
    let proxy = proxied(server);
    let backend = open(&url(&[proxy.address()], "links-lost"), REQUEST).await;
    let store = backend.store();
    let first = match store.put(&key("a"), Expect::Absent, "1".into()).await {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    };
    proxy.lose_answers(1);
    let put = store.put(&key("a"), Expect::At(first), "2".into()).await;
    assert_eq!(put.expect_err("no answer came").fault, Fault::Indeterminate);
    assert_eq!(proxy.answers_lost(), 1);
    let document = until_read(&**store, "a").await.expect("it is there");
    assert_eq!(document.body, "2");
    assert_eq!(document.version, Version::new("1:1"), "there were two writes in all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_are_replaced() {
    let Some(server) = server() else { return };
    let proxy = proxied(server);
    let backend = open(&url(&[proxy.address()], "links-broken"), REQUEST).await;
    for round in 0..10 {
        proxy.sever().await;
        assert_eq!(until_read(&**backend.store(), "absent").await, None, "round {round}");
    }
}

/// A connection stays open but passes nothing: another one is opened, although it never reports an
/// error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_falls_silent_is_replaced() {
    let Some(server) = server() else { return };
    let proxy = proxied(server);
    let address = url(&[proxy.address()], "links-silent");
    // Creates the index with a long time-out.
    open(&address, REQUEST).await;
    let backend = open(&address, Duration::from_secs(2)).await;
    proxy.blackhole(Direction::ToClient);
    let read = backend.store().get(&key("a")).await.expect_err("nothing comes back");
    assert_eq!(read.fault, Fault::Unavailable);
    let put = backend.store().put(&key("a"), Expect::Absent, "1".into()).await;
    assert_eq!(put.expect_err("nothing comes back").fault, Fault::Indeterminate);
    proxy.heal().await;
    let written = until_read(&**backend.store(), "a").await;
    println!("the write that was in doubt: {written:?}");
}

/// A write that was never sent had no effect, and does not happen later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_cannot_be_sent_is_unavailable_and_does_not_happen_later() {
    let Some(server) = server() else { return };
    let proxy = proxied(server);
    let backend = open(&url(&[proxy.address()], "links-cut"), REQUEST).await;
    let direct = open(&url(&[server], "links-cut"), REQUEST).await;
    proxy.cut().await;
    // The first writes may still find the connection that was just reset.
    for _ in 0..2 {
        let put = backend.store().put(&key("a"), Expect::Absent, "late".into()).await;
        let fault = put.expect_err("there is no way to the server").fault;
        assert!(matches!(fault, Fault::Unavailable | Fault::Indeterminate), "{fault:?}");
    }
    let put = backend.store().put(&key("a"), Expect::Absent, "late".into()).await;
    assert_eq!(put.expect_err("nobody listens").fault, Fault::Unavailable);
    proxy.heal().await;
    assert_eq!(until_read(&**backend.store(), "a").await, None);
    assert_eq!(direct.store().get(&key("a")).await.expect("it answers"), None);
}

/// A server that is down costs nothing, even if it is asked first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_is_passed_over() {
    let Some(server) = server() else { return };
    let nobody = Port::claim().expect("a free port");
    for round in 0..6 {
        let address = url(&[nobody.address(), server], "links-two");
        let backend = open(&address, REQUEST).await;
        let name = format!("n{round}");
        let put = backend.store().put(&key(&name), Expect::Absent, "1".into()).await;
        assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
    }
}

#[tokio::test]
async fn servers_that_are_all_down_are_told_when_opening() {
    let nobody = Port::claim().expect("a free port");
    let options = OpenOptions::default().with_request(Duration::from_secs(1));
    let address = url(&[nobody.address()], "x");
    let began = Instant::now();
    let error = tenure_stores::open(&address, &options).await.expect_err("nobody is there");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(chain(&error).contains("refused"), "{}", chain(&error));
}

/// Sequential round trips, counted in delays of a proxy: a batch takes as many as one document,
/// plus computing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_one_request() {
    const DELAY: Duration = Duration::from_millis(200);
    // One by one, the documents would take 100 round trips.
    const A_BUSY_MACHINE: f64 = 10.0;
    let Some(server) = server() else { return };
    let proxy = proxied(server);
    let request = Duration::from_secs(20);
    let backend = open(&url(&[proxy.address()], "links-batch"), request).await;
    let store = backend.store();
    let names: Vec<String> = (0..100).map(|number| format!("n{number:03}")).collect();
    proxy.delay(Direction::ToServer, DELAY / 2);
    proxy.delay(Direction::ToClient, DELAY / 2);
    let trips = |what: &str, began: Instant, fewest: f64| {
        let trips = began.elapsed().as_secs_f64() / DELAY.as_secs_f64();
        println!("{what}: {trips:.2} round trips");
        assert!(trips < fewest + A_BUSY_MACHINE, "{what} took {trips:.2} round trips");
    };
    let began = Instant::now();
    let creations = names.iter().map(|name| write(name, Expect::Absent)).collect();
    let created = store.put_many(creations).await;
    trips("100 creations", began, 1.0);
    assert!(created.iter().all(|outcome| matches!(outcome, Ok(Put::Stored(_)))), "{created:?}");
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    let began = Instant::now();
    assert!(store.get_many(&keys).await.expect("read").iter().all(Option::is_some));
    trips("100 reads", began, 1.0);
    let began = Instant::now();
    let page = store.list(&Key::elections(), None, 1000).await.expect("a page");
    assert_eq!(page.documents.len(), 100);
    trips("a list of 100", began, 2.0);
}
