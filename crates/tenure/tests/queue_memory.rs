//! Five thousand elections on one session take at most 8 KiB each.
//!
//! That includes lines and watches in memory.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::time::Duration;

use tenure::{
    Backend, Candidacy, Candidate, Election, MemoryQueues, MemoryStore, Role, system_clock,
};

const MANY: usize = 5000;
const MOST: usize = 8 * 1024;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    let kibibytes = line.split_whitespace().next().and_then(|word| word.parse().ok());
    kibibytes.map(|number: usize| number * 1024).expect("a number")
}

async fn stand(backend: &Backend, name: &str) -> Vec<Candidacy> {
    let mut standing = Vec::with_capacity(MANY);
    for number in 0..MANY {
        let election = Election::open(backend, &format!("many/{number}")).await.expect("it opens");
        let candidate = Candidate::new(name).expect("a good name");
        standing.push(election.stand(candidate).expect("it stands"));
    }
    standing
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect(what);
}

#[tokio::test]
async fn five_thousand_followers_take_less_than_eight_kibibytes_each() {
    let (store, lines) = (MemoryStore::new(), MemoryQueues::new(system_clock()));
    let process = || {
        let queue = Arc::new(lines.connect(Duration::from_secs(60)));
        Backend::new(Arc::new(store.clone())).with_queue(queue)
    };
    let (one, other) = (process(), process());
    let leading = stand(&one, "a").await;
    until("all lead", || {
        leading.iter().all(|one| matches!(one.status().role, Role::Leading { .. }))
    })
    .await;
    let before = resident();
    let following = stand(&other, "b").await;
    until("all follow", || following.iter().all(|one| one.status().follows.is_some())).await;
    let each = resident().saturating_sub(before) / MANY;
    println!("{each} bytes each");
    assert!(each < MOST, "{each} bytes each");
    tokio::time::timeout(Duration::from_secs(60), other.close()).await.expect("it closes");
    assert!(leading.iter().all(|one| matches!(one.status().role, Role::Leading { .. })));
}
