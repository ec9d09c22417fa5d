//! Cases with nodes that die, are cut off, or come too late.

use std::time::Instant;

use tenure_cluster::Event;
use tenure_cluster::Verdict;

use super::recorder::{TaskRecorder, all_ended, heard, order, orders, until};
use crate::suite::Case;

/// The task of a vanished node runs again after the ttl, and not before.
///
/// Its lock must have stood still for that long.
pub async fn a_killed_workers_task_is_run_again_after_its_time_and_not_before(case: &Case) {
    let recorder = TaskRecorder::new(case);
    let (cut_off, store) = case.faulty().await;
    let killed = recorder.join(&cut_off, "killed", 1, case.brisk()).await;
    let client = recorder.client(&case.open().await);
    client.submit(vec![order("task", "gate")]).await.expect("accepted");
    recorder.begun(1).await;
    let _other = recorder.join(&case.open().await, "other", 1, case.brisk()).await;
    let since = Instant::now();
    store.cut();
    recorder.begun(2).await;
    let waited = since.elapsed();
    let first = &recorder.runs()[0];
    assert!(!first.mandate.is_leader(), "the first still had the right to work on it");
    // The last renewal may have been sent a heartbeat before the cut.
    let least = case.brisk().ttl() - case.brisk().heartbeat() * 2;
    assert!(waited >= least, "taken after {waited:?}");
    let runs = recorder.runs();
    assert!(runs[1].mandate.token() > runs[0].mandate.token());
    recorder.open();
    all_ended(&client, 1).await;
    drop(killed);
}

/// An idle node that dies is removed from the list.
pub async fn an_idle_dead_node_leaves_the_list(case: &Case) {
    let recorder = TaskRecorder::new(case);
    let (cut_off, store) = case.faulty().await;
    let _leader = recorder.join(&case.open().await, "leader", 1, case.brisk()).await;
    let dead = recorder.join(&cut_off, "dead", 1, case.brisk()).await;
    let client = recorder.client(&case.open().await);
    store.cut();
    until("the dead node is gone", async || {
        let members = client.members().await.expect("the store answers").items;
        members.len() == 1 && members[0].name == "leader"
    })
    .await;
    drop(dead);
}

/// A node whose task was taken over is told that its end does not count.
pub async fn a_late_completion_after_a_new_claim_is_refused(case: &Case) {
    let recorder = TaskRecorder::new(case);
    let (cut_off, store) = case.faulty().await;
    let late = recorder.join(&cut_off, "late", 1, case.brisk()).await;
    let mut events = late.events();
    let client = recorder.client(&case.open().await);
    client.submit(vec![order("task", "deaf")]).await.expect("accepted");
    recorder.begun(1).await;
    store.cut();
    let _other = recorder.join(&case.open().await, "other", 1, case.brisk()).await;
    recorder.begun(2).await;
    store.heal();
    let verdict = heard("the late node's end", &mut events, |event| {
        if let Event::Ended { verdict, .. } = event { Some(verdict) } else { None }
    })
    .await;
    assert_eq!(verdict, Verdict::Refused);
    recorder.open();
    let totals = all_ended(&client, 1).await;
    assert_eq!((totals.done, recorder.runs().len()), (1, 2));
}

/// The leader dies in the middle of its planning.
///
/// No task is lost, and none is counted twice.
pub async fn a_leader_killed_in_mid_plan_loses_and_duplicates_no_task(case: &Case) {
    let recorder = TaskRecorder::new(case);
    let (cut_off, store) = case.faulty().await;
    let leader = recorder.join(&cut_off, "leader", 2, case.brisk()).await;
    until("it leads", async || leader.is_leader()).await;
    let _other = recorder.join(&case.open().await, "other", 2, case.brisk()).await;
    let client = recorder.client(&case.open().await);
    client.submit(orders(600, "quick")).await.expect("accepted");
    recorder.begun(100).await;
    store.cut();
    let totals = all_ended(&client, 600).await;
    assert_eq!((totals.done, totals.dead), (600, 0));
    let mut ids: Vec<String> = recorder.runs().into_iter().map(|run| run.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 600);
    drop(leader);
}

/// All nodes die at once; nodes that join later go on with their work.
pub async fn all_nodes_killed_at_once_resume(case: &Case) {
    let recorder = TaskRecorder::new(case);
    let (first, first_store) = case.faulty().await;
    let (second, second_store) = case.faulty().await;
    let nodes = (
        recorder.join(&first, "first", 2, case.brisk()).await,
        recorder.join(&second, "second", 2, case.brisk()).await,
    );
    let client = recorder.client(&case.open().await);
    let mut work = orders(300, "quick");
    work.extend([order("held", "gate")]);
    client.submit(work).await.expect("accepted");
    recorder.begun(50).await;
    first_store.cut();
    second_store.cut();
    let _third = recorder.join(&case.open().await, "third", 2, case.brisk()).await;
    recorder.open();
    let totals = all_ended(&client, 301).await;
    assert_eq!((totals.done, totals.dead), (301, 0));
    drop(nodes);
}

/// The leader loses its leadership: it plans no more, and its workers go on.
pub async fn a_leader_that_is_deposed_stops_planning_and_its_workers_go_on(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let node = recorder.join(&case.open().await, "a", 1, case.brisk()).await;
    let mut events = node.events();
    let client = recorder.client(&backend);
    client.submit(vec![order("task", "gate")]).await.expect("accepted");
    recorder.begun(1).await;
    // A user with an editor takes the leader's lock away.
    let key =
        tenure::Key::parse(&format!("clusters/{}/leader", recorder.cluster())).expect("a key");
    crate::suite::overwrite(&**backend.store(), &key, "no lock at all").await;
    heard("the end of its leadership", &mut events, |event| {
        matches!(event, Event::Leading(false)).then_some(())
    })
    .await;
    assert!(recorder.runs()[0].mandate.is_leader(), "the work was stopped");
    recorder.open();
    heard("the end of the work", &mut events, |event| {
        matches!(event, Event::Ended { verdict: Verdict::Accepted, .. }).then_some(())
    })
    .await;
}
