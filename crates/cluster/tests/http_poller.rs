//! Tests of the input that polls URLs.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use common::PATIENCE;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::json;
use tenure::{Backend, Election, Leadership};
use tenure_cluster::documents::{MAX_TASK_BYTES, Order};
use tenure_cluster::input::{Emitter, Partition, PartitionContext, Supervised, Template};
use tenure_cluster::inputs::{HttpPoller, Redirects};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A page on the loopback. Its versions come one after the other, and the last one stays.
struct Page {
    url: String,
    /// The conditions of the requests, in order.
    asked: mpsc::UnboundedReceiver<String>,
}

#[derive(Clone)]
struct Answer {
    status: &'static str,
    etag: &'static str,
    body: String,
}

fn answer(status: &'static str, etag: &'static str, body: &str) -> Answer {
    Answer { status, etag, body: body.to_owned() }
}

async fn page(answers: Vec<Answer>) -> Page {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/page", listener.local_addr().expect("bound"));
    let (asks, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut answers = VecDeque::from(answers);
        loop {
            let (stream, _) = listener.accept().await.expect("accepting");
            let mut stream = BufReader::new(stream);
            let (mut line, mut condition) = (String::new(), String::new());
            while stream.read_line(&mut line).await.expect("a request") > 2 {
                if let Some((name, value)) = line.split_once(": ")
                    && name.to_lowercase().starts_with("if-")
                {
                    condition = format!("{}: {}", name.to_lowercase(), value.trim());
                }
                line.clear();
            }
            let answer = answers.front().expect("the last one stays").clone();
            if answers.len() > 1 {
                answers.pop_front();
            }
            let unchanged =
                !answer.etag.is_empty() && condition.ends_with(&format!(": {}", answer.etag));
            let (status, body) = match unchanged {
                true => ("304 Not Modified", ""),
                false => (answer.status, answer.body.as_str()),
            };
            let (etag, length) = (answer.etag, body.len());
            let etag = if etag.is_empty() { String::new() } else { format!("ETag: {etag}\r\n") };
            let head = format!("HTTP/1.1 {status}\r\n{etag}Content-Length: {length}\r\n");
            let text = format!("{head}Connection: close\r\n\r\n{body}");
            // A client that has read enough closes early.
            let _ = stream.write_all(text.as_bytes()).await;
            // The receiver may be gone.
            let _ = asks.send(condition);
        }
    });
    Page { url, asked }
}

/// Polls the page until this many tasks have arrived.
async fn tasks(page: &Page, count: usize) -> Vec<Order> {
    let poller = Arc::new(poller(&page.url, Redirects::Refused));
    let (context, mut orders, _leadership) = context().await;
    let partition = Partition(json!({ "url": page.url }));
    assert_eq!(poller.partitions(&[]).await.expect("partitions"), std::slice::from_ref(&partition));
    let collect = async {
        let mut found = Vec::new();
        while found.len() < count {
            found.push(orders.recv().await.expect("the poller runs"));
        }
        found
    };
    tokio::select! {
        ended = poller.run(&partition, &context) => panic!("the poller ended: {ended:?}"),
        found = tokio::time::timeout(PATIENCE, collect) => found.expect("tasks in time"),
    }
}

/// A poller of this URL that sends a key with its requests.
fn poller(url: &str, redirects: Redirects) -> HttpPoller {
    let key = ("x-api-key", "secret");
    let headers =
        [key].map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let client =
        reqwest::Client::builder().no_proxy().default_headers(headers.into_iter().collect());
    let every = Duration::from_millis(10);
    HttpPoller::with_client([url], every, Template::new("page"), redirects, client)
        .expect("a poller")
}

async fn context() -> (PartitionContext, mpsc::Receiver<Order>, Leadership) {
    let election = Election::open(&Backend::memory(), "partition").await.expect("an election");
    let candidate = "host".try_into().expect("a name");
    let leadership = election.campaign(candidate).await.expect("it is free");
    let (emitter, orders) = Emitter::channel(16);
    (PartitionContext { mandate: leadership.mandate(), emitter }, orders, leadership)
}

/// A server on the loopback that redirects `/away` to a place, and has pages everywhere else.
struct Redirecting {
    address: String,
    /// The paths of the requests in order, and true for requests with the key.
    asked: mpsc::UnboundedReceiver<(String, bool)>,
}

async fn redirecting(place: &str) -> Redirecting {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let (asks, asked) = mpsc::unbounded_channel();
    let place = place.to_owned();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accepting");
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while stream.read_line(&mut head).await.expect("a request") > 2 {}
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let answer = match path.as_str() {
                "/away" => format!("302 Found\r\nLocation: {place}\r\nContent-Length: 0"),
                _ => "200 OK\r\nContent-Length: 0".to_owned(),
            };
            let answer = format!("HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.expect("answered");
            // The receiver may be gone.
            let _ = asks.send((path, head.to_lowercase().contains("x-api-key: secret")));
        }
    });
    Redirecting { address, asked }
}

