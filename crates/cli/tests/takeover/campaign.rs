//! Three candidates in one election, with a leader that is removed over and over.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::support::{self, Running, Scene, ran, wait_for};

/// Set for the child; names the directory that it shares with the referee.
pub(crate) const REFEREE: &str = "TENURE_TEST_REFEREE";
const CANDIDATES: usize = 3;

/// The process that fails, or the way in which it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Supervisor,
    Guardian,
    Both,
    /// The leader is stopped, not killed.
    Hung,
    /// The leader is asked to stop.
    Asked,
    /// An operator deletes the leader's record, entry or session.
    Deposed,
    /// The store is away for longer than the ttl.
    CutOff,
}

/// The store of an election, and the actions of its operator.
pub(crate) trait Ground: Send + Sync {
    /// The store's URL, for an election with files in this scene.
    fn url(&self, scene: &Scene) -> String;

    /// Deletes the leader's record, entry or session.
    fn depose(&self, scene: &Scene, election: &str, round: usize);

    /// Returns true if that can affect all other candidates, and candidates can undo it.
    fn deposes_everybody(&self) -> bool;

    /// Takes the store away for this long.
    fn cut_off(&self, scene: &Scene, span: Duration);
}

/// One start of a child: its time, name and token, and whether it was alone.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) at: Duration,
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) alone: bool,
}

/// The settings of an election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    /// `--lock-delay`, as the program reads it.
    pub(crate) delay: &'static str,
}

pub(crate) struct Campaign {
    ground: Arc<dyn Ground>,
    scene: Scene,
    election: String,
    terms: Terms,
    candidates: Vec<(String, Running)>,
    stood: usize,
}

/// The results of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) latencies: Vec<Duration>,
    /// How long a child lived after an operator had deposed its leader.
    pub(crate) stops: Vec<Duration>,
    pub(crate) overlaps: usize,
}

impl Campaign {
    pub(crate) fn new(ground: Arc<dyn Ground>, election: &str, terms: Terms) -> Campaign {
        let election = election.to_owned();
        let candidates = Vec::new();
        let mut campaign =
            Campaign { ground, scene: Scene::new(), election, terms, candidates, stood: 0 };
        campaign.fill();
        campaign
    }

    /// Starts as many candidates as are missing.
    fn fill(&mut self) {
        while self.candidates.len() < CANDIDATES {
            self.stand();
        }
    }

    fn stand(&mut self) {
        self.stood += 1;
        let name = format!("candidate-{}", self.stood);
        let ttl = format!("{}ms", self.terms.ttl.as_millis());
        let child = std::env::current_exe().unwrap();
        let mut command = support::bare(&["run", &self.election, "--id", &name, "--ttl", &ttl]);
        // The other rounds keep the disk busy. A candidate that gave up would never stand.
        command.args(["--lock-delay", self.terms.delay, "--wait-for-store", "--"]).arg(child);
        command.args(["--exact", "campaign::the_child", "--ignored", "--nocapture"]);
        command.env("TENURE_STORE", self.ground.url(&self.scene));
        command.env(REFEREE, self.scene.path(""));
        self.candidates.push((name, Running::start_quietly(command)));
    }

    /// Runs the rounds. Each waits for a leader, removes it, and measures the time until the next
    /// child runs.
    pub(crate) fn run(&mut self, rounds: usize, victim: Victim) -> Figures {
        let mut figures = Figures::default();
        for round in 1..=rounds {
            let leader = self.start(round);
            let index = self.index(&leader.name);
            // Wait until all stand: a candidate that is just starting would distort the
            // measurement.
            self.wait_for_candidates();
            let mut hit = now();
            match victim {
                Victim::Deposed => figures.stops.push(self.depose(index, round)),
                Victim::CutOff => {
                    self.ground.cut_off(&self.scene, self.terms.ttl * 3 / 2);
                    hit = now();
                }
                Victim::Supervisor
                | Victim::Guardian
                | Victim::Both
                | Victim::Hung
                | Victim::Asked => self.strike(index, victim),
            }
            let next = self.start(round + 1);
            assert!(next.token > leader.token, "{next:?} after {leader:?}");
            figures.latencies.push(next.at.saturating_sub(hit));
            if victim == Victim::Deposed {
                continue;
            }
            // A hung leader comes back, notices its loss, and exits.
            self.candidates[index].1.resume();
            self.candidates.remove(index);
            self.stand();
        }
        figures.overlaps = self.starts().iter().filter(|start| !start.alone).count();
        figures
    }

