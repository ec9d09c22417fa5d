//! Cases of users that handle tasks.
//!
//! They wait for tasks, cancel them, hand them to a worker, and read their status.

use std::time::Duration;

use serde_json::json;
use tenure_cluster::{Ended, Event, SettingsPut};

use super::recorder::{TaskRecorder, all_ended, heard, order, orders, soon, until};
use crate::suite::Case;

/// The submitter of a task can wait for its end: done, or failed for good.
pub async fn whoever_submitted_a_task_hears_of_its_end(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let node = recorder.join(&backend, "a", 1, case.brisk()).await;
    let good = node.submit(order("good", "quick")).await.expect("accepted");
    let bad = node.submit(order("bad", "poison")).await.expect("accepted");
    let ended = soon("the good one's end", good.outcome()).await.expect("the store answers");
    assert_eq!(ended, Ended::Done(Some("by a".into())));
    let ended = soon("the bad one's end", bad.outcome()).await.expect("the store answers");
    assert_eq!(ended, Ended::Failed("poison".into()));
}

/// A task that takes longer than its timeout fails.
pub async fn an_attempt_that_takes_too_long_fails(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let node = recorder.join(&backend, "a", 1, case.brisk()).await;
    let timeout = Some(Duration::from_millis(100));
    let late = tenure_cluster::documents::Order { timeout, attempts: 2, ..order("late", "gate") };
    let execution = node.submit(late).await.expect("accepted");
    let ended = soon("its end", execution.outcome()).await.expect("the store answers");
    assert!(matches!(&ended, Ended::Failed(why) if why.contains("longer than")), "{ended:?}");
    assert_eq!(recorder.runs_of("late").len(), 2);
}

/// A running task is stopped when it is cancelled; a waiting one is never begun.
pub async fn what_is_cancelled_is_stopped_or_never_begun(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let node = recorder.join(&backend, "a", 1, case.brisk()).await;
    let running = node.submit(order("running", "gate")).await.expect("accepted");
    recorder.begun(1).await;
    let waiting = node.submit(order("waiting", "gate")).await.expect("accepted");
    waiting.cancel().await.expect("cancelled");
    running.cancel().await.expect("cancelled");
    for execution in [running, waiting] {
        let ended = soon("its end", execution.outcome()).await.expect("the store answers");
        assert_eq!(ended, Ended::Cancelled);
    }
    assert!(recorder.runs_of("waiting").is_empty());
    let client = recorder.client(&backend);
    until("both are in the books", async || {
        let totals = client.totals().await.expect("the store answers");
        totals.open == 0 && totals.dead == 0 && totals.done == 0
    })
    .await;
}

/// A task for one node's worker is not taken by another node.
pub async fn a_task_for_one_worker_is_left_to_it(case: &Case) {
    let recorder = TaskRecorder::new(case);
    let first = recorder.join(&case.open().await, "a", 2, case.calm()).await;
    let second = recorder.join(&case.open().await, "b", 2, case.calm()).await;
    let workers = soon("an idle worker", async {
        loop {
            let workers = first.idle_workers().await.expect("the store answers");
            if let Some(worker) = workers.into_iter().find(|w| w.member() == second.id()) {
                return worker;
            }
        }
    })
    .await;
    for number in 0..6 {
        let execution = workers.submit(order(&format!("for-b-{number}"), "quick")).await;
        let ended = soon("its end", execution.expect("accepted").outcome()).await;
        assert_eq!(ended.expect("the store answers"), Ended::Done(Some("by b".into())));
    }
}

/// Other processes can read the status of a task while it runs.
pub async fn a_status_report_can_be_read_while_the_task_runs(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let node = recorder.join(&backend, "a", 1, case.brisk()).await;
    let client = recorder.client(&case.open().await);
    client.submit(vec![order("task", "report")]).await.expect("accepted");
    until("its status can be read", async || {
        let tasks = client.tasks(10).await.expect("the store answers").live;
        tasks.iter().any(|task| format!("{:?}", task.stage).contains("half"))
    })
    .await;
    recorder.open();
    all_ended(&client, 1).await;
    drop(node);
}

/// A drained node finishes its tasks, takes no more and leaves.
pub async fn a_drained_node_finishes_takes_nothing_more_and_leaves(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let node = recorder.join(&case.open().await, "a", 1, case.brisk()).await;
    let client = recorder.client(&backend);
    client.submit(orders(3, "gate")).await.expect("accepted");
    recorder.begun(1).await;
    let mut events = node.events();
    client.drain_member(node.id().as_str()).await.expect("written");
    heard("that it is drained", &mut events, |event| matches!(event, Event::Retired).then_some(()))
        .await;
    recorder.open();
    soon("its leaving", node.left()).await;
    assert_eq!(recorder.runs().len(), 1);
    let members = client.members().await.expect("the store answers").items;
    assert!(members.is_empty(), "{members:?}");
}

/// A paused cluster takes nothing in, but finishes the tasks that it has.
pub async fn a_paused_cluster_takes_nothing_in(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let _node = recorder.join(&case.open().await, "a", 1, case.brisk()).await;
    let client = recorder.client(&backend);
    client.submit(orders(1, "quick")).await.expect("accepted");
    all_ended(&client, 1).await;
    client.pause().await.expect("written");
    // A round that began before the pause may still take something in; it ends within a ttl or is
    // cut off.
    tokio::time::sleep(case.brisk().ttl()).await;
    client.submit(vec![order("later", "quick")]).await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(recorder.runs_of("later").is_empty());
    client.resume().await.expect("written");
    assert_eq!(all_ended(&client, 2).await.done, 2);
}

/// Any process can put and read settings. A put with an outdated version is refused.
pub async fn settings_are_versioned(case: &Case) {
    let recorder = TaskRecorder::new(case);
    let (one, other) = (recorder.client(&case.open().await), recorder.client(&case.open().await));
    let settings = json!({"limit": 5}).as_object().cloned().expect("an object");
    let put = one.put_settings(settings.clone(), 0).await.expect("the store answers");
    assert_eq!(put, SettingsPut::Stored(1));
    let read = other.settings().await.expect("the store answers").expect("they were put");
    assert_eq!((read.version, &read.settings), (1, &settings));
    let put = other.put_settings(settings.clone(), 0).await.expect("the store answers");
    assert!(matches!(put, SettingsPut::Conflict(_)), "it overwrote what it had not read");
    let put = other.put_settings(settings, 1).await.expect("the store answers");
    assert_eq!(put, SettingsPut::Stored(2));
}
