//! Cancelling a task, at each stage of its way.

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{Expect, Put, Reads, StoreExt};
use tenure::{CandidateId, MemoryStore};
use tenure_cluster::documents::{
    Assignment, ClusterConfig, Cursor, Entry, Format, Holding, Intent, Outcome, OutcomeState, Page,
    Progress, Slot, first_token,
};
use tenure_cluster::{Cancellation, ClusterClient, Ended};

use crate::faulty::{Faults, Faulty};
use crate::leader::Leader;
use crate::stage::{client_on, inbox, member, op, order, read, stage, write};

fn slot(serial: u64, receipt: Option<CandidateId>, progress: Progress) -> Slot {
    let task = Assignment { receipt, ..order("a").numbered(serial) };
    Slot {
        task: Arc::new(task),
        progress,
        cancel: false,
        token: first_token(serial) + 1,
        attempt: 1,
        ttl: Duration::from_secs(15),
        revision: 3,
        op: op(serial),
    }
}

fn held() -> Progress {
    let status = Some("half".into());
    Progress::Held(Arc::new(Holding { member: member(5), expire: 7, presence: None, status }))
}

fn outstanding() -> Progress {
    Progress::Outstanding { avoid: None, error: None }
}

async fn with_slot(client: &ClusterClient, store: &MemoryStore, slot: &Slot) {
    let cluster_config = ClusterConfig { slots: 256, paused: false, revision: 1, op: op(1000) };
    write(store, &client.keys().cluster_config(), &cluster_config).await;
    write(store, &client.keys().slot(9), slot).await;
}

async fn slot_of(client: &ClusterClient, store: &MemoryStore) -> Slot {
    read(store, &client.keys().slot(9)).await.expect("a slot").1
}

#[tokio::test]
async fn a_task_that_nobody_works_on_is_at_its_end_at_once() {
    let (client, store) = stage();
    let before = slot(3, None, outstanding());
    with_slot(&client, &store, &before).await;
    assert_eq!(client.cancel(3).await.expect("it serves"), Cancellation::Cancelled);
    let after = slot_of(&client, &store).await;
    assert_eq!(after.progress, Progress::Dead { error: "cancelled".into() });
    assert!(after.cancel && after.revision == before.revision + 1 && after.op != before.op);
    assert_eq!(after.token, before.token);
    assert!(store.get(&client.keys().leader_wake_up()).await.expect("a read").is_some());
    assert_eq!(client.cancel(3).await.expect("it serves"), Cancellation::Cancelled);
}

#[tokio::test]
async fn a_task_that_somebody_works_on_keeps_its_holder_and_is_marked() {
    let (client, store) = stage();
    let before = slot(3, Some(member(8)), held());
    with_slot(&client, &store, &before).await;
    assert_eq!(client.cancel_submitted(&member(8)).await.expect("it serves"), Cancellation::Asked);
    let after = slot_of(&client, &store).await;
    assert_eq!((after.cancel, &after.progress, after.token), (true, &held(), before.token));
    assert_eq!(after.revision, before.revision + 1);
    assert_eq!(client.cancel(3).await.expect("it serves"), Cancellation::Asked);
    assert_eq!(slot_of(&client, &store).await, after, "asking again changes nothing");
}

#[tokio::test]
async fn what_is_at_its_end_stays_as_it_is() {
    for progress in
        [Progress::Done { result: None }, Progress::Dead { error: "no".into() }, Progress::Vacant]
    {
        let (client, store) = stage();
        let mut before = slot(3, Some(member(8)), progress);
        if before.progress == Progress::Vacant {
            before.task = Arc::new(Assignment { id: String::new(), ..(*before.task).clone() });
        }
        with_slot(&client, &store, &before).await;
        assert_eq!(client.cancel(3).await.expect("it serves"), Cancellation::NotFound);
        let receipt = client.cancel_submitted(&member(8)).await;
        assert_eq!(receipt.expect("it serves"), Cancellation::NotFound);
        assert_eq!(slot_of(&client, &store).await.progress, before.progress);
    }
}

