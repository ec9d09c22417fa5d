//! The records of tenures, and nodes in a queue that are no candidates.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::queue::{Gone, Queue};
use tenure::{Candidate, Election, Error, Loss, Resignation};
use tenure_harness::{Direction, Proxy, Zookeeper, require};
use tenure_stores::zookeeper::{Acl, Client, Lifetime};

use crate::world::*;

/// The record of that election's tenures.
const TENURE: &str = "/tests/=tenures/jobs=nightly";

/// Regression: the next leader waited for the whole delay (issue 13, point 7).
///
/// Only this process's memory told whether there was a record to take back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_release_after_a_lost_beginning_leaves_nothing_to_wait_for() {
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let builder = Election::builder(&program.backend, NAME).lock_delay(Duration::from_secs(100));
    let election = builder.create_if_missing(true).open().await.expect("it opens");
    // The first tenure creates the record, so that the second one writes it once.
    let first = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    let reads = reads_of_the_record(&proxy);
    assert_eq!(first.resign().await, Resignation::Released);
    assert_eq!(reads.load(Ordering::SeqCst), 0, "its beginning was answered");
    proxy.lose_answer_of(|request| request.windows(6).any(|bytes| bytes == b"begun "));
    let second = soon("elected", election.campaign(candidate("b"))).await.expect("elected");
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!(unclean(&program).await, Some(second.mandate().token()), "it had arrived");
    let reads = reads_of_the_record(&proxy);
    assert_eq!(second.resign().await, Resignation::Released);
    assert!(reads.load(Ordering::SeqCst) > 0, "that of this one was not");
    assert_eq!(unclean(&program).await, None);
    let _third = soon("at once", election.campaign(candidate("c"))).await.expect("elected");
}

