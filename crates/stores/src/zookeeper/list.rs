//! Lists the documents under a prefix: a walk over levels, with one round of requests per level.

use std::collections::BTreeSet;

use super::client::{Client, Error};
use super::paths::{Named, Paths, name};
use super::read::{self, Behind};
use futures_util::future::join_all;
use tenure::store::Page;
use tenure::{Key, MAX_KEY_SEGMENTS};

/// A page of documents.
pub(super) async fn page(
    client: &Client,
    paths: &Paths,
    prefix: &Key,
    after: Option<&Key>,
    limit: usize,
) -> Result<Page, Error> {
    let mut keys = keys(client, paths, prefix, after).await?.into_iter();
    let mut page = Page::default();
    // A document may be deleted between the walk and the read: then the next ones take its place.
    loop {
        let some: Vec<Key> = keys.by_ref().take(limit - page.documents.len()).collect();
        if some.is_empty() {
            break;
        }
        let some_paths = some.iter().map(|key| paths.document(key)).collect();
        let asked = read::ask(client, some_paths, Behind::Nothing);
        for (key, document) in some.into_iter().zip(asked.documents().await?) {
            page.documents.extend(document.map(|document| (key, document)));
        }
    }
    if keys.next().is_some() {
        page.next = page.documents.last().map(|(key, _)| key.clone());
    }
    Ok(page)
}

/// The keys of all documents strictly below `prefix` and after `after`.
async fn keys(
    client: &Client,
    paths: &Paths,
    prefix: &Key,
    after: Option<&Key>,
) -> Result<BTreeSet<Key>, Error> {
    let mut keys = BTreeSet::new();
    let mut levels = vec![prefix.clone()];
    for _ in 0..MAX_KEY_SEGMENTS {
        if levels.is_empty() {
            break;
        }
        let nodes: Vec<String> = levels.iter().map(|level| paths.level(level)).collect();
        let asked: Vec<_> = nodes.iter().map(|node| client.children(node)).collect();
        let mut below = Vec::new();
        for (level, children) in levels.iter().zip(join_all(asked).await) {
            let children = match children {
                Ok((children, _)) => children,
                Err(Error::NoNode) => continue,
                Err(error) => return Err(error),
            };
            for child in children.iter().filter_map(|child| name(child)) {
                match child {
                    Named::Document(segment) => keys.extend(level.child(&segment).ok()),
                    Named::Level(segment) => below.extend(level.child(&segment).ok()),
                }
            }
        }
        below.retain(|level| may_hold(level, after));
        levels = below;
    }
    keys.retain(|key| after.is_none_or(|after| key > after));
    Ok(keys)
}

/// Returns true if a key below this level can come after the key `after`.
fn may_hold(level: &Key, after: Option<&Key>) -> bool {
    // All keys below `a` sort before `a0`, because `0` follows the slash.
    after.is_none_or(|after| format!("{level}0").as_str() > after.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_lie_behind_are_left_out() {
        let key = |text| Key::parse(text).expect("a good key");
        for (level, after, may) in [
            ("a", "a", true),
            ("a", "a/b", true),
            ("a", "a-b", true),
            ("a", "a0", false),
            ("a", "b", false),
            ("b", "a/z", true),
        ] {
            assert_eq!(may_hold(&key(level), Some(&key(after))), may, "{level} {after}");
        }
    }
}
