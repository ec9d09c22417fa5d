//! Servers that are killed, stopped and cut off under elections.

use std::time::Duration;

use tenure::{Backend, Election, Leadership, Timing};
use tenure_harness::Version;

use crate::chaos::{self, Fault, suffer};
use crate::faults::{Servers, candidate, soon};
use crate::kind::{Elasticsearch, Opensearch, room};
use crate::support::open;

/// A lease long enough for a server to be away and back on a busy machine.
fn patient() -> Timing {
    Timing::new(Duration::from_secs(90)).expect("room for every part")
}

fn brisk() -> Timing {
    Timing::new(Duration::from_secs(8)).expect("room for every part")
}

/// Leads as soon as the store serves: a server that was just started needs time.
async fn lead(url: &str, election: &str, timing: Timing, name: &str) -> (Backend, Leadership) {
    let backend = open(url, timing.request()).await;
    loop {
        match Election::builder(&backend, election).timing(timing).open().await {
            Ok(election) => {
                let campaign = election.campaign(candidate(name)).await;
                return (backend, campaign.expect("elected"));
            }
            Err(error) => println!("not yet: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One server stands still for a moment, and is then killed and restarted. It is away for longer
/// than one leader's window, and back in time for another's.
async fn a_server_comes_and_goes<S: Servers>() {
    let _room = room(1).await;
    let started = S::start(1, Version::Newest).await;
    let Some(servers) = tenure_harness::available(started) else { return };
    let url = S::url(&servers.addresses(), "away");
    let (_patient, keeps) = soon("elected", lead(&url, "jobs/patient", patient(), "a")).await;
    let kept = keeps.mandate();
    servers[0].stop().await.expect("it runs");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(kept.is_leader());
    servers[0].cont().await.expect("it is there");
    soon("renewed by a server that goes on", kept.renewed()).await;

    let (_brisk, loses) = soon("elected too", lead(&url, "jobs/brisk", brisk(), "b")).await;
    let lost = loses.mandate();
    servers[0].kill().await.expect("it runs");
    // The call to stop comes first. The leadership ends with its window.
    soon("told to stop", lost.lost()).await;
    tokio::time::sleep(lost.remaining()).await;
    assert!(!lost.is_leader());
    servers[0].restart().await.expect("it starts again");
    // Requests under way when it was killed have failed long ago.
    let renewed = soon("renewed by a server that is back", kept.renewed());
    let next = soon("the next one elected", lead(&url, "jobs/brisk", brisk(), "c"));
    let ((), (_next, next)) = tokio::join!(renewed, next);
    assert!(kept.is_leader() && kept.token() == 1);
    assert!(next.mandate().token() > lost.token());
    assert!(!lost.is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_elasticsearch_that_is_back_in_time_costs_nothing_and_else_the_leadership() {
    a_server_comes_and_goes::<Elasticsearch>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opensearch_that_is_back_in_time_costs_nothing_and_else_the_leadership() {
    a_server_comes_and_goes::<Opensearch>().await;
}

/// Three servers, twenty elections: the server with the primary copy is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_killed_never_makes_two() {
    let _room = room(3).await;
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
