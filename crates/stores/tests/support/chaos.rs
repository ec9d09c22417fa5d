//! Servers fail under twenty elections at once, and a referee records the leaders.
//!
//! Three handles stand for three processes: each has connections of its own and stands in every
//! election. Two rounds of each fault run with the tests, `scripts/campaign` runs more and prints
//! the figures.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure::{Backend, Candidate, CandidateId, Election, Mandate, Timing};
use tenure_harness::{Cluster, Direction, Failure, Proxy, Version};

use crate::faults::Servers;
use crate::support::open;

/// A kind of server that can be cut off from others of its kind.
pub(crate) trait Apart: Servers {
    /// The lease under chaos. It is as short as a session may be on servers that count in ticks,
    /// and long enough for a busy machine.
    const CHAOS_TTL: Duration = Duration::from_secs(4);

    /// Starts servers, each in a network of its own.
    fn start_apart(count: usize, version: Version) -> impl Future<Output = Result<Self, Failure>>;
}

/// The number of elections that one fault strikes. Each of them counts as a round.
pub(crate) const ELECTIONS: usize = 20;
const PROCESSES: usize = 3;
/// The time after which a wait counts as hung.
const LONGEST: Duration = Duration::from_secs(120);

/// A fault of the leading server, or of the process that leads most elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Killed, and started again afterwards.
    Killed,
    /// Stopped, and continued afterwards.
    Stopped,
    /// Cut off from the other servers; its clients still reach it.
    CutOff,
    /// The process is cut off from all servers. Its connections stay open, and nothing passes.
    ProcessCutOff,
}

impl Fault {
    pub(crate) const ALL: [Fault; 4] =
        [Fault::Killed, Fault::Stopped, Fault::CutOff, Fault::ProcessCutOff];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Killed => "leading server killed (kill -9)",
            Fault::Stopped => "leading server stopped (SIGSTOP)",
            Fault::CutOff => "leading server cut off from the others",
            Fault::ProcessCutOff => "leading process cut off from all servers",
        })
    }
}

/// The results of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) rounds: usize,
    /// Elections that changed hands because of a fault.
    pub(crate) changes: usize,
    /// How long an election had no leader, each time it changed hands.
    pub(crate) gaps: Vec<Duration>,
    pub(crate) overlaps: usize,
    pub(crate) regressions: usize,
    /// The leaders of every election with an overlap or a regression, and their times.
    pub(crate) report: Vec<String>,
}

impl Figures {
    /// Fails if there were two leaders at once, or a token that did not rise.
    pub(crate) fn assert_safe(&self) {
        let bad = self.overlaps + self.regressions;
        let Figures { overlaps, regressions, report, .. } = self;
        assert_eq!(
            bad,
            0,
            "{overlaps} overlaps and {regressions} token regressions; milliseconds since the referee began:\n{}",
            report.join("\n")
        );
    }

    pub(crate) fn row(&self, fault: Fault) -> String {
        let mut gaps = self.gaps.clone();
        gaps.sort_unstable();
        let at =
            |gap: Option<&Duration>| gap.map_or("–".into(), |gap| gap.as_millis().to_string());
        format!(
            "| {fault} | {} | {} | {} | {} | {} | {} |",
            self.rounds,
            self.changes,
            at(gaps.get(gaps.len() / 2)),
            at(gaps.last()),
            self.overlaps,
            self.regressions
        )
    }
}

/// The mandates in each election, by process.
type Seats = Vec<[Mutex<Option<Mandate>>; PROCESSES]>;

/// When a tenure was first and last seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Instant,
    last: Instant,
}

/// A tenure that its winner has reported.
#[derive(Clone, Debug)]
struct Won {
    token: u64,
    process: usize,
    candidate: CandidateId,
    at: Instant,
}

/// The tenures of each election, in the order of their reports.
type Wins = Vec<Vec<Won>>;

#[derive(Debug)]
struct Books {
    began: Instant,
    /// By election and token.
    tenures: Vec<BTreeMap<u64, Seen>>,
    won: Wins,
}

