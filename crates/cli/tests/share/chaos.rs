//! Issue 7, "It holds when" 3: nodes and the store are killed again and again.
//!
//! Every task is done exactly once in the cluster's records.
//!
//! Each task holds an exclusive lock on a file of its own while it runs. A run that cannot get the
//! lock shows that two work on one task at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_harness::{Etcd, etcd, require};

use super::support::{Running, Scene, ran};
use super::{counts, values};

/// How many processes share the work.
const NODES: usize = 4;
/// Nothing takes this long unless it is stuck.
const PATIENCE: Duration = Duration::from_secs(1500);

#[tokio::test(flavor = "multi_thread")]
async fn on_etcd_tasks_outlive_nodes_and_a_store_that_are_killed() {
    share(600).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "scripts/campaign runs it"]
async fn campaign() {
    let tasks = std::env::var("TENURE_ROUNDS").ok().and_then(|text| text.parse().ok());
    share(tasks.unwrap_or(10_000)).await;
}

async fn share(tasks: usize) {
    let seed = std::env::var("TENURE_SEED").ok().and_then(|text| text.parse().ok());
    let mut draw = Draw(seed.unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1));
    println!("seed {}", draw.0);
    let server = require!(Etcd::single(etcd::Options::default()).await);
    let scene = Scene::new();
    fs::create_dir(scene.path("locks")).unwrap();
    let mut items = String::new();
    (0..tasks).for_each(|number| writeln!(items, "item-{number:05}").unwrap());
    fs::write(scene.path("items.txt"), items).unwrap();
    let store = format!("etcd://{}/jobs", server[0].address());
    let script = r#"exec 9>>"$SCENE/locks/$0"; flock -n 9 || echo "$0" >> "$SCENE/overlaps"
        echo "$0" >> "$SCENE/begun""#;
    let flags = ["--from", "items.txt", "--ttl", "3s", "--workers", "2", "--attempts", "200"];
    let start = |number: usize| {
        let name = format!("node-{number}");
        let mut command = scene.share("g", &[&flags[..], &["--id", &name]].concat(), script);
        command.env("TENURE_STORE", &store);
        Running::start_quietly(command)
    };
    let listed = |flags: &[&str]| {
        let mut command = scene.tenure(&[&["tasks", "g", "--json"], flags].concat());
        command.env("TENURE_STORE", &store);
        values(&ran(command).out)
    };
    let mut nodes: Vec<Running> = (0..NODES).map(start).collect();
    let (mut started, mut killed, mut restarts, mut gave_up) = (NODES, 0, 0, 0);
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "not finished in time");
        tokio::time::sleep(Duration::from_millis(200)).await;
        let ended = nodes.iter_mut().position(|node| node.child().try_wait().unwrap().is_some());
        if let Some(ended) = ended {
            let end = nodes.swap_remove(ended).end();
            if end.code == Some(0) {
                break;
            }
            gave_up += 1;
            eprintln!("a node gave up: {end:?}");
            nodes.push(start(started));
            started += 1;
        }
        // A process or the server is killed about every two seconds.
        if draw.below(10) > 0 {
            continue;
        }
        if draw.below(3) == 0 {
            server[0].restart().await.expect("the server comes back");
            restarts += 1;
        } else {
            let victim = draw.below(nodes.len());
            nodes.swap_remove(victim).signal(Signal::KILL);
            killed += 1;
            nodes.push(start(started));
            started += 1;
        }
    }
    for node in nodes {
        assert_eq!(node.end_within(Duration::from_secs(120)).code, Some(0));
    }
    let took = began.elapsed();
    let summary = listed(&[]).remove(0);
    let all = tasks as u64;
    assert_eq!(counts(&summary), [all, all, 0, 0, 0], "{summary}");
    assert_eq!(scene.read("overlaps"), "", "two worked on one task at once");
    let mut begun: BTreeMap<String, u64> = BTreeMap::new();
    scene.read("begun").lines().for_each(|item| *begun.entry(item.into()).or_default() += 1);
    assert_eq!(begun.len(), tasks, "some were never begun");
    let mut results: BTreeMap<String, u64> = BTreeMap::new();
    for result in listed(&["--results"]) {
        *results.entry(result["id"].as_str().unwrap().into()).or_default() += 1;
    }
    assert_eq!(results.len(), tasks);
    assert!(results.values().all(|times| *times == 1), "some were counted twice");
    let attempts: u64 = begun.values().sum();
    println!(
        "| tasks | nodes killed | store killed | nodes that gave up | attempts | overlaps | counted twice | took |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    println!("| {tasks} | {killed} | {restarts} | {gave_up} | {attempts} | 0 | 0 | {took:.1?} |");
}

/// Random numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % bound
    }
}
