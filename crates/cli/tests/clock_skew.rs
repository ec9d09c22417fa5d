//! Wall clocks that are an hour wrong, on a real MongoDB: they change nothing.
#![cfg(feature = "mongodb")]
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Running, Scene, bare, ran, wait_for};
use tenure_harness::{Mongodb, Skipped, mongodb, require};

const TTL: Duration = Duration::from_secs(6);
/// The candidates, and the errors of their wall clocks: as a flag, and in seconds.
const SKEWS: [(&str, &str, i64); 3] =
    [("ahead", "+1h", 3600), ("behind", "-1h", -3600), ("right", "+0", 0)];

/// The library that shows a program another time. Debian's package `faketime` has it.
fn library() -> Result<PathBuf, Skipped> {
    let directories = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut libraries = directories.map(|at| at.path().join("faketime/libfaketime.so.1"));
    libraries.find(|library| library.exists()).ok_or_else(|| Skipped {
        server: "libfaketime".to_owned(),
        reason: "not installed; scripts/servers faketime does it".to_owned(),
    })
}

/// A candidate with a child that tries to take an exclusive lock. The child logs its time, name and
/// token, and whether it got the lock.
fn candidate(scene: &Scene, store: &str, library: &Path, (name, skew): (&str, &str)) -> Running {
    let child = format!(
        "exec 9>{lock}; flock -n 9 && alone=yes || alone=no; \
         echo \"$(date +%s) {name} $TENURE_TOKEN $alone\" >>{log}; exec sleep 600",
        lock = scene.path("lock").display(),
        log = scene.path("log").display(),
    );
    let ttl = format!("{}ms", TTL.as_millis());
    let line = ["run", "job", "--store", store, "--id", name, "--ttl", &ttl, "--"];
    let mut command = bare(&line);
    command.args(["sh", "-c", &child]);
    command.env("LD_PRELOAD", library).env("FAKETIME", skew);
    // Only the wall clocks are wrong, not the speed of time.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    Running::start_quietly(command)
}

#[test]
fn wall_clocks_that_are_an_hour_wrong_change_nothing() {
    let library = require!(library().map_err(Into::into));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = require!(runtime.block_on(Mongodb::single(mongodb::Options::default())));
    let store = format!("mongodb://{}/skew", server[0].address());
    let scene = Scene::new();
    let mut candidates: Vec<(&str, Running)> = SKEWS
        .map(|(name, skew, _)| (name, candidate(&scene, &store, &library, (name, skew))))
        .into();
    wait_for("all of them to stand", || {
        let listed = ran(bare(&["candidates", "job", "--store", &store, "--json"])).out;
        SKEWS.iter().all(|(name, ..)| listed.contains(&format!("\"{name}\""))).then_some(())
    });
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut began = None;
    for tenure in 1..=3 {
        let lines = scene.lines("log", tenure);
        let words: Vec<&str> = lines[tenure - 1].split(' ').collect();
        let [clock, name, token, alone] = words[..] else { panic!("{lines:?}") };
        assert_eq!(alone, "yes", "{lines:?}");
        assert_eq!(token.parse::<usize>().unwrap(), tenure, "{lines:?}");
        let off = clock.parse::<i64>().unwrap() - i64::try_from(now.as_secs()).unwrap();
        let (.., expected) = SKEWS.into_iter().find(|(known, ..)| *known == name).unwrap();
        assert!((off - expected).abs() < 600, "its clock is wrong as it should be: {lines:?}");
        if let Some(began) = began.take().map(|began: Instant| began.elapsed()) {
            println!("{name} took over after {began:?}");
            // After a leader's death the others wait for its lease, by any candidate's clock.
            let earliest = TTL.mul_f64(0.6);
            assert!(began > earliest && began < TTL * 4 + Duration::from_secs(10), "{began:?}");
        }
        let index = candidates.iter().position(|(other, _)| *other == name).unwrap();
        let (_, leader) = candidates.remove(index);
        if candidates.is_empty() {
            break;
        }
        // The guardian ends the child. No process releases the lease.
        leader.signal(Signal::KILL);
        began = Some(Instant::now());
        wait_for("the next tenure", || (scene.read("log").lines().count() > tenure).then_some(()));
    }
}