#[tokio::test]
async fn another_task_in_the_same_slot_is_left_alone() {
    let (client, store) = stage();
    with_slot(&client, &store, &slot(4, Some(member(8)), outstanding())).await;
    assert_eq!(client.cancel(3).await.expect("it serves"), Cancellation::NotFound);
    let other = client.cancel_submitted(&member(9)).await;
    assert_eq!(other.expect("it serves"), Cancellation::NotFound);
    assert!(!slot_of(&client, &store).await.cancel);
}

#[tokio::test]
async fn a_task_in_the_inbox_is_taken_off_and_the_others_keep_their_places() {
    let (client, store) = stage();
    client.submit(vec![order("a")]).await.expect("accepted");
    let execution = client.submit_one(order("b")).await.expect("accepted");
    client.submit(vec![order("c")]).await.expect("accepted");
    assert_eq!(execution.cancel().await.expect("it serves"), Cancellation::Cancelled);
    let cancelled = format!("cancelled {}", execution.receipt());
    assert_eq!(inbox(&client, &store, 0).await, ["a", &cancelled, "c"]);
    assert_eq!(execution.cancel().await.expect("it serves"), Cancellation::Cancelled);
    assert_eq!(execution.outcome().await.expect("an outcome"), Ended::Cancelled);
}

#[tokio::test]
async fn a_cancellation_that_was_cut_off_is_finished_by_the_next() {
    let (client, store) = stage();
    let execution = client.submit_one(order("a")).await.expect("accepted");
    let key = client.keys().page(0);
    let (_, page) = read::<Page>(&store, &key).await.expect("a page");
    write(&store, &key, &page.cancelling(0, execution.receipt().clone(), op(1))).await;
    assert_eq!(execution.cancel().await.expect("it serves"), Cancellation::Cancelled);
    assert_eq!(execution.outcome().await.expect("an outcome"), Ended::Cancelled);
}

/// The leader read the page before the task was cancelled, and tries to take the task in
/// afterwards.
#[tokio::test]
async fn a_leader_that_had_read_the_page_before_must_read_it_again() {
    let (client, store) = stage();
    let execution = client.submit_one(order("a")).await.expect("accepted");
    client.submit(vec![order("b")]).await.expect("accepted");
    let mut leader = Leader::new(&client, &store, &store, 1);
    leader.take_office().await;
    let (version, first) = read::<Page>(&store, &client.keys().page(0)).await.expect("a page");
    assert_eq!(execution.cancel().await.expect("it serves"), Cancellation::Cancelled);
    assert!(!leader.record(&first, 1).await, "what was planned before cannot be recorded");
    let again = read::<Page>(&store, &client.keys().page(0)).await.expect("a page");
    assert_ne!(again.0, version);
    while leader.step().await {}
    let receipt = execution.receipt().clone();
    assert_eq!(leader.taken, [Entry::Cancelled(receipt), Entry::Task(order("b"))]);
}

/// The leader is faster: it has recorded the task for a slot, but not written it there yet.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_recorded_for_a_slot_is_cancelled_there() {
    let (client, store) = stage();
    let receipt = member(8);
    let task = Assignment { receipt: Some(receipt.clone()), ..order("a").numbered(3) };
    let intent = Intent { slot: 9, serial: 3, task: Some(task), letter: None };
    let cursor = Cursor { next: 4, page: 1, intents: vec![intent], ..Cursor::new(op(1)) };
    write(&store, &client.keys().cursor(), &cursor).await;
    with_slot(&client, &store, &slot(2, None, Progress::Done { result: None })).await;
    let cancelling = client.cancel_submitted(&receipt);
    let filling = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let after = slot(3, Some(receipt.clone()), outstanding());
        write(&store, &client.keys().slot(9), &after).await;
    };
    let (cancelled, ()) = tokio::join!(cancelling, filling);
    assert_eq!(cancelled.expect("it serves"), Cancellation::Cancelled);
    assert!(slot_of(&client, &store).await.cancel);
}

