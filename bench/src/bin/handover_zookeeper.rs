//! The sequential round trips of a handover on ZooKeeper, beside a raw write.
//!
//! `cargo run --release -p tenure-bench --bin handover_zookeeper [HANDOVERS]`
//!
//! A proxy delays every message by 10 ms each way, so a round trip is 20 ms and the speed of the
//! machine hardly matters.

use std::time::{Duration, Instant};

use tenure::{Backend, Candidate, Election};
use tenure_harness::{Direction, Framing, Proxy, Zookeeper, zookeeper};
use tenure_stores::OpenOptions;
use tenure_stores::zookeeper::{Acl, Client, ClientOptions, Lifetime};

type Failure = Box<dyn std::error::Error>;

const ROUND_TRIP: Duration = Duration::from_millis(20);
const SESSION: Duration = Duration::from_secs(15);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let handovers: usize = std::env::args().nth(1).map_or(Ok(50), |text| text.parse())?;
    let longest = ("maxSessionTimeout".to_owned(), "60000".to_owned());
    let options = zookeeper::Options { settings: vec![longest], ..zookeeper::Options::default() };
    let server = Zookeeper::single(options).await?;
    let proxy = Proxy::start(server[0].address(), Framing::Zookeeper)?;
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.delay(direction, ROUND_TRIP / 2);
    }
    let url = format!("zookeeper://{}/bench", proxy.address());
    let programs = [open(&url).await?, open(&url).await?];
    let client = Client::new(ClientOptions::new([proxy.address().to_string()]));
    client.connected(Duration::from_secs(30)).await?;
    client.create("/raw", "0", Lifetime::Lasting, &Acl::open()).await?;

    let election = |program: &Backend| {
        let program = program.clone();
        async move { Election::builder(&program, "handover").create_if_missing(true).open().await }
    };
    let (mut handed, mut written) = (Vec::new(), Vec::new());
    let mut leader = election(&programs[0]).await?.campaign(Candidate::new("0")?).await?;
    for number in 1..=handovers {
        let mut next = election(&programs[number % 2]).await?.stand(Candidate::new("next")?)?;
        // Paced: by now the candidate that has just joined also watches, and a raw write has the
        // wire for itself.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let began = Instant::now();
        client.set_data("/raw", number.to_string(), None).await?;
        written.push(began.elapsed());
        let began = Instant::now();
        let resigned = leader.resign();
        let elected = async {
            let elected = next.elected().await;
            (elected, began.elapsed())
        };
        let (_, (elected, took)) = tokio::join!(resigned, elected);
        handed.push(took);
        leader = elected?;
    }
    leader.resign().await;
    let trips = |span: Duration| span.as_secs_f64() / ROUND_TRIP.as_secs_f64();
    let (handed, written) = (Spread::of(handed), Spread::of(written));
    println!(
        "handover: {:.2} sequential round trips (median of {handovers}), p99 {:.2}",
        trips(handed.median),
        trips(handed.p99)
    );
    println!(
        "raw write: {:.2} round trips, p99 {:.2}; a handover is {:.2} of it",
        trips(written.median),
        trips(written.p99),
        handed.median.as_secs_f64() / written.median.as_secs_f64()
    );
    Ok(())
}

async fn open(url: &str) -> Result<Backend, Failure> {
    let options = OpenOptions::default().with_request(Duration::from_secs(5)).with_session(SESSION);
    Ok(tenure_stores::open(url, &options).await?.backend)
}

struct Spread {
    median: Duration,
    p99: Duration,
}

impl Spread {
    fn of(mut spans: Vec<Duration>) -> Spread {
        spans.sort_unstable();
        let at = |share: usize| spans.get(spans.len() * share / 100).copied().unwrap_or_default();
        Spread { median: at(50), p99: at(99) }
    }
}
