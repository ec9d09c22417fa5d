//! The cost of many elections that one process holds on the directory store.
//!
//! `cargo run --release -p tenure-bench --bin many_elections [ELECTIONS] [SECONDS] [DIR]`

use std::path::PathBuf;
use std::time::Duration;

use tenure::file::{FileOptions, FileStore};
use tenure::{Backend, Candidate, Clock, Election, Moment, SystemClock};

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let elections: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(30), |text| text.parse())?;
    let scratch = tempfile::tempdir()?;
    let directory = arguments.next().map_or(scratch.path().join("store"), PathBuf::from);
    let store = FileStore::open(&directory, FileOptions::default())?;
    let presence = store.presence();
    let backend = Backend::new(std::sync::Arc::new(store)).with_presence(presence);
    let clock = SystemClock::default();

    let began = clock.now();
    let mut candidacies = Vec::new();
    for number in 0..elections {
        let election = Election::open(&backend, &format!("bench/{number:05}")).await?;
        candidacies.push(election.stand(Candidate::new("bench")?)?);
    }
    let opened = clock.now().at_most_since(began);
    let all = candidacies.into_iter().map(|mut candidacy| async move { candidacy.elected().await });
    let held = futures_util::future::try_join_all(all).await?;
    println!(
        "{elections} elections opened in {opened:?}, all led after {:?}",
        since(&clock, began)
    );

    // The first renewals after so many claims are not part of the idle cost.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (from, used) = (clock.now(), cpu());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let share = (cpu() - used).as_secs_f64() / clock.now().at_most_since(from).as_secs_f64();
    println!("idle: {:.2} % of a core, resident {} KiB", share * 100.0, resident()?);
    let lost = held.iter().filter(|leadership| !leadership.mandate().is_leader()).count();
    println!("lost meanwhile: {lost}");

    let began = clock.now();
    backend.close().await;
    println!("all released in {:?}", since(&clock, began));
    Ok(())
}

fn since(clock: &SystemClock, began: Moment) -> Duration {
    clock.now().at_most_since(began)
}

/// The CPU time of this process so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(number.parse()?)
}
