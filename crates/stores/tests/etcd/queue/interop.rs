//! etcd's own clients in the same queues.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;

use super::*;
use tenure::queue::{Freshness, Queue};
use tenure_harness::require;

/// `etcdctl`, running until it is told to end.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(servers: &Etcd, words: &[&str]) -> Running {
        let mut command = etcdctl(servers, words);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("etcdctl runs");
        let output = child.stdout.take().expect("it is piped");
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Running { child, lines }
    }

    /// The next line it prints.
    async fn line(&self) -> String {
        soon("etcdctl says something", async {
            loop {
                match self.lines.try_recv() {
                    Ok(line) => return line,
                    Err(mpsc::TryRecvError::Empty) => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    Err(mpsc::TryRecvError::Disconnected) => panic!("etcdctl has ended"),
                }
            }
        })
        .await
    }

    fn says_nothing(&self) -> bool {
        self.lines.try_recv().is_err()
    }

    /// Interrupts it, as Ctrl-C does: it gives up its place.
    fn interrupt(mut self) {
        let id = self.child.id().to_string();
        let ended = std::process::Command::new("kill").args(["-INT", &id]).status();
        assert!(ended.is_ok_and(|status| status.success()));
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn place() -> String {
    format!("{PREFIX}/{NAME}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_elect_waits_for_ours_and_ours_for_it() {
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let (_a, election, first) = lead(&addresses, LONG, "a").await;
    let theirs = Running::start(&servers, &["elect", &place(), "theirs"]);
    in_line(&election, "theirs").await;
    let (_b, _, mut last) = stand(&addresses, LONG, "b").await;
    assert_eq!(names(&election).await, ["a", "theirs", "b"]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(theirs.says_nothing(), "ours leads");
    let token = first.mandate().token();
    first.resign().await;
    // When it leads, it prints its key and then its value.
    assert!(theirs.line().await.starts_with(&format!("{}/", place())));
    assert_eq!(theirs.line().await, "theirs");
    soon("followed", async {
        let leads = |candidacy: &Candidacy| {
            candidacy.status().follows.is_some_and(|leader| &*leader.name == "theirs")
        };
        while !leads(&last) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(!matches!(last.status().role, Role::Leading { .. }));
    theirs.interrupt();
    let last = soon("elected", last.elected()).await.expect("elected");
    assert!(last.mandate().token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_listens_to_our_leaders() {
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let listener = Running::start(&servers, &["elect", "--listen", &place()]);
    let backend = process(&addresses, LONG).await;
    let election = enter(&backend).await;
    let named = candidate("a");
    let first = soon("elected", election.campaign(named)).await.expect("elected");
    assert!(listener.line().await.starts_with(&format!("{}/", place())));
    assert_eq!(listener.line().await, "a", "the name, where nothing is published");
    let (_b, _, mut second) = stand(&addresses, LONG, "b").await;
    second.publish("10.0.0.7:8080").expect("small enough");
    first.resign().await;
    let second = soon("elected", second.elected()).await.expect("elected");
    let mut seen = Vec::new();
    while !seen.iter().any(|line| line == "10.0.0.7:8080") {
        seen.push(listener.line().await);
    }
    println!("etcdctl saw {seen:?}");
    second.resign().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_lock_and_ours_exclude_each_other() {
    let servers = require!(servers(1).await);
    let addresses = servers.addresses();
    let theirs = Running::start(&servers, &["lock", &place()]);
    assert!(theirs.line().await.starts_with(&format!("{}/", place())));
    // None of our processes has made the election. It is shown as it is.
    let backend = process(&addresses, LONG).await;
    let queue = backend.queue().expect("it has one");
    let found = queue.look(&key(), Freshness::Session).await.expect("a look");
    assert!(
        matches!(&found, Queue::Open { generation: 0, places, .. } if places.len() == 1),
        "{found:?}"
    );
    let election = enter(&backend).await;
    let mut ours = stand_in(&election, "a").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!matches!(ours.status().role, Role::Leading { .. }), "they hold the lock");
    theirs.interrupt();
    let ours = soon("elected", ours.elected()).await.expect("elected");
    let theirs = Running::start(&servers, &["lock", &place()]);
    soon("they wait", async {
        while names(&election).await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(theirs.says_nothing(), "ours holds it");
    ours.resign().await;
    assert!(theirs.line().await.starts_with(&format!("{}/", place())));
}
