//! `tenure demo`: shows a take-over.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_stores::Location;
use tokio::sync::mpsc;

use crate::args::Demo;
use crate::exit::{self, Ending, Failure};
use crate::session::Session;
use crate::show::{self, Colour, paint};
use crate::signals::{Asked, Signals};

const ELECTION: &str = "demo";
/// The work of each leader. It prints the token, and then sleeps until it is stopped.
const WORK: &str = "echo \"$TENURE_TOKEN\"; exec sleep 600";
/// How long each leader leads before the next step.
const TENURE: Duration = Duration::from_millis(1200);

pub(crate) async fn demo(session: &Session, wanted: &Demo) -> Ending {
    let mut stage = Stage::set(session, wanted.candidates)?;
    let mut signals = Signals::listen()?;
    let ending = tokio::select! {
        ending = stage.play() => ending,
        () = interrupted(&mut signals) => Ok(()),
    };
    stage.clear().await;
    ending.map(|()| ExitCode::SUCCESS)
}

async fn interrupted(signals: &mut Signals) {
    while !matches!(signals.next().await, Asked::Stop(_) | Asked::PassOn(_)) {}
}

/// The candidates and the directory that holds their election.
struct Stage {
    directory: PathBuf,
    begun: Instant,
    candidates: Vec<Candidate>,
    leads: mpsc::UnboundedReceiver<(usize, String)>,
    lease: Duration,
}

struct Candidate {
    name: String,
    process: Child,
}

impl Stage {
    fn set(session: &Session, count: u8) -> Result<Stage, Failure> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let unique = format!(
            "tenure-demo-{}-{:x}",
            std::process::id(),
            now.map_or(0, |since| since.as_nanos())
        );
        let directory = std::env::temp_dir().join(unique);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let (lead, leads) = mpsc::unbounded_channel();
        let begun = Instant::now();
        let lease = session.timing.ttl();
        let mut stage = Stage { directory, begun, candidates: Vec::new(), leads, lease };
        for index in 0..usize::from(count) {
            stage.add(index, session, lead.clone())?;
        }
        Ok(stage)
    }

    fn add(
        &mut self,
        index: usize,
        session: &Session,
        lead: mpsc::UnboundedSender<(usize, String)>,
    ) -> Result<(), Failure> {
        let name = format!("candidate-{}", index + 1);
        // The demo removes this directory at its end, so TMPDIR may be anywhere.
        let directory = self.directory.clone();
        let store = Location::File { directory, force: false, trust_parents: true };
        let mut process = Command::new("/proc/self/exe")
            .args(["run", ELECTION, "--id", &name, "--store", &store.to_string(), "--ttl"])
            .arg(humantime::format_duration(session.timing.ttl()).to_string())
            .args(["--", "sh", "-c", WORK])
            .env_remove("TENURE_GRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        if let Some(output) = process.stdout.take() {
            // One thread for each candidate. It ends when the candidate and its work have closed
            // their output.
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if lead.send((index, line)).is_err() {
                        return;
                    }
                }
            });
        }
        self.candidates.push(Candidate { name, process });
        Ok(())
    }

    async fn play(&mut self) -> Result<(), Failure> {
        self.tell(format!("{} candidates stand, each a `tenure run`", self.candidates.len()))?;
        let (first, token) = self.leader().await?;
        self.tell(format!("{} leads with token {token}: its child runs", self.name(first)))?;
        tokio::time::sleep(TENURE).await;

        let killed = Instant::now();
        self.signal(first, Signal::KILL);
        self.tell(format!("{} {}", paint(Colour::Red, "kill -9"), self.name(first)))?;
        let (second, token) = self.leader().await?;
        self.took_over(second, &token, killed)?;
        if self.candidates.len() < 3 {
            return Ok(());
        }
        tokio::time::sleep(TENURE).await;

        let asked = Instant::now();
        self.signal(second, Signal::TERM);
        self.tell(format!("{} is asked to stop (TERM), and releases", self.name(second)))?;
        let (third, token) = self.leader().await?;
        self.took_over(third, &token, asked)?;
        tokio::time::sleep(TENURE).await;
        Ok(())
    }

    fn took_over(&self, who: usize, token: &str, since: Instant) -> std::io::Result<()> {
        let after = show::span(since.elapsed());
        let took_over = paint(Colour::Green, &format!("took over after {after}"));
        self.tell(format!("{} {took_over}, token {token}", self.name(who)))
    }

    async fn leader(&mut self) -> Result<(usize, String), Failure> {
        // Twice the lease is longer than any take-over.
        let patience = self.lease * 2 + Duration::from_secs(5);
        let next = tokio::time::timeout(patience, self.leads.recv()).await.ok().flatten();
        next.ok_or_else(|| Failure::new(exit::FAILURE, anyhow::anyhow!("nobody took over")))
    }

    fn name(&self, index: usize) -> &str {
        &self.candidates[index].name
    }

    fn signal(&self, index: usize, signal: Signal) {
        // This is our child and has not been waited for, so the process id is still its own.
        let _ = kill_process(Pid::from_child(&self.candidates[index].process), signal);
    }

    fn tell(&self, text: String) -> std::io::Result<()> {
        show::print(format_args!("{:6.2} s  {text}", self.begun.elapsed().as_secs_f64()))
    }

    async fn clear(mut self) {
        for index in 0..self.candidates.len() {
            self.signal(index, Signal::TERM);
        }
        for candidate in &mut self.candidates {
            // Each candidate stops its child within its grace.
            let _ = candidate.process.wait();
        }
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            show::say(&format!("removing {}: {error}", self.directory.display()));
        }
    }
}
