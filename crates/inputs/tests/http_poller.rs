//! URLs that are asked again and again.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use common::PATIENCE;
use serde_json::json;
use tenure::cluster::documents::{MAX_TASK_BYTES, Order};
use tenure::cluster::input::{Emitter, Partition, PartitionContext, Supervised, Template};
use tenure::{Backend, Election};
use tenure_inputs::HttpPoller;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A page on the loopback whose versions come one after the other, and stay once there is no other.
struct Page {
    url: String,
    /// The conditions of the requests, as they came.
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
            // Nobody may listen any more.
            let _ = asks.send(condition);
        }
    });
    Page { url, asked }
}

/// Polls the page until this many tasks came.
async fn tasks(page: &Page, count: usize) -> Vec<Order> {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let every = Duration::from_millis(10);
    let poller =
        Arc::new(HttpPoller::with_client([&page.url], every, Template::new("page"), client));
    let election = Election::open(&Backend::memory(), "partition").await.expect("an election");
    let candidate = "host".try_into().expect("a name");
    let leadership = election.campaign(candidate).await.expect("it is free");
    let (emitter, mut orders) = Emitter::channel(16);
    let context = PartitionContext { mandate: leadership.mandate(), emitter };
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

fn install_ring() {
    // What HttpPoller::new does for programs.
    let urls: [&str; 0] = [];
    HttpPoller::new(urls, Duration::from_secs(1), Template::new("page")).expect("a poller");
}

#[tokio::test]
async fn an_answer_is_a_task_unless_it_has_not_changed() {
    install_ring();
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
    install_ring();
    let page = page(vec![answer("200 OK", "", "same")]).await;
    assert_eq!(tasks(&page, 3).await.len(), 3);
}

#[tokio::test]
async fn errors_and_answers_that_are_too_large_are_no_tasks_and_polling_goes_on() {
    install_ring();
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
