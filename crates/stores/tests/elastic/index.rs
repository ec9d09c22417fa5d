//! The index as seen from outside, and indexes that are refused.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use reqwest::{Client, Method, Url};
use tenure::store::{Expect, Fault, MAX_DOCUMENT_BYTES, Put, StoreExt};
use tenure::{Backend, Candidate, Election, Key};
use tenure_cluster::{Cluster, Member};
use tenure_harness::Skipped;
use tenure_stores::elastic::{ElasticStore, Product};
use tenure_stores::{OpenError, OpenOptions};

use crate::kind::{elasticsearch, opensearch, shared};
use crate::support::{Shared, chain, open};

const REQUEST: Duration = Duration::from_secs(10);
const BOTH: [fn() -> &'static Result<Shared, Skipped>; 2] = [elasticsearch, opensearch];

fn key(text: &str) -> Key {
    Key::parse(text).expect("a good key")
}

/// The scheme and the address of a shared server.
fn place(shared: &Shared) -> (String, SocketAddr) {
    let (scheme, rest) = shared.url.split_once("://").expect("a URL");
    let address = rest.split('/').next().expect("a host");
    (scheme.to_owned(), address.parse().expect("an address"))
}

/// Another client of the server.
struct Curl {
    http: Client,
    server: Url,
}

impl Curl {
    fn new(address: SocketAddr) -> Curl {
        let server = Url::parse(&format!("http://{address}/")).expect("a URL");
        Curl { http: client(), server }
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> serde_json::Value {
        let url = self.server.join(path).expect("a path");
        let request = self.http.request(method, url).header("content-type", "application/json");
        let answer = request.body(body.to_owned()).send().await.expect("it answers");
        let text = answer.text().await.expect("all of it");
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }
}

/// A client as in a program that uses reqwest itself, without retries.
fn client() -> Client {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let client = Client::builder().tls_backend_preconfigured(tls).no_proxy();
    let client = client.retry(reqwest::retry::never());
    client.redirect(reqwest::redirect::Policy::none()).build().expect("a client")
}

async fn refused(url: &str) -> (Fault, String) {
    match tenure_stores::open(url, &OpenOptions::default().with_request(REQUEST)).await {
        Err(OpenError::Store(error)) => (error.fault, chain(&error)),
        other => panic!("{other:?}"),
    }
}

/// The documents that candidates and a cluster write are fields that other clients read and search
/// for. They were one text each (issue 15, point 10).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_node_lists_are_fields_for_other_clients() {
    for server in BOTH {
        let Some(shared) = shared(server()) else { return };
        let (scheme, address) = place(shared);
        let url = format!("{scheme}://{address}/index-readable");
        let backend = open(&url, REQUEST).await;
        let election = Election::open(&backend, "billing/primary").await.expect("it opens");
        let leader = election.campaign(Candidate::new("web-1").expect("a name")).await;
        let leader = leader.expect("elected");
        let curl = Curl::new(address);
        let path = "index-readable/_doc/elections%2Fbilling%2Fprimary";
        let source = curl.send(Method::GET, path, "").await["_source"].take();
        assert_eq!(source["key"], "elections/billing/primary", "{source}");
        assert_eq!(source["name"], "web-1", "{source}");
        assert_eq!(source["state"], "held", "{source}");
        assert_eq!(source["token"], leader.mandate().token(), "{source}");
        assert!(source["holder"].is_string() && source["expire"].is_u64(), "{source}");

        let member = Member::new(1).named("worker-1");
        let cluster = Cluster::builder(&backend, "jobs").member(member).join().await;
        let cluster = cluster.expect("it joins");
        let found = |query: &'static str| {
            let path = format!("index-readable/_search?q={query}");
            let curl = &curl;
            async move {
                curl.send(Method::POST, "index-readable/_refresh", "").await;
                let found = curl.send(Method::GET, &path, "").await;
                let hits = found["hits"]["hits"].as_array().cloned().unwrap_or_default();
                hits.into_iter().map(|hit| hit["_source"]["key"].clone()).collect::<Vec<_>>()
            }
        };
        assert_eq!(found("name:web-1%20AND%20state:held").await, ["elections/billing/primary"]);
        assert_eq!(found("nodes.name:worker-1").await, ["clusters/jobs/nodes"]);
        assert!(found("expire:[now%20TO%20now%2B1d]").await.len() >= 2);
        cluster.leave().await;
        leader.resign().await;
    }
}

