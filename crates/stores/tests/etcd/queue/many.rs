//! Many candidates in one queue, and many elections of one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::referee::Referee;
use super::*;
use futures_util::future::{join_all, try_join_all};
use tenure::Error;
use tenure::queue::{Freshness, Queue};
use tenure_harness::{Direction, Framing, Proxy, require};

const CANDIDATES: usize = 1000;
const PROCESSES: usize = 20;

/// Candidates of several processes, each behind one of another process.
///
/// Returns once `at_least` of them are in the queue.
async fn crowd(
    servers: &Etcd,
    addresses: &[SocketAddr],
    at_least: usize,
) -> (Vec<Backend>, Vec<Candidacy>) {
    let backends = join_all((0..PROCESSES).map(|_| process(addresses, LONG))).await;
    let elections = join_all(backends.iter().map(enter)).await;
    let stand = |number: usize| {
        let election = &elections[number % PROCESSES];
        election.stand(candidate(&format!("c{number}"))).expect("it stands")
    };
    let candidacies: Vec<Candidacy> = (0..CANDIDATES).map(stand).collect();
    let began = Instant::now();
    soon("everybody is in the queue", async {
        while keys_under(servers, &format!("{PREFIX}/{NAME}/")).len() < at_least {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    })
    .await;
    println!(
        "{at_least} of {CANDIDATES} candidates of {PROCESSES} processes in the queue after {:?}",
        began.elapsed()
    );
    (backends, candidacies)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_candidates_leave_at_the_end_and_nothing_is_left() {
    race(CANDIDATES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_candidates_race_an_end_and_nothing_is_left() {
    race(CANDIDATES / 4).await;
}

/// Deletes the election as soon as `at_least` candidates are in the queue.
async fn race(at_least: usize) {
    let servers = require!(servers(1).await);
    let (_backends, candidacies) = crowd(&servers, &servers.addresses(), at_least).await;
    let outsider = enter(&process(&servers.addresses(), LONG).await).await;
    let leading = Arc::new(AtomicUsize::new(0));
    let waits = candidacies.into_iter().map(|mut candidacy| {
        let leading = leading.clone();
        tokio::spawn(async move {
            match candidacy.elected().await {
                Ok(leader) => {
                    leading.fetch_add(1, Ordering::Relaxed);
                    let loss = leader.mandate().lost().await;
                    leader.resign().await;
                    Some(loss)
                }
                Err(Error::Ended { .. } | Error::Missing { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        })
    });
    let waits: Vec<_> = waits.collect();
    soon("somebody leads", async {
        while leading.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let began = Instant::now();
    outsider.delete().await.expect("it is deleted");
    soon("everybody is told", try_join_all(waits)).await.expect("no panic");
    soon("nothing is left", async {
        let left = || keys_under(&servers, &format!("{PREFIX}/")).into_iter();
        while left().any(|key| key.contains(&format!("/{NAME}/"))) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let took = began.elapsed();
    println!("{CANDIDATES} candidates gone {took:?} after the end");
    // This takes seconds on an idle machine. Entries that waited for their leases to lapse would
    // take the ttl of 60 s and more.
    assert!(took < LONG, "{took:?}");
    assert_eq!(leading.load(Ordering::Relaxed), 1, "nobody led after the end");
    assert!(keys_under(&servers, &format!("{PREFIX}//lines/")).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_among_a_thousand_notifies_the_leaver_and_the_next_alone() {
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let referee = Referee::start();
    let (_backends, candidacies) = crowd(&servers, &[proxy.address()], CANDIDATES).await;
    // They joined at the same time, so the queue has their order.
    let watcher = process(&servers.addresses(), LONG).await;
    let election = enter(&watcher).await;
    let order = election.candidates().await.expect("a list");
    let mut by_id: std::collections::HashMap<_, _> =
        candidacies.into_iter().map(|candidacy| (candidacy.id(), candidacy)).collect();
    let mut standing = order.iter().map(|one| by_id.remove(&one.id).expect("it is one of ours"));
    let mut first = standing.next().expect("there are many");
    let mut leader = soon("elected", first.elected()).await.expect("elected");
    referee.elected("first", &leader);
    for round in 0..10 {
        let queue = watcher.queue().expect("it has one");
        let found = queue.look(&key(), Freshness::Session).await.expect("a look");
        let Queue::Open { places, .. } = found else { panic!("{found:?}") };
        let gone = deletion_of(&places[0].entry.name);
        let heard = Arc::new(AtomicUsize::new(0));
        let counted = heard.clone();
        proxy.observe(move |message| {
            let told = message.direction == Direction::ToClient
                && message.bytes.windows(gone.len()).any(|part| part == gone);
            if told {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut next = standing.next().expect("there are many");
        leader.resign().await;
        leader = soon("elected", next.elected()).await.expect("elected");
        referee.elected("next", &leader);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let heard = heard.load(Ordering::Relaxed);
        println!("handover {round}: {heard} notifications");
        assert!((1..=2).contains(&heard), "{heard} notifications");
    }
    referee.done();
}

/// How etcd writes the event that a key is deleted, up to the end of the key.
///
/// Candidates also look at the queue from time to time, and while it grows slowly some of them do
/// so during the handovers. Such an answer names the key, too, but not in an event.
fn deletion_of(key: &str) -> Vec<u8> {
    // The event's type is 1 (deleted). Its second field holds the key and the revision, which is
    // a varint of two bytes up to revision 16,383.
    let revision = 1 + 2;
    let length = |of: usize| u8::try_from(of).ok().filter(|of| *of < 128).expect("a short key");
    let inside = length(2 + key.len() + revision);
    let head = [0x08, 0x01, 0x12, inside, 0x0a, length(key.len())];
    [&head, key.as_bytes()].concat()
}
