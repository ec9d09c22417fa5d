//! Servers, proxies before them, and the programs that stand in elections.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure::queue::{Line, SessionQueue};
use tenure::{Backend, Candidate, Election, Key, Leadership, Mandate};
use tenure_harness::{Failure, Framing, Proxy, Zookeeper, zookeeper};
use tenure_stores::OpenOptions;
use tenure_stores::zookeeper::{Client, ClientOptions};

pub(crate) const NAME: &str = "jobs/nightly";
/// The node of that election.
pub(crate) const NODE: &str = "/tests/jobs/nightly";
/// As long as these servers grant.
pub(crate) const SESSION: Duration = zookeeper::LONGEST_SESSION;

/// Something will happen; on a busy machine perhaps not soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain until {what}"),
    }
}

/// Asks again until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

pub(crate) async fn single() -> Result<Zookeeper, Failure> {
    Zookeeper::single(zookeeper::Options::default()).await
}

pub(crate) async fn three() -> Result<Zookeeper, Failure> {
    Zookeeper::ensemble(3, zookeeper::Options::default()).await
}

pub(crate) fn proxy(address: SocketAddr) -> Proxy {
    Proxy::start(address, Framing::Zookeeper).expect("a free port")
}

pub(crate) fn url(addresses: &[SocketAddr]) -> String {
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("zookeeper://{}/tests", hosts.join(","))
}

/// A program: its own session.
pub(crate) struct Program {
    pub(crate) backend: Backend,
}

impl Program {
    pub(crate) async fn at(addresses: &[SocketAddr]) -> Program {
        Program::of(&url(addresses)).await
    }

    pub(crate) async fn of(url: &str) -> Program {
        let options =
            OpenOptions::default().with_request(Duration::from_secs(10)).with_session(SESSION);
        match tenure_stores::open(url, &options).await {
            Ok(opened) => Program { backend: opened.backend },
            Err(error) => {
                panic!("{url} does not open: {error}: {:?}", std::error::Error::source(&error))
            }
        }
    }

    pub(crate) fn queue(&self) -> &Arc<dyn SessionQueue> {
        self.backend.queue().expect("ZooKeeper has queues")
    }

    pub(crate) async fn election(&self) -> Election {
        Election::builder(&self.backend, NAME)
            .create_if_missing(true)
            .open()
            .await
            .expect("the election opens")
    }

    pub(crate) async fn lead(&self, name: &str) -> Leadership {
        let election = self.election().await;
        soon("elected", election.campaign(candidate(name))).await.expect("elected")
    }

    /// The names of those in line.
    pub(crate) async fn line(&self) -> Vec<String> {
        match self.queue().look(&key()).await.expect("a look") {
            Line::Open { places, .. } | Line::Ended { places, .. } => places
                .iter()
                .filter_map(|place| Some(place.holder.as_ref()?.name.to_string()))
                .collect(),
            Line::Missing => panic!("there is no such election"),
        }
    }
}

pub(crate) fn key() -> Key {
    Key::election(&NAME.parse().expect("a good name"))
}

pub(crate) fn candidate(name: &str) -> Candidate {
    Candidate::new(name).expect("a good name")
}

/// A session of somebody else, for what operators do.
pub(crate) async fn operator(address: SocketAddr) -> Client {
    let client = Client::new(ClientOptions::new([address.to_string()]).with_session(SESSION));
    client.connected(Duration::from_secs(30)).await.expect("it connects");
    client
}

/// Sees every tenure: no two at a time, and tokens that rise.
#[derive(Debug, Default)]
pub(crate) struct Referee {
    tenures: Vec<Mandate>,
}

impl Referee {
    pub(crate) fn saw(&mut self, leadership: &Leadership) {
        let mandate = leadership.mandate();
        assert!(mandate.is_leader(), "it was elected just now");
        for earlier in &self.tenures {
            assert!(
                !earlier.is_leader(),
                "two leaders: {} and {}",
                earlier.token(),
                mandate.token()
            );
            assert!(
                earlier.token() < mandate.token(),
                "{} after {}",
                mandate.token(),
                earlier.token()
            );
        }
        self.tenures.push(mandate.clone());
    }
}
