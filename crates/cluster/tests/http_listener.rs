//! Tasks by POST.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{PATIENCE, start};
use tenure_cluster::documents::MAX_TASK_BYTES;
use tenure_cluster::input::Template;
use tenure_cluster::inputs::{HttpListener, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn listener() -> Arc<HttpListener> {
    limited(Limits::default())
}

fn limited(limits: Limits) -> Arc<HttpListener> {
    let listener = HttpListener::bind("127.0.0.1:0", Template::new("post")).expect("a free port");
    Arc::new(listener.host("x").origin("https://app.example.org").limits(limits))
}

/// Sends text that may hold several requests, and reads until the connection is closed.
async fn exchange(listener: &HttpListener, request: &str) -> String {
    let address = listener.local_addr().expect("bound");
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
    read.expect("in time").expect("an answer");
    answer.to_lowercase()
}

fn post(body: &str) -> String {
    let length = body.len();
    format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn what_is_accepted_is_in_the_store_and_the_answer_names_it() {
    let listener = listener();
    let mut running = start(&listener, 16);
    let answer = exchange(&listener, &post("{\"a\":1}")).await;
    assert!(answer.starts_with("http/1.1 202 "), "{answer}");
    let orders = running.arrived();
    assert_eq!(orders.len(), 1, "there before the answer was");
    assert_eq!(orders[0].payload, "{\"a\":1}");
    assert!(answer.ends_with(&format!("\r\n\r\n{}\n", orders[0].id)), "{answer}");
}

#[tokio::test]
async fn one_connection_serves_many_tasks() {
    let listener = listener();
    let mut running = start(&listener, 16);
    let kept = post("one").replace("Connection: close\r\n", "");
    let answer = exchange(&listener, &format!("{kept}{}", post("two"))).await;
    assert_eq!(answer.matches("http/1.1 202 ").count(), 2, "{answer}");
    assert_eq!(running.next_items(2).await, ["one", "two"]);
}

#[tokio::test]
async fn what_the_store_does_not_take_is_to_be_sent_again() {
    let listener = listener();
    let mut running = start(&listener, 16);
    running.refuse();
    let answer = exchange(&listener, &post("one")).await;
    assert!(answer.starts_with("http/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_however_it_comes() {
    let listener = listener();
    let mut running = start(&listener, 16);
    let (just, long) = ("x".repeat(MAX_TASK_BYTES), "x".repeat(MAX_TASK_BYTES + 1));
    let answer = exchange(&listener, &post(&just)).await;
    assert!(answer.starts_with("http/1.1 202 "), "{answer}");
    assert_eq!(running.arrived().len(), 1);
    // Refused by its head alone: the body is never sent.
    let head = post(&long).replace(&long, "");
    let answer = exchange(&listener, &head).await;
    assert!(answer.starts_with("http/1.1 413 "), "{answer}");
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n",
        long.len()
    );
    let answer = exchange(&listener, &chunked).await;
    assert!(answer.starts_with("http/1.1 413 "), "{answer}");
    assert!(running.arrived().is_empty());
}

#[tokio::test]
async fn only_posts_to_the_root_are_tasks() {
    let listener = listener();
    let mut running = start(&listener, 16);
    let answer = exchange(&listener, &post("one").replace("POST / ", "POST /other ")).await;
    assert!(answer.starts_with("http/1.1 404 "), "{answer}");
    let answer = exchange(&listener, &post("").replace("POST", "GET")).await;
    assert!(answer.starts_with("http/1.1 405 "), "{answer}");
    assert!(answer.contains("allow: post\r\n"), "{answer}");
    let answer = exchange(&listener, "this is no HTTP\r\n\r\n").await;
    assert!(answer.starts_with("http/1.1 400 "), "{answer}");
    assert!(running.arrived().is_empty());
}

/// Regression: a page in an operator's browser could send tasks to a listener on the loopback.
#[tokio::test]
async fn requests_of_foreign_pages_and_for_other_hosts_are_refused() {
    let listener = listener();
    let mut running = start(&listener, 16);
    let with = |header: &str| post("one").replace("Host: x\r\n", &format!("{header}\r\n"));
    for (header, status) in [
        ("Host: x\r\nOrigin: https://evil.example", 403),
        ("Host: x\r\nOrigin: null", 403),
        ("Host: evil.example", 421),
        ("Host: x\r\nHost: x", 400),
        ("Accept: */*", 400),
    ] {
        let answer = exchange(&listener, &with(header)).await;
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{header}: {answer}");
    }
    assert!(running.arrived().is_empty());
    let address = listener.local_addr().expect("bound");
    for header in [
        format!("Host: {address}"),
        format!("Host: localhost:{}", address.port()),
        "Host: x:8443\r\nOrigin: https://app.example.org".to_owned(),
    ] {
        let answer = exchange(&listener, &with(&header)).await;
        assert!(answer.starts_with("http/1.1 202 "), "{header}: {answer}");
    }
    assert_eq!(running.arrived().len(), 3);
}

/// Regression: connections without a request kept their places forever, and others waited.
#[tokio::test]
async fn connections_that_are_idle_or_slow_give_their_places_to_others() {
    // The time also applies to the connection that follows, so it is long enough for a busy
    // machine.
    let slow = Duration::from_secs(1);
    let listener = limited(Limits { connections: 1, slow, ..Limits::default() });
    let mut running = start(&listener, 16);
    let address = listener.local_addr().expect("bound");
    let (head, body) = ("POST / HT", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab");
    let once = post("before").replace("Connection: close\r\n", "");
    for beginning in ["", head, body, &once] {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(beginning.as_bytes()).await.expect("sent");
        let answer = exchange(&listener, &post("after")).await;
        assert!(answer.starts_with("http/1.1 202 "), "{beginning}: {answer}");
        drop(stream);
    }
    assert_eq!(running.arrived().len(), 5);
}

/// Regression: a client that sends and never reads its answers kept its place forever.
#[tokio::test]
async fn a_connection_lasts_only_so_long_whatever_its_client_reads() {
    let (slow, lasting) = (Duration::from_millis(100), Duration::from_millis(300));
    let listener = limited(Limits { slow, lasting, ..Limits::default() });
    let _running = start(&listener, 16);
    let address = listener.local_addr().expect("bound");
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = post("").replace("Connection: close\r\n", "").replace("POST", "GET");
    // Sends until the other side is gone. The buffers of both sides are full long before.
    let sending = async { while stream.write_all(request.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, sending).await.expect("closed in time");
}
