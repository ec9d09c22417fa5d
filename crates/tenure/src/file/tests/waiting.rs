//! Tests of waiting for a change.

use super::*;
use crate::store::StoreExt as _;

#[tokio::test]
async fn another_handles_write_wakes_who_waits_for_that_key_only() {
    let at = directory();
    let (store, other) = (open(&at), open(&at));
    let version = stored(store.put(&key("a/b"), Expect::Absent, "1".into()).await);
    let (waited_for, seen) = (key("a/b"), version.clone());
    let mut waits = Box::pin(store.changed(&waited_for, Some(&seen)));
    let second = store.put(&key("a/c"), Expect::Absent, "1".into()).await;
    let mut unrelated = {
        let (store, second) = (store.clone(), stored(second));
        tokio::spawn(async move { store.changed(&key("a/c"), Some(&second)).await })
    };
    let pause = Duration::from_millis(50);
    assert!(tokio::time::timeout(pause, &mut waits).await.is_err(), "nothing changed yet");
    let began = Instant::now();
    stored(other.put(&key("a/b"), Expect::At(version), "2".into()).await);
    tokio::time::timeout(Duration::from_secs(5), waits).await.expect("woken");
    println!("woken after {:?}, the write included", began.elapsed());
    assert!(tokio::time::timeout(pause, &mut unrelated).await.is_err(), "another key");
    unrelated.abort();
}

#[tokio::test]
async fn who_waits_for_what_does_not_exist_is_woken_when_it_does() {
    let at = directory();
    let (store, other) = (open(&at), open(&at));
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.changed(&key("a/b/c/d"), None).await })
    };
    for text in ["a/x", "a/b/x", "a/b/c/x", "a/b/c/d"] {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(!waiting.is_finished(), "{text}");
        stored(other.put(&key(text), Expect::Absent, "1".into()).await);
    }
    tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("joined");
}

#[tokio::test]
async fn a_deletion_wakes_and_a_version_that_is_old_already_does_not_wait() {
    let at = directory();
    let store = open(&at);
    let version = stored(store.put(&key("a/b"), Expect::Absent, "1".into()).await);
    store.changed(&key("a/b"), None).await;
    let waiting = {
        let (store, version) = (store.clone(), version.clone());
        tokio::spawn(async move { store.changed(&key("a/b"), Some(&version)).await })
    };
    stored(store.delete(&key("a/b"), version).await);
    tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("joined");
    assert!(store.notifies());
}

#[tokio::test]
async fn no_wake_up_is_lost_between_looking_and_waiting() {
    let at = directory();
    let (store, other) = (open(&at), open(&at));
    let mut version = stored(store.put(&key("a/b"), Expect::Absent, "0".into()).await);
    for round in 1..300 {
        let (waited_for, seen) = (key("a/b"), version.clone());
        let changed = store.changed(&waited_for, Some(&seen));
        let change =
            write("a/b", Expect::At(version), &round.to_string(), Durability::UntilPowerCut);
        let both = async { tokio::join!(changed, other.put_many(vec![change])).1 };
        let mut outcome = tokio::time::timeout(Duration::from_secs(5), both).await.expect("woken");
        version = stored(outcome.pop().expect("an outcome"));
    }
}