    /// Deposes the leader and starts another candidate. Returns how long the child lived on.
    fn depose(&mut self, index: usize, round: usize) -> Duration {
        let leader = self.candidates.remove(index).1;
        if self.ground.deposes_everybody() {
            // Candidates that look in time give up, too, and candidates that look later find a new
            // election. Remove them first, so that it is known which candidates stand.
            self.candidates.clear();
        }
        let guardian = leader.guardian().as_raw_nonzero().get();
        let child = support::children(guardian)[0];
        self.ground.depose(&self.scene, &self.election, round);
        let deposed = now();
        let watcher = std::thread::spawn(move || {
            wait_for("the child's death", || (!support::alive(child)).then_some(()));
            now()
        });
        // A candidate that starts before the leader has looked puts the record back, and the
        // leadership goes on (lost.rs): these start after the loss.
        let dead = if self.ground.deposes_everybody() {
            let dead = watcher.join().unwrap();
            self.fill();
            dead
        } else {
            self.fill();
            watcher.join().unwrap()
        };
        leader.end();
        dead.saturating_sub(deposed)
    }

    fn strike(&self, index: usize, victim: Victim) {
        let supervisor = &self.candidates[index].1;
        match victim {
            Victim::Supervisor => supervisor.signal(Signal::KILL),
            Victim::Guardian => kill_process(supervisor.guardian(), Signal::KILL).unwrap(),
            Victim::Both => {
                let guardian = supervisor.guardian();
                kill_process(guardian, Signal::STOP).unwrap();
                supervisor.signal(Signal::KILL);
                kill_process(guardian, Signal::KILL).unwrap();
            }
            Victim::Hung => supervisor.signal(Signal::STOP),
            Victim::Asked => supervisor.signal(Signal::TERM),
            Victim::Deposed | Victim::CutOff => {}
        }
    }

    fn index(&self, name: &str) -> usize {
        self.candidates.iter().position(|(candidate, _)| candidate == name).unwrap()
    }

    fn wait_for_candidates(&self) {
        wait_for("all to stand", || {
            let mut command = support::bare(&["candidates", &self.election, "--json"]);
            command.env("TENURE_STORE", self.ground.url(&self.scene));
            let listed: serde_json::Value = serde_json::from_str(&ran(command).out).ok()?;
            let listed = listed["candidates"].as_array()?;
            let stands = |name: &String| listed.iter().any(|found| found["name"] == **name);
            self.candidates.iter().all(|(name, _)| stands(name)).then_some(())
        });
    }

    /// The `count`th start of a child.
    fn start(&self, count: usize) -> Start {
        let lines = self.scene.lines("starts", count);
        parse(&lines[count - 1])
    }

    fn starts(&self) -> Vec<Start> {
        self.scene.read("starts").lines().map(parse).collect()
    }
}

pub(crate) fn parse(line: &str) -> Start {
    let fields: Vec<&str> = line.split(' ').collect();
    Start {
        at: Duration::from_nanos(fields[0].parse().unwrap()),
        name: fields[1].to_owned(),
        token: fields[2].parse().unwrap(),
        alone: fields[3] == "alone",
    }
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

pub(crate) fn median(spans: &[Duration]) -> Duration {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

pub(crate) fn milliseconds(span: Duration) -> String {
    format!("{:.1}", span.as_secs_f64() * 1000.0)
}

impl Figures {
    pub(crate) fn median(&self) -> Duration {
        median(&self.latencies)
    }

    pub(crate) fn worst(&self) -> Duration {
        *self.latencies.iter().max().unwrap()
    }

    pub(crate) fn add(&mut self, other: Figures) {
        self.latencies.extend(other.latencies);
        self.stops.extend(other.stops);
        self.overlaps += other.overlaps;
    }

    pub(crate) fn row(&self, what: &str) -> String {
        format!(
            "| {what} | {} | {} | {} | {} |",
            self.latencies.len(),
            milliseconds(self.median()),
            milliseconds(self.worst()),
            self.overlaps
        )
    }

    /// How long children lived on, as a row of the table.
    pub(crate) fn stops_row(&self, what: &str) -> String {
        let worst = *self.stops.iter().max().unwrap();
        let (middle, worst) = (milliseconds(median(&self.stops)), milliseconds(worst));
        format!("| {what} | {} | {middle} | {worst} | |", self.stops.len())
    }
}

/// The work of each leader: it logs its start, and tries to take an exclusive lock.
#[test]
#[ignore = "run by the candidates of the other tests"]
pub(crate) fn the_child() {
    let Some(directory) = std::env::var_os(REFEREE).map(std::path::PathBuf::from) else { return };
    let at = now().as_nanos();
    let lock = File::create(directory.join("lock")).unwrap();
    let alone = match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => "alone",
        Err(_) => "overlap",
    };
    let (name, token) =
        (std::env::var("TENURE_ID").unwrap(), std::env::var("TENURE_TOKEN").unwrap());
    let mut starts =
        OpenOptions::new().append(true).create(true).open(directory.join("starts")).unwrap();
    starts.write_all(format!("{at} {name} {token} {alone}\n").as_bytes()).unwrap();
    loop {
        std::thread::park();
    }
}
