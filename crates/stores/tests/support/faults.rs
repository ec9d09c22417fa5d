//! The effects of failing servers on leaders, for any kind of server.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use tenure::store::StoreExt;
use tenure::{Backend, Candidate, Election, Leadership, Timing};
use tenure_harness::{Cluster, Direction, Failure, Framing, Proxy, Version};

use crate::support::open;

/// A kind of server.
pub(crate) trait Servers: Deref<Target = Cluster> + Sized {
    const FRAMING: Framing;
    /// The lease for cases of the suite in which a lease must expire.
    const TTL: Duration = Duration::from_secs(2);

    fn start(count: usize, version: Version) -> impl Future<Output = Result<Self, Failure>>;

    fn url(addresses: &[SocketAddr], prefix: &str) -> String;
}

/// Defines a test on this kind of server for each of the functions below.
macro_rules! failures {
    ($kind:ty) => {
        $crate::faults::failures! { $kind:
            1 a_server_killed_and_back_in_time_costs_nothing
            1 a_server_that_is_away_too_long_costs_the_leadership
            1 a_server_that_stands_still_for_a_moment_costs_nothing
            1 a_claim_whose_answer_is_lost_is_found_by_reading
            1 connections_that_break_cost_nothing
            1 a_connection_that_falls_silent_is_replaced
            1 a_write_that_was_given_up_does_not_happen_later
            1 a_server_that_is_down_is_told_when_opening
            1 a_batch_is_sent_at_once
            3 a_leader_survives_the_leading_server
            3 a_leader_survives_a_leading_server_that_stands_still
            3 two_servers_of_three_are_enough_to_elect
        }
    };
    ($kind:ty: $($count:literal $case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                use $crate::faults::Servers as _;
                let version = tenure_harness::Version::Newest;
                let servers = tenure_harness::require!(<$kind>::start($count, version).await);
                $crate::faults::$case::<$kind>(servers).await;
            }
        )*
    };
}
pub(crate) use failures;

/// Defines one of the functions below as a test on Debian's servers.
macro_rules! smoke {
    ($kind:ty) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn leaders_follow_each_other() {
            use $crate::faults::Servers as _;
            let version = tenure_harness::Version::Debian;
            let servers = tenure_harness::require!(<$kind>::start(1, version).await);
            $crate::faults::leaders_follow_each_other::<$kind>(servers).await;
        }
    };
}
pub(crate) use smoke;

/// A lease long enough for a server to be away and back.
pub(crate) fn calm() -> Timing {
    Timing::new(Duration::from_secs(20)).expect("room for every part")
}

fn brisk() -> Timing {
    Timing::new(Duration::from_secs(3)).expect("room for every part")
}

async fn backend<S: Servers>(addresses: &[SocketAddr], timing: Timing) -> Backend {
    open(&S::url(addresses, "failing"), timing.request()).await
}

async fn enter(backend: &Backend, timing: Timing) -> Election {
    let opened = Election::builder(backend, "jobs/nightly").timing(timing).open().await;
    opened.expect("the election opens")
}

pub(crate) fn candidate(name: &str) -> Candidate {
    Candidate::new(name).expect("a good name")
}

async fn lead<S: Servers>(
    addresses: &[SocketAddr],
    timing: Timing,
    name: &str,
) -> (Backend, Leadership) {
    let backend = backend::<S>(addresses, timing).await;
    let election = enter(&backend, timing).await;
    let leader = soon("elected", election.campaign(candidate(name))).await.expect("elected");
    (backend, leader)
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(40), future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain until {what}"),
    }
}

/// Waits for two more acknowledged renewals: the first may have been under way.
pub(crate) async fn renewed_twice(leader: &Leadership) {
    soon("renewed", leader.mandate().renewed()).await;
    soon("renewed again", leader.mandate().renewed()).await;
}

/// The server is killed and started again; the leader goes on under the same token.
pub(crate) async fn a_server_killed_and_back_in_time_costs_nothing<S: Servers>(servers: S) {
    let (_backend, leader) = lead::<S>(&servers.addresses(), calm(), "a").await;
    let token = leader.mandate().token();
    servers[0].restart().await.expect("it starts again");
    renewed_twice(&leader).await;
    assert!(leader.mandate().is_leader());
    assert_eq!(leader.mandate().token(), token);
}

/// The server stays away: the leader stops by itself, and the next one has a higher token.
pub(crate) async fn a_server_that_is_away_too_long_costs_the_leadership<S: Servers>(servers: S) {
    let (_backend, leader) = lead::<S>(&servers.addresses(), brisk(), "a").await;
    let mandate = leader.mandate();
    servers[0].kill().await.expect("it runs");
    // The call to stop comes first. The leadership ends with its window.
    soon("told to stop", mandate.lost()).await;
    tokio::time::sleep(mandate.remaining()).await;
    assert!(!mandate.is_leader());
    servers[0].restart().await.expect("it starts again");
    let (_other, next) = lead::<S>(&servers.addresses(), brisk(), "b").await;
    assert!(next.mandate().token() > mandate.token());
    assert!(!mandate.is_leader());
}

