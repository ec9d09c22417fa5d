//! One line with the candidates of other clients.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tenure_harness::{Zookeeper, require};
use tokio::sync::mpsc;

use crate::world::*;

/// Where `scripts/servers` keeps what it downloads.
fn downloads() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.servers");
    std::env::var_os("TENURE_SERVERS").map_or(here, PathBuf::from)
}

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/servers")
}

/// A candidate of somebody else's.
struct Foreign {
    child: Child,
    stdin: ChildStdin,
    says: mpsc::UnboundedReceiver<String>,
}

impl Foreign {
    fn start(command: &mut Command) -> Foreign {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the other client starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tell, says) = mpsc::unbounded_channel();
        let stdout = stdout.expect("it is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                println!("the other client: {line}");
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Foreign { child, stdin: stdin.expect("it is piped"), says }
    }

    async fn says(&mut self, word: &str) {
        let said = soon(word, self.says.recv()).await;
        assert_eq!(said.as_deref(), Some(word));
    }

    fn has_said_nothing(&mut self) -> bool {
        self.says.try_recv().is_err()
    }

    fn leave(&mut self) {
        writeln!(self.stdin).expect("it listens");
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ours, theirs, ours, theirs: each leads in its turn, and never two.
async fn take_turns(
    server: &Zookeeper,
    recipe: &str,
    theirs: impl Fn(SocketAddr, &str) -> Foreign,
) {
    let address = server[0].address();
    let program = Program::of(&format!("{}?{recipe}", url(&[address])), CALM).await;
    let mut referee = Referee::default();
    let ours = program.lead("ours-0").await;
    referee.saw(&ours);
    let operator = operator(address).await;
    let in_line = |count| {
        let operator = operator.clone();
        async move { until("it is in line", || async { nodes(&operator).await.len() == count }).await }
    };
    let mut first = theirs(address, "theirs-1");
    first.says("stands").await;
    in_line(2).await;
    let between = program.stand("ours-2", 2).await;
    let mut last = theirs(address, "theirs-3");
    last.says("stands").await;
    in_line(4).await;
    assert_eq!(program.line().await, ["ours-0", "theirs-1", "ours-2", "theirs-3"]);
    assert!(first.has_said_nothing(), "ours leads");
    ours.resign().await;
    first.says("leads").await;
    // Ours waits for theirs, whoever else looks.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(between.status().role.token(), None);
    assert!(last.has_said_nothing());
    first.leave();
    let between = soon("elected", between.elected()).await.expect("elected");
    referee.saw(&between);
    assert!(last.has_said_nothing(), "ours leads");
    between.resign().await;
    last.says("leads").await;
    last.leave();
    last.says("left").await;
    assert!(!ours.mandate().is_leader() && !between.mandate().is_leader());
}

fn kazoo(recipe: &'static str) -> impl Fn(SocketAddr, &str) -> Foreign {
    move |address, name| {
        let mut command = Command::new("python3");
        command.arg(recipes().join("kazoo/candidate.py")).args([
            &address.to_string(),
            NODE,
            name,
            recipe,
        ]);
        Foreign::start(command.env("PYTHONPATH", downloads().join("python")))
    }
}

fn has_kazoo() -> bool {
    let there = downloads().join("python/kazoo").is_dir();
    if !there {
        println!("skipped: kazoo is not on this machine; scripts/servers kazoo brings it");
    }
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_stand_in_one_line_with_locks_of_kazoo() {
    let server = require!(single().await);
    if has_kazoo() {
        take_turns(&server, "recipe=kazoo", kazoo("lock")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_stand_in_one_line_with_elections_of_kazoo() {
    let server = require!(single().await);
    if has_kazoo() {
        take_turns(&server, "node-prefix=__lock__", kazoo("election")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_stand_in_one_line_with_latches_of_curator() {
    let server = require!(single().await);
    let library = downloads().join("curator-5.9.0/lib");
    if !library.is_dir() {
        println!(
            "skipped: Curator is not on this machine; scripts/servers curator-5.9.0 brings it"
        );
        return;
    }
    let curator = |address: SocketAddr, name: &str| {
        let mut command = Command::new("java");
        command
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(format!("{}/*", library.display()))
            .arg(recipes().join("curator/Candidate.java"))
            .args([&address.to_string(), NODE, name]);
        Foreign::start(&mut command)
    };
    take_turns(&server, "recipe=curator-latch", curator).await;
}