impl Books {
    /// Every tenure of one election: its token, winner and start, and when it was seen.
    fn report(&self, election: usize) -> String {
        let at = |moment: Instant| {
            format!("{:.3}", moment.saturating_duration_since(self.began).as_secs_f64() * 1e3)
        };
        let (tenures, won) = (&self.tenures[election], &self.won[election]);
        let seen = |token: &u64| match tenures.get(token) {
            Some(seen) => format!("seen leading from {} to {}", at(seen.first), at(seen.last)),
            None => "never seen leading".to_owned(),
        };
        let told = won.iter().map(|Won { token, process, candidate, at: when }| {
            format!(
                "  {token}: process {process}, {candidate}, won at {}, {}",
                at(*when),
                seen(token)
            )
        });
        let untold = tenures.keys().filter(|token| won.iter().all(|won| won.token != **token));
        let untold = untold.map(|token| format!("  {token}: nobody reported it, {}", seen(token)));
        let lines: Vec<String> = told.chain(untold).collect();
        format!("election {election}, in the order of being won:\n{}", lines.join("\n"))
    }
}

/// Applies a fault `times` times. Waits for leaders in all elections each time.
pub(crate) async fn suffer<S: Apart>(fault: Fault, times: usize) -> Option<Figures> {
    let servers = match fault {
        Fault::CutOff => S::start_apart(3, Version::Newest).await,
        Fault::Killed | Fault::Stopped | Fault::ProcessCutOff => S::start(3, Version::Newest).await,
    };
    let servers = tenure_harness::available(servers)?;
    let seats: Arc<Seats> = Arc::new((0..ELECTIONS).map(|_| Default::default()).collect());
    let won: Arc<Mutex<Wins>> = Arc::new(Mutex::new(vec![Vec::new(); ELECTIONS]));
    let began = Instant::now();
    let mut ways = Vec::new();
    let mut standing = Vec::new();
    for process in 0..PROCESSES {
        let way: Vec<Proxy> = servers
            .addresses()
            .into_iter()
            .map(|address| Proxy::start(address, S::FRAMING).expect("a proxy"))
            .collect();
        let addresses: Vec<_> = match fault {
            Fault::ProcessCutOff => way.iter().map(Proxy::address).collect(),
            Fault::Killed | Fault::Stopped | Fault::CutOff => servers.addresses(),
        };
        ways.push(way);
        let timing = Timing::new(S::CHAOS_TTL).expect("room for every part");
        let backend = open(&S::url(&addresses, "chaos"), timing.request()).await;
        for election in 0..ELECTIONS {
            let (seats, won) = (seats.clone(), won.clone());
            let candidate = stand(backend.clone(), timing, election, process, seats, won);
            standing.push(tokio::spawn(candidate));
        }
    }
    let referee = Referee::watch(seats.clone());
    everybody_is_led(&seats).await;
    let mut figures = Figures::default();
    for _ in 0..times {
        let before = leaders(&seats);
        figures.rounds += match fault {
            Fault::ProcessCutOff => cut_a_process_off(&ways, &seats, S::CHAOS_TTL).await,
            Fault::Killed | Fault::Stopped | Fault::CutOff => {
                strike(&servers, fault, &seats, S::CHAOS_TTL).await;
                ELECTIONS
            }
        };
        // Reveals leaders that kept their belief during the fault.
        tokio::time::sleep(S::CHAOS_TTL / 2).await;
        everybody_is_led(&seats).await;
        let after = leaders(&seats);
        figures.changes += before.iter().zip(&after).filter(|(was, is)| was != is).count();
    }
    standing.iter().for_each(tokio::task::JoinHandle::abort);
    let tenures = referee.books();
    let won = std::mem::take(&mut *won.lock().unwrap_or_else(PoisonError::into_inner));
    judge(&Books { began, tenures, won }, &mut figures);
    Some(figures)
}

/// Makes the leading server fail until all elections have leaders. Then lets it come back.
async fn strike(servers: &Cluster, fault: Fault, seats: &Seats, ttl: Duration) {
    let victim = servers.settled(None).await.expect("one of the servers leads");
    let server = &servers[victim];
    match fault {
        Fault::Killed => server.kill().await.expect("it runs"),
        Fault::Stopped => server.stop().await.expect("it runs"),
        Fault::CutOff | Fault::ProcessCutOff => {
            servers.isolate(victim).expect("it can be cut off");
        }
    }
    servers.settled(Some(victim)).await.expect("two are enough");
    // Longer than any session or lease lasts without renewal.
    tokio::time::sleep(ttl * 3 / 2).await;
    everybody_is_led(seats).await;
    match fault {
        Fault::Killed => {
            server.start().expect("it starts again");
            server.ready().await.expect("it is ready");
        }
        Fault::Stopped => server.cont().await.expect("it is there"),
        Fault::CutOff | Fault::ProcessCutOff => servers.rejoin(victim).expect("it can rejoin"),
    }
    servers.settled(None).await.expect("one of the servers leads");
}

