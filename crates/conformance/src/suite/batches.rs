//! Many documents in one call.

use tenure::Key;
use tenure::store::{Durability, Expect, Fault, MAX_DOCUMENT_BYTES, Put, Store, StoreExt, Write};

use super::Case;
use super::case::{found, stored};

/// Enough to exceed a store's own limits on the size of a request.
const MANY: usize = 1000;

fn write(key: &Key, expect: Expect, body: Option<&str>) -> Write {
    let body = body.map(|body| body.to_owned().into());
    Write { key: key.clone(), expect, body, durability: Durability::Lasting }
}

/// Answers come in the order asked for, with gaps, and as often as asked for.
pub async fn documents_are_read_in_the_order_asked_for(case: &Case) {
    let store = case.store().await;
    let (a, b, c) = (case.key("a"), case.key("b/c"), case.key("missing"));
    stored(&*store, &a, Expect::Absent, "a").await;
    stored(&*store, &b, Expect::Absent, "b").await;
    let asked = [c.clone(), b.clone(), a.clone(), b.clone(), c.clone(), a.clone()];
    let read = store.get_many(&asked).await.expect("an answer");
    let bodies: Vec<Option<&[u8]>> =
        read.iter().map(|found| found.as_ref().map(|document| &document.body[..])).collect();
    let (a, b): (Option<&[u8]>, Option<&[u8]>) = (Some(b"a"), Some(b"b"));
    assert_eq!(bodies, [None, b, a, b, None, a]);
}

/// An empty request has an empty answer.
pub async fn an_empty_batch_is_answered_by_nothing(case: &Case) {
    let store = case.store().await;
    assert_eq!(store.get_many(&[]).await.expect("an answer"), []);
    assert!(store.put_many(Vec::new()).await.is_empty());
}

/// Each write of a batch has its own outcome, and does not affect the others.
pub async fn writes_of_a_batch_succeed_and_fail_on_their_own(case: &Case) {
    let store = case.store().await;
    let keys: Vec<Key> = ["a", "b", "c", "d", "e", "f"].map(|name| case.key(name)).to_vec();
    let stale = stored(&*store, &keys[1], Expect::Absent, "1").await;
    let fresh = stored(&*store, &keys[1], Expect::At(stale.clone()), "2").await;
    let doomed = stored(&*store, &keys[3], Expect::Absent, "1").await;
    let kept = stored(&*store, &keys[4], Expect::Absent, "1").await;
    let huge = "x".repeat(MAX_DOCUMENT_BYTES + 1);
    let outcomes = store
        .put_many(vec![
            write(&keys[0], Expect::Absent, Some("new")),
            write(&keys[1], Expect::At(stale.clone()), Some("stale")),
            write(&keys[2], Expect::At(stale), Some("missing")),
            write(&keys[3], Expect::At(doomed), None),
            write(&keys[4], Expect::Absent, Some("exists")),
            write(&keys[5], Expect::Absent, Some(&huge)),
        ])
        .await;
    let stored_at = |at: usize| matches!(outcomes[at], Ok(Put::Stored(_)));
    let conflict = |at: usize| matches!(outcomes[at], Ok(Put::Conflict));
    assert_eq!(outcomes.len(), 6);
    assert!(stored_at(0) && conflict(1) && conflict(2) && stored_at(3) && conflict(4));
    assert!(matches!(&outcomes[5], Err(error) if error.fault == Fault::Permanent));
    assert_eq!(found(&*store, &keys[0]).await.body, "new");
    assert_eq!(found(&*store, &keys[1]).await.version, fresh);
    assert_eq!(found(&*store, &keys[4]).await.version, kept);
    for gone in [2, 3, 5] {
        assert_eq!(store.get(&keys[gone]).await.expect("an answer"), None);
    }
}

/// Of two writes of one document in a batch that expect the same, one is refused.
pub async fn of_two_writes_of_one_document_in_a_batch_one_is_stored(case: &Case) {
    let store = case.store().await;
    let (new, old, gone) = (case.key("new"), case.key("old"), case.key("gone"));
    let before = stored(&*store, &old, Expect::Absent, "1").await;
    let doomed = stored(&*store, &gone, Expect::Absent, "1").await;
    let others: Vec<Key> = (0..20).map(|number| case.key(&format!("n{number}"))).collect();
    let mut writes = vec![
        write(&new, Expect::Absent, Some("first")),
        write(&old, Expect::At(before.clone()), Some("first")),
        write(&gone, Expect::At(doomed.clone()), None),
    ];
    writes.extend(others.iter().map(|key| write(key, Expect::Absent, Some("other"))));
    writes.extend([
        write(&new, Expect::Absent, Some("second")),
        write(&old, Expect::At(before), Some("second")),
        write(&gone, Expect::At(doomed), Some("second")),
    ]);
    let outcomes = store.put_many(writes).await;
    let is_stored = |at: usize| match &outcomes[at] {
        Ok(Put::Stored(_)) => true,
        Ok(Put::Conflict) => false,
        Err(error) => panic!("write {at}: {error}"),
    };
    assert!((3..23).all(is_stored), "{outcomes:?}");
    for (first, second, key) in [(0, 23, &new), (1, 24, &old), (2, 25, &gone)] {
        assert_ne!(is_stored(first), is_stored(second), "{key}: {outcomes:?}");
        let read = store.get(key).await.expect("an answer").map(|document| document.body);
        let expected = match (is_stored(first), key == &gone) {
            (true, true) => None,
            (true, false) => Some("first"),
            (false, _) => Some("second"),
        };
        assert_eq!(read.as_deref(), expected.map(str::as_bytes), "{key}");
    }
}

/// A thousand documents are created, read, changed and deleted in one call each.
pub async fn a_thousand_documents_go_in_one_batch(case: &Case) {
    let store = case.store().await;
    let keys: Vec<Key> = (0..MANY).map(|number| case.key(&format!("n{number}"))).collect();
    let created =
        keys.iter().enumerate().map(|(at, key)| write(key, Expect::Absent, Some(&at.to_string())));
    let versions = all_stored(&*store, created.collect()).await;
    let read = store.get_many(&keys).await.expect("an answer");
    for (at, found) in read.iter().enumerate() {
        let found = found.as_ref().expect("it is there");
        assert_eq!((&found.version, &found.body[..]), (&versions[at], at.to_string().as_bytes()));
    }
    let at = |(key, version): (&Key, tenure::store::Version), body| {
        write(key, Expect::At(version), body)
    };
    let changed = keys.iter().zip(versions).map(|pair| at(pair, Some("changed")));
    let versions = all_stored(&*store, changed.collect()).await;
    let deleted = keys.iter().zip(versions).map(|pair| at(pair, None));
    all_stored(&*store, deleted.collect()).await;
    assert!(store.get_many(&keys).await.expect("an answer").iter().all(Option::is_none));
}

async fn all_stored(store: &dyn Store, writes: Vec<Write>) -> Vec<tenure::store::Version> {
    let outcomes = store.put_many(writes).await;
    assert_eq!(outcomes.len(), MANY);
    let version = |outcome| match outcome {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    };
    outcomes.into_iter().map(version).collect()
}
