//! The cost of many elections that one process leads over one connection to etcd.
//!
//! `cargo run --release -p tenure-bench --bin many_elections_etcd [ELECTIONS] [SECONDS]`

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tenure::{Candidate, Election};
use tenure_harness::{Direction, Etcd, Framing, Proxy, etcd};
use tenure_stores::OpenOptions;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let elections: usize = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(20), |text| text.parse())?;
    let servers = Etcd::single(etcd::Options::default()).await?;
    let proxy = Proxy::start(servers[0].address(), Framing::Http2)?;
    let options = OpenOptions::default().with_session(Duration::from_secs(15));
    let url = format!("etcd://{}/bench", proxy.address());
    let backend = tenure_stores::open(&url, &options).await?.backend;
    // The first election costs more than each of many.
    let warm = Election::open(&backend, "warm").await?.campaign(Candidate::new("bench")?).await?;
    let resident_before = resident()?;

    let began = Instant::now();
    let names: Vec<String> = (0..elections).map(|number| format!("many/{number:05}")).collect();
    let mut opened = Vec::new();
    for some in names.chunks(250) {
        opened.extend(try_join_all(some.iter().map(|name| Election::open(&backend, name))).await?);
    }
    println!("{elections} elections opened in {:?}", began.elapsed());
    let began = Instant::now();
    let standing: Vec<_> = opened
        .iter()
        .map(|election| Ok(election.stand(Candidate::new("bench")?)?))
        .collect::<Result<_, Failure>>()?;
    let held = try_join_all(
        standing.into_iter().map(|mut candidacy| async move { candidacy.elected().await }),
    )
    .await?;
    println!("all led after {:?}", began.elapsed());

    tokio::time::sleep(Duration::from_secs(3)).await;
    let each = (resident()? - resident_before) as f64 / elections as f64;
    println!("resident: {each:.1} KiB an election, {} KiB in all", resident()?);
    let requests = |proxy: &Proxy| proxy.forwarded(Direction::ToServer).messages;
    let before = requests(&proxy);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let idle = (requests(&proxy) - before) as f64 / seconds as f64;
    println!("idle: {idle:.1} frames to the server a second, all elections together");
    let lost = held.iter().filter(|leadership| !leadership.mandate().is_leader()).count();
    println!("lost meanwhile: {lost}");

    let began = Instant::now();
    backend.close().await;
    println!("all released in {:?}", began.elapsed());
    drop(warm);
    Ok(())
}

fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(number.parse()?)
}
