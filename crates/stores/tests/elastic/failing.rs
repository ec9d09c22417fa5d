//! Servers that are killed, stopped and cut off under elections.

use std::time::Duration;

use tenure::{Backend, Election, Leadership, Timing};
use tenure_harness::Version;

use crate::chaos::{self, Fault, suffer};
use crate::faults::{Servers, candidate, renewed_twice, soon};
use crate::kind::{Elasticsearch, Opensearch, room};
use crate::support::open;

/// Long enough for a server to be away and back on a busy machine.
fn patient() -> Timing {
    Timing::new(Duration::from_secs(90)).expect("room for every part")
}

fn brisk() -> Timing {
    Timing::new(Duration::from_secs(8)).expect("room for every part")
}

/// Leads as soon as the store serves: a server that was just started takes its time.
async fn lead(url: &str, timing: Timing, name: &str) -> (Backend, Leadership) {
    let backend = open(url, timing.request()).await;
    loop {
        let election = Election::builder(&backend, "jobs/nightly").timing(timing).open().await;
        match election {
            Ok(election) => {
                let campaign = election.campaign(candidate(name)).await;
                return (backend, campaign.expect("elected"));
            }
            Err(error) => println!("not yet: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// In one life of a server: it is killed and back in time; stands still for a moment; is away for too long.
async fn a_server_comes_and_goes<S: Servers>() {
    let _room = room().await;
    let started = S::start(1, Version::Newest).await;
    let Some(servers) = tenure_harness::available(started) else { return };
    let url = S::url(&servers.addresses(), "failing");

    let (_backend, leader) = soon("elected", lead(&url, patient(), "a")).await;
    let mandate = leader.mandate();
    servers[0].restart().await.expect("it starts again");
    renewed_twice(&leader).await;
    servers[0].stop().await.expect("it runs");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(mandate.is_leader());
    servers[0].cont().await.expect("it is there");
    renewed_twice(&leader).await;
    assert!(mandate.is_leader() && mandate.token() == 1);
    leader.resign().await;

    let (_backend, leader) = soon("elected again", lead(&url, brisk(), "b")).await;
    let mandate = leader.mandate();
    servers[0].kill().await.expect("it runs");
    // "Must stop" comes first; it is over when the window is.
    soon("told to stop", mandate.lost()).await;
    tokio::time::sleep(mandate.remaining()).await;
    assert!(!mandate.is_leader());
    servers[0].restart().await.expect("it starts again");
    let (_backend, next) = soon("the next one elected", lead(&url, brisk(), "c")).await;
    assert!(next.mandate().token() > mandate.token());
    assert!(!mandate.is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_elasticsearch_that_is_back_in_time_costs_nothing_and_else_the_leadership() {
    a_server_comes_and_goes::<Elasticsearch>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opensearch_that_is_back_in_time_costs_nothing_and_else_the_leadership() {
    a_server_comes_and_goes::<Opensearch>().await;
}

/// Three servers, twenty elections; the one with the primary copy is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_killed_never_makes_two() {
    let _room = room().await;
    let Some(figures) = suffer::<Elasticsearch>(Fault::Killed, 1).await else { return };
    println!("{}", figures.row(Fault::Killed));
    assert_eq!((figures.overlaps, figures.regressions), (0, 0), "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/campaign runs it"]
async fn campaign() {
    chaos::campaign::<Elasticsearch>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/campaign runs it"]
async fn campaign_on_opensearch() {
    chaos::campaign::<Opensearch>().await;
}
