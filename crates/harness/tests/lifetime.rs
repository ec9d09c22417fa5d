//! Nothing survives a test, except the logs of a test that failed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tenure_harness::{Etcd, etcd, require};

const CHILD: &str = "TENURE_HARNESS_CHILD";

/// Not a test by itself: the process that the next test kills.
#[tokio::test]
async fn starts_a_server_and_waits_to_be_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let etcd = require!(Etcd::single(etcd::Options::default()).await);
    println!("\nserver {}", etcd[0].id().expect("it runs"));
    println!("log {}", etcd[0].log().display());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_server_does_not_survive_a_test_that_is_killed() {
    // Skips this test if the child would skip its own.
    drop(require!(Etcd::single(etcd::Options::default()).await));
    let mut test = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "starts_a_server_and_waits_to_be_killed", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let output = BufReader::new(test.stdout.take().expect("it is piped"));
    let mut lines = output.lines().map_while(Result::ok);
    let mut after = |prefix: &str| {
        let found = lines.find_map(|line| Some(line.strip_prefix(prefix)?.to_owned()));
        found.expect("the server's number and the path of its log")
    };
    let server: u32 = after("server ").parse().expect("a number");
    let log = PathBuf::from(after("log "));
    assert!(alive(server));

    test.kill().expect("it runs");
    test.wait().expect("it was killed");
    let began = Instant::now();
    while alive(server) {
        assert!(began.elapsed() < Duration::from_secs(10), "the server {server} is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The directory survives, since its process was killed before it could remove it.
    std::fs::remove_dir_all(log.ancestors().nth(2).expect("of the cluster")).expect("ours");
}

/// A zombie counts as dead.
fn alive(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn the_log_of_a_test_that_panics_is_kept() {
    let (kept, log) = mpsc::channel::<PathBuf>();
    let failed = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let etcd = require!(Etcd::single(etcd::Options::default()).await);
            kept.send(etcd[0].log()).expect("the test waits");
            panic!("as a test does that fails");
        });
    })
    .join();
    // Skipped if no server was started.
    let Ok(log) = log.recv() else { return };
    assert!(failed.is_err());
    assert!(log.exists());
    let member = log.parent().expect("it is in a directory");
    assert!(!member.join("data").exists());
    std::fs::remove_dir_all(member.parent().expect("of the cluster")).expect("ours");
}

#[tokio::test]
async fn nothing_is_left_of_a_test_that_passes() {
    let etcd = require!(Etcd::single(etcd::Options::default()).await);
    let (log, server) = (etcd[0].log(), etcd[0].id().expect("it runs"));
    drop(etcd);
    assert!(!log.exists());
    assert!(!alive(server));
}
