//! Sharing on a store that cannot prove that a process is dead.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_harness::{Etcd, etcd, require};

use super::support::{Running, Scene, wait_for_death};
use super::{counts, done, told};

#[tokio::test(flavor = "multi_thread")]
async fn on_etcd_the_items_of_a_killed_process_are_taken_after_its_ttl_and_not_before() {
    let server = require!(Etcd::single(etcd::Options::default()).await);
    let scene = Scene::with_files(20);
    let store = format!("etcd://{}/jobs", server[0].address());
    // The first two items hang, and the rest is quick.
    let script = r#"case $0 in */000[01])
        if mkdir "$SCENE/$(basename $0)" 2>/dev/null; then echo $$ >> "$SCENE/pids"; exec sleep 600; fi ;; esac
        cat "$0""#;
    let start = |flags: &[&str]| {
        let mut command = scene.share_files("g", flags, script);
        command.env("TENURE_STORE", &store);
        Running::start(command)
    };
    // Long enough that guardians on a busy machine act before a lease is over.
    let first = start(&["--ttl", "15s", "--workers", "2"]);
    let pids: Vec<i32> = scene.lines("pids", 2).iter().map(|pid| pid.parse().unwrap()).collect();
    let killed = Instant::now();
    first.signal(Signal::KILL);
    let second = start(&["--ttl", "15s", "--workers", "2"]);
    wait_for_death(&pids);
    assert!(killed.elapsed() < Duration::from_secs(12), "its guardians see to that at once");
    let ran = second.end_within(Duration::from_secs(120));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(killed.elapsed() >= Duration::from_secs(12), "the leases were not waited for");
    let (lines, summary) = told(&ran);
    assert_eq!(counts(&summary), [20, 20, 0, 0, 0]);
    assert_eq!(done(&lines)["0001"], "1");
}
