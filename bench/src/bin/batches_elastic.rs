//! The cost of batches on Elasticsearch and OpenSearch, beside raw requests.
//!
//! `cargo run --release -p tenure-bench --bin batches_elastic [SECONDS] [BATCH]`
//!
//! A task is two writes, a claim and a completion, each at the version of the write before, in
//! batches of 100. The raw rate is that of a program that builds the lines of a `_bulk` by hand and
//! reads only the sequence numbers of the answers. Each worker has its own documents, and all share
//! one handle or one client. The CPU time of this program for each task hardly depends on the load
//! of the machine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tenure::Key;
use tenure::store::{Durability, Expect, Put, Store, Write};
use tenure_harness::elastic::{Options, Product};
use tenure_harness::{Elastic, Failure as NoServer};
use tenure_stores::OpenOptions;

type Failure = Box<dyn std::error::Error>;

const WORKERS: [usize; 3] = [1, 2, 4];
const REQUEST: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let batch: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let span = Duration::from_secs(seconds);
    for (product, scheme) in
        [(Product::Elasticsearch, "elasticsearch"), (Product::Opensearch, "opensearch")]
    {
        let servers = match Elastic::single(Options::new(product)).await {
            Ok(servers) => servers,
            Err(NoServer::Skipped(skipped)) => {
                println!("skipped {}: {}", skipped.server, skipped.reason);
                continue;
            }
            Err(failure) => return Err(failure.into()),
        };
        let address = servers[0].address().to_string();
        let url = format!("{scheme}+http://{address}/bench");
        let options = OpenOptions::default().with_request(REQUEST);
        let backend = tenure_stores::open(&url, &options).await?.backend;
        let store: &dyn Store = &**backend.store();
        println!("{scheme} {}, batches of {batch}:", product.version());
        // Java compiles code that runs often. This warms up both, so that the order does not
        // matter.
        through_the_store(store, 2, batch, span).await?;
        raw(&address, 2, batch, span).await?;
        for workers in WORKERS {
            let by_hand = raw(&address, workers, batch, span).await?;
            let ours = through_the_store(store, workers, batch, span).await?;
            println!(
                "  {workers} at once: {:.0} tasks a second, {:.1} µs of ours each; raw {:.0}, {:.1} µs",
                ours.rate, ours.computing, by_hand.rate, by_hand.computing
            );
        }
        for count in [100, 1000] {
            let read = reads(store, count, span).await?;
            println!(
                "  reads of {count}: {:.0} documents a second, {:.1} µs of ours each",
                read.rate, read.computing
            );
        }
    }
    Ok(())
}

/// The amount of work done, and its cost.
struct Figures {
    /// Tasks, or documents, per second.
    rate: f64,
    /// CPU time of this process for each, in microseconds.
    computing: f64,
}

/// Lets workers work until the time is over.
async fn measure<W: Future<Output = Result<usize, Failure>>>(
    workers: usize,
    span: Duration,
    work: impl Fn(Instant) -> W,
) -> Result<Figures, Failure> {
    let (began, computed) = (Instant::now(), computed());
    let done = try_join_all((0..workers).map(|_| work(began + span))).await?;
    let done = done.into_iter().sum::<usize>() as f64;
    let rate = done / began.elapsed().as_secs_f64();
    Ok(Figures { rate, computing: (self::computed() - computed) * 1e6 / done })
}

/// The CPU time of this process so far, in seconds.
fn computed() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// The body of a cluster's slot, as an example.
fn body(state: &str, token: usize) -> String {
    format!(
        r#"{{"holder":"0a6f2c5e-8d53-4f0e-9a57-6f8f2b7f6f10","expire":1794700000000,"token":{token},"state":"{state}","task":"eyJmaWxlIjoiL2RhdGEvaW4vMDAwMDAxMjMuY3N2IiwiYnl0ZXMiOjEyMzQ1Nn0=","attempt":1,"kind":"file"}}"#
    )
}

async fn through_the_store(
    store: &dyn Store,
    workers: usize,
    batch: usize,
    span: Duration,
) -> Result<Figures, Failure> {
    measure(workers, span, |end| store_worker(store, batch, end)).await
}

/// A unique number for documents.
fn fresh() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

