//! A stub server for cases that no server here can produce.
//!
//! These are odd answers, and API keys, which the servers' distributions for tests lack.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::store::Fault;
use tenure_stores::{OpenError, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::chain;

/// A server that answers every request in one way, and keeps the requests' heads.
struct Stub {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Stub {
    async fn start(answer: &'static str) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let asked = heads.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client may go away in the middle.
                let _ = serve(stream, answer, &asked).await;
            }
        });
        Stub { address, heads, serving }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &str,
    heads: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().expect("nobody panics with it").push(head);
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

async fn open(url: &str) -> (Fault, String) {
    let options = OpenOptions::default().with_request(Duration::from_secs(5));
    match tenure_stores::open(url, &options).await {
        Err(OpenError::Store(error)) => (error.fault, chain(&error)),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{url} opens"),
    }
}

const UNAUTHORIZED: &str = "HTTP/1.1 401 Unauthorized\r\ncontent-type: text/plain\r\n\
     content-length: 12\r\nconnection: close\r\n\r\nUnauthorized";

#[tokio::test]
async fn an_api_key_is_sent_as_elasticsearch_wants_it_and_never_shown() {
    let stub = Stub::start(UNAUTHORIZED).await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("key");
    std::fs::write(&file, "Y2FuYXJ5OmNhbmFyeQ==\n").expect("written");
    let url = format!("elasticsearch+http://{}/x?api-key-file={}", stub.address, file.display());
    let (fault, told) = open(&url).await;
    assert_eq!(fault, Fault::Denied, "{told}");
    assert!(told.contains("Unauthorized") && !told.contains("Y2Fu"), "{told}");
    let heads = stub.heads.lock().expect("nobody panics with it");
    let head = heads.first().expect("it was asked").to_lowercase();
    assert!(head.starts_with("get /x http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nauthorization: apikey y2fuyxj5omnhbmfyeq==\r\n"), "{head}");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_nothing_is_tried_twice() {
    let stub = Stub::start(
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\
         connection: close\r\n\r\n",
    )
    .await;
    let (fault, told) = open(&format!("opensearch+http://{}/x", stub.address)).await;
    assert_eq!(fault, Fault::Permanent, "{told}");
    assert_eq!(stub.heads.lock().expect("nobody panics with it").len(), 1);
}

#[tokio::test]
async fn what_is_no_such_server_is_told() {
    let page = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>";
    let stub = Stub::start(page).await;
    let (fault, told) = open(&format!("opensearch+http://{}/x", stub.address)).await;
    assert_eq!(fault, Fault::Permanent, "{told}");
    assert!(told.contains("no OpenSearch here"), "{told}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 600\r\nconnection: close\r\n\r\n{\"x\"";
    let stub = Stub::start(half).await;
    let (fault, told) = open(&format!("opensearch+http://{}/x", stub.address)).await;
    assert_eq!(fault, Fault::Unavailable, "{told}");
}