/// SIGSTOP and SIGCONT within the window.
pub(crate) async fn a_server_that_stands_still_for_a_moment_costs_nothing<S: Servers>(servers: S) {
    let (_backend, leader) = lead::<S>(&servers.addresses(), calm(), "a").await;
    let token = leader.mandate().token();
    servers[0].stop().await.expect("it runs");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(leader.mandate().is_leader());
    servers[0].cont().await.expect("it is there");
    renewed_twice(&leader).await;
    assert_eq!(leader.mandate().token(), token);
}

/// The claim happened, but its answer was lost: reading shows it, and it is not repeated.
pub(crate) async fn a_claim_whose_answer_is_lost_is_found_by_reading<S: Servers>(servers: S) {
    let proxy = Proxy::start(servers[0].address(), S::FRAMING).expect("a proxy");
    let backend = backend::<S>(&[proxy.address()], brisk()).await;
    let election = enter(&backend, brisk()).await;
    // As plain JSON, or as text inside JSON.
    proxy.lose_answer_of(|request| {
        contains(request, b"\"held\"") || contains(request, b"\\\"held\\\"")
    });
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!(leader.mandate().token(), 1);
    renewed_twice(&leader).await;
}

/// Every connection is reset, over and over.
pub(crate) async fn connections_that_break_cost_nothing<S: Servers>(servers: S) {
    let proxy = Proxy::start(servers[0].address(), S::FRAMING).expect("a proxy");
    let (_backend, leader) = lead::<S>(&[proxy.address()], brisk(), "a").await;
    for _ in 0..5 {
        proxy.sever().await;
        soon("renewed", leader.mandate().renewed()).await;
    }
    assert_eq!(leader.mandate().token(), 1);
    assert!(leader.mandate().is_leader());
}

/// A connection stays open but passes nothing: another one is opened, although it never reports an
/// error.
pub(crate) async fn a_connection_that_falls_silent_is_replaced<S: Servers>(servers: S) {
    let proxy = Proxy::start(servers[0].address(), S::FRAMING).expect("a proxy");
    let timing = calm();
    let (backend, leader) = lead::<S>(&[proxy.address()], timing, "a").await;
    let before = proxy.connections().len();
    proxy.blackhole(Direction::ToClient);
    let key = tenure::Key::elections();
    let error = backend.store().get(&key).await.expect_err("nothing comes back");
    assert_eq!(error.fault, tenure::store::Fault::Unavailable);
    tokio::time::sleep(timing.request()).await;
    assert!(proxy.connections().len() > before, "another connection is tried");
    proxy.heal().await;
    renewed_twice(&leader).await;
    assert_eq!(leader.mandate().token(), 1);
}