/// Cuts off the process that leads most, until others lead all elections.
///
/// Returns how many elections that process had led.
async fn cut_a_process_off(ways: &[Vec<Proxy>], seats: &Seats, ttl: Duration) -> usize {
    let led = |process: usize| {
        let leads = |election: &[Mutex<Option<Mandate>>; PROCESSES]| {
            seat(&election[process]).as_ref().is_some_and(Mandate::is_leader)
        };
        seats.iter().filter(|election| leads(election)).count()
    };
    let victim = (0..PROCESSES).max_by_key(|process| led(*process)).expect("there are some");
    let had_led = led(victim);
    for way in &ways[victim] {
        way.blackhole(Direction::ToServer);
        way.blackhole(Direction::ToClient);
    }
    tokio::time::sleep(ttl * 3 / 2).await;
    everybody_is_led(seats).await;
    assert_eq!(led(victim), 0, "nobody proves anything through a way on which nothing passes");
    for way in &ways[victim] {
        way.heal().await;
    }
    had_led
}

fn judge(books: &Books, figures: &mut Figures) {
    for (election, (tenures, won)) in books.tenures.iter().zip(&books.won).enumerate() {
        let in_order: Vec<&Seen> = tenures.values().collect();
        let mut overlaps = 0;
        for pair in in_order.windows(2) {
            match pair[1].first.checked_duration_since(pair[0].last) {
                Some(gap) => figures.gaps.push(gap),
                None => overlaps += 1,
            }
        }
        let falls = |pair: &&[Won]| pair[1].token <= pair[0].token;
        let regressions = won.windows(2).filter(falls).count();
        if overlaps + regressions > 0 {
            figures.report.push(books.report(election));
        }
        figures.overlaps += overlaps;
        figures.regressions += regressions;
    }
}

/// Stands in one election as one process, again and again.
///
/// Every other time it keeps a lost leadership until the mandate ends.
async fn stand(
    backend: Backend,
    timing: Timing,
    election: usize,
    process: usize,
    seats: Arc<Seats>,
    won: Arc<Mutex<Wins>>,
) {
    let name = format!("chaos/e{election}");
    let mut clings = (election + process).is_multiple_of(2);
    loop {
        let opened = Election::builder(&backend, &name).timing(timing).create_if_missing(true);
        let Ok(opened) = opened.open().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let candidate = Candidate::new(&format!("process-{process}")).expect("a good name");
        let Ok(leadership) = opened.campaign(candidate).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mandate = leadership.mandate();
        let (token, candidate) = (mandate.token(), leadership.id());
        let win = Won { token, process, candidate, at: Instant::now() };
        won.lock().unwrap_or_else(PoisonError::into_inner)[election].push(win);
        *seat(&seats[election][process]) = Some(mandate.clone());
        mandate.lost().await;
        while clings && mandate.is_leader() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        clings = !clings;
        drop(leadership);
    }
}

fn seat(seat: &Mutex<Option<Mandate>>) -> std::sync::MutexGuard<'_, Option<Mandate>> {
    seat.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The leading token of each election, as its leader believes.
fn leaders(seats: &Seats) -> Vec<Option<u64>> {
    let led = |election: &[Mutex<Option<Mandate>>; PROCESSES]| {
        let leading = |one: &Mutex<Option<Mandate>>| {
            seat(one).as_ref().filter(|mandate| mandate.is_leader()).map(Mandate::token)
        };
        election.iter().filter_map(leading).max()
    };
    seats.iter().map(led).collect()
}