#[tokio::test(start_paused = true)]
async fn a_recorded_task_whose_slot_has_moved_on_is_not_found() {
    let (client, store) = stage();
    let intent = Intent { slot: 9, serial: 3, task: Some(order("a").numbered(3)), letter: None };
    let cursor = Cursor { next: 6, intents: vec![intent], ..Cursor::new(op(1)) };
    write(&store, &client.keys().cursor(), &cursor).await;
    with_slot(&client, &store, &slot(5, None, outstanding())).await;
    assert_eq!(client.cancel(3).await.expect("it serves"), Cancellation::NotFound);
}

#[tokio::test]
async fn without_a_proof_a_weak_store_only_asks() {
    let store = MemoryStore::new();
    let faulty = Faulty::new(store.clone(), Reads::Weak, Faults::NONE, 1);
    let client = client_on(Arc::new(faulty));
    let execution = client.submit_one(order("a")).await.expect("accepted");
    assert_eq!(execution.cancel().await.expect("it serves"), Cancellation::Asked);
    write(&store, &client.keys().cursor(), &Cursor::new(op(1))).await;
    assert_eq!(execution.cancel().await.expect("it serves"), Cancellation::Cancelled);
}

/// Cancelling over a bad line while a leader takes tasks in. Each task is taken in or reported as
/// cancelled, never both.
#[tokio::test(start_paused = true)]
async fn a_task_is_taken_in_or_cancelled_and_never_both() {
    let (mut cancelled_in_time, mut too_late) = (0, 0);
    for seed in 0..60 {
        let store = MemoryStore::new();
        let faults = Faults { untrue: 0, doubled: 0, ..Faults::MANY };
        let faulty = Faulty::new(store.clone(), Reads::Linearizable, faults, seed);
        let client = client_on(Arc::new(faulty.clone()));
        let sure = client_on(Arc::new(store.clone()));
        let mut executions = Vec::new();
        for number in 0..20 {
            executions.push(sure.submit_one(order(&number.to_string())).await.expect("accepted"));
        }
        let (over, is_over) = tokio::sync::watch::channel(false);
        let mut leader = Leader::new(&sure, &store, &faulty, seed);
        let cancelling = async {
            for execution in &executions {
                let mine = client.execution(execution.receipt().clone());
                // After any fault of the line, another request finds out.
                while mine.cancel().await.is_err() {}
            }
            over.send_replace(true);
        };
        tokio::join!(leader.run(is_over), cancelling);
        for execution in &executions {
            let is_it = |entry: &&Entry| match entry {
                Entry::Task(order) => order.receipt.as_ref() == Some(execution.receipt()),
                Entry::Cancelled(receipt) => receipt == execution.receipt(),
                Entry::Retry(_) => false,
            };
            let taken: Vec<&Entry> = leader.taken.iter().filter(is_it).collect();
            let outcome = store.get(&client.keys().outcome(execution.receipt())).await;
            let outcome = outcome.expect("a read").map(|outcome| Outcome::decode(&outcome.body));
            let is_told = outcome.is_some_and(|outcome| {
                outcome.is_ok_and(|outcome| outcome.state == OutcomeState::Cancelled)
            });
            match taken[..] {
                [Entry::Task(_)] => {
                    assert!(!is_told, "seed {seed}: taken in, and told to be cancelled");
                    too_late += 1;
                }
                [Entry::Cancelled(_)] => cancelled_in_time += 1,
                _ => panic!("seed {seed}: {taken:?}"),
            }
        }
    }
    assert!(cancelled_in_time > 50 && too_late > 50, "{cancelled_in_time}, {too_late}");
}

#[tokio::test]
async fn a_lost_answer_is_looked_after() {
    let store = MemoryStore::new();
    let faults = Faults { unanswered: 100, ..Faults::NONE };
    let faulty = Faulty::new(store.clone(), Reads::Linearizable, faults, 1);
    let client = client_on(Arc::new(faulty));
    with_slot(&client, &store, &slot(3, None, outstanding())).await;
    assert_eq!(client.cancel(3).await.expect("it serves"), Cancellation::Cancelled);
    let gone = store.get(&client.keys().slot(9)).await.expect("a read").expect("a slot");
    let put = store.put(&client.keys().slot(9), Expect::At(gone.version), gone.body).await;
    assert!(matches!(put, Ok(Put::Stored(_))));
}
