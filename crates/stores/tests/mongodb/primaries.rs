//! Primaries that fail while elections run, and leaders that are cut off with them.
//!
//! The tests run one failure of each kind, in each of two orders; `scripts/campaign` runs more and
//! prints the figures. One failure under twenty elections counts as twenty rounds.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::{Backend, Candidate, Election, Leadership, Mandate, Timing};
use tenure_conformance::suite::Faulty;
use tenure_harness::mongodb::Value::{Array, Int, Map, Text};
use tenure_harness::mongodb::{Options, command};
use tenure_harness::{Mongodb, available};
use tokio::task::JoinSet;

use crate::faults::Servers as _;
use crate::kind::Kind;
use crate::support::open;

const ELECTIONS: usize = 20;
const PROCESSES: usize = 3;
/// The time that a busy machine may add to the times that the protocol promises.
const SLACK: Duration = Duration::from_secs(15);

/// A failure of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Killed,
    Stopped,
    Isolated,
    SteppedDown,
}

const FATES: [Fate; 4] = [Fate::Killed, Fate::Isolated, Fate::Stopped, Fate::SteppedDown];

fn timing() -> Timing {
    Timing::new(Duration::from_secs(4)).expect("room for every part")
}

/// Sees every tenure of every process, all of which run in this one.
#[derive(Debug, Default)]
struct Referee {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    tenures: HashMap<usize, Vec<Tenure>>,
    breaches: Vec<String>,
}

#[derive(Clone, Debug)]
struct Tenure {
    process: usize,
    mandate: Mandate,
}

impl Referee {
    /// Records a tenure. A tenure never comes back once it is over, so checking its beginning is
    /// enough.
    fn elected(&self, election: usize, process: usize, mandate: Mandate) {
        let mut book = self.lock();
        let Book { tenures, breaches } = &mut *book;
        let earlier = tenures.entry(election).or_default();
        let token = mandate.token();
        for rival in earlier.iter() {
            let other = rival.mandate.token();
            // Valid before and after the check of the rival: both led at once.
            let first = mandate.is_leader();
            if first && rival.mandate.is_leader() && mandate.is_leader() {
                breaches.push(format!("election {election}: {token} beside {other}"));
            }
            if other >= token {
                breaches.push(format!("election {election}: {token} after {other}"));
            }
        }
        earlier.push(Tenure { process, mandate });
    }

