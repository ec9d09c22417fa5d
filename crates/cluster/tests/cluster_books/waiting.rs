//! Waiting for a task's end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::store::StoreExt;
use tenure::{CandidateId, MemoryStore};
use tenure_cluster::ClusterError;
use tenure_cluster::documents::{Outcome, OutcomeState};
use tenure_cluster::{ClusterClient, Ended, Execution};

use crate::stage::{op, order, stage, write, write_body};

async fn end(
    client: &ClusterClient,
    store: &MemoryStore,
    receipt: &CandidateId,
    state: OutcomeState,
) {
    let note = Some("so it ended".to_owned());
    let outcome = Outcome { serial: 1, state, note, at: 1, op: op(1) };
    write(store, &client.keys().outcome(receipt), &outcome).await;
}

#[tokio::test(start_paused = true)]
async fn each_end_is_told_and_its_document_goes() {
    for (state, ended) in [
        (OutcomeState::Done, Ended::Done(Some("so it ended".into()))),
        (OutcomeState::Dead, Ended::Failed("so it ended".into())),
        (OutcomeState::Cancelled, Ended::Cancelled),
    ] {
        let (client, store) = stage();
        let execution = client.submit_one(order("a")).await.expect("accepted");
        let receipt = execution.receipt().clone();
        let ending = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            end(&client, &store, &receipt, state).await;
        };
        let began = tokio::time::Instant::now();
        let (outcome, ()) = tokio::join!(execution.outcome(), ending);
        assert_eq!(outcome.expect("an outcome"), ended);
        assert!(began.elapsed() < Duration::from_secs(2), "the change wakes whoever waits");
        let key = client.keys().outcome(&receipt);
        assert!(store.get(&key).await.expect("a read").is_none());
        assert_eq!(execution.outcome().await.expect("it is known"), ended);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_kept_the_receipt_can_come_back_for_the_outcome() {
    let (client, store) = stage();
    let receipt = client.submit_one(order("a")).await.expect("accepted").receipt().clone();
    end(&client, &store, &receipt, OutcomeState::Done).await;
    let ended = client.execution(receipt).await.expect("an outcome");
    assert_eq!(ended, Ended::Done(Some("so it ended".into())));
}

fn told(execution: Execution) -> (Execution, Arc<Mutex<Vec<Ended>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = told.clone();
    let execution = execution.on_failure_or_timeout(move |ended| {
        tells.lock().expect("not poisoned").push(ended.clone());
    });
    (execution, told)
}

#[tokio::test(start_paused = true)]
async fn a_timeout_ends_the_waiting_and_not_the_task() {
    let (client, store) = stage();
    let execution = client.submit_one(order("a")).await.expect("accepted");
    let (execution, told) = told(execution.with_timeout(Duration::from_secs(100)));
    let began = tokio::time::Instant::now();
    assert_eq!(execution.outcome().await.expect("it serves"), Ended::TimedOut);
    let waited = began.elapsed().as_secs();
    assert!((99..110).contains(&waited), "{waited}");
    assert_eq!(*told.lock().expect("not poisoned"), [Ended::TimedOut]);
    end(&client, &store, execution.receipt(), OutcomeState::Dead).await;
    let late = execution.outcome().await.expect("it serves");
    assert_eq!(late, Ended::Failed("so it ended".into()));
    assert_eq!(told.lock().expect("not poisoned").len(), 1, "it is told once");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_and_a_success_is_not() {
    for (state, count) in
        [(OutcomeState::Dead, 1), (OutcomeState::Done, 0), (OutcomeState::Cancelled, 0)]
    {
        let (client, store) = stage();
        let (execution, told) = told(client.submit_one(order("a")).await.expect("accepted"));
        end(&client, &store, execution.receipt(), state).await;
        execution.await.expect("an outcome");
        assert_eq!(told.lock().expect("not poisoned").len(), count);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_makes_no_sense_is_an_error() {
    let (client, store) = stage();
    let execution = client.submit_one(order("a")).await.expect("accepted");
    write_body(&store, &client.keys().outcome(execution.receipt()), "{".into()).await;
    let error = execution.outcome().await.expect_err("it makes no sense");
    assert!(matches!(error, ClusterError::Document { .. }), "{error}");
}
