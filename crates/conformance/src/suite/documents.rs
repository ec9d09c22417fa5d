//! Compare-and-set on one document.

use tenure::store::{Expect, Put, StoreExt};

use super::Case;
use super::case::{found, stored};

/// A document is read back as it was written, at the version the write gave.
pub async fn a_document_is_read_back_at_the_version_its_write_gave(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let version = stored(&*store, &key, Expect::Absent, "one").await;
    let document = found(&*store, &key).await;
    assert_eq!((document.version, &document.body[..]), (version, &b"one"[..]));
}

/// A write by one handle is visible to another.
pub async fn another_handle_reads_what_was_acknowledged(case: &Case) {
    let (one, other, key) = (case.store().await, case.store().await, case.key("a"));
    let mut version = stored(&*one, &key, Expect::Absent, "0").await;
    for number in 1..50 {
        assert_eq!(found(&*other, &key).await.version, version);
        let (writer, reader) = if number % 2 == 0 { (&one, &other) } else { (&other, &one) };
        version = stored(&**writer, &key, Expect::At(version), number.to_string()).await;
        assert_eq!(found(&**reader, &key).await.body, number.to_string());
    }
}

/// Reading a missing document is no error.
pub async fn a_missing_document_reads_as_none(case: &Case) {
    let store = case.store().await;
    assert_eq!(store.get(&case.key("missing")).await.expect("an answer"), None);
    assert_eq!(store.get(&case.key("deeply/missing")).await.expect("an answer"), None);
}

/// Creating an existing document is a conflict and changes nothing.
pub async fn creating_what_exists_is_a_conflict(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let version = stored(&*store, &key, Expect::Absent, "one").await;
    let put = store.put(&key, Expect::Absent, "two".into()).await.expect("an answer");
    assert_eq!(put, Put::Conflict);
    let document = found(&*store, &key).await;
    assert_eq!((document.version, &document.body[..]), (version, &b"one"[..]));
}

/// A write at a stale version is a conflict and changes nothing.
pub async fn a_write_at_a_stale_version_is_a_conflict(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let first = stored(&*store, &key, Expect::Absent, "one").await;
    let second = stored(&*store, &key, Expect::At(first.clone()), "two").await;
    let put = store.put(&key, Expect::At(first), "three".into()).await.expect("an answer");
    assert_eq!(put, Put::Conflict);
    let document = found(&*store, &key).await;
    assert_eq!((document.version, &document.body[..]), (second, &b"two"[..]));
}

/// A write at a version of a missing document is a conflict.
pub async fn a_write_at_a_version_of_a_missing_document_is_a_conflict(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let version = stored(&*store, &case.key("b"), Expect::Absent, "one").await;
    let put = store.put(&key, Expect::At(version), "two".into()).await.expect("an answer");
    assert_eq!(put, Put::Conflict);
    assert_eq!(store.get(&key).await.expect("an answer"), None);
}

/// A deleted document is gone for every handle.
pub async fn a_deleted_document_is_gone(case: &Case) {
    let (store, other, key) = (case.store().await, case.store().await, case.key("a"));
    let version = stored(&*store, &key, Expect::Absent, "one").await;
    let put = store.delete(&key, version).await.expect("an answer");
    assert!(matches!(put, Put::Stored(_)), "{put:?}");
    assert_eq!(store.get(&key).await.expect("an answer"), None);
    assert_eq!(other.get(&key).await.expect("an answer"), None);
}

/// A deletion at a stale version is a conflict and deletes nothing.
pub async fn a_deletion_at_a_stale_version_is_a_conflict(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let first = stored(&*store, &key, Expect::Absent, "one").await;
    let second = stored(&*store, &key, Expect::At(first.clone()), "two").await;
    assert_eq!(store.delete(&key, first).await.expect("an answer"), Put::Conflict);
    assert_eq!(found(&*store, &key).await.version, second);
}

/// A deleted document cannot be deleted once more.
pub async fn deleting_what_is_gone_is_a_conflict(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let version = stored(&*store, &key, Expect::Absent, "one").await;
    let _ = store.delete(&key, version.clone()).await.expect("an answer");
    assert_eq!(store.delete(&key, version).await.expect("an answer"), Put::Conflict);
}

/// After a deletion the key can be used again, and the old version is invalid.
pub async fn a_deleted_document_can_be_created_again(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let first = stored(&*store, &key, Expect::Absent, "one").await;
    let _ = store.delete(&key, first.clone()).await.expect("an answer");
    let second = stored(&*store, &key, Expect::Absent, "two").await;
    assert_ne!(first, second);
    let put = store.put(&key, Expect::At(first), "three".into()).await.expect("an answer");
    assert_eq!(put, Put::Conflict);
    assert_eq!(found(&*store, &key).await.version, second);
}