/// A write that timed out has an unknown outcome. It cannot happen any more once its connection was
/// given up and another one works.
pub(crate) async fn a_write_that_was_given_up_does_not_happen_later<S: Servers>(servers: S) {
    let proxy = Proxy::start(servers[0].address(), S::FRAMING).expect("a proxy");
    let backend = open(&S::url(&[proxy.address()], "failing"), Duration::from_millis(500)).await;
    let key = tenure::Key::parse("elections/late").expect("a good key");
    proxy.cut().await;
    let put = backend.store().put(&key, tenure::store::Expect::Absent, "late".into());
    let error = put.await.expect_err("there is no way to the server");
    println!("{:?}", error.fault);
    proxy.heal().await;
    let direct = open(&S::url(&servers.addresses(), "failing"), Duration::from_secs(5)).await;
    soon("it is connected again", async {
        while backend.store().get(&key).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(direct.store().get(&key).await.expect("it answers"), None);
}

/// Opening fails within the request's time.
pub(crate) async fn a_server_that_is_down_is_told_when_opening<S: Servers>(servers: S) {
    let addresses = servers.addresses();
    servers[0].kill().await.expect("it runs");
    let options = tenure_stores::OpenOptions::default().with_request(Duration::from_secs(1));
    let began = std::time::Instant::now();
    let opened = tenure_stores::open(&S::url(&addresses, "failing"), &options).await;
    let error = opened.expect_err("nobody is there");
    // Far less than the 40 s of other waits; a busy machine may need some of it.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    println!("{}", crate::support::chain(&error));
}

/// The leading member is killed: the leader keeps leading.
pub(crate) async fn a_leader_survives_the_leading_server<S: Servers>(servers: S) {
    let (_backend, leader) = lead::<S>(&servers.addresses(), calm(), "a").await;
    let former = servers.settled(None).await.expect("somebody leads");
    servers[former].kill().await.expect("it runs");
    servers.settled(Some(former)).await.expect("two are enough");
    renewed_twice(&leader).await;
    assert_eq!(leader.mandate().token(), 1);
    assert!(leader.mandate().is_leader());
}

/// The leading member stands still: connections to it stay open and say nothing.
pub(crate) async fn a_leader_survives_a_leading_server_that_stands_still<S: Servers>(servers: S) {
    let (_backend, leader) = lead::<S>(&servers.addresses(), calm(), "a").await;
    let former = servers.settled(None).await.expect("somebody leads");
    servers[former].stop().await.expect("it runs");
    renewed_twice(&leader).await;
    assert_eq!(leader.mandate().token(), 1);
    servers[former].cont().await.expect("it is there");
    renewed_twice(&leader).await;
    assert!(leader.mandate().is_leader());
}

/// One server is gone from the start, and the client may ask it first.
pub(crate) async fn two_servers_of_three_are_enough_to_elect<S: Servers>(servers: S) {
    servers[0].kill().await.expect("it runs");
    servers.settled(Some(0)).await.expect("two are enough");
    for round in 0..6 {
        let (_backend, leader) = lead::<S>(&servers.addresses(), calm(), "a").await;
        assert_eq!(leader.mandate().token(), round + 1);
        leader.resign().await;
    }
}

/// A few leaders follow each other, and a waiting candidate is told.
pub(crate) async fn leaders_follow_each_other<S: Servers>(servers: S) {
    let (first_backend, first) = lead::<S>(&servers.addresses(), calm(), "a").await;
    let other = backend::<S>(&servers.addresses(), calm()).await;
    let election = enter(&other, calm()).await;
    let mut waiting = election.stand(candidate("b")).expect("it stands");
    renewed_twice(&first).await;
    first.resign().await;
    let began = std::time::Instant::now();
    let second = soon("elected", waiting.elected()).await.expect("elected");
    println!("handed over in {:?}", began.elapsed());
    assert_eq!(second.mandate().token(), 2);
    let listed = Election::list(&first_backend).await.expect("a list");
    assert_eq!(listed.len(), 1);
}

/// Sequential round trips, counted in delays of a proxy: a batch takes as many as one document,
/// plus computing.
pub(crate) async fn a_batch_is_sent_at_once<S: Servers>(servers: S) {
    const DELAY: Duration = Duration::from_millis(100);
    // One by one, the documents would take 100 round trips.
    const A_BUSY_MACHINE: f64 = 10.0;
    let proxy = Proxy::start(servers[0].address(), S::FRAMING).expect("a proxy");
    let backend = open(&S::url(&[proxy.address()], "failing"), Duration::from_secs(10)).await;
    let store = backend.store();
    let key =
        |number: usize| tenure::Key::parse(&format!("elections/n{number}")).expect("a good key");
    let write = |number: usize, expect: tenure::store::Expect| tenure::store::Write {
        key: key(number),
        expect,
        body: Some("1".into()),
        durability: tenure::store::Durability::Lasting,
    };
    // Creates the parents of the keys, and warms up the server.
    for _ in 0..5 {
        let warm =
            (1000..1100).map(|number| write(number, tenure::store::Expect::Absent)).collect();
        assert_eq!(store.put_many(warm).await.len(), 100);
    }
    proxy.delay(Direction::ToServer, DELAY / 2);
    proxy.delay(Direction::ToClient, DELAY / 2);
    let trips = |what: &str, began: std::time::Instant, most: f64| {
        let trips = began.elapsed().as_secs_f64() / DELAY.as_secs_f64();
        println!("{what}: {trips:.2} round trips");
        assert!(trips < most + A_BUSY_MACHINE, "{what} took {trips:.2} round trips");
    };
    let now = std::time::Instant::now;
    let began = now();
    let creations = (0..100).map(|number| write(number, tenure::store::Expect::Absent)).collect();
    let created = store.put_many(creations).await;
    trips("100 creations", began, 1.0);
    let versions: Vec<_> = created
        .into_iter()
        .map(|outcome| match outcome {
            Ok(tenure::store::Put::Stored(version)) => version,
            other => panic!("{other:?}"),
        })
        .collect();
    let keys: Vec<_> = (0..100).map(key).collect();
    let began = now();
    assert_eq!(store.get_many(&keys).await.expect("read").len(), 100);
    trips("100 reads", began, 1.0);
    let began = now();
    assert!(store.get(&keys[0]).await.expect("read").is_some());
    trips("a read", began, 1.0);
    let began = now();
    let updates = versions
        .iter()
        .enumerate()
        .map(|(number, version)| write(number, tenure::store::Expect::At(version.clone())));
    let updated = store.put_many(updates.collect()).await;
    assert!(updated.iter().all(|outcome| matches!(outcome, Ok(tenure::store::Put::Stored(_)))));
    trips("100 renewals", began, 1.0);
    let began = now();
    let elections = tenure::Key::elections();
    assert_eq!(store.list(&elections, None, 1000).await.expect("a page").documents.len(), 200);
    trips("a list of 200", began, 2.0);
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