/// Spaces, the order of fields, and the form of numbers stay the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_comes_back_byte_by_byte() {
    for server in BOTH {
        let Some(shared) = shared(server()) else { return };
        let (scheme, address) = place(shared);
        let backend = open(&format!("{scheme}://{address}/index-bytes"), REQUEST).await;
        for (number, body) in [
            "{ \"b\" : 1.10, \"a\":\"\\u00e9é\",\"n\":1e5 , \"o\":{ }, \"l\":[ ] }\n",
            "{\"holder\":null,\"expire\":18446744073709551615,\"nodes\":[{\"name\":\"\"}]}\n",
            "{\"token\":18446744073709551615,\"serial\":9007199254740993}\n",
            "{\"holder\":{\"a\":1},\"expire\":-1,\"nodes\":2}\n",
            "{\"_id\":\"x\",\"key\":\"y\"}\n",
            "{ }\n",
            r#"{ "b" : 1.10, "a":"\u00e9é","n":1e5 , "o":{ }, "l":[ ] }"#,
            "{\"a\":\n1}",
            r#"{"a":1,"a":2}"#,
            r#"{"a.b":{"":[{"c":null}]}}"#,
            r#"{"a":"\ud83d\ude00","b":123456789012345678901234567890.5}"#,
            r#"{"key":"x","document":{"text":"y"}}"#,
        ]
        .into_iter()
        .enumerate()
        {
            let key = key(&format!("elections/n{number}"));
            let put = backend.store().put(&key, Expect::Absent, body.into()).await;
            assert!(matches!(put, Ok(Put::Stored(_))), "{body}: {put:?}");
            let read = backend.store().get(&key).await.expect("an answer").expect("it is there");
            assert_eq!(read.body, body);
        }
    }
}

