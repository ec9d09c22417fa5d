//! How many empty tasks four workers share per second, beside the raw rate.
//!
//! `cargo run --release -p tenure-bench --bin share_tasks STORE [TASKS] [NODES]`, where STORE is
//! memory, file, etcd, zookeeper, elasticsearch or opensearch. All workers are on one node by
//! default. NODES may be 2 or 4, each node with a connection of its own.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use tenure::file::{FileOptions, FileStore};
use tenure::store::{
    Document, Durability, Expect, Page, Put, Reads, Store, StoreError, Version, Write,
};
use tenure::{Backend, Key};
use tenure_cluster::documents::{Cursor, Format as _};
use tenure_cluster::{Cluster, ClusterClient, Context, Handler, Member, Order, TaskError, Tasks};
use tenure_harness::{Elastic, Etcd, Zookeeper, elastic, etcd, zookeeper};
use tenure_stores::OpenOptions;

type Failure = Box<dyn std::error::Error>;

/// The number of documents in a batch of the raw rate.
const BATCH: usize = 100;
/// The number of tasks worked on at once, by all nodes together.
const WORKERS: usize = 4;
/// The time after which something is wrong.
const LONGEST: Duration = Duration::from_secs(120);
/// How many times all tasks are shared, one after the other.
const ROUNDS: usize = 3;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().unwrap_or_else(|| "file".into());
    let tasks: usize = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let nodes: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    if nodes == 0 || !WORKERS.is_multiple_of(nodes) {
        return Err(format!("{WORKERS} workers cannot be shared out among {nodes} nodes").into());
    }
    let directory = tempfile::tempdir_in(".")?;
    let mut servers: Vec<Box<dyn std::any::Any>> = Vec::new();
    let backends = match which.as_str() {
        "memory" => vec![Backend::memory(); nodes],
        "file" => (0..nodes).map(|_| file(directory.path())).collect::<Result<_, _>>()?,
        "etcd" => {
            let server = Etcd::single(etcd::Options::default()).await?;
            let url = format!("etcd://{}/bench", server[0].address());
            servers.push(Box::new(server));
            open(&url, nodes).await?
        }
        "zookeeper" => {
            let server = Zookeeper::single(zookeeper::Options::default()).await?;
            let url = format!("zookeeper://{}/bench", server[0].address());
            servers.push(Box::new(server));
            open(&url, nodes).await?
        }
        "elasticsearch" | "opensearch" => {
            let product = match which.as_str() {
                "opensearch" => elastic::Product::Opensearch,
                _ => elastic::Product::Elasticsearch,
            };
            let server = Elastic::single(elastic::Options::for_benchmarks(product)).await?;
            let url = format!("{which}+http://{}/bench", server[0].address());
            servers.push(Box::new(server));
            open(&url, nodes).await?
        }
        other => return Err(format!("{other} is not a store of this benchmark").into()),
    };
    raw(&**backends[0].store()).await?;
    // Servers on a Java virtual machine get faster while they run; the last round is the one of
    // interest.
    for _ in 0..ROUNDS {
        shared(&backends, tasks).await?;
    }
    drop(servers);
    Ok(())
}

fn file(directory: &Path) -> Result<Backend, Failure> {
    let store = FileStore::open(directory, FileOptions::default())?;
    let presence = store.presence();
    Ok(Backend::new(Arc::new(store)).with_presence(presence))
}

async fn open(url: &str, nodes: usize) -> Result<Vec<Backend>, Failure> {
    let options = OpenOptions::default().with_create_if_missing(true);
    let mut backends = Vec::new();
    for _ in 0..nodes {
        backends.push(tenure_stores::open(url, &options).await?.backend);
    }
    Ok(backends)
}

/// The store's best rate for claims and completions. Batches of documents are written twice.
async fn raw(store: &dyn Store) -> Result<(), Failure> {
    let keys: Vec<Key> = (0..BATCH)
        .map(|number| Key::parse(&format!("raw/{number:04}")))
        .collect::<Result<_, _>>()?;
    let mut versions = write(store, &keys, &vec![Expect::Absent; BATCH], 0).await?;
    let (began, mut rounds) = (Instant::now(), 0u64);
    while began.elapsed() < Duration::from_secs(3) {
        for _ in 0..2 {
            rounds += 1;
            let expected: Vec<Expect> = versions.into_iter().map(Expect::At).collect();
            versions = write(store, &keys, &expected, rounds).await?;
        }
    }
    let rate = (rounds / 2 * BATCH as u64) as f64 / began.elapsed().as_secs_f64();
    println!("raw: {rate:.0} claims and completions a second, in batches of {BATCH}");
    Ok(())
}