    /// The process that leads now, and its token.
    fn leader(&self, election: usize) -> Option<(usize, u64)> {
        let book = self.lock();
        let latest = book.tenures.get(&election)?.last()?;
        latest.mandate.is_leader().then(|| (latest.process, latest.mandate.token()))
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stands forever.
async fn stand(backend: Backend, number: usize, process: usize, referee: Arc<Referee>) {
    let name = format!("jobs/n{number}");
    let pause = || tokio::time::sleep(Duration::from_millis(200));
    let mut held: Option<Leadership> = None;
    loop {
        let elected = match held.take() {
            Some(former) => former.regain().await,
            None => {
                let opened = Election::builder(&backend, &name).timing(timing()).open().await;
                let candidate = Candidate::new(&format!("p{process}")).expect("a good name");
                match opened {
                    Ok(election) => election.campaign(candidate).await,
                    Err(error) => Err(error),
                }
            }
        };
        match elected {
            Ok(leader) => {
                referee.elected(number, process, leader.mandate());
                leader.lost().await;
                held = Some(leader);
            }
            // The store was away for too long, or opening the election failed.
            Err(_) => pause().await,
        }
    }
}

async fn all_are_led(referee: &Referee, except: Option<usize>, limit: Duration) -> Duration {
    let began = Instant::now();
    loop {
        let led = |election| {
            let leader = referee.leader(election);
            leader.is_some_and(|(process, _)| Some(process) != except)
        };
        let missing: Vec<usize> = (0..ELECTIONS).filter(|election| !led(*election)).collect();
        if missing.is_empty() {
            return began.elapsed();
        }
        assert!(began.elapsed() < limit, "nobody leads {missing:?} after {limit:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The process that leads most elections.
fn strongest(referee: &Referee) -> usize {
    let leads = |process: usize| {
        let leaders = (0..ELECTIONS).filter_map(|election| referee.leader(election));
        leaders.filter(|(leader, _)| *leader == process).count()
    };
    (0..PROCESSES).max_by_key(|process| leads(*process)).expect("there are some")
}

async fn fail(servers: &Mongodb, former: usize, fate: Fate) {
    match fate {
        Fate::Killed => servers[former].kill().await,
        Fate::Stopped => servers[former].stop().await,
        Fate::Isolated => servers.isolate(former),
        Fate::SteppedDown => servers.step_down(former, Duration::from_secs(20)).await,
    }
    .expect("it was primary");
}

#[derive(Clone, Copy, Debug)]
enum Keepers {
    Majority,
    All,
}

/// Waits until `keepers` of the members keep writes again. After an election its members first
/// choose a source to follow.
async fn writes_again(primary: SocketAddr, keepers: Keepers) {
    let began = Instant::now();
    loop {
        let keeping = match keepers {
            Keepers::Majority => Text("majority".to_owned()),
            Keepers::All => Int(3),
        };
        let concern = Map(vec![("w", keeping), ("wtimeout", Int(1000))]);
        let asked = [
            ("insert", Text("probe".to_owned())),
            ("documents", Array(vec![Map(Vec::new())])),
            ("writeConcern", concern),
        ];
        let answer = command(primary, "probe", &asked, Duration::from_secs(2)).await;
        let doubtful = |words: String| words.contains("writeConcernError");
        if answer.is_ok_and(|answer| answer.is_ok() && !doubtful(answer.words())) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "not kept by {keepers:?}: a write");
    }
}

async fn recover(servers: &Mongodb, former: usize, fate: Fate) {
    match fate {
        Fate::Killed => servers[former].restart().await,
        Fate::Stopped => servers[former].cont().await,
        Fate::Isolated => servers.rejoin(former),
        Fate::SteppedDown => Ok(()),
    }
    .expect("it comes back");
    servers.ready().await.expect("all of them are back");
    // A former primary may still undo writes that only it has: it reads from the next primary then,
    // for minutes if that one is isolated, and meanwhile no majority keeps a write.
    let primary = servers.settled(None).await.expect("one primary");
    writes_again(servers[primary].address(), Keepers::All).await;
}

/// The times until all elections had leaders, after the majority took writes again.
async fn withstand(fates: impl Iterator<Item = Fate>) -> Vec<(Fate, Duration)> {
    let options = Options { partitions: true, ..Options::default() };
    let Some(servers) = available(Mongodb::set(3, options).await) else { return Vec::new() };
    let mut spans = Vec::new();
    let url = Kind::url(&servers.addresses(), "primaries");
    let referee = Arc::new(Referee::default());
    let mut ways = Vec::new();
    let mut tasks = JoinSet::new();
    for process in 0..PROCESSES {
        let faulty = Faulty::new(open(&url, timing().request()).await.store().clone());
        let backend = Backend::new(faulty.clone());
        for election in 0..ELECTIONS {
            tasks.spawn(stand(backend.clone(), election, process, referee.clone()));
        }
        ways.push(faulty);
    }
    let promised =
        timing().ttl().mul_f64(1.25 * 1.1) + timing().poll(false) + timing().request() * 2;
    all_are_led(&referee, None, promised + SLACK).await;
    for fate in fates {
        let former = servers.settled(None).await.expect("one primary");
        let victim = strongest(&referee);
        ways[victim].cut();
        fail(&servers, former, fate).await;
        let began = Instant::now();
        let next = servers.settled(Some(former)).await.expect("two of three are enough");
        let elected = began.elapsed();
        writes_again(servers[next].address(), Keepers::Majority).await;
        let away = began.elapsed();
        let taken = all_are_led(&referee, Some(victim), promised + SLACK).await;
        println!(
            "{fate:?}: another primary after {elected:?}, which has a majority after {away:?}; \
             all taken over {taken:?} later"
        );
        spans.push((fate, taken));
        ways[victim].heal();
        recover(&servers, former, fate).await;
        all_are_led(&referee, None, promised + SLACK).await;
        let breaches = referee.lock().breaches.clone();
        assert!(breaches.is_empty(), "{fate:?}: {breaches:?}");
    }
    let tenures: usize = referee.lock().tenures.values().map(Vec::len).sum();
    println!("{tenures} tenures, none overlapped, no token came back");
    tasks.abort_all();
    spans
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_leads_twice_while_primaries_fail() {
    withstand(FATES.into_iter()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_leads_twice_while_primaries_fail_in_another_order() {
    withstand(FATES.into_iter().rev()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/campaign runs it"]
async fn campaign() {
    let rounds: usize =
        std::env::var("TENURE_ROUNDS").map_or(50, |rounds| rounds.parse().expect("a number"));
    let strikes = rounds.div_ceil(ELECTIONS);
    // A breach ends the campaign, so all printed rows are without breaches.
    let spans = withstand(FATES.into_iter().cycle().take(FATES.len() * strikes)).await;
    println!(
        "| what happened to the primary | rounds | until all are led: median ms | worst ms | overlaps |"
    );
    println!("|---|---:|---:|---:|---:|");
    for fate in FATES {
        let mut of: Vec<Duration> =
            spans.iter().filter(|(other, _)| *other == fate).map(|(_, span)| *span).collect();
        of.sort_unstable();
        let Some(worst) = of.last() else { continue };
        let (middle, worst) = (of[of.len() / 2].as_millis(), worst.as_millis());
        println!("| {fate:?} | {} | {middle} | {worst} | 0 |", of.len() * ELECTIONS);
    }
}
