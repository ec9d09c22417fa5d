//! Every legal name, however odd.

use tenure::store::{Expect, StoreExt};
use tenure::{Election, Key, Name};

use super::Case;
use super::case::{candidate, opened, soon, stored, until};

/// Names that some store, file system or URL treats specially.
const ODD: [&str; 44] = [
    "A",
    "a",
    "Ä",
    "ä",
    "straße",
    "日本語",
    "😀",
    "e\u{301}",
    "é",
    "a b",
    " a",
    "a ",
    " ",
    "%",
    "%2F",
    "%2f",
    "%252F",
    "%00",
    "a%",
    "..a",
    "...",
    ".a",
    "a.",
    "a..b",
    ".json",
    "a.json",
    "a.json.json",
    "a.tmp",
    "-",
    "--help",
    "~",
    "$x",
    "*",
    "?",
    "[a]",
    "#a",
    "a&b=c",
    "a\\b",
    "'",
    "\"",
    "`id`",
    "_id",
    "<a>",
    "a:b",
];

fn longest(start: &str, with: &str) -> String {
    let mut segment = start.to_owned();
    while segment.len() + with.len() <= tenure::MAX_SEGMENT_BYTES {
        segment.push_str(with);
    }
    segment
}

/// Each odd name is a key of its own, and is listed as it was written.
pub async fn odd_names_are_kept_apart_and_listed_as_they_are(case: &Case) {
    let store = case.store().await;
    for name in ODD {
        stored(&*store, &case.key(name), Expect::Absent, name).await;
    }
    for name in ODD {
        let read = store.get(&case.key(name)).await.expect("an answer").expect("it is there");
        assert_eq!(&read.body[..], name.as_bytes());
    }
    let mut ordered: Vec<Key> = ODD.map(|name| case.key(name)).to_vec();
    ordered.sort();
    until("the listing has caught up", async || {
        let page = store.list(&case.root(), None, 100).await.expect("a page");
        page.documents.iter().map(|(key, _)| key).eq(ordered.iter())
    })
    .await;
}

/// Odd names may also be levels, and a document may have others below it.
pub async fn odd_names_may_be_levels(case: &Case) {
    let store = case.store().await;
    for name in ODD {
        stored(&*store, &case.key(name), Expect::Absent, "above").await;
        stored(&*store, &case.key(&format!("{name}/{name}")), Expect::Absent, name).await;
    }
    for name in ODD {
        let below = case.key(&format!("{name}/{name}"));
        let read = store.get(&below).await.expect("an answer").expect("it is there");
        assert_eq!(&read.body[..], name.as_bytes());
        until("the listing has caught up", async || {
            let page = store.list(&case.key(name), None, 10).await.expect("a page");
            page.documents.len() == 1 && page.documents[0].0 == below
        })
        .await;
    }
}

/// Eight levels of 128 bytes each fit.
///
/// That includes characters that take most room encoded.
pub async fn the_longest_names_fit(case: &Case) {
    let store = case.store().await;
    for with in ["x", "%", "é", "😀", " ", "."] {
        let first = longest(case.prefix(), with);
        let text = [first.as_str()].repeat(tenure::MAX_SEGMENTS).join("/");
        let key = Key::parse(&format!("conformance/{text}/{first}")).expect("a good key");
        stored(&*store, &key, Expect::Absent, with).await;
        let read = store.get(&key).await.expect("an answer").expect("it is there");
        assert_eq!(&read.body[..], with.as_bytes());
        let prefix = Key::parse(&format!("conformance/{first}")).expect("a good key");
        until("the listing has caught up", async || {
            let page = store.list(&prefix, None, 10).await.expect("a page");
            page.documents.iter().map(|(key, _)| key).eq([&key])
        })
        .await;
    }
}

/// Elections may have odd names too, and candidates.
pub async fn odd_names_make_good_elections(case: &Case) {
    let backend = case.open().await;
    let long = longest(case.prefix(), "😀");
    let deep = [long.as_str()].repeat(tenure::MAX_SEGMENTS).join("/");
    let odd = ODD.iter().step_by(3).map(|name| format!("{}/{name}", case.prefix()));
    let all: Vec<Name> = odd.chain([deep]).map(|name| name.parse().expect("a good name")).collect();
    for name in &all {
        let election = opened(&backend, name.as_str()).await.expect("it opens");
        let last = name.segments().last().expect("a name has segments");
        let leader =
            soon("the leadership", election.campaign(candidate(last))).await.expect("elected");
        let standing = election.standing().await.expect("readable");
        assert_eq!(standing.leader.expect("somebody leads").name.as_ref(), last);
        until("it is among the candidates", async || {
            let listed = election.candidates().await.expect("a list");
            listed.iter().any(|entry| &*entry.name == last && entry.id == leader.id())
        })
        .await;
        leader.resign().await;
    }
    until("all are listed", async || {
        let listed = Election::list(&backend).await.expect("a list");
        all.iter().all(|name| listed.iter().any(|standing| standing.election == *name))
    })
    .await;
}