async fn write(
    store: &dyn Store,
    keys: &[Key],
    expected: &[Expect],
    round: u64,
) -> Result<Vec<Version>, Failure> {
    let body = |number: usize| {
        Bytes::from(format!(
            "{{\"round\":{round},\"number\":{number},\"filler\":\"{}\"}}",
            "x".repeat(300)
        ))
    };
    let writes = keys.iter().zip(expected).enumerate().map(|(number, (key, expect))| Write {
        key: key.clone(),
        expect: expect.clone(),
        body: Some(body(number)),
        durability: Durability::Lasting,
    });
    let answers = store.put_many(writes.collect()).await;
    answers
        .into_iter()
        .map(|answer| match answer? {
            Put::Stored(version) => Ok(version),
            Put::Conflict => Err("somebody else writes here".into()),
        })
        .collect()
}

struct Nothing;

#[async_trait]
impl Handler for Nothing {
    async fn handle(&self, _: Bytes, _: &Context) -> Result<Option<String>, TaskError> {
        Ok(None)
    }
}

async fn shared(backends: &[Backend], tasks: usize) -> Result<(), Failure> {
    let counts: Arc<Counts> = Arc::default();
    let mut clusters = Vec::new();
    for (number, backend) in backends.iter().enumerate() {
        let (inner, counts) = (backend.store().clone(), counts.clone());
        let backend = Backend::new(Arc::new(Counting { inner, counts }));
        let cluster = Cluster::builder(&backend, "bench")
            .member(Member::new(WORKERS / backends.len()).named(format!("bench-{number}")))
            .tasks(Tasks::new().handling("nothing", Arc::new(Nothing)))
            .join()
            .await?;
        clusters.push(cluster);
    }
    let client = clusters[0].client();
    let before = done(&**backends[0].store(), client).await?;
    let orders =
        (0..tasks).map(|number| Order::new(format!("task-{number}"), "nothing", "")).collect();
    let began = Instant::now();
    client.submit(orders).await?;
    let accepted = began.elapsed();
    counts.reset();
    // Reads one document only: the views for people read all slots, which would take part of the
    // store's time.
    while done(&**backends[0].store(), client).await? < before + tasks as u64 {
        if began.elapsed() > LONGEST {
            return Err(format!("it stands still: {:?}", client.totals().await?).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rate = tasks as f64 / began.elapsed().as_secs_f64();
    println!(
        "shared: {rate:.0} empty tasks a second by {WORKERS} workers on {} nodes, accepted within {accepted:?}",
        backends.len()
    );
    println!("  {}", counts.report(tasks));
    for cluster in clusters {
        cluster.leave().await;
    }
    Ok(())
}

/// The number of tasks that are counted as done.
async fn done(store: &dyn Store, client: &ClusterClient) -> Result<u64, Failure> {
    let found = store.get_many(&[client.keys().cursor()]).await?.pop().flatten();
    Ok(found.map(|found| Cursor::decode(&found.body)).transpose()?.map_or(0, |cursor| cursor.done))
}

/// A store that counts its requests.
struct Counting {
    inner: Arc<dyn Store>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    gets: AtomicU64,
    got: AtomicU64,
    get_micros: AtomicU64,
    puts: AtomicU64,
    put: AtomicU64,
    put_micros: AtomicU64,
}

impl Counts {
    fn reset(&self) {
        let Counts { gets, got, get_micros, puts, put, put_micros } = self;
        for count in [gets, got, get_micros, puts, put, put_micros] {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn report(&self, tasks: usize) -> String {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { gets, got, get_micros, puts, put, put_micros } = self;
        let each = |count: &AtomicU64| read(count) as f64 / tasks as f64;
        format!(
            "{} reads of {} documents in {} ms; {} batches of {} writes in {} ms; {:.2} writes a task",
            read(gets),
            read(got),
            read(get_micros) / 1000,
            read(puts),
            read(put),
            read(put_micros) / 1000,
            each(put),
        )
    }
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

fn add(count: &AtomicU64, number: usize) {
    count.fetch_add(number as u64, Ordering::Relaxed);
}

#[async_trait]
impl Store for Counting {
    fn reads(&self) -> Reads {
        self.inner.reads()
    }

    fn notifies(&self) -> bool {
        self.inner.notifies()
    }

    fn forgets_deleted(&self) -> bool {
        self.inner.forgets_deleted()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        let began = Instant::now();
        let found = self.inner.get_many(keys).await;
        add(&self.counts.gets, 1);
        add(&self.counts.got, keys.len());
        add(&self.counts.get_micros, began.elapsed().as_micros() as usize);
        found
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        let began = Instant::now();
        add(&self.counts.puts, 1);
        add(&self.counts.put, writes.len());
        let answers = self.inner.put_many(writes).await;
        add(&self.counts.put_micros, began.elapsed().as_micros() as usize);
        answers
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.inner.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.inner.changed(key, seen).await;
    }
}
