//! Candidates in their own processes, which are killed or stopped.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tenure::queue::Queue;
use tenure_harness::require;

use crate::world::*;

const URL: &str = "TENURE_TEST_CHILD_URL";

/// Not a test but the child process. It leads, and prints all the time whether it believes so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_leads() {
    let Ok(url) = std::env::var(URL) else { return };
    let program = Program::of(&url, BRISK).await;
    let leader = program.lead("child").await;
    let mandate = leader.mandate();
    // A separate thread, which none of our code stops.
    let watching = std::thread::spawn(move || {
        loop {
            let leads = mandate.is_leader();
            println!("{} {leads}", now());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    std::future::pending::<()>().await;
    drop(watching);
}

/// Milliseconds by the clock that all processes of this machine share.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

/// A leading process, and the times at which it said that it leads.
struct Leading {
    child: Child,
    said: std::sync::mpsc::Receiver<(u128, bool)>,
}

impl Leading {
    fn start(url: &str) -> Leading {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "process::child_that_leads", "--nocapture"])
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (tell, said) = std::sync::mpsc::channel();
        let stdout = child.stdout.take().expect("it is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let word = line.split_once(' ').and_then(|(at, leads)| {
                    Some((at.parse::<u128>().ok()?, leads.parse::<bool>().ok()?))
                });
                if word.is_some_and(|word| tell.send(word).is_err()) {
                    return;
                }
            }
        });
        Leading { child, said }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a kill").success());
    }

    /// The last moment at which it said that it leads.
    fn last_led(&self) -> u128 {
        self.said.try_iter().filter(|(_, leads)| *leads).map(|(at, _)| at).max().unwrap_or(0)
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn token_of_the_first(program: &Program) -> u64 {
    match program.look().await {
        Queue::Open { places, .. } => places[0].entry.token,
        other @ (Queue::Ended { .. } | Queue::Missing) => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leading_process_that_is_killed_is_followed_when_its_session_ends() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), BRISK).await;
    program.election().await;
    let mut leading = Leading::start(&url(&server.addresses()));
    until("the child stands", || async { program.standing().await == ["child"] }).await;
    let mut waiting = program.stand("next", 1).await;
    let token = token_of_the_first(&program).await;
    leading.child.kill().expect("it runs");
    let began = Instant::now();
    let next = soon("elected", waiting.elected()).await.expect("elected");
    println!("followed after {:?}", began.elapsed());
    assert!(next.mandate().token() > token);
    // The session's time and a tick, with room for a busy machine.
    assert!(began.elapsed() < BRISK * 3, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leading_process_that_stands_still_has_stopped_leading_when_it_goes_on() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), BRISK).await;
    program.election().await;
    let leading = Leading::start(&url(&server.addresses()));
    until("the child leads", || async { leading.last_led() > 0 }).await;
    let mut waiting = program.stand("next", 1).await;
    let token = token_of_the_first(&program).await;
    leading.signal("-STOP");
    let next = soon("elected", waiting.elected()).await.expect("elected");
    let elected = now();
    assert!(next.mandate().token() > token);
    leading.signal("-CONT");
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It may print afterwards the result of a check before the stop, with the time of that check.
    let last = leading.last_led();
    assert!(last < elected, "it led {} ms after the next did", last - elected);
    assert!(next.mandate().is_leader());
}
