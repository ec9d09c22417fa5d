//! Inputs of a running cluster, from the first byte to the cluster's records.

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use common::PATIENCE;
use tenure::Backend;
use tenure_cluster::input::{Inputs, Template};
use tenure_cluster::inputs::{
    HttpListener, HttpPoller, Objects, Redirects, TcpLines, UdpDatagrams,
};
use tenure_cluster::{Cluster, Context, Handler, Member, TaskError, Tasks, Totals};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Keeps its payloads.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<BTreeSet<String>>>);

#[async_trait]
impl Handler for Collector {
    async fn handle(
        &self,
        payload: Bytes,
        _context: &Context,
    ) -> Result<Option<String>, TaskError> {
        let text = String::from_utf8_lossy(&payload).into_owned();
        self.0.lock().expect("nobody panics").insert(text);
        Ok(None)
    }
}

impl Collector {
    async fn has(&self, expected: impl IntoIterator<Item = String>) {
        let expected: BTreeSet<String> = expected.into_iter().collect();
        let complete = async {
            while !expected.is_subset(&self.0.lock().expect("nobody panics")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, complete).await.expect("everything is done in time");
    }
}

async fn join(backend: &Backend, collector: &Collector, inputs: Inputs) -> Cluster {
    Cluster::builder(backend, "cluster")
        .member(Member::new(4))
        .tasks(Tasks::new().handling("item", Arc::new(collector.clone())))
        .inputs(inputs)
        .join()
        .await
        .expect("joined")
}

fn item() -> Template {
    Template::new("item")
}

#[tokio::test]
async fn what_comes_over_tcp_udp_and_http_is_done() {
    let tcp = TcpLines::bind("127.0.0.1:0", item()).expect("a free port");
    let udp = UdpDatagrams::bind("127.0.0.1:0", item()).expect("a free port");
    let http = HttpListener::bind("127.0.0.1:0", item()).expect("a free port");
    let [tcp_at, udp_at, http_at] =
        [tcp.local_addr(), udp.local_addr(), http.local_addr()].map(|at| at.expect("bound"));
    let inputs = Inputs::new().local("tcp", tcp).local("udp", udp).local("http", http);
    let (backend, collector) = (Backend::memory(), Collector::default());
    let cluster = join(&backend, &collector, inputs).await;

    let mut stream = TcpStream::connect(tcp_at).await.expect("it listens");
    let lines: String = (0..500).map(|number| format!("line {number}\n")).collect();
    stream.write_all(lines.as_bytes()).await.expect("sent");
    let sender = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    sender.send_to(b"datagram", udp_at).await.expect("sent");
    let mut stream = TcpStream::connect(http_at).await.expect("it listens");
    let post = format!("POST / HTTP/1.0\r\nHost: {http_at}\r\nContent-Length: 4\r\n\r\nbody");
    stream.write_all(post.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.0 202 "), "{answer}");

    let lines = (0..500).map(|number| format!("line {number}"));
    collector.has(lines.chain(["datagram".to_owned(), "body".to_owned()])).await;
    cluster.drain().await;
}

#[tokio::test]
async fn objects_are_done_and_deleted() {
    let root = tempfile::tempdir().expect("a directory");
    for number in 0..600 {
        std::fs::write(root.path().join(format!("{number:03}")), "x").expect("a file");
    }
    let objects = Objects::open(&format!("file://{}", root.path().display())).expect("a directory");
    let (backend, collector) = (Backend::memory(), Collector::default());
    let first =
        join(&backend, &collector, Inputs::new().windowed(objects.source(item()).deleting())).await;
    let second =
        join(&backend, &collector, Inputs::new().windowed(objects.source(item()).deleting())).await;
    let finished = async {
        loop {
            let totals = first.client().totals().await.expect("the store serves");
            if totals.is_finished() {
                return totals;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let totals: Totals = tokio::time::timeout(PATIENCE, finished).await.expect("finished in time");
    assert_eq!((totals.accepted, totals.done, totals.dead), (600, 600, 0));
    collector.has((0..600).map(|number| format!("{number:03}"))).await;
    assert_eq!(std::fs::read_dir(root.path()).expect("a directory").count(), 0);
    first.drain().await;
    second.drain().await;
}

#[tokio::test]
async fn members_share_the_urls_of_a_poller() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accepting");
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.expect("a request");
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", path.len());
            // A poller that moves to another member closes early.
            let _ = stream.write_all(format!("{head}{path}").as_bytes()).await;
        }
    });
    let urls: Vec<String> = (0..6).map(|number| format!("http://{address}/{number}")).collect();
    let poller = || {
        let client = reqwest::Client::builder().no_proxy();
        let every = Duration::from_millis(50);
        HttpPoller::with_client(urls.clone(), every, item(), Redirects::Refused, client)
            .expect("a poller")
    };
    let (backend, collector) = (Backend::memory(), Collector::default());
    let first = join(&backend, &collector, Inputs::new().supervised("poll", poller())).await;
    let second = join(&backend, &collector, Inputs::new().supervised("poll", poller())).await;
    collector.has((0..6).map(|number| format!("/{number}"))).await;
    // One member leaves, and all URLs are still polled.
    second.leave().await;
    drop(second);
    collector.0.lock().expect("nobody panics").clear();
    collector.has((0..6).map(|number| format!("/{number}"))).await;
    first.drain().await;
}
