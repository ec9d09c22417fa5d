//! Change hints, where a store has them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure::Key;
use tenure::store::{Expect, Store, StoreExt, Version};

use super::Case;
use super::case::{soon, stored};

/// The time for a wait to get under way, or to be woken for no reason.
const A_MOMENT: Duration = Duration::from_millis(100);

/// Two handles, unless there are no hints to test.
async fn handles(case: &Case) -> Option<(Arc<dyn Store>, Arc<dyn Store>)> {
    let pair = (case.store().await, case.store().await);
    if !pair.0.notifies() {
        case.skip("the store has no notifications");
        return None;
    }
    Some(pair)
}

fn waiting(
    store: &Arc<dyn Store>,
    key: &Key,
    seen: Option<Version>,
) -> tokio::task::JoinHandle<()> {
    let (store, key) = (store.clone(), key.clone());
    tokio::spawn(async move { store.changed(&key, seen.as_ref()).await })
}

/// A change by another handle wakes a wait.
pub async fn a_change_wakes_who_waits(case: &Case) {
    let Some((one, other)) = handles(case).await else { return };
    let key = case.key("a");
    let mut version = stored(&*one, &key, Expect::Absent, "0").await;
    for number in 1..10 {
        let wait = waiting(&one, &key, Some(version.clone()));
        // With and without time to get under way: a hint must not fall into the gap.
        if number % 2 == 0 {
            tokio::time::sleep(A_MOMENT / 4).await;
        }
        version = stored(&*other, &key, Expect::At(version), number.to_string()).await;
        soon("the change to wake the wait", wait).await.expect("it ran");
    }
}

/// A handle's own change wakes waits on that handle, too.
pub async fn a_change_by_the_same_handle_wakes_too(case: &Case) {
    let Some((one, _)) = handles(case).await else { return };
    let key = case.key("a");
    let version = stored(&*one, &key, Expect::Absent, "0").await;
    let wait = waiting(&one, &key, Some(version.clone()));
    tokio::time::sleep(A_MOMENT / 4).await;
    stored(&*one, &key, Expect::At(version), "1").await;
    soon("the change to wake the wait", wait).await.expect("it ran");
}

/// The creation of a missing document wakes a wait, however deep the document is.
pub async fn a_creation_wakes_who_waits(case: &Case) {
    let Some((one, other)) = handles(case).await else { return };
    for name in ["a", "deep/below/here/a"] {
        let wait = waiting(&one, &case.key(name), None);
        tokio::time::sleep(A_MOMENT / 4).await;
        stored(&*other, &case.key(name), Expect::Absent, "1").await;
        soon("the creation to wake the wait", wait).await.expect("it ran");
    }
}

/// A deletion wakes a wait.
pub async fn a_deletion_wakes_who_waits(case: &Case) {
    let Some((one, other)) = handles(case).await else { return };
    let key = case.key("a");
    let version = stored(&*one, &key, Expect::Absent, "1").await;
    let wait = waiting(&one, &key, Some(version.clone()));
    tokio::time::sleep(A_MOMENT / 4).await;
    let _ = other.delete(&key, version).await.expect("an answer");
    soon("the deletion to wake the wait", wait).await.expect("it ran");
}

/// A wait for a past change is woken at once: the hint is a level, not an edge.
pub async fn a_change_before_the_wait_wakes_it_at_once(case: &Case) {
    let Some((one, other)) = handles(case).await else { return };
    let key = case.key("a");
    soon("nothing", async { waiting(&one, &key, Some(Version::new("never"))).await })
        .await
        .expect("it ran");
    let first = stored(&*other, &key, Expect::Absent, "1").await;
    soon("the creation", one.changed(&key, None)).await;
    let second = stored(&*other, &key, Expect::At(first.clone()), "2").await;
    soon("the change", one.changed(&key, Some(&first))).await;
    let _ = other.delete(&key, second.clone()).await.expect("an answer");
    soon("the deletion", one.changed(&key, Some(&second))).await;
}

/// A hundred waits on one document, and on a hundred documents, are all woken.
pub async fn many_waits_are_all_woken(case: &Case) {
    let Some((one, other)) = handles(case).await else { return };
    let keys: Vec<Key> = (0..100).map(|number| case.key(&format!("n{number}/a"))).collect();
    let waits: Vec<_> = keys
        .iter()
        .map(|key| waiting(&one, key, None))
        .chain((0..100).map(|_| waiting(&one, &keys[0], None)))
        .collect();
    tokio::time::sleep(A_MOMENT).await;
    join_all(keys.iter().map(|key| stored(&*other, key, Expect::Absent, "1"))).await;
    for wait in waits {
        soon("every wait to be woken", wait).await.expect("it ran");
    }
}

/// Dropping a wait loses nothing and disturbs no other wait.
pub async fn a_wait_can_be_cancelled_and_taken_up_again(case: &Case) {
    let Some((one, other)) = handles(case).await else { return };
    let key = case.key("a");
    let version = stored(&*one, &key, Expect::Absent, "1").await;
    let steady = waiting(&one, &key, Some(version.clone()));
    for number in 0..50 {
        let wait = one.changed(&key, Some(&version));
        let _ = tokio::time::timeout(Duration::from_micros(number * 50), wait).await;
    }
    stored(&*other, &key, Expect::At(version.clone()), "2").await;
    soon("the wait that stayed", steady).await.expect("it ran");
    soon("the wait taken up again", one.changed(&key, Some(&version))).await;
}

/// Hints are for one document: writes to others do not keep waking a wait.
pub async fn changes_elsewhere_do_not_keep_waking_a_wait(case: &Case) {
    let Some((one, other)) = handles(case).await else { return };
    let (key, busy) = (case.key("a"), case.key("elsewhere/b"));
    let version = stored(&*one, &key, Expect::Absent, "1").await;
    let counting = async {
        let mut wakes = 0;
        loop {
            one.changed(&key, Some(&version)).await;
            wakes += 1;
            assert!(wakes < 20, "woken {wakes} times, and nothing has changed");
        }
    };
    let writing = async {
        let mut expect = Expect::Absent;
        for number in 0..100 {
            expect = Expect::At(stored(&*other, &busy, expect, number.to_string()).await);
        }
        tokio::time::sleep(A_MOMENT).await;
    };
    futures_util::future::select(Box::pin(counting), Box::pin(writing)).await;
}
