//! Objects in a bucket, on a server of S3's protocol.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::StreamExt;
use tenure_cluster::input::{End, Template, Windowed};
use tenure_cluster::inputs::Objects;
use tenure_harness::s3::PAGE;
use tenure_harness::{S3, require};

/// A bucket of its own, filled by plain requests.
struct Bucket {
    server: S3,
    name: String,
    client: reqwest::Client,
}

impl Bucket {
    async fn new(server: S3) -> Bucket {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Opening the objects does this for programs; here the plain client comes before it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let name = format!("bucket-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let bucket = Bucket { server, name, client };
        bucket.put("", "").await;
        bucket
    }

    async fn put(&self, key: &str, body: &str) {
        let url = format!("{}/{}/{key}", self.server.url(), self.name);
        let put = self.client.put(url).body(body.to_owned()).send().await;
        let status = put.expect("the server serves").status();
        assert!(status.is_success(), "{key}: {status}");
    }

    fn open(&self, prefix: &str) -> Objects {
        let variables = [
            ("AWS_ENDPOINT_URL", self.server.url()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "anybody".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "anything".to_owned()),
            ("HOME", "/nowhere".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        Objects::open_with(&format!("s3://{}/{prefix}", self.name), variables).expect("a bucket")
    }
}

#[tokio::test]
async fn a_bucket_is_listed_in_order_over_many_pages_and_folders_are_no_objects() {
    let bucket = Bucket::new(require!(S3::single().await)).await;
    // More than one page, and keys that sort around a slash.
    let mut expected: Vec<String> =
        (0..2 * PAGE + 50).map(|number| format!("n/{number:04}")).collect();
    expected
        .extend(["a-b", "a", "a/x", "a0", "empty", "with space+plus", "é/ü"].map(str::to_owned));
    let puts = expected.iter().map(|key| {
        let body = if key == "empty" { "" } else { key.as_str() };
        let key = key.replace('+', "%2B");
        let bucket = &bucket;
        async move { bucket.put(&format!("photos/{key}"), body).await }
    });
    futures_util::stream::iter(puts).buffer_unordered(16).collect::<Vec<()>>().await;
    for folder in ["photos/", "photos/a/", "photos/empty/", "photos/folder/"] {
        bucket.put(folder, "").await;
    }
    bucket.put("photographs/no", "x").await;

    let source = bucket.open("photos").source(Template::new("object"));
    let (mut seen, mut position) = (Vec::new(), None);
    loop {
        let window = source.outstanding(position.as_deref(), 64).await.expect("a window");
        seen.extend(window.orders.into_iter().map(|order| order.id));
        position = window.position;
        if window.drained {
            break;
        }
    }
    expected.sort();
    assert_eq!(seen, expected);
    // A new leader starts somewhere in the middle.
    let source = bucket.open("photos").source(Template::new("object"));
    let window = source.outstanding(Some("n/0123"), 2).await.expect("a window");
    assert_eq!(window.position.as_deref(), Some("n/0125"));
}

#[tokio::test]
async fn an_object_is_fetched_and_deleted_when_it_is_done() {
    let bucket = Bucket::new(require!(S3::single().await)).await;
    let large = "0123456789".repeat(1_000_000);
    bucket.put("in/large.txt", &large).await;
    bucket.put("in/other", "x").await;
    let objects = bucket.open("in");
    let copy = objects.fetch("large.txt").await.expect("fetched");
    assert!(std::fs::read_to_string(&copy).expect("a file") == large, "another content");
    let source = objects.source(Template::new("object")).deleting();
    for _ in 0..2 {
        source.commit("large.txt", b"large.txt", End::Done).await.expect("deleted, or gone");
    }
    let window = source.outstanding(None, 9).await.expect("a window");
    let left: Vec<_> = window.orders.iter().map(|order| order.id.as_str()).collect();
    assert_eq!(left, ["other"]);
    let error = objects.fetch("large.txt").await.expect_err("it is gone");
    assert!(error.0.starts_with("fetching \"large.txt\": "), "{error}");
}

#[tokio::test]
async fn a_bucket_that_does_not_exist_is_an_error_and_not_an_empty_one() {
    let mut bucket = Bucket::new(require!(S3::single().await)).await;
    bucket.name = "missing".to_owned();
    let source = bucket.open("").source(Template::new("object"));
    let error = source.outstanding(None, 9).await.expect_err("there is none");
    assert!(error.0.starts_with("listing objects: "), "{error}");
}
