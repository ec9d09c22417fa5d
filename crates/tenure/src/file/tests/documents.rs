//! Tests of documents: their versions, batches, listings and files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::store::{MAX_DOCUMENT_BYTES, StoreExt as _};

#[tokio::test]
async fn documents_are_files_that_people_read_and_others_cannot() {
    let at = directory();
    let store = open(&at);
    stored(store.put(&key("elections/a/b"), Expect::Absent, "{\"a\":1}".into()).await);
    assert_eq!(fs::read_to_string(file(&at, "elections/a/b.json")).expect("a file"), "{\"a\":1}");
    for (below, mode) in [("", 0o700), ("elections/a", 0o700), ("elections/a/b.json", 0o600)] {
        let found = fs::metadata(file(&at, below)).expect("there").permissions().mode();
        assert_eq!(found & 0o7777, mode, "{below}");
    }
}

#[tokio::test]
async fn a_write_needs_the_version_it_expects() {
    let at = directory();
    let store = open(&at);
    let first = stored(store.put(&key("a"), Expect::Absent, "1".into()).await);
    assert_eq!(
        store.put(&key("a"), Expect::Absent, "2".into()).await.expect("answered"),
        Put::Conflict
    );
    let at_first = || Expect::At(first.clone());
    let second = stored(store.put(&key("a"), at_first(), "2".into()).await);
    assert_ne!(first, second);
    assert_eq!(
        store.put(&key("a"), at_first(), "3".into()).await.expect("answered"),
        Put::Conflict
    );
    assert_eq!(
        store.put(&key("b/c"), at_first(), "3".into()).await.expect("answered"),
        Put::Conflict
    );
    assert!(!file(&at, "b").exists(), "a lost race makes no directory");
    let read = store.get(&key("a")).await.expect("read").expect("there");
    assert_eq!((read.version, &read.body[..]), (second, &b"2"[..]));
}

#[tokio::test]
async fn a_deletion_leaves_nothing_behind() {
    let at = directory();
    let store = open(&at);
    let version = stored(store.put(&key("a/b"), Expect::Absent, "1".into()).await);
    stored(store.delete(&key("a/b"), version.clone()).await);
    assert_eq!(store.get(&key("a/b")).await.expect("read"), None);
    assert_eq!(fs::read_dir(file(&at, "a")).expect("there").count(), 0);
    assert_eq!(store.delete(&key("a/b"), version).await.expect("answered"), Put::Conflict);
}

#[test]
fn one_of_a_hundred_contenders_wins_each_round() {
    let at = directory();
    let mut version =
        stored(put_here(&open(&at), write("a/b", Expect::Absent, "0", Durability::Lasting)));
    for round in 0..3 {
        let contend = |contender: usize| {
            let (at, version) = (&at, version.clone());
            move || {
                // Each uses a handle of its own: locks of descriptors in one process exclude each
                // other too.
                let body = format!("{round} {contender}");
                let write = write("a/b", Expect::At(version), &body, Durability::Lasting);
                put_here(&open(at), write).expect("answered")
            }
        };
        let puts: Vec<Put> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..100).map(|number| scope.spawn(contend(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("joined")).collect()
        });
        let won: Vec<_> = puts.into_iter().filter(|put| *put != Put::Conflict).collect();
        let [Put::Stored(next)] = &won[..] else { panic!("{won:?}") };
        version = next.clone();
    }
}

#[tokio::test]
async fn a_batch_gives_each_write_its_own_outcome() {
    let at = directory();
    let store = open(&at);
    stored(store.put(&key("d3/a"), Expect::Absent, "old".into()).await);
    let large = "x".repeat(MAX_DOCUMENT_BYTES + 1);
    let mut writes: Vec<Write> = (0..100)
        .map(|n| write(&format!("d{}/a", n), Expect::Absent, "new", Durability::Lasting))
        .collect();
    writes[4] = write("d4/a", Expect::Absent, &large, Durability::Lasting);
    writes[5] = write("d5/a", Expect::Absent, &large, Durability::UntilPowerCut);
    let outcomes = store.put_many(writes).await;
    assert_eq!(outcomes.len(), 100);
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match n {
            3 => assert_eq!(outcome.expect("answered"), Put::Conflict),
            4 | 5 => assert_eq!(outcome.expect_err("too large").fault, Fault::Permanent),
            _ => drop(stored(outcome)),
        }
        let temporary =
            |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".temp");
        let left = fs::read_dir(file(&at, &format!("d{n}"))).expect("there");
        assert!(!left.flatten().any(temporary), "d{n}");
    }
}

#[tokio::test]
async fn a_listing_pages_in_key_order_and_skips_what_is_not_ours() {
    let at = directory();
    let store = open(&at);
    for text in ["a/c", "a/b", "a", "a-b", "ab/c", "a/b/c", "a/.json", "a/x.json", "a/ü"] {
        stored(store.put(&key(text), Expect::Absent, "x".into()).await);
    }
    fs::write(file(&at, "a/%41.json"), "x").expect("written");
    fs::write(file(&at, "a/README"), "x").expect("written");
    fs::write(file(&at, "a/large.json"), vec![b'x'; MAX_DOCUMENT_BYTES + 1]).expect("written");
    symlink("/etc/passwd", file(&at, "a/link.json")).expect("linked");
    let (mut keys, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = store.list(&key("a"), after.as_ref(), 2).await.expect("a page");
        keys.extend(page.documents.iter().map(|(key, _)| key.to_string()));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys, ["a/.json", "a/b", "a/b/c", "a/c", "a/x.json", "a/ü"]);
    assert_eq!(pages, 4);
    assert_eq!(store.list(&key("none"), None, 2).await.expect("a page"), Page::default());
}

#[tokio::test]
async fn a_lock_somebody_keeps_makes_the_store_unavailable_in_time() {
    let at = directory();
    // The lock is given up after three quarters of the time. A request that takes all of it is
    // indeterminate.
    let request = Duration::from_secs(6);
    let options = FileOptions { request, ..FileOptions::default() };
    let store = FileStore::open(&file(&at, ""), options).expect("opened");
    let version = stored(store.put(&key("a/b"), Expect::Absent, "1".into()).await);
    let held = fs::File::open(file(&at, "a")).expect("opened");
    held.lock().expect("locked");
    let put = store.put(&key("a/b"), Expect::At(version.clone()), "2".into()).await;
    assert_eq!(put.expect_err("locked").fault, Fault::Unavailable);
    stored(store.put(&key("other/b"), Expect::Absent, "2".into()).await);
    assert_eq!(&store.get(&key("a/b")).await.expect("read").expect("there").body[..], b"1");
    drop(held);
    stored(store.put(&key("a/b"), Expect::At(version), "2".into()).await);
}
