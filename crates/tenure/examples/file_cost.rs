//! Measures the processor time of a renewal in a directory: `cargo run --release --example
//! file_cost`.
//!
//! A leader renews 1,000 elections in batches and listens for changes of each, as a real leader
//! would. A follower in the same process is notified of every change and reads it. Both are
//! counted.

#[cfg(not(all(feature = "file", target_os = "linux")))]
fn main() {
    eprintln!("the file store needs Linux");
}

#[cfg(all(feature = "file", target_os = "linux"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(all(feature = "file", target_os = "linux"))]
mod linux {
    use std::error::Error;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use tenure::Key;
    use tenure::file::{FileOptions, FileStore};
    use tenure::store::{Durability, Expect, Put, Store, StoreExt, Version, Write};

    const ELECTIONS: usize = 1000;
    const ROUNDS: usize = 20;

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let argument = std::env::args_os().nth(1).map(PathBuf::from);
        let directory = argument.unwrap_or_else(|| std::env::temp_dir().join("tenure-file-cost"));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(measure(&directory.join(std::process::id().to_string())))?;
        std::fs::remove_dir_all(&directory)?;
        Ok(())
    }

    async fn measure(directory: &std::path::Path) -> Result<(), Box<dyn Error>> {
        // Creating a thousand documents at once may take longer than a request usually does.
        let options = FileOptions { request: Duration::from_secs(60), ..FileOptions::default() };
        let store = FileStore::open(directory, options.clone())?;
        let keys = (0..ELECTIONS)
            .map(|number| Key::parse(&format!("elections/jobs/{number:04}")))
            .collect::<Result<Vec<Key>, _>>()?;
        let write = |key: &Key, expect, round: usize, durability| {
            let body = format!("{{\"round\":{round},\"rest\":\"{}\"}}", "x".repeat(400));
            Write { key: key.clone(), expect, body: Some(body.into()), durability }
        };
        let began = Instant::now();
        let creations = keys.iter().map(|key| write(key, Expect::Absent, 0, Durability::Lasting));
        let mut versions = stored(store.put_many(creations.collect()).await)?;
        println!("{ELECTIONS} lasting creations in one batch: {:?}", began.elapsed());

        for batch in [1, 10, 100] {
            versions = renewals(&store, &keys, versions, batch, &write, "alone").await?;
        }
        let follower = FileStore::open(directory, options)?;
        let followers: Vec<_> = keys
            .iter()
            .cloned()
            .map(|key| {
                let follower = follower.clone();
                tokio::spawn(async move {
                    let mut seen = None;
                    loop {
                        follower.changed(&key, seen.as_ref()).await;
                        let Ok(now) = follower.get(&key).await else { continue };
                        seen = now.map(|document| document.version);
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        for batch in [1, 10, 100] {
            versions = renewals(&store, &keys, versions, batch, &write, "followed").await?;
        }
        followers.iter().for_each(tokio::task::JoinHandle::abort);
        Ok(())
    }

    async fn renewals(
        store: &FileStore,
        keys: &[Key],
        mut versions: Vec<Version>,
        batch: usize,
        write: &impl Fn(&Key, Expect, usize, Durability) -> Write,
        how: &str,
    ) -> Result<Vec<Version>, Box<dyn Error>> {
        let (began, used) = (Instant::now(), processor_time()?);
        for round in 0..ROUNDS {
            for (keys, versions) in keys.chunks(batch).zip(versions.chunks_mut(batch)) {
                let renew = keys.iter().zip(versions.iter()).map(|(key, version)| {
                    write(key, Expect::At(version.clone()), round, Durability::UntilPowerCut)
                });
                let renewed = stored(store.put_many(renew.collect()).await)?;
                versions.clone_from_slice(&renewed);
            }
        }
        let renewals = (ROUNDS * keys.len()) as f64;
        let passed = began.elapsed().as_secs_f64() * 1e6 / renewals;
        // Reads that followers still have to make belong to the cost.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let cost = (processor_time()? - used).as_secs_f64() * 1e6 / renewals;
        println!("{how}, {batch:>3} a batch: {passed:.1} µs passed, {cost:.1} µs used per renewal");
        Ok(versions)
    }

    fn stored(
        outcomes: Vec<Result<Put, tenure::store::StoreError>>,
    ) -> Result<Vec<Version>, Box<dyn Error>> {
        let version = |outcome: Result<Put, tenure::store::StoreError>| match outcome? {
            Put::Stored(version) => Ok(version),
            Put::Conflict => Err("nobody else writes here".into()),
        };
        outcomes.into_iter().map(version).collect()
    }

    fn processor_time() -> Result<Duration, Box<dyn Error>> {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Ok(Duration::new(u64::try_from(spent.tv_sec)?, u32::try_from(spent.tv_nsec)?))
    }
}
