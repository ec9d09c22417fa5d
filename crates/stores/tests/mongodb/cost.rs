//! The cost of elections on MongoDB, counted at a proxy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tenure::store::{Durability, Expect, Put, Write};
use tenure::{Candidate, Election, Key, Timing};
use tenure_harness::{Direction, Framing, Proxy, Version, require};

use crate::faults::Servers as _;
use crate::kind::Kind;
use crate::support::open;

/// The commands that passed a proxy, by name.
type Counts = Arc<Mutex<HashMap<&'static str, usize>>>;

/// Counts commands with these names.
fn count(proxy: &Proxy) -> Counts {
    const NAMES: [&str; 5] = ["find", "insert", "update", "delete", "getMore"];
    let counts = Counts::default();
    let counting = counts.clone();
    proxy.observe(move |message| {
        // After the head and the flags comes a section with a document. Its first field is the
        // command.
        let name = message.bytes.get(26..).unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let known = NAMES.into_iter().find(|known| known.as_bytes() == name);
        if let (Direction::ToServer, Some(known)) = (message.direction, known) {
            *counting.lock().expect("no panic").entry(known).or_default() += 1;
        }
    });
    counts
}

fn of(counts: &Counts, name: &str) -> usize {
    counts.lock().expect("no panic").get(name).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_followers_poll_nothing_while_the_stream_is_up() {
    let server = require!(Kind::start(1, Version::Newest).await);
    let timing = Timing::new(Duration::from_secs(300)).expect("room for every part");
    let leading = open(&Kind::url(&server.addresses(), "cost"), timing.request()).await;
    let proxy = Proxy::start(server[0].address(), Framing::Mongodb).expect("a proxy");
    let following = open(&Kind::url(&[proxy.address()], "cost"), timing.request()).await;
    let names: Vec<String> = (0..20).map(|number| format!("jobs/n{number}")).collect();
    let candidate = |name: &str| Candidate::new(name).expect("a good name");
    let leaders = join_all(names.iter().map(async |name| {
        let election = Election::builder(&leading, name).timing(timing).open().await;
        election.expect("it opens").campaign(candidate("a")).await.expect("elected")
    }))
    .await;
    let followers = join_all(names.iter().map(async |name| {
        let election = Election::builder(&following, name).timing(timing).open().await;
        election.expect("it opens").stand(candidate("b")).expect("it stands")
    }))
    .await;
    let follow = async {
        while followers.iter().any(|follower| follower.status().follows.is_none()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), follow).await.expect("all of them follow");
    // Registrations and first reads are over if for two seconds only the stream is asked for.
    let settling = count(&proxy);
    let asked = || ["find", "insert", "update"].map(|name| of(&settling, name));
    let settled = async {
        let mut before = asked();
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = asked();
            if now == before {
                return;
            }
            before = now;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), settled).await.expect("they settle");
    let counts = count(&proxy);
    // The leaders' heartbeats are 50 s apart. Without a stream a follower would read every second.
    tokio::time::sleep(Duration::from_secs(6)).await;
    println!("20 followers in 6 s: {counts:?}");
    // One batched re-check may fall into this time.
    assert!(of(&counts, "find") <= 1, "{counts:?}");
    assert!(of(&counts, "getMore") <= 5, "one stream for all of them: {counts:?}");
    assert!(following.store().notifies());
    assert!(leaders.iter().all(|leader| leader.mandate().is_leader()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_of_a_thousand_elections_are_a_few_commands() {
    let server = require!(Kind::start(1, Version::Newest).await);
    let proxy = Proxy::start(server[0].address(), Framing::Mongodb).expect("a proxy");
    let url = Kind::url(&[proxy.address()], "cost");
    let backend = open(&url, Duration::from_secs(20)).await;
    let store = backend.store();
    let key = |number: usize| Key::parse(&format!("elections/n{number}")).expect("a good key");
    let write = |number: usize, expect: Expect| Write {
        key: key(number),
        expect,
        body: Some(format!("{{\"n\":{number}}}").into()),
        durability: Durability::Lasting,
    };
    let counts = count(&proxy);
    let created = store.put_many((0..1000).map(|number| write(number, Expect::Absent)).collect());
    let version = |put| match put {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    };
    let mut versions: Vec<_> = created.await.into_iter().map(version).collect();
    // Every hundredth document has changed meanwhile: these writes are conflicts, and no others.
    for number in (0..1000).step_by(100) {
        let put = store.put_many(vec![write(number, Expect::At(versions[number].clone()))]).await;
        assert!(put.into_iter().all(|put| matches!(put, Ok(Put::Stored(_)))));
    }
    let before = of(&counts, "update");
    let heartbeats = versions.iter().enumerate();
    let heartbeats =
        heartbeats.map(|(number, version)| write(number, Expect::At(version.clone()))).collect();
    let began = std::time::Instant::now();
    let answers = store.put_many(heartbeats).await;
    println!("1,000 heartbeats in {:?}, {counts:?}", began.elapsed());
    assert_eq!(answers.len(), 1000);
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(Put::Conflict) if number % 100 == 0 => {}
            Ok(Put::Stored(version)) if number % 100 != 0 => versions[number] = version,
            other => panic!("{number}: {other:?}"),
        }
    }
    assert!(of(&counts, "update") - before <= 4, "{counts:?}");
    assert!(of(&counts, "insert") <= 4, "{counts:?}");
    let keys: Vec<Key> = (0..1000).map(key).collect();
    let read = store.get_many(&keys).await.expect("read");
    for (number, found) in read.into_iter().enumerate().filter(|(number, _)| number % 100 != 0) {
        assert_eq!(found.expect("it is there").version, versions[number]);
    }
    assert!(of(&counts, "find") <= 5, "{counts:?}");
}
