//! Objects in memory and in a directory.

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tenure_cluster::input::{End, Template, Window, Windowed};
use tenure_cluster::inputs::Objects;

async fn fill(store: &dyn ObjectStore, keys: &[&str]) {
    for key in keys {
        let body = format!("content of {key}");
        store.put(&Path::from(*key), body.into()).await.expect("stored");
    }
}

fn ids(window: &Window) -> Vec<&str> {
    window.orders.iter().map(|order| order.id.as_str()).collect()
}

/// The objects under `p`, for both ways of listing the store.
async fn objects(keys: &[&str]) -> (Arc<InMemory>, [Objects; 2]) {
    let store = Arc::new(InMemory::new());
    fill(&*store, keys).await;
    let objects = Objects::new(store.clone(), "p").expect("a prefix");
    (store, [objects.clone(), objects.in_order()])
}

#[tokio::test]
async fn windows_follow_each_other_in_the_order_of_keys_until_it_is_drained() {
    let keys = ["p/b", "p/a/x", "p/a-b", "p/c", "p/a", "pq/no", "o/no", "p/d/e/f"];
    let (_store, ways) = objects(&keys).await;
    for objects in ways {
        let source = objects.source(Template::new("object"));
        let first = source.outstanding(None, 2).await.expect("a window");
        assert_eq!((ids(&first), first.position.as_deref()), (vec!["a", "a-b"], Some("a-b")));
        assert_eq!(first.orders[0].payload, "a");
        let second = source.outstanding(Some("a-b"), 2).await.expect("a window");
        assert_eq!((ids(&second), second.drained), (vec!["a/x", "b"], false));
        // The same window again, smaller, and from the beginning as a new leader would.
        let again = source.outstanding(Some("a-b"), 1).await.expect("a window");
        assert_eq!(ids(&again), ["a/x"]);
        let all = objects.source(Template::new("object")).outstanding(Some("a-b"), 99).await;
        assert_eq!(ids(&all.expect("a window")), ["a/x", "b", "c", "d/e/f"]);
        let last = source.outstanding(Some("c"), 99).await.expect("a window");
        assert_eq!((ids(&last), last.drained), (vec!["d/e/f"], true));
        let none = source.outstanding(Some("d/e/f"), 99).await.expect("a window");
        let position = Some("d/e/f".to_owned());
        assert_eq!(none, Window { orders: vec![], position, drained: true });
    }
}

#[tokio::test]
async fn whoever_follows_waits_for_a_key_after_the_last() {
    let (store, ways) = objects(&["p/1"]).await;
    for (number, objects) in ways.into_iter().enumerate() {
        let source = objects.source(Template::new("object")).polling(Duration::from_millis(10));
        let position = (number + 1).to_string();
        let waiting = source.outstanding(Some(&position), 9);
        tokio::pin!(waiting);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
        assert!(early.is_err(), "there is nothing yet");
        let next = (number + 2).to_string();
        fill(&*store, &["p/0", &format!("p/{next}")]).await;
        let window = waiting.await.expect("a window");
        assert_eq!((ids(&window), window.drained), (vec![next.as_str()], false));
    }
}

#[tokio::test]
async fn only_what_is_done_and_its_own_is_deleted() {
    let (store, [objects, _]) = objects(&["p/a", "p/b", "p/c", "secret"]).await;
    let (leaving, deleting) = (
        objects.source(Template::new("object")),
        objects.source(Template::new("object")).deleting(),
    );
    leaving.commit("c", b"c", End::Done).await.expect("taken note of");
    for (id, payload, end) in [
        ("a", "a", End::Done),
        ("a", "a", End::Done),
        ("b", "b", End::Dead),
        ("b", "b", End::Cancelled),
        ("c", "another task of this name", End::Done),
        ("../secret", "../secret", End::Done),
        ("", "", End::Done),
    ] {
        deleting.commit(id, payload.as_bytes(), end).await.expect("taken note of");
    }
    let mut left = Vec::new();
    for key in ["p/a", "p/b", "p/c", "secret"] {
        left.push(store.head(&Path::from(key)).await.is_ok());
    }
    assert_eq!(left, [false, true, true, true]);
}

#[tokio::test]
async fn an_object_is_fetched_into_a_file_that_goes_when_it_is_no_longer_used() {
    let (_store, [objects, _]) = objects(&["p/photos/cat.jpg", "secret"]).await;
    let copy = objects.fetch("photos/cat.jpg").await.expect("fetched");
    let path = copy.to_path_buf();
    assert!(path.extension().is_some_and(|ending| ending == "jpg"), "{}", path.display());
    let content = std::fs::read_to_string(&copy).expect("a file");
    assert_eq!(content, "content of p/photos/cat.jpg");
    drop(copy);
    assert!(!path.exists());
    for key in ["missing", "../secret", "", "/photos/cat.jpg", "photos/"] {
        let error = objects.fetch(key).await.expect_err(key);
        assert!(error.0.starts_with(&format!("fetching {key:?}")), "{error}");
    }
}

