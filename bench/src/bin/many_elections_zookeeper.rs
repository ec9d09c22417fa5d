//! The cost of many elections on one session of ZooKeeper.
//!
//! `cargo run --release -p tenure-bench --bin many_elections_zookeeper [ELECTIONS] [SECONDS]`

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tenure::{Candidate, Election};
use tenure_harness::{Direction, Framing, Proxy, Zookeeper, zookeeper};
use tenure_stores::OpenOptions;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let elections: usize = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(20), |text| text.parse())?;
    let longest = ("maxSessionTimeout".to_owned(), "60000".to_owned());
    let options = zookeeper::Options { settings: vec![longest], ..zookeeper::Options::default() };
    let server = Zookeeper::single(options).await?;
    let proxy = Proxy::start(server[0].address(), Framing::Zookeeper)?;
    let options = OpenOptions::default().with_request(Duration::from_secs(20));
    let url = format!("zookeeper://{}/bench", proxy.address());
    let backend = tenure_stores::open(&url, &options).await?.backend;
    // The first election costs more than each of many.
    let warm = Election::builder(&backend, "warm").create_if_missing(true).open().await?;
    warm.campaign(Candidate::new("bench")?).await?.resign().await;

    let before = resident()?;
    let began = Instant::now();
    let opening = (0..elections).map(|number| {
        let backend = backend.clone();
        async move {
            let name = format!("many/{number:05}");
            Election::builder(&backend, &name).create_if_missing(true).open().await
        }
    });
    let opened: Vec<Election> = stream::iter(opening).buffered(256).try_collect().await?;
    println!("{elections} elections made and opened in {:?}", began.elapsed());
    let opened_only = resident()?.saturating_sub(before) as f64 / elections as f64;
    let began = Instant::now();
    let standing = opened.iter().map(|election| election.stand(Candidate::new("bench")?));
    let standing = standing.collect::<Result<Vec<_>, _>>()?;
    let all = standing.into_iter().map(|mut candidacy| async move { candidacy.elected().await });
    let held = futures_util::future::try_join_all(all).await?;
    println!("all led after {:?}", began.elapsed());

    tokio::time::sleep(Duration::from_secs(5)).await;
    let sent = proxy.forwarded(Direction::ToServer).messages;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let sent = proxy.forwarded(Direction::ToServer).messages - sent;
    let each = (resident()?.saturating_sub(before)) as f64 / elections as f64;
    println!(
        "{each:.2} KiB of resident memory each, {opened_only:.2} of it before they were stood in; \
         {sent} requests in {seconds} s of idling"
    );
    let lost = held.iter().filter(|leadership| !leadership.mandate().is_leader()).count();
    println!("lost meanwhile: {lost}");
    let began = Instant::now();
    backend.close().await;
    println!("all released in {:?}", began.elapsed());
    Ok(())
}

/// The resident memory of this process, in KiB.
fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).unwrap_or("0").parse()?)
}