async fn store_worker(store: &dyn Store, batch: usize, end: Instant) -> Result<usize, Failure> {
    let own = fresh();
    let keys = (0..batch)
        .map(|slot| Key::parse(&format!("cluster/w{own}/slot-{slot:04}")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut expected: Vec<Expect> = vec![Expect::Absent; batch];
    let mut done = 0;
    let mut token = 0;
    while Instant::now() < end {
        for state in ["outstanding", "done"] {
            token += 1;
            let writes = keys.iter().zip(&expected).map(|(key, expect)| Write {
                key: key.clone(),
                expect: expect.clone(),
                body: Some(body(state, token).into()),
                durability: Durability::Lasting,
            });
            let outcomes = store.put_many(writes.collect()).await;
            expected = outcomes.into_iter().map(stored).collect::<Result<_, Failure>>()?;
        }
        done += batch;
    }
    Ok(done)
}

fn stored(outcome: Result<Put, tenure::store::StoreError>) -> Result<Expect, Failure> {
    match outcome? {
        Put::Stored(version) => Ok(Expect::At(version)),
        Put::Conflict => Err("nobody else writes here".into()),
    }
}

async fn reads(store: &dyn Store, count: usize, span: Duration) -> Result<Figures, Failure> {
    let keys = (0..count)
        .map(|slot| Key::parse(&format!("cluster/reads/slot-{slot:04}")))
        .collect::<Result<Vec<_>, _>>()?;
    let writes = keys.iter().map(|key| Write {
        key: key.clone(),
        expect: Expect::Absent,
        body: Some(body("outstanding", 1).into()),
        durability: Durability::Lasting,
    });
    // A larger batch includes the documents of a smaller one.
    for outcome in store.put_many(writes.collect()).await {
        let (Put::Stored(_) | Put::Conflict) = outcome?;
    }
    let keys = &keys;
    let reader = |end| async move {
        let mut read = 0;
        while Instant::now() < end {
            read += store.get_many(keys).await?.iter().flatten().count();
        }
        Ok(read)
    };
    measure(1, span, reader).await
}

async fn raw(
    address: &str,
    workers: usize,
    batch: usize,
    span: Duration,
) -> Result<Figures, Failure> {
    let http = reqwest::Client::builder().no_proxy().http1_only();
    let http = http.tls_backend_preconfigured(no_tls()?).build()?;
    measure(workers, span, |end| raw_worker(&http, address, batch, end)).await
}

async fn raw_worker(
    http: &reqwest::Client,
    address: &str,
    batch: usize,
    end: Instant,
) -> Result<usize, Failure> {
    let url = format!("http://{address}/bench/_bulk");
    let own = fresh();
    let mut versions: Vec<Option<(String, String)>> = vec![None; batch];
    let mut done = 0;
    let mut token = 0;
    while Instant::now() < end {
        for state in ["outstanding", "done"] {
            token += 1;
            let mut lines = String::new();
            for (slot, version) in versions.iter().enumerate() {
                let id = format!("raw/w{own}/slot-{slot:04}");
                match version {
                    None => lines.push_str(&format!("{{\"create\":{{\"_id\":\"{id}\"}}}}\n")),
                    Some((number, term)) => lines.push_str(&format!(
                        "{{\"index\":{{\"_id\":\"{id}\",\"if_seq_no\":{number},\"if_primary_term\":{term}}}}}\n"
                    )),
                }
                let body = body(state, token);
                lines.push_str(&format!("{{\"key\":\"{id}\",\"document\":{body}}}\n"));
            }
            let request = http.post(&url).header("content-type", "application/json").body(lines);
            let answer = request.send().await?.text().await?;
            let number = |text: &str| text.split([',', '}']).next().unwrap_or_default().to_owned();
            let pairs = answer.split("\"_seq_no\":").skip(1).map(|rest| {
                let term = rest.split("\"_primary_term\":").nth(1).unwrap_or_default();
                Some((number(rest), number(term)))
            });
            versions = pairs.collect();
            if versions.len() != batch || answer.contains("\"errors\":true") {
                return Err(format!("not all were written: {answer}").into());
            }
        }
        done += batch;
    }
    Ok(done)
}

/// A client needs a TLS configuration to be built, even if it does not use TLS.
fn no_tls() -> Result<rustls::ClientConfig, Failure> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth())
}