#[tokio::test]
async fn a_directory_is_a_store_too() {
    let root = tempfile::tempdir().expect("a directory");
    let url = format!("file://{}", root.path().display());
    for number in 0..300 {
        let directory = root.path().join(format!("d{}", number % 3));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join(format!("{number:03}.txt")), "x").expect("a file");
    }
    let objects = Objects::open(&url).expect("a directory");
    let source = objects.source(Template::new("object")).deleting();
    let (mut seen, mut position) = (Vec::new(), None);
    loop {
        let window = source.outstanding(position.as_deref(), 64).await.expect("a window");
        seen.extend(window.orders.iter().map(|order| order.id.clone()));
        if window.drained {
            break;
        }
        position = window.position;
    }
    let mut expected: Vec<_> =
        (0..300).map(|number| format!("d{}/{number:03}.txt", number % 3)).collect();
    expected.sort();
    assert_eq!(seen, expected);
    let copy = objects.fetch("d0/000.txt").await.expect("fetched");
    assert_eq!(std::fs::read_to_string(copy).expect("a file"), "x");
    source.commit("d0/000.txt", b"d0/000.txt", End::Done).await.expect("deleted");
    assert!(!root.path().join("d0/000.txt").exists());
}

#[tokio::test]
async fn a_store_that_does_not_list_in_order_is_found_out_when_it_was_said_to() {
    // Directories list in the order of creation, or of hashes, but never list 300 files by name.
    let root = tempfile::tempdir().expect("a directory");
    for number in 0..300 {
        std::fs::write(root.path().join(format!("{}", number * 7919 % 300)), "x").expect("a file");
    }
    let objects = Objects::open(&format!("file://{}", root.path().display()));
    let source = objects.expect("a directory").in_order().source(Template::new("object"));
    let error = source.outstanding(None, 300).await.expect_err("not in order");
    assert!(error.0.contains("does not list in order"), "{error}");
}

#[tokio::test]
async fn urls_that_name_no_store_are_refused_without_their_passwords() {
    for (url, says) in [
        ("secret", "opening ***: relative URL"),
        ("u:secret@bucket", "opening ***: this names no store"),
        ("ftp://secret/x", "opening ***: this names no store of objects"),
        ("s3://user:secret@bucket/x", "opening s3://bucket/x: a password belongs into"),
        ("s3://user:a@secret@bucket/x", "opening s3://bucket/x: a password belongs into"),
        ("s3://user:a\nsecret@bucket/x", "a password belongs into"),
        ("https://host/x?key=secret", "opening https://host/x?***: "),
        ("file:///missing/directory", "opening"),
    ] {
        let error = Objects::open(url).expect_err(url);
        assert!(error.0.contains(says) && !error.0.contains("secret"), "{error}");
    }
}

/// Regression: copies could fill the disk that their directory is on.
#[tokio::test]
async fn an_object_that_is_larger_than_all_copies_may_be_is_refused_and_nothing_is_copied() {
    let store = Arc::new(InMemory::new());
    store.put(&Path::from("p/large"), vec![b'x'; 5000].into()).await.expect("stored");
    store.put(&Path::from("p/small"), vec![b'x'; 4096].into()).await.expect("stored");
    let objects = Objects::new(store, "p").expect("a prefix").copies_of_at_most(4096);
    let error = objects.fetch("large").await.expect_err("too large");
    let says = "fetching \"large\": it has 5000 bytes, and all copies together may have 4096";
    assert!(error.0.starts_with(says), "{error}");
    assert_eq!(
        objects.fetch("small").await.expect("fetched").metadata().expect("a file").len(),
        4096
    );
}

/// Regression: a limit below 1 KiB was taken for 1 KiB.
#[tokio::test]
async fn a_limit_of_copies_is_exact_to_the_byte() {
    let store = Arc::new(InMemory::new());
    for size in [0, 1, 2, 1024, 1500, 1501] {
        let path = Path::from(format!("p/{size}"));
        store.put(&path, vec![b'x'; size].into()).await.expect("stored");
    }
    let objects = Objects::new(store, "p").expect("a prefix");
    for (limit, fit, too_large) in [(1, "1", "2"), (1, "0", "1024"), (1500, "1500", "1501")] {
        let objects = objects.clone().copies_of_at_most(limit);
        objects.fetch(fit).await.expect("it fits");
        let error = objects.fetch(too_large).await.expect_err("too large");
        assert!(error.0.contains(&format!("may have {limit} ")), "{error}");
    }
}

#[tokio::test]
async fn copies_wait_for_room_and_clones_count_together() {
    let store = Arc::new(InMemory::new());
    for key in ["p/a", "p/b"] {
        store.put(&Path::from(key), vec![b'x'; 3000].into()).await.expect("stored");
    }
    let objects = Objects::new(store.clone(), "p").expect("a prefix").copies_of_at_most(4096);
    let first = objects.fetch("a").await.expect("fetched");
    let clone = objects.clone();
    let mut second = tokio::spawn(async move { clone.fetch("b").await });
    let early = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
    assert!(early.is_err(), "there is no room");
    // An open copy without a name takes as much; the other object has shrunk meanwhile.
    let (file, room) = first.into_file().expect("opened");
    assert_eq!(file.metadata().expect("a file").len(), 3000);
    store.put(&Path::from("p/b"), vec![b'x'; 1000].into()).await.expect("stored");
    drop((file, room));
    let second = second.await.expect("no panic").expect("fetched");
    assert_eq!(second.metadata().expect("a file").len(), 1000);
}
