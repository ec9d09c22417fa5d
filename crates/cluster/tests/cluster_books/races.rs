//! Many processes submit at once, over bad lines, while a leader takes in tasks.
//!
//! Each task is accepted exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenure::MemoryStore;
use tenure::store::{Expect, Put, Reads, Store, StoreExt};
use tenure_cluster::documents::{Cursor, Entry, Format, INBOX_PAGES, Page};
use tenure_cluster::{ClusterClient, Order};

use crate::faulty::{Faults, Faulty};
use crate::leader::Leader;
use crate::stage::{client_on, op, order};

const SUBMITTERS: usize = 10;
const TASKS: usize = 100;

/// The results of one run.
struct Race {
    /// How often each task was taken in.
    times: BTreeMap<String, usize>,
    /// The tasks in the order in which they were taken in.
    taken: Vec<String>,
    /// The number of pages that were taken in.
    pages: u64,
    drawn: u64,
}

async fn race<F>(
    seed: u64,
    reads: Reads,
    submit: impl Fn(usize, ClusterClient, Faulty) -> F,
) -> Race
where
    F: Future<Output = ()>,
{
    let store = MemoryStore::new();
    let faulty = Faulty::new(store.clone(), reads, Faults::MANY, seed);
    let client = client_on(Arc::new(faulty.clone()));
    let (over, is_over) = tokio::sync::watch::channel(false);
    let mut leader = Leader::new(&client, &store, &faulty, seed);
    let submitters = async {
        join_all((0..SUBMITTERS).map(|number| submit(number, client.clone(), faulty.clone())))
            .await;
        over.send_replace(true);
    };
    tokio::join!(leader.run(is_over), submitters);
    let taken: Vec<String> = leader
        .taken
        .iter()
        .filter_map(|entry| match entry {
            Entry::Task(order) => Some(order.id.clone()),
            Entry::Retry(_) | Entry::Cancelled(_) => None,
        })
        .collect();
    let mut times = BTreeMap::new();
    for id in &taken {
        *times.entry(id.clone()).or_default() += 1;
    }
    let cursor = store.get(&client.keys().cursor()).await.expect("a read").expect("a cursor");
    let pages = Cursor::decode(&cursor.body).expect("it makes sense").page;
    Race { times, taken, pages, drawn: faulty.drawn() }
}

fn orders(submitter: usize) -> Vec<Order> {
    (0..TASKS).map(|number| order(&format!("{submitter:02}-{number:03}"))).collect()
}

/// Submits all tasks, up to three at a time.
async fn submit_all(seed: u64, submitter: usize, client: ClusterClient) {
    let mut rng = StdRng::seed_from_u64(seed ^ (submitter as u64) << 32);
    let mut orders = orders(submitter);
    while !orders.is_empty() {
        let bundle = orders.drain(..rng.random_range(1..=orders.len().min(3))).collect();
        client.submit(bundle).await.expect("a store that serves now and then is waited for");
    }
}

/// The number of seeds for a test; `TENURE_SEEDS` asks for more.
fn seeds() -> u64 {
    std::env::var("TENURE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(6)
}

async fn each_is_accepted_once(reads: Reads) {
    let mut most_pages = 0;
    for seed in 0..seeds() {
        let race =
            race(seed, reads, |submitter, client, _| submit_all(seed, submitter, client)).await;
        assert_eq!(race.times.len(), SUBMITTERS * TASKS, "seed {seed}: tasks were lost");
        let twice: Vec<_> = race.times.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "seed {seed}: accepted more than once: {twice:?}");
        // Where reads prove nothing, a later submission may close a gap that an earlier one left.
        let ordered = if reads == Reads::Linearizable { SUBMITTERS } else { 0 };
        for submitter in 0..ordered {
            let prefix = format!("{submitter:02}-");
            let own: Vec<&String> =
                race.taken.iter().filter(|id| id.starts_with(&prefix)).collect();
            assert!(own.is_sorted(), "seed {seed}: submitter {submitter}'s order was not kept");
        }
        assert!(race.drawn > 200, "seed {seed}: only {} things went wrong", race.drawn);
        most_pages = most_pages.max(race.pages);
    }
    assert!(most_pages > INBOX_PAGES, "the ring was never used again");
}

#[tokio::test(start_paused = true)]
async fn each_task_is_accepted_once_whatever_answers_are_lost() {
    each_is_accepted_once(Reads::Linearizable).await;
}

#[tokio::test(start_paused = true)]
async fn each_task_is_accepted_once_where_reads_prove_nothing() {
    each_is_accepted_once(Reads::Weak).await;
}

/// A broken submitter: treats an unanswered write as if it had no effect, and uses the next page.
async fn submit_naively(submitter: usize, client: ClusterClient, store: Faulty) {
    for order in orders(submitter) {
        for number in 0.. {
            let key = client.keys().page(number);
            let found = store.inner.get(&key).await.expect("a read");
            let before = found.as_ref().map(|found| Page::decode(&found.body).expect("a page"));
            if before.as_ref().is_some_and(|page| page.number != number || !page.entries.is_empty())
            {
                continue;
            }
            let entries = vec![Entry::Task(order.clone())];
            let page = Page::filling(number, before.as_ref(), entries, op(rand::random()));
            let expect = found.map_or(Expect::Absent, |found| Expect::At(found.version));
            if let Ok(Put::Stored(_)) = store.put(&key, expect, page.encode()).await {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_race_catches_whoever_sends_again_what_was_not_answered() {
    let mut twice = 0;
    for seed in 0..2 {
        let race = race(seed, Reads::Linearizable, |submitter, client, store| async move {
            // With one task on each page the ring would fill up; a tenth of the tasks is enough.
            if submitter == 0 {
                submit_naively(submitter, client, store).await;
            }
        })
        .await;
        twice += race.times.values().filter(|times| **times > 1).count();
    }
    assert!(twice > 0, "nothing was accepted twice");
}

#[tokio::test(start_paused = true)]
async fn a_good_line_needs_one_write_a_page() {
    let store = MemoryStore::new();
    let faulty = Faulty::new(store.clone(), Reads::Linearizable, Faults::NONE, 1);
    let client = client_on(Arc::new(faulty.clone()));
    client.submit(orders(0)).await.expect("accepted");
    let key = client.keys().page(0);
    let page = store.get(&key).await.expect("a read").expect("a page");
    assert_eq!(
        Page::decode(&page.body).map(|page| (page.revision, page.entries.len())),
        Ok((1, TASKS))
    );
    assert!(store.get(&client.keys().page(1)).await.expect("a read").is_none());
    assert!(faulty.notifies());
}
