//! Cases of how work is shared out.

use super::recorder::{TaskRecorder, all_ended, order, orders, until};
use crate::suite::Case;

/// A node is in the node list, with its workers, as soon as it has joined.
pub async fn a_node_registers(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let node = recorder.join(&backend, "a", 5, case.calm()).await;
    let members =
        recorder.client(&case.open().await).members().await.expect("the store answers").items;
    assert_eq!(members.len(), 1, "{members:?}");
    let found = (&members[0].id, members[0].workers, members[0].name.as_str());
    assert_eq!(found, (node.id(), 5, "a"));
    node.leave().await;
    let members = recorder.client(&backend).members().await.expect("the store answers").items;
    assert!(members.is_empty(), "{members:?}");
}

/// Two nodes see each other, and of two partitions each takes one.
pub async fn two_nodes_see_both_and_take_one_partition_each(case: &Case) {
    let recorder = TaskRecorder::new(case);
    settle(case, &recorder, &[("a", 1), ("b", 1)], 2, &[1, 1]).await;
}

/// Twelve partitions settle evenly on three nodes.
pub async fn three_nodes_and_twelve_partitions_settle_four_each(case: &Case) {
    let recorder = TaskRecorder::new(case);
    settle(case, &recorder, &[("a", 4), ("b", 4), ("c", 4)], 12, &[4, 4, 4]).await;
}

async fn settle(
    case: &Case,
    recorder: &TaskRecorder,
    nodes: &[(&str, usize)],
    tasks: usize,
    expected: &[usize],
) {
    let backend = case.open().await;
    let mut joined = Vec::new();
    for (name, workers) in nodes {
        joined.push(recorder.join(&case.open().await, name, *workers, case.calm()).await);
    }
    for node in &joined {
        let count = nodes.len();
        until("all see all", async || {
            node.members().await.expect("the store answers").len() == count
        })
        .await;
    }
    let client = recorder.client(&backend);
    client.submit(orders(tasks, "gate")).await.expect("accepted");
    recorder.begun(tasks).await;
    let settled: Vec<usize> = nodes.iter().map(|(name, _)| recorder.runs_on(name)).collect();
    assert_eq!(settled, expected);
    recorder.open();
    assert_eq!(all_ended(&client, tasks as u64).await.done, tasks as u64);
}

/// Sixteen partitions of equal length settle by workers: ten and six.
pub async fn nodes_with_five_and_three_workers_settle_ten_and_six(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let first = recorder.join(&case.open().await, "a", 5, case.calm()).await;
    let second = recorder.join(&case.open().await, "b", 3, case.calm()).await;
    let client = recorder.client(&backend);
    client.submit(orders(8, "gate")).await.expect("accepted");
    recorder.begun(8).await;
    let more = (8..16).map(|number| order(&format!("task-{number:05}"), "gate-too")).collect();
    client.submit(more).await.expect("accepted");
    recorder.open();
    all_ended(&client, 16).await;
    // The first idle worker takes the remaining tasks, so the second half is only as even as the
    // machine's scheduling.
    let (on_first, on_second) = (recorder.runs_on("a"), recorder.runs_on("b"));
    assert_eq!(on_first + on_second, 16);
    let firsts: Vec<String> = recorder.runs().into_iter().take(8).map(|run| run.node).collect();
    assert_eq!(firsts.iter().filter(|node| *node == "a").count(), 5, "{firsts:?}");
    drop((first, second));
}

/// A node that joins later takes new work.
pub async fn a_joiner_takes_over_new_work(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let _first = recorder.join(&case.open().await, "a", 1, case.calm()).await;
    let client = recorder.client(&backend);
    client.submit(orders(2, "gate")).await.expect("accepted");
    recorder.begun(1).await;
    let _second = recorder.join(&case.open().await, "b", 1, case.calm()).await;
    recorder.begun(2).await;
    assert_eq!((recorder.runs_on("a"), recorder.runs_on("b")), (1, 1));
    recorder.open();
    all_ended(&client, 2).await;
}

/// A thousand tasks go through two nodes, each once.
pub async fn many_tasks_are_each_done_once(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let _first = recorder.join(&case.open().await, "a", 4, case.calm()).await;
    let _second = recorder.join(&case.open().await, "b", 4, case.calm()).await;
    let client = recorder.client(&backend);
    client.submit(orders(1000, "quick")).await.expect("accepted");
    assert_eq!(all_ended(&client, 1000).await.done, 1000);
    let mut ids: Vec<String> = recorder.runs().into_iter().map(|run| run.id).collect();
    ids.sort();
    let runs = ids.len();
    ids.dedup();
    assert_eq!((ids.len(), runs), (1000, 1000));
}
