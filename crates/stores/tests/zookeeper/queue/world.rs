//! Servers, proxies before them, and the programs that stand in elections.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tenure::queue::{Freshness, Queue, SessionQueue};
use tenure::{
    Backend, Candidacy, Candidate, Election, Key, Leadership, Mandate, Role, StatusStream,
};
use tenure_harness::{Failure, Framing, Proxy, Zookeeper, zookeeper};
use tenure_stores::OpenOptions;
use tenure_stores::zookeeper::{Client, ClientOptions};

pub(crate) const NAME: &str = "jobs/nightly";
/// The node of that election.
pub(crate) const NODE: &str = "/tests/jobs/nightly";
/// A session long enough for a server to be away and back on a busy machine.
pub(crate) const CALM: Duration = Duration::from_secs(12);
/// A session short enough to wait for its end.
pub(crate) const BRISK: Duration = Duration::from_secs(4);

/// Waits for something to happen, with a limit for a busy machine.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain until {what}"),
    }
}

/// Asks again until the answer is true.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

pub(crate) fn options() -> zookeeper::Options {
    let longest = ("maxSessionTimeout".to_owned(), "60000".to_owned());
    zookeeper::Options { settings: vec![longest], ..zookeeper::Options::default() }
}

pub(crate) async fn single() -> Result<Zookeeper, Failure> {
    Zookeeper::single(options()).await
}

pub(crate) async fn three() -> Result<Zookeeper, Failure> {
    Zookeeper::ensemble(3, options()).await
}

pub(crate) fn proxy(address: SocketAddr) -> Proxy {
    Proxy::start(address, Framing::Zookeeper).expect("a free port")
}

pub(crate) fn url(addresses: &[SocketAddr]) -> String {
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("zookeeper://{}/tests", hosts.join(","))
}

/// A program with its own session.
pub(crate) struct Program {
    pub(crate) backend: Backend,
}

impl Program {
    pub(crate) async fn at(addresses: &[SocketAddr], session: Duration) -> Program {
        Program::of(&url(addresses), session).await
    }

    pub(crate) async fn of(url: &str, session: Duration) -> Program {
        match tenure_stores::open(url, &open_options(session)).await {
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
        let builder = Election::builder(&self.backend, NAME).create_if_missing(true);
        builder.open().await.expect("the election opens")
    }

    pub(crate) async fn lead(&self, name: &str) -> Leadership {
        let election = self.election().await;
        soon("elected", election.campaign(candidate(name))).await.expect("elected")
    }

    /// Stands, and waits until `behind` candidates are before it in the queue.
    pub(crate) async fn stand(&self, name: &str, behind: usize) -> Candidacy {
        let candidacy = self.election().await.stand(candidate(name)).expect("it stands");
        until("it is in the queue", || async {
            self.standing().await.iter().position(|other| other == name) == Some(behind)
        })
        .await;
        candidacy
    }

    /// The names of the candidates in the queue.
    pub(crate) async fn standing(&self) -> Vec<String> {
        let name = |place: &tenure::queue::Place| Some(place.holder.as_ref()?.name.to_string());
        match soon("a look", self.look()).await {
            Queue::Open { places, .. } | Queue::Ended { places, .. } => {
                places.iter().filter_map(name).collect()
            }
            Queue::Missing => Vec::new(),
        }
    }

    pub(crate) async fn look(&self) -> Queue {
        loop {
            if let Ok(queue) = self.queue().look(&key(), Freshness::Session).await {
                return queue;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) fn open_options(session: Duration) -> OpenOptions {
    OpenOptions::default().with_request(Duration::from_secs(10)).with_session(session)
}

pub(crate) fn key() -> Key {
    key_of(NAME)
}

pub(crate) fn key_of(name: &str) -> Key {
    Key::election(&name.parse().expect("a good name"))
}

pub(crate) fn candidate(name: &str) -> Candidate {
    Candidate::new(name).expect("a good name")
}

/// Waits for a role of a candidacy.
pub(crate) async fn sees(what: &str, statuses: &mut StatusStream, is_it: impl Fn(&Role) -> bool) {
    soon(what, async {
        while let Some(status) = statuses.next().await {
            if is_it(&status.role) {
                return;
            }
        }
        panic!("the candidacy is over before {what}");
    })
    .await;
}

/// Another client's session, for the work of operators.
pub(crate) async fn operator(address: SocketAddr) -> Client {
    let client = Client::new(ClientOptions::new([address.to_string()]));
    client.connected(Duration::from_secs(30)).await.expect("it connects");
    client
}

/// The nodes of the candidates in the queue, in order.
pub(crate) async fn nodes(operator: &Client) -> Vec<String> {
    let (mut names, _) = operator.children(NODE).await.expect("the election exists");
    names.retain(|name| !name.starts_with('='));
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names.into_iter().map(|name| format!("{NODE}/{name}")).collect()
}

/// Checks that no two tenures overlap, and that tokens rise.
#[derive(Debug, Default)]
pub(crate) struct Referee {
    tenures: Vec<Mandate>,
}

impl Referee {
    pub(crate) fn saw(&mut self, leadership: &Leadership) {
        let mandate = leadership.mandate();
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
        self.tenures.push(mandate);
    }
}
