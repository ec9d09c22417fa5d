//! Cases of failures, dead letters, and documents that make no sense.

use bytes::Bytes;
use tenure::store::{Expect, Put, StoreExt};
use tenure_cluster::Event;

use super::recorder::{TaskRecorder, all_ended, heard, order, orders, until};
use crate::suite::Case;

/// A task that always fails is tried as often as allowed, and then a dead letter.
pub async fn a_poison_task_ends_in_the_dead_letters(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let _first = recorder.join(&case.open().await, "a", 1, case.brisk()).await;
    let _second = recorder.join(&case.open().await, "b", 1, case.brisk()).await;
    let client = recorder.client(&backend);
    let mut work = orders(5, "quick");
    work.push(order("bad", "poison"));
    client.submit(work).await.expect("accepted");
    let totals = all_ended(&client, 6).await;
    assert_eq!((totals.done, totals.dead), (5, 1));
    let attempts: Vec<u32> = recorder.runs_of("bad").iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    let letters = async || client.letters(None, 100).await.expect("the store answers").items;
    until("it is a dead letter", async || letters().await.len() == 1).await;
    let letters = letters().await;
    assert_eq!((letters[0].task.id.as_str(), letters[0].error.as_str()), ("bad", "poison"));
}

/// Only a retry brings a dead letter back, once.
pub async fn a_dead_letter_comes_back_once_when_it_is_retried(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let _node = recorder.join(&case.open().await, "a", 1, case.brisk()).await;
    let client = recorder.client(&backend);
    client.submit(vec![order("bad", "poison")]).await.expect("accepted");
    let letters = async || client.letters(None, 100).await.expect("the store answers").items;
    until("it is a dead letter", async || letters().await.len() == 1).await;
    let serial = letters().await[0].task.serial;
    client.retry(&[serial, serial]).await.expect("accepted");
    until("it is a dead letter again", async || {
        letters().await.first().is_some_and(|letter| letter.task.serial != serial)
    })
    .await;
    assert_eq!((recorder.runs_of("bad").len(), letters().await.len()), (6, 1));
}

/// Garbage and far too large documents are reported and left alone.
///
/// The rest goes on.
pub async fn garbage_and_huge_documents_are_reported_and_skipped(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let store = backend.store();
    let key = |below: &str| {
        tenure::Key::parse(&format!("clusters/{}/{below}", recorder.cluster())).expect("a key")
    };
    let put = async |below: &str, body: Bytes| {
        let put = store.put(&key(below), Expect::Absent, body).await;
        assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
    };
    put("slots/00000", Bytes::from_static(b"{\"holder\": 7")).await;
    put("slots/00002", Bytes::from(vec![b'x'; tenure::store::MAX_DOCUMENT_BYTES])).await;
    put("inbox/000", Bytes::from_static(b"[]")).await;
    put("dead/0000000000000009", Bytes::from_static(b"null")).await;
    put("members/nobody", Bytes::from_static(b"\xff\xfe")).await;
    let node = recorder.join(&case.open().await, "a", 2, case.brisk()).await;
    let mut events = node.events();
    let client = recorder.client(&backend);
    let submitted = client.submit(orders(20, "quick")).await;
    submitted.expect("accepted beside the garbage");
    heard("what makes no sense", &mut events, |event| {
        matches!(event, Event::Garbled { .. }).then_some(())
    })
    .await;
    assert_eq!(all_ended(&client, 20).await.done, 20);
    let letters = client.letters(None, 100).await.expect("the store answers");
    assert_eq!((letters.items.len(), letters.garbled.len()), (0, 1));
}

/// A node that was declared dead takes nothing, even after restarts.
pub async fn a_member_declared_dead_stays_dead_across_restarts(case: &Case) {
    let (recorder, backend) = (TaskRecorder::new(case), case.open().await);
    let dead = recorder.join(&case.open().await, "dead", 1, case.brisk()).await;
    let client = recorder.client(&backend);
    client.mark_dead(dead.id()).await.expect("written");
    let members = client.members().await.expect("the store answers").items;
    assert!(members.iter().all(|member| member.id != *dead.id() || member.dead), "{members:?}");
    // Another node joins, and everything is read anew.
    let again = recorder.join(&case.open().await, "again", 1, case.brisk()).await;
    let client = recorder.client(&case.open().await);
    client.submit(orders(10, "quick")).await.expect("accepted");
    all_ended(&client, 10).await;
    until("it knows", async || {
        let members = client.members().await.expect("the store answers").items;
        members.iter().all(|member| member.id != *dead.id() || member.dead)
    })
    .await;
    drop(again);
}
