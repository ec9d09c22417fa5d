//! The documents under a prefix.

use futures_util::future::join_all;
use tenure::Key;
use tenure::store::{Expect, Page, Store, StoreExt};

use super::Case;
use super::case::{stored, until};

fn names(case: &Case, page: &Page) -> Vec<String> {
    let root = case.root();
    page.documents
        .iter()
        .map(|(key, _)| key.below(&root).unwrap_or_else(|| panic!("{key} is elsewhere")).to_owned())
        .collect()
}

/// All pages of this size. Checks that each says correctly whether there is more.
async fn walk(store: &dyn Store, prefix: &Key, limit: usize) -> Vec<(Key, Page)> {
    let mut pages: Vec<(Key, Page)> = Vec::new();
    let mut after: Option<Key> = None;
    loop {
        let page = store.list(prefix, after.as_ref(), limit).await.expect("a page");
        assert!(page.documents.len() <= limit, "more than was asked for");
        let next = page.next.clone();
        pages.push((after.unwrap_or_else(|| prefix.clone()), page));
        match next {
            None => return pages,
            Some(next) => {
                let (before, _) = pages.last().expect("one was just pushed");
                assert!(pages.len() == 1 || next > *before, "the listing does not move on");
                after = Some(next);
            }
        }
    }
}

async fn fill(case: &Case, below: &[&str]) -> std::sync::Arc<dyn Store> {
    let store = case.store().await;
    for name in below {
        stored(&*store, &case.key(name), Expect::Absent, name.to_string()).await;
    }
    store
}

/// Waits until the listing has caught up: it may be stale.
async fn until_listed(store: &dyn Store, prefix: &Key, count: usize) {
    until("the listing has caught up", async || {
        store.list(prefix, None, count + 1).await.expect("a page").documents.len() == count
    })
    .await;
}

/// Documents come with their bodies, in the order of their keys' bytes.
pub async fn documents_are_listed_in_the_order_of_their_keys(case: &Case) {
    let unordered = ["b", "a/b", "a-b", "B", "é", "a", "a.b", "10", "9", "a/a", "z", "a0", "~"];
    let store = fill(case, &unordered).await;
    until_listed(&*store, &case.root(), unordered.len()).await;
    let page = store.list(&case.root(), None, 100).await.expect("a page");
    let mut ordered: Vec<String> = unordered.map(String::from).to_vec();
    ordered.sort();
    assert_eq!(names(case, &page), ordered);
    for ((key, document), name) in page.documents.iter().zip(ordered) {
        let read = store.get(key).await.expect("an answer").expect("it is there");
        assert_eq!((&read, &document.body[..]), (document, name.as_bytes()));
    }
    assert_eq!(page.next, None);
}

/// Pages of any size leave nothing out and repeat nothing.
pub async fn pages_leave_nothing_out_and_repeat_nothing(case: &Case) {
    let all: Vec<String> = (0..25)
        .map(|number| match number % 3 {
            0 => format!("d{}/e/f{number:02}", number / 6),
            1 => format!("d{}/e{number:02}", number / 6),
            _ => format!("d{number:02}"),
        })
        .collect();
    let store = fill(case, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    until_listed(&*store, &case.root(), all.len()).await;
    let mut ordered = all.clone();
    ordered.sort();
    for limit in [1, 2, 3, 7, 24, 25, 26] {
        let pages = walk(&*store, &case.root(), limit).await;
        let listed: Vec<String> = pages.iter().flat_map(|(_, page)| names(case, page)).collect();
        assert_eq!(listed, ordered, "in pages of {limit}");
    }
}

/// A listing goes on after a key that was deleted meanwhile.
pub async fn a_page_begins_after_a_key_whether_it_exists_or_not(case: &Case) {
    let store = fill(case, &["a", "c", "e/f", "g"]).await;
    until_listed(&*store, &case.root(), 4).await;
    for (after, rest) in [
        ("a", &["c", "e/f", "g"][..]),
        ("b", &["c", "e/f", "g"]),
        ("c/x", &["e/f", "g"]),
        ("e", &["e/f", "g"]),
        ("e/f", &["g"]),
        ("g", &[]),
        ("z", &[]),
    ] {
        let page = store.list(&case.root(), Some(&case.key(after)), 10).await.expect("a page");
        assert_eq!(names(case, &page), rest, "after {after}");
    }
}

/// Only keys strictly below the prefix are listed, however deep.
///
/// Look-alikes are not listed.
pub async fn only_what_is_strictly_below_the_prefix_is_listed(case: &Case) {
    let all = ["p", "p/a", "p/a/b/c/d/e/f/g", "p-q", "p.json", "p0/a", "pp/a", "P/a", "p%2Fa", "o"];
    let store = fill(case, &all).await;
    until_listed(&*store, &case.root(), all.len()).await;
    let page = store.list(&case.key("p"), None, 100).await.expect("a page");
    assert_eq!(names(case, &page), ["p/a", "p/a/b/c/d/e/f/g"]);
    let page = store.list(&case.key("p/a"), None, 100).await.expect("a page");
    assert_eq!(names(case, &page), ["p/a/b/c/d/e/f/g"]);
}

/// An unused prefix lists nothing.
pub async fn an_unknown_prefix_lists_nothing(case: &Case) {
    let store = fill(case, &["a"]).await;
    for prefix in ["unknown", "a", "a/b/c"] {
        let page = store.list(&case.key(prefix), None, 10).await.expect("a page");
        assert_eq!(page, Page::default(), "below {prefix}");
    }
}

/// A deleted document is no longer listed.
pub async fn a_deleted_document_is_no_longer_listed(case: &Case) {
    let store = fill(case, &["a", "b/c", "d"]).await;
    until_listed(&*store, &case.root(), 3).await;
    let version = super::case::found(&*store, &case.key("b/c")).await.version;
    let _ = store.delete(&case.key("b/c"), version).await.expect("an answer");
    until_listed(&*store, &case.root(), 2).await;
    let page = store.list(&case.root(), None, 10).await.expect("a page");
    assert_eq!(names(case, &page), ["a", "d"]);
}

/// A walk beside writers sees every document that was there all along, once.
pub async fn a_walk_beside_writers_sees_what_stood_all_along(case: &Case) {
    let store = case.store().await;
    let steady: Vec<String> = (0..40).map(|number| format!("s{number:02}")).collect();
    join_all(steady.iter().map(|name| {
        let (store, key) = (store.clone(), case.key(name));
        async move { stored(&*store, &key, Expect::Absent, "steady").await }
    }))
    .await;
    until_listed(&*store, &case.root(), steady.len()).await;
    let writing = async {
        for number in 0..40 {
            let key = case.key(&format!("s{number:02}x"));
            let version = stored(&*store, &key, Expect::Absent, "passing").await;
            if number % 2 == 0 {
                let _ = store.delete(&key, version).await.expect("an answer");
            }
        }
    };
    let walking = async {
        for _ in 0..5 {
            let pages = walk(&*store, &case.root(), 7).await;
            let mut listed: Vec<String> =
                pages.iter().flat_map(|(_, page)| names(case, page)).collect();
            listed.retain(|name| !name.ends_with('x'));
            assert_eq!(listed, steady);
        }
    };
    futures_util::future::join(writing, walking).await;
}
