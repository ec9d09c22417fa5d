//! The cost of a graceful handover on etcd, in round trips and raw writes.
//!
//! `cargo run --release -p tenure-bench --bin handover_etcd [HANDOVERS]`
//!
//! Round trips are counted through a proxy that delays every exchange by 20 ms in total, so the
//! figure hardly depends on the machine. Two candidates take turns first, then five. With five, the
//! candidate before the next leader was not first when that one joined, so the line is read once
//! more.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tenure::store::{Expect, Put, StoreExt};
use tenure::{Backend, Candidate, Election, Key, Leadership};
use tenure_harness::{Direction, Etcd, Framing, Proxy, etcd};
use tenure_stores::OpenOptions;

type Failure = Box<dyn std::error::Error>;

const ROUND_TRIP: Duration = Duration::from_millis(20);
/// The pause between two handovers, so that none waits for the one before.
const PACE: Duration = Duration::from_millis(50);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let handovers: usize = std::env::args().nth(1).map_or(Ok(50), |text| text.parse())?;
    let servers = Etcd::single(etcd::Options::default()).await?;
    let address = servers[0].address();

    let proxy = Proxy::start(address, Framing::Http2)?;
    proxy.delay(Direction::ToServer, ROUND_TRIP / 2);
    proxy.delay(Direction::ToClient, ROUND_TRIP / 2);
    for candidates in [2, 5] {
        let took = rotate(proxy.address(), candidates, handovers).await?;
        let trips = |at: usize| took[at].as_secs_f64() / ROUND_TRIP.as_secs_f64();
        println!(
            "{candidates} candidates, {ROUND_TRIP:?} a round trip: {:.2} sequential round trips \
             (median), {:.2} (p99)",
            trips(took.len() / 2),
            trips(took.len() * 99 / 100)
        );
    }

    let writes = raw_writes(address, handovers).await?;
    let took = rotate(address, 2, handovers).await?;
    let (handover, write) = (took[took.len() / 2], writes[writes.len() / 2]);
    println!(
        "without delay: a handover takes {handover:?}, a paced raw write {write:?} (medians): {:.2} times; \
         p99 {:?} and {:?}",
        handover.as_secs_f64() / write.as_secs_f64(),
        took[took.len() * 99 / 100],
        writes[writes.len() * 99 / 100]
    );
    Ok(())
}

/// Lets candidates take turns, each in a process of its own.
///
/// Returns how long each handover took, shortest first.
async fn rotate(
    address: SocketAddr,
    candidates: usize,
    handovers: usize,
) -> Result<Vec<Duration>, Failure> {
    let name = format!("handover/{candidates}-{}", address.port());
    let mut elections = Vec::new();
    for _ in 0..candidates {
        let backend = process(address).await?;
        elections.push((Election::open(&backend, &name).await?, backend));
    }
    let mut leader: Leadership = elections[0].0.campaign(Candidate::new("0")?).await?;
    let mut waiting = std::collections::VecDeque::new();
    for (at, (election, _)) in elections.iter().enumerate().skip(1) {
        waiting.push_back((at, stand(election, &at.to_string()).await?));
    }
    let mut leads = 0;
    let mut took = Vec::new();
    for _ in 0..handovers {
        tokio::time::sleep(PACE).await;
        let (next, mut candidacy) = waiting.pop_front().ok_or("nobody waits")?;
        let mut statuses = candidacy.statuses();
        let began = Instant::now();
        let resigned = async {
            leader.resign().await;
            Ok::<_, Failure>(())
        };
        let elected = async {
            use futures_util::StreamExt as _;
            while let Some(status) = statuses.next().await {
                if matches!(status.role, tenure::Role::Leading { .. }) {
                    return Ok(began.elapsed());
                }
            }
            Err("its statuses ended".into())
        };
        let ((), elapsed) = futures_util::future::try_join(resigned, elected).await?;
        took.push(elapsed);
        leader = candidacy.elected().await?;
        waiting.push_back((leads, stand(&elections[leads].0, &leads.to_string()).await?));
        leads = next;
    }
    for (_, backend) in &elections {
        backend.close().await;
    }
    took.sort();
    Ok(took)
}

/// Stands, and returns once the candidate is in line.
async fn stand(election: &Election, name: &str) -> Result<tenure::Candidacy, Failure> {
    let candidacy = election.stand(Candidate::new(name)?)?;
    while !election.candidates().await?.iter().any(|one| one.id == candidacy.id()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Its watches are there one round trip later.
    tokio::time::sleep(3 * ROUND_TRIP).await;
    Ok(candidacy)
}

async fn raw_writes(address: SocketAddr, count: usize) -> Result<Vec<Duration>, Failure> {
    let backend = process(address).await?;
    let key = Key::parse("bench/raw")?;
    let mut expect = Expect::Absent;
    let mut took = Vec::new();
    for _ in 0..count {
        tokio::time::sleep(PACE).await;
        let began = Instant::now();
        match backend.store().put(&key, expect, "x".into()).await? {
            Put::Stored(version) => expect = Expect::At(version),
            Put::Conflict => return Err("somebody else writes there".into()),
        }
        took.push(began.elapsed());
    }
    took.sort();
    Ok(took)
}

async fn process(address: SocketAddr) -> Result<Backend, Failure> {
    let options = OpenOptions::default().with_session(Duration::from_secs(15));
    Ok(tenure_stores::open(&format!("etcd://{address}/bench"), &options).await?.backend)
}
