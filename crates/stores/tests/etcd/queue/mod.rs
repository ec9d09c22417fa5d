//! Elections that are queues in etcd, on real servers.

mod cluster;
mod elections;
mod faults;
mod grpc_proxy;
mod interop;
mod many;
mod proofs;
mod referee;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tenure::{Backend, Candidacy, Candidate, Election, Key, Leadership, Role};
use tenure_harness::{Etcd, Failure, etcd};
use tenure_stores::OpenOptions;

/// The election of most tests.
pub(crate) const NAME: &str = "jobs/nightly";
/// The prefix of queues.
pub(crate) const PREFIX: &str = "queues";
/// A session that a busy machine keeps, and that a test can wait for.
pub(crate) const TTL: Duration = Duration::from_secs(4);
/// Long enough for servers to elect another leader, and a few proofs of life.
pub(crate) const CALM: Duration = Duration::from_secs(20);
/// Longer than any test waits, so that no lease lapses.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Starts servers.
pub(crate) async fn servers(count: usize) -> Result<Etcd, Failure> {
    Etcd::cluster(count, etcd::Options::default()).await
}

/// Opens a backend that looks like another process to etcd.
pub(crate) async fn process(addresses: &[SocketAddr], ttl: Duration) -> Backend {
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let url = format!("etcd://{}/{PREFIX}", hosts.join(","));
    let options = OpenOptions::default().with_request(Duration::from_secs(5)).with_session(ttl);
    crate::support::open_with(&url, &options).await
}

pub(crate) async fn enter(backend: &Backend) -> Election {
    Election::open(backend, NAME).await.expect("the election opens")
}

/// A candidate of a new process. It is in the queue when this returns.
pub(crate) async fn stand(
    addresses: &[SocketAddr],
    ttl: Duration,
    name: &str,
) -> (Backend, Election, Candidacy) {
    let backend = process(addresses, ttl).await;
    let election = enter(&backend).await;
    let candidacy = stand_in(&election, name).await;
    (backend, election, candidacy)
}

pub(crate) async fn stand_in(election: &Election, name: &str) -> Candidacy {
    let candidacy = election.stand(candidate(name)).expect("it stands");
    in_line(election, name).await;
    candidacy
}

pub(crate) async fn in_line(election: &Election, name: &str) {
    soon(&format!("{name} is in the queue"), async {
        while !names(election).await.iter().any(|found| found == name) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// All candidates in the queue, first to last.
pub(crate) async fn names(election: &Election) -> Vec<String> {
    let found = election.candidates().await.expect("a list");
    found.iter().map(|one| one.name.to_string()).collect()
}

pub(crate) async fn lead(
    addresses: &[SocketAddr],
    ttl: Duration,
    name: &str,
) -> (Backend, Election, Leadership) {
    let backend = process(addresses, ttl).await;
    let election = enter(&backend).await;
    let leader = soon("elected", election.campaign(candidate(name))).await.expect("elected");
    (backend, election, leader)
}

pub(crate) fn candidate(name: &str) -> Candidate {
    Candidate::new(name).expect("a good name")
}

pub(crate) fn key() -> Key {
    Key::election(&NAME.parse().expect("a good name"))
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain until {what}"),
    }
}

/// Lets leaders follow each other, on servers of any age.
///
/// One process has many other elections beside them.
pub(crate) async fn leaders_follow_each_other(addresses: &[SocketAddr]) {
    let (backend, _, first) = lead(addresses, LONG, "a").await;
    let (_other, _, mut waiting) = stand(addresses, LONG, "b").await;
    let names: Vec<String> = (0..150).map(|number| format!("many/{number}")).collect();
    let opened = names.iter().map(|name| Election::open(&backend, name));
    let opened = futures_util::future::try_join_all(opened).await.expect("they open");
    let led = opened.iter().map(|election| election.campaign(candidate("a")));
    let led = soon("all are led", futures_util::future::try_join_all(led)).await;
    assert_eq!(led.expect("they are led").len(), 150);
    let token = first.mandate().token();
    first.resign().await;
    let second = soon("elected", waiting.elected()).await.expect("elected");
    assert!(second.mandate().token() > token);
}

/// A command of etcd's own client.
pub(crate) fn etcdctl(servers: &Etcd, words: &[&str]) -> std::process::Command {
    etcdctl_at(&servers.addresses(), words)
}

pub(crate) fn etcdctl_at(addresses: &[SocketAddr], words: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("etcdctl");
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", hosts.join(","))).args(words);
    command
}

pub(crate) fn ask(servers: &Etcd, words: &[&str]) -> String {
    ask_at(&servers.addresses(), words)
}

pub(crate) fn ask_at(addresses: &[SocketAddr], words: &[&str]) -> String {
    let mut command = etcdctl_at(addresses, words);
    // Its default of five seconds is short on a busy machine.
    let output = command.arg("--command-timeout=60s").output().expect("etcdctl runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The keys under a prefix.
pub(crate) fn keys_under(servers: &Etcd, prefix: &str) -> Vec<String> {
    let listed = ask(servers, &["get", "--prefix", "--keys-only", prefix]);
    listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