/// Counts from now on how often the record of a tenure is read.
fn reads_of_the_record(proxy: &Proxy) -> Arc<AtomicUsize> {
    const GET_DATA: i32 = 4;
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = reads.clone();
    proxy.observe(move |message| {
        let is_read = message.bytes.get(8..12) == Some(&GET_DATA.to_be_bytes()[..]);
        let path = TENURE.as_bytes();
        let is_of_it = message.bytes.windows(path.len()).any(|bytes| bytes == path);
        if message.direction == Direction::ToServer && is_read && is_of_it {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    reads
}

async fn unclean(program: &Program) -> Option<u64> {
    match program.look().await {
        Queue::Open { unclean, .. } => unclean,
        queue @ (Queue::Ended { .. } | Queue::Missing) => panic!("{queue:?}"),
    }
}

/// Writes until transactions have higher numbers than fresh servers begin with.
async fn raise(operator: &Client, path: &str, writes: usize) {
    let written: Vec<_> = (0..writes).map(|_| operator.set_data(path, "x", None)).collect();
    for written in written {
        written.await.expect("written");
    }
}

/// Kills a server, removes its data, and starts it again.
async fn rebuild(server: &Zookeeper) {
    server[0].kill().await.expect("it ran");
    std::fs::remove_dir_all(data(server)).expect("its data");
    server[0].restart().await.expect("it starts again");
}

fn data(server: &Zookeeper) -> PathBuf {
    let found = walk(&server[0].directory());
    found.into_iter().find(|path| path.ends_with("version-2")).expect("its data")
}

fn walk(directory: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let below = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    below.flat_map(|path| [vec![path.clone()], walk(&path)].concat()).collect()
}

/// Regression: no server accepted the client any more, because it had seen a higher number (issue
/// 13, point 9).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_outlives_servers_that_are_rebuilt_and_never_leads_with_a_lower_token() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), BRISK).await;
    let election = program.election().await;
    raise(&operator(server[0].address()).await, NODE, 300).await;
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    let token = leader.mandate().token();
    assert!(token > 300, "{token}");
    let session = program.queue().session().borrow().number;
    rebuild(&server).await;
    let loss = soon("it is told", leader.lost()).await;
    assert!(matches!(loss, Loss::Expired | Loss::Ended), "{loss:?}");
    drop(leader);
    let mut sessions = program.queue().session();
    let again = sessions.wait_for(|now| now.number > session && now.is_live());
    drop(soon("a server accepts it", again).await.expect("the client lives"));
    // The election is made anew, with lower numbers.
    let election = program.election().await;
    match soon("elected or refused", election.campaign(candidate("a"))).await {
        Err(Error::Regressed { found, known }) => assert!(found < token && known == token),
        other => panic!("it led with {token} before: {other:?}"),
    }
    until("it has left the queue", || async { program.standing().await.is_empty() }).await;
}

/// The lasting nodes of a server, outermost first, and their data.
async fn copy(operator: &Client) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut next) = (Vec::new(), vec!["/tests".to_owned()]);
    while let Some(path) = next.pop() {
        let (data, stat) = operator.data(&path).await.expect("it is there");
        if stat.owner <= 0 {
            let (names, _) = operator.children(&path).await.expect("it is there");
            next.extend(names.into_iter().map(|name| format!("{path}/{name}")));
            found.push((path, data));
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_copy_with_lower_numbers_nobody_leads_until_they_are_higher() {
    let server = require!(single().await);
    // Longer than any pause of a busy machine, so that it leads until it resigns.
    let before = Program::at(&server.addresses(), Duration::from_secs(40)).await;
    let election = before.election().await;
    let old = operator(server[0].address()).await;
    raise(&old, NODE, 400).await;
    old.set_data(NODE, "tenure: prefix n-", None).await.expect("as it was");
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    let token = leader.mandate().token();
    // Its token is recorded some time after the tenure began.
    let written = format!("led {token}").into_bytes();
    until("it is recorded", || async {
        old.data(TENURE).await.is_ok_and(|(data, _)| data == written)
    })
    .await;
    let copied = copy(&old).await;
    assert_eq!(leader.resign().await, Resignation::Released);
    drop(before);
    rebuild(&server).await;
    let fresh = operator(server[0].address()).await;
    for (path, data) in copied {
        fresh.create(&path, data, Lifetime::Lasting, &Acl::open()).await.expect("copied");
    }
    // A process that never led this election is refused too.
    let program = Program::at(&server.addresses(), BRISK).await;
    let election = Election::open(&program.backend, NAME).await.expect("it is there");
    match soon("elected or refused", election.campaign(candidate("b"))).await {
        Err(Error::Regressed { found, known }) => assert!(found < token && known == token),
        other => panic!("{token} was given out before: {other:?}"),
    }
    raise(&fresh, "/tests", 800).await;
    let leader = soon("elected", election.campaign(candidate("b"))).await.expect("elected");
    assert!(leader.mandate().token() > token);
}

/// A leader that ends its election first marks it as ended, and then leaves.
///
/// A candidate that hears of the deletion alone must look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_is_a_turn_only_in_an_election_that_is_known_to_be_open() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let leader = program.lead("a").await;
    let Queue::Open { places, .. } = program.look().await else { panic!("it is open") };
    let entry = places[0].entry.clone();
    let other = Program::at(&server.addresses(), CALM).await;
    let watching = {
        let (queue, entry) = (other.queue().clone(), entry.clone());
        tokio::spawn(async move { queue.gone(&entry).await })
    };
    leader.resign().await;
    // That program does not watch the election's own node.
    assert_eq!(soon("told", watching).await.expect("no panic"), Gone::DeletedMaybeEnded);
    assert_eq!(soon("told", other.queue().gone(&entry)).await, Gone::DeletedMaybeEnded);
}

/// Regression: a node made by hand never goes, and a candidate behind it waited for ever (issue 13,
/// point 15).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_without_a_session_are_shown_and_nobody_waits_for_them() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let election = program.election().await;
    let operator = operator(server[0].address()).await;
    let by_hand = |name: &str| format!("{NODE}/{name}");
    let acl = Acl::open();
    // More of them than one look reaches.
    for name in ["v-n-0000000000", "w-n-0000000000", "x-n-0000000000", "y-n-0000000001"] {
        operator.create(&by_hand(name), "x", Lifetime::Lasting, &acl).await.expect("made");
    }
    // ZooKeeper numbers nodes by how often children came and went, so later ones stand behind them.
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    operator.create(&by_hand("z-n-0000000005"), "x", Lifetime::Lasting, &acl).await.expect("made");
    let mut waiting = election.stand(Candidate::new("b").expect("a good name")).expect("it stands");
    until("both are shown", || async { program.standing().await == ["a", "b"] }).await;
    let shown = election.candidates().await.expect("shown");
    let candidates: Vec<_> = shown.iter().filter(|found| !found.stale).collect();
    let places: Vec<_> = candidates.iter().map(|found| found.position).collect();
    assert_eq!(places, [Some(1), Some(2)]);
    let ignored: Vec<_> = shown.iter().filter(|found| found.stale).collect();
    let names: Vec<_> = ignored.iter().map(|found| (&*found.name, found.position)).collect();
    assert_eq!(
        names,
        [
            ("v-n-0000000000", None),
            ("w-n-0000000000", None),
            ("x-n-0000000000", None),
            ("y-n-0000000001", None),
            ("z-n-0000000005", None)
        ]
    );
    let standing = election.standing().await.expect("shown");
    assert_eq!(standing.leader.map(|leader| leader.name.to_string()).as_deref(), Some("a"));
    leader.resign().await;
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
}
