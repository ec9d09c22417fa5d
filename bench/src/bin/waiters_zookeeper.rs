//! What candidates that wait for a leader's lease on ZooKeeper send, counted at a proxy.
//!
//! `cargo run --release -p tenure-bench --bin waiters_zookeeper [WAITERS] [SECONDS]`
//!
//! The leader has a connection of its own, so everything at the proxy comes from the waiters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tenure::{Backend, Candidate, Election, Timing};
use tenure_harness::{Direction, Framing, Proxy, Zookeeper, zookeeper};
use tenure_stores::OpenOptions;

type Failure = Box<dyn std::error::Error>;

const TTL: Duration = Duration::from_secs(15);
/// How long the waiters settle before anything is counted.
const SETTLE: Duration = Duration::from_secs(10);
/// Create, delete, set data, multi, create with its status, container, with a TTL.
const WRITES: [i32; 7] = [1, 2, 5, 14, 15, 19, 21];
const SYNC: i32 = 9;
const PING: i32 = 11;

#[derive(Debug, Default)]
struct Sent {
    writes: AtomicU64,
    syncs: AtomicU64,
    others: AtomicU64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let waiters: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(30), |text| text.parse())?;
    let settings = [("maxSessionTimeout", "60000"), ("maxClientCnxns", "0")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = zookeeper::Options { settings: settings.into(), ..Default::default() };
    let server = Zookeeper::single(options).await?;
    let own = open(server[0].address()).await?;
    println!(
        "| waiters | renewals | writes | writes a second | syncs a second | others a second |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    for programs in [1, 10, 100] {
        let name = format!("waiters/{programs}");
        let leader = election(&own, &name).await?.campaign(Candidate::new("leader")?).await?;
        let proxy = Proxy::start(server[0].address(), Framing::Zookeeper)?;
        let sent = Arc::new(Sent::default());
        let counted = sent.clone();
        proxy.observe(move |message| {
            // The length, the number of the request, and what it asks for.
            let asked = message.bytes.get(8..12).and_then(|four| four.try_into().ok());
            let Some(asked) = asked.map(i32::from_be_bytes) else { return };
            if message.direction == Direction::ToServer && asked != PING {
                let of_kind = match asked {
                    SYNC => &counted.syncs,
                    asked if WRITES.contains(&asked) => &counted.writes,
                    _ => &counted.others,
                };
                of_kind.fetch_add(1, Ordering::Relaxed);
            }
        });
        let opening = (0..programs).map(|_| open(proxy.address()));
        let backends: Vec<Backend> = stream::iter(opening).buffered(8).try_collect().await?;
        let mut waiting = Vec::with_capacity(waiters);
        for number in 0..waiters {
            let election = election(&backends[number % programs], &name).await?;
            waiting.push(election.stand(Candidate::new("waiter")?)?);
        }
        tokio::time::sleep(SETTLE).await;
        for counter in [&sent.writes, &sent.syncs, &sent.others] {
            counter.store(0, Ordering::Relaxed);
        }
        let (mandate, mut renewals) = (leader.mandate(), 0);
        let counting = tokio::time::sleep(Duration::from_secs(seconds));
        let mut counting = std::pin::pin!(counting);
        loop {
            tokio::select! {
                () = &mut counting => break,
                () = mandate.renewed() => renewals += 1,
            }
        }
        let [writes, syncs, others] = [&sent.writes, &sent.syncs, &sent.others]
            .map(|counter| counter.load(Ordering::Relaxed));
        let a_second = |count: u64| count as f64 / seconds as f64;
        println!(
            "| {waiters} of {programs} programs | {renewals} | {writes} | {:.1} | {:.1} | {:.1} |",
            a_second(writes),
            a_second(syncs),
            a_second(others)
        );
        drop(waiting);
        for backend in backends {
            backend.close().await;
        }
        leader.resign().await;
    }
    own.close().await;
    Ok(())
}

async fn open(server: SocketAddr) -> Result<Backend, Failure> {
    let options = OpenOptions::default().with_request(TTL / 10).with_session(TTL);
    let url = format!("zookeeper://{server}/bench?protocol=lease");
    Ok(tenure_stores::open(&url, &options).await?.backend)
}

async fn election(backend: &Backend, name: &str) -> Result<Election, Failure> {
    let builder = Election::builder(backend, name).timing(Timing::new(TTL)?);
    Ok(builder.create_if_missing(true).open().await?)
}