/// Polls until the server has received this many requests.
async fn asked(server: &mut Redirecting, redirects: Redirects, count: usize) -> Vec<String> {
    let url = format!("{}/away", server.address);
    let poller = poller(&url, redirects);
    let (context, _orders, _leadership) = context().await;
    let partition = Partition(json!({ "url": url }));
    let collect = async {
        let mut paths = Vec::new();
        while paths.len() < count {
            let (path, has_key) = server.asked.recv().await.expect("the server runs");
            assert!(has_key, "{path}");
            paths.push(path);
        }
        paths
    };
    tokio::select! {
        ended = poller.run(&partition, &context) => panic!("the poller ended: {ended:?}"),
        paths = tokio::time::timeout(PATIENCE, collect) => paths.expect("asked in time"),
    }
}

#[tokio::test]
async fn an_answer_is_a_task_unless_it_has_not_changed() {
    let mut page = page(vec![
        answer("200 OK", "\"1\"", "first"),
        answer("200 OK", "\"1\"", "first"),
        answer("200 OK", "\"2\"", "second"),
        answer("200 OK", "\"3\"", "third"),
    ])
    .await;
    let found = tasks(&page, 3).await;
    let bodies: Vec<_> = found.iter().map(|order| order.payload.as_ref()).collect();
    assert_eq!(bodies, [b"first".as_slice(), b"second", b"third"]);
    assert!(found[0].id.starts_with(&format!("{}@", page.url)), "{}", found[0].id);
    let mut conditions = Vec::new();
    for _ in 0..4 {
        conditions.push(page.asked.recv().await.expect("asked"));
    }
    let of = |etag: &str| format!("if-none-match: {etag}");
    assert_eq!(conditions, [String::new(), of("\"1\""), of("\"1\""), of("\"2\"")]);
}

#[tokio::test]
async fn answers_that_tell_no_version_are_tasks_each_time() {
    let page = page(vec![answer("200 OK", "", "same")]).await;
    assert_eq!(tasks(&page, 3).await.len(), 3);
}

#[tokio::test]
async fn errors_and_answers_that_are_too_large_are_no_tasks_and_polling_goes_on() {
    let page = page(vec![
        answer("500 Internal Server Error", "", "an error page"),
        answer("404 Not Found", "", "an error page"),
        answer("200 OK", "\"1\"", &"x".repeat(MAX_TASK_BYTES + 1)),
        answer("200 OK", "\"2\"", "good"),
    ])
    .await;
    let found = tasks(&page, 1).await;
    assert_eq!(found[0].payload, "good");
}

#[tokio::test]
async fn each_url_is_a_partition_of_its_own() {
    let urls = ["http://a/", "http://b/"];
    let poller = HttpPoller::new(urls, Duration::from_secs(1), Template::new("page"));
    let partitions = poller.expect("a poller").partitions(&[]).await.expect("partitions");
    let expected = urls.map(|url| Partition(json!({ "url": url })));
    assert_eq!(partitions, expected);
}

/// Regression: a client that could write the plan into the store had the poller's credentials sent
/// to any URL.
#[tokio::test]
async fn a_url_that_is_not_configured_is_never_asked() {
    let mut elsewhere = redirecting("/").await;
    let poller = poller("http://127.0.0.1:9/page", Redirects::Refused);
    let (context, _orders, _leadership) = context().await;
    for url in ["/page", "/away", "", "/page?key=canary"] {
        let partition = Partition(json!({ "url": format!("{}{url}", elsewhere.address) }));
        let refused = tokio::time::timeout(PATIENCE, poller.run(&partition, &context)).await;
        let refused = refused.expect("at once").expect_err("a forged plan");
        assert!(refused.0.contains("not configured"), "{refused}");
        assert!(!refused.0.contains("canary"), "{refused}");
    }
    assert!(elsewhere.asked.try_recv().is_err(), "nothing was asked");
}

/// Regression: reqwest follows redirects, and sends headers other than its own along.
#[tokio::test]
async fn no_redirect_is_followed_unless_it_is_asked_for() {
    let mut elsewhere = redirecting("/").await;
    let mut server = redirecting(&format!("{}/page", elsewhere.address)).await;
    assert_eq!(asked(&mut server, Redirects::Refused, 3).await, ["/away"; 3]);
    let mut near = redirecting("/page").await;
    assert_eq!(asked(&mut near, Redirects::Refused, 3).await, ["/away"; 3]);
    assert!(elsewhere.asked.try_recv().is_err(), "nothing was asked there");
}

#[tokio::test]
async fn redirects_are_followed_within_the_origin_and_never_out_of_it() {
    let mut near = redirecting("/page").await;
    let paths = asked(&mut near, Redirects::SameOrigin, 4).await;
    assert_eq!(paths, ["/away", "/page", "/away", "/page"]);
    let mut elsewhere = redirecting("/").await;
    let mut server = redirecting(&format!("{}/page", elsewhere.address)).await;
    assert_eq!(asked(&mut server, Redirects::SameOrigin, 3).await, ["/away"; 3]);
    assert!(elsewhere.asked.try_recv().is_err(), "nothing was asked there");
    let mut endless = redirecting("/away").await;
    assert_eq!(asked(&mut endless, Redirects::SameOrigin, 30).await, ["/away"; 30]);
}

#[tokio::test]
async fn urls_with_a_login_or_another_scheme_are_refused() {
    for url in ["http://user:secret@host/", "http://secret@host/", "ftp://host/", "host/page"] {
        let poller = HttpPoller::new([url], Duration::from_secs(1), Template::new("page"));
        let refused = poller.expect_err("no URL to poll");
        assert!(!refused.0.contains("secret"), "{refused}");
    }
}