/// A document written by hand is not ours: it is reported as it is, skipped in lists, and never
/// huge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_put_into_the_index_does_no_harm() {
    for server in BOTH {
        let Some(shared) = shared(server()) else { return };
        let (scheme, address) = place(shared);
        let backend = open(&format!("{scheme}://{address}/index-foreign"), REQUEST).await;
        let curl = Curl::new(address);
        let huge = format!(r#"{{"key":"elections/huge","text":"{}"}}"#, "x".repeat(1 << 20));
        for (id, source) in [
            ("elections%2Fempty", "{}"),
            ("elections%2Fother", r#"{"more":1}"#),
            ("elections%2Fhuge", huge.as_str()),
            ("nonsense", r#"{"key":"elections//x","text":"y"}"#),
            ("another-id", r#"{"key":"elections/real","text":"forged"}"#),
        ] {
            let put = curl.send(Method::PUT, &format!("index-foreign/_doc/{id}"), source).await;
            assert_eq!(put["result"], "created", "{put}");
        }
        let store = backend.store();
        let real = store.put(&key("elections/real"), Expect::Absent, "real".into()).await;
        assert!(matches!(real, Ok(Put::Stored(_))), "{real:?}");
        let empty = store.get(&key("elections/empty")).await.expect("an answer");
        assert_eq!(empty.expect("it is there").body, "{}");
        let page = store.list(&Key::elections(), None, 10).await.expect("a page");
        let listed: Vec<(&str, usize)> =
            page.documents.iter().map(|(key, found)| (key.as_str(), found.body.len())).collect();
        let expected = [("elections/huge", MAX_DOCUMENT_BYTES + 1), ("elections/real", 4)];
        assert_eq!(listed, expected);
    }
}

/// A handle lists its own writes at once, and others' writes soon. It lists those at once, too, if
/// only we refresh the index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_wrote_is_listed_whether_or_not_the_index_refreshes_by_itself() {
    for server in BOTH {
        let Some(shared) = shared(server()) else { return };
        let (scheme, address) = place(shared);
        let url = format!("{scheme}://{address}/index-listed");
        let (one, other) = (open(&url, REQUEST).await, open(&url, REQUEST).await);
        let listed = async |by: &Backend| {
            let page = by.store().list(&Key::elections(), None, 10).await.expect("a page");
            page.documents.len()
        };
        let put = one.store().put(&key("elections/a"), Expect::Absent, "1".into()).await;
        assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
        let soon = Instant::now() + Duration::from_secs(20);
        while listed(&other).await < 1 {
            assert!(Instant::now() < soon, "what others wrote is not listed");
        }
        assert_eq!(listed(&one).await, 1);
        let never = r#"{"index.refresh_interval":"-1"}"#;
        let changed = Curl::new(address).send(Method::PUT, "index-listed/_settings", never).await;
        assert_eq!(changed["acknowledged"], true, "{changed}");
        let other = open(&url, REQUEST).await;
        let put = one.store().put(&key("elections/b"), Expect::Absent, "1".into()).await;
        assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
        assert_eq!((listed(&other).await, listed(&one).await), (2, 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_is_not_ours_is_refused() {
    for server in BOTH {
        let Some(shared) = shared(server()) else { return };
        let (scheme, address) = place(shared);
        let curl = Curl::new(address);
        let ours = format!("{scheme}://{address}/index-ours");
        open(&ours, REQUEST).await;
        let put = |path: &'static str, body: &'static str| curl.send(Method::PUT, path, body);
        put("index-other", r#"{"mappings":{"properties":{"key":{"type":"text"}}}}"#).await;
        put("index-ours/_alias/index-alias", "{}").await;
        let forgetful = r#"{"index.translog.durability":"async"}"#;
        let changed = put("index-ours/_settings", forgetful).await;
        assert_eq!(changed["acknowledged"], true, "{changed}");
        for (name, says) in [
            ("index-other", "dynamic"),
            ("index-alias", "alias"),
            ("index-ours", "forgets"),
            ("Index", "no 'I'"),
            ("a,b", "no ','"),
            ("_all", "begins with"),
        ] {
            let (fault, told) = refused(&format!("{scheme}://{address}/{name}")).await;
            assert_eq!(fault, Fault::Permanent, "{told}");
            assert!(told.contains(says), "{told}");
        }
    }
}

/// A missing index is not a missing document: reads fail while it is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_was_deleted_is_an_error_and_not_an_empty_one() {
    for server in BOTH {
        let Some(shared) = shared(server()) else { return };
        let (scheme, address) = place(shared);
        let backend = open(&format!("{scheme}://{address}/index-gone"), REQUEST).await;
        let curl = Curl::new(address);
        let gone = curl.send(Method::DELETE, "index-gone", "").await;
        assert_eq!(gone["acknowledged"], true, "{gone}");
        let read = backend.store().get(&key("elections/a")).await.expect_err("no index");
        assert_eq!(read.fault, Fault::Unavailable);
        assert!(chain(&read).contains("no such index"), "{}", chain(&read));
        let list = backend.store().list(&Key::elections(), None, 10).await.expect_err("no index");
        assert_eq!(list.fault, Fault::Unavailable, "{}", chain(&list));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_callers_serves_too() {
    for (server, product) in BOTH.into_iter().zip([Product::Elasticsearch, Product::Opensearch]) {
        let Some(shared) = shared(server()) else { return };
        let (_, address) = place(shared);
        let url = Url::parse(&format!("http://{address}")).expect("a URL");
        let opened = ElasticStore::from_client(product, client(), vec![url], "owned", REQUEST);
        let store = opened.await.expect("it opens");
        let put = store.put(&key("elections/a"), Expect::Absent, "1".into()).await;
        assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
        let none = ElasticStore::from_client(product, client(), Vec::new(), "owned", REQUEST);
        assert_eq!(none.await.expect_err("no server").fault, Fault::Permanent);
    }
}
