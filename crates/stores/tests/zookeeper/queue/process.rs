//! Candidates that are programs of their own, and are killed.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tenure_harness::require;

use crate::world::*;

const URL: &str = "TENURE_TEST_CHILD_URL";

/// Not a test: what the child does. It leads until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_leads() {
    let Ok(url) = std::env::var(URL) else { return };
    let program = Program::of(&url, BRISK).await;
    let leader = program.lead("child").await;
    println!("led {}", leader.mandate().token());
    std::future::pending::<()>().await;
}

fn child(url: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "process::child_that_leads", "--nocapture"])
        .env(URL, url)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leading_process_that_is_killed_is_followed_when_its_session_ends() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), BRISK).await;
    program.election().await;
    let mut leading = child(&url(&server.addresses()));
    until("the child leads", || async { program.line().await == ["child"] }).await;
    let waiting = program.stand("next", 1).await;
    let token = match program.look().await {
        tenure::queue::Line::Open { places, .. } => places[0].entry.token,
        other => panic!("{other:?}"),
    };
    leading.kill().expect("it runs");
    let began = Instant::now();
    leading.wait().expect("it ends");
    let next = soon("elected", waiting.elected()).await.expect("elected");
    println!("followed after {:?}", began.elapsed());
    assert!(next.mandate().token() > token);
    // The session's time and a tick, and a busy machine.
    assert!(began.elapsed() < BRISK * 3, "{:?}", began.elapsed());
}
