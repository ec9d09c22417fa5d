//! The contents of documents.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure::store::{Expect, Fault, MAX_DOCUMENT_BYTES, StoreExt};

use super::Case;
use super::case::{found, stored};

/// Bodies are bytes: empty ones, NULs, invalid text.
pub async fn odd_bodies_are_kept_byte_by_byte(case: &Case) {
    let store = case.store().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let bodies: [&[u8]; 9] = [
        b"",
        b"\0",
        b"\0\0\0 and more",
        b"\xff\xfe\x80",
        b"\xed\xa0\x80",
        "\u{feff}\u{202e}😀".as_bytes(),
        b"line\r\nline\n\n",
        b"{\"op\":\"x\",\"$set\":{\"a.b\":1}}",
        &every_byte,
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let key = case.key(&format!("body-{number}"));
        stored(&*store, &key, Expect::Absent, body.to_vec()).await;
        assert_eq!(&found(&*store, &key).await.body[..], body, "body {number}");
    }
}

/// An empty document is there, a missing one is not.
pub async fn an_empty_document_is_not_a_missing_one(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let version = stored(&*store, &key, Expect::Absent, "").await;
    let full = stored(&*store, &key, Expect::At(version), "x").await;
    let empty = stored(&*store, &key, Expect::At(full), "").await;
    let document = found(&*store, &key).await;
    assert_eq!((document.version, document.body), (empty, Bytes::new()));
}

/// The largest document that is promised fits.
pub async fn the_largest_document_fits(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    // No two pages of it are alike.
    let body: Vec<u8> = (0..MAX_DOCUMENT_BYTES).map(|at| (at / 251 + at) as u8).collect();
    stored(&*store, &key, Expect::Absent, body.clone()).await;
    assert!(found(&*store, &key).await.body == body, "the body came back changed");
}

/// One byte more is refused for good, and nothing is written.
pub async fn a_larger_document_is_refused_for_good(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let body = Bytes::from(vec![b'x'; MAX_DOCUMENT_BYTES + 1]);
    let refused = store.put(&key, Expect::Absent, body.clone()).await.expect_err("refused");
    assert_eq!(refused.fault, Fault::Permanent, "{refused}");
    assert_eq!(store.get(&key).await.expect("an answer"), None);
    let version = stored(&*store, &key, Expect::Absent, "small").await;
    let refused = store.put(&key, Expect::At(version), body).await.expect_err("refused");
    assert_eq!(refused.fault, Fault::Permanent, "{refused}");
    assert_eq!(found(&*store, &key).await.body, "small");
}

/// Rewriting the same bytes is a write like any other.
pub async fn the_same_body_can_be_written_again(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let mut version = stored(&*store, &key, Expect::Absent, "same").await;
    for _ in 0..5 {
        version = stored(&*store, &key, Expect::At(version), "same").await;
        assert_eq!(found(&*store, &key).await.version, version);
    }
}

/// Different bodies never share a version, with or without deletions in between.
pub async fn bodies_that_differ_never_share_a_version(case: &Case) {
    let (store, key) = (case.store().await, case.key("a"));
    let mut seen: BTreeMap<tenure::store::Version, String> = BTreeMap::new();
    let mut expect = Expect::Absent;
    for number in 0..100 {
        let body = format!("{}", number % 70);
        let version = stored(&*store, &key, expect, body.clone()).await;
        if let Some(before) = seen.insert(version.clone(), body.clone()) {
            assert_eq!(before, body, "both are at {version:?}");
        }
        expect = if number % 10 == 9 {
            let _ = store.delete(&key, version).await.expect("an answer");
            Expect::Absent
        } else {
            Expect::At(version)
        };
    }
}