async fn everybody_is_led(seats: &Seats) {
    let led = async {
        while leaders(seats).iter().any(Option::is_none) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(LONGEST, led).await.is_err() {
        panic!("waited in vain until every election is led: {:?}", leaders(seats));
    }
}

/// Watches all mandates, again and again, on a thread of its own.
struct Referee {
    over: Arc<AtomicBool>,
    watching: std::thread::JoinHandle<Vec<BTreeMap<u64, Seen>>>,
}

impl Referee {
    fn watch(seats: Arc<Seats>) -> Referee {
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let watching = std::thread::spawn(move || {
            let mut books = vec![BTreeMap::new(); ELECTIONS];
            while !until.load(Ordering::Relaxed) {
                for (election, book) in seats.iter().zip(&mut books) {
                    election.iter().for_each(|one| look(&seat(one), book));
                }
                std::thread::sleep(Duration::from_micros(500));
            }
            books
        });
        Referee { over, watching }
    }

    fn books(self) -> Vec<BTreeMap<u64, Seen>> {
        self.over.store(true, Ordering::Relaxed);
        self.watching.join().expect("the referee does not fail")
    }
}

/// Records a tenure while its mandate is valid.
///
/// `first` is never too early, and `last` never too late.
fn look(mandate: &Option<Mandate>, book: &mut BTreeMap<u64, Seen>) {
    let Some(mandate) = mandate else { return };
    let before = Instant::now();
    if !mandate.is_leader() {
        return;
    }
    let after = Instant::now();
    book.entry(mandate.token()).or_insert(Seen { first: after, last: before }).last = before;
}

#[test]
fn the_referee_sees_two_leaders_at_once_and_tokens_that_fall() {
    let now = Instant::now();
    let seen = |first: u64, last: u64| Seen {
        first: now + Duration::from_millis(first),
        last: now + Duration::from_millis(last),
    };
    let won = |token: u64| {
        let at = now + Duration::from_millis(token);
        Won { token, process: 2, candidate: CandidateId::from_bits(7), at }
    };
    let tenures = vec![
        BTreeMap::from([(1, seen(0, 10)), (2, seen(9, 30)), (3, seen(31, 40))]),
        BTreeMap::from([(5, seen(0, 10))]),
    ];
    let wins = vec![vec![won(1), won(2), won(2)], vec![won(5)]];
    let mut figures = Figures::default();
    judge(&Books { began: now, tenures, won: wins }, &mut figures);
    assert_eq!((figures.overlaps, figures.regressions), (1, 1));
    assert_eq!(figures.gaps, [Duration::from_millis(1)]);
    let candidate = "00000000000000000000000000000007";
    let line = |token: u64, first: u64, last: u64| {
        let won = format!("  {token}: process 2, {candidate}, won at {token}.000");
        format!("{won}, seen leading from {first}.000 to {last}.000")
    };
    let expected = [
        "election 0, in the order of being won:".to_owned(),
        line(1, 0, 10),
        line(2, 9, 30),
        line(2, 9, 30),
        "  3: nobody reported it, seen leading from 31.000 to 40.000".to_owned(),
    ];
    assert_eq!(figures.report, [expected.join("\n")], "the other election was in order");
}

/// Defines tests with two rounds of each fault, and the campaign.
macro_rules! chaos {
    ($kind:ty) => {
        use $crate::chaos::{Fault, suffer};

        async fn twice(fault: Fault) {
            let Some(figures) = suffer::<$kind>(fault, 2).await else { return };
            println!("{}", figures.row(fault));
            figures.assert_safe();
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_leading_server_killed_never_makes_two() {
            twice(Fault::Killed).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_leading_server_stopped_never_makes_two() {
            twice(Fault::Stopped).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_leading_server_cut_off_never_makes_two() {
            twice(Fault::CutOff).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_leading_process_cut_off_never_makes_two() {
            twice(Fault::ProcessCutOff).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "scripts/campaign runs it"]
        async fn campaign() {
            $crate::chaos::campaign::<$kind>().await;
        }
    };
}
pub(crate) use chaos;

/// Runs many rounds of every fault, and prints the rows of a table.
pub(crate) async fn campaign<S: Apart>() {
    let rounds: usize =
        std::env::var("TENURE_ROUNDS").map_or(100, |rounds| rounds.parse().expect("a number"));
    println!(
        "| what happened | rounds | changed hands | median gap ms | worst gap ms | overlaps | token regressions |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let mut all = Figures::default();
    for fault in Fault::ALL {
        // A process leads at least a third of the elections.
        let share = if fault == Fault::ProcessCutOff { ELECTIONS / PROCESSES } else { ELECTIONS };
        let Some(figures) = suffer::<S>(fault, rounds.div_ceil(share)).await else { return };
        println!("{}", figures.row(fault));
        all.overlaps += figures.overlaps;
        all.regressions += figures.regressions;
        all.report.extend(figures.report);
    }
    all.assert_safe();
}
