//! Proofs of sessions, of looks at a queue, and of notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use bytes::Bytes;
use tenure::protocol::Holder;
use tenure::queue::{Entry, Freshness, Gone, Left, Pace, Queue, Session, SessionQueue, Ticket};
use tenure::{CandidateId, Clock as _, SystemClock};
use tenure_harness::{Direction, Framing, Proxy, require};

fn queues(backend: &Backend) -> Arc<dyn SessionQueue> {
    backend.queue().expect("its elections are queues").clone()
}

fn holder(name: &str) -> Arc<Holder> {
    let id = CandidateId::parse(name).expect("a good id");
    Arc::new(Holder { id, name: name.into(), value: Bytes::new(), presence: None })
}

fn ticket(name: &str, attempt: u64) -> Ticket {
    Ticket { candidate: CandidateId::parse(name).expect("a good id"), attempt }
}

/// Joins a queue without a candidacy's state machine.
async fn join(queues: &dyn SessionQueue, name: &str, attempt: u64) -> Entry {
    live(queues).await;
    let joined = queues.join(&key(), &ticket(name, attempt), &holder(name)).await;
    joined.expect("it joins").entry.expect("the election is open")
}

async fn live(queues: &dyn SessionQueue) -> Session {
    let mut session = queues.session();
    *soon("the session lives", session.wait_for(Session::is_live)).await.expect("it is kept")
}

async fn proven(queues: &dyn SessionQueue) -> Session {
    let mut session = queues.session();
    let proven = session.wait_for(|session| session.is_live() && session.proof().is_some());
    *soon("the session is proven", proven).await.expect("it is kept")
}

/// The lease of the only session.
fn only_lease(servers: &Etcd) -> i64 {
    let sessions = keys_under(servers, &format!("{PREFIX}//sessions/"));
    let [session] = &sessions[..] else { panic!("{sessions:?}") };
    let digits = session.rsplit('/').next().unwrap_or_default();
    i64::from_str_radix(digits, 16).expect("hexadecimal digits")
}

/// The bytes of a KeepAlive for this lease: its first field is the lease.
fn keep_alive_of(lease: i64) -> Vec<u8> {
    let (mut rest, mut bytes) = (lease.cast_unsigned(), vec![0x08]);
    loop {
        let low = u8::try_from(rest & 0x7f).unwrap_or(0);
        rest >>= 7;
        if rest == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_is_dated_before_its_keep_alive_was_sent() {
    const LATE: Duration = Duration::from_millis(300);
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let backend = process(&[proxy.address()], CALM).await;
    let queues = queues(&backend);
    queues.pace(Pace::Leading);
    proven(&*queues).await;
    proxy.delay(Direction::ToServer, LATE);
    let before = SystemClock::default().now();
    let mut session = queues.session();
    // The KeepAlive and the read that confirms it are both late.
    let newer = session.wait_for(|session| {
        session.proof().is_some_and(|proof| proof.from.at_least_since(before) > Duration::ZERO)
    });
    let proof = soon("proven again", newer).await.expect("it is kept").proof();
    let age = proof.map(|proof| SystemClock::default().now().at_most_since(proof.from));
    println!("published when it was {age:?} old");
    assert!(age.is_some_and(|age| age >= 2 * LATE), "{age:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_keep_alives_that_was_opened_anew_proves_nothing_with_its_first() {
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let backend = process(&[proxy.address()], LONG).await;
    let queues = queues(&backend);
    proven(&*queues).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let (counted, pattern) = (sent.clone(), keep_alive_of(only_lease(&servers)));
    proxy.observe(move |message| {
        let to_server = message.direction == Direction::ToServer;
        if to_server && message.bytes.windows(pattern.len()).any(|part| part == pattern) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    proxy.cut().await;
    let mut session = queues.session();
    let down = session.wait_for(|session| !session.is_live());
    drop(soon("suspended", down).await.expect("it is kept"));
    sent.store(0, Ordering::Relaxed);
    proxy.heal().await;
    live(&*queues).await;
    let sent = sent.load(Ordering::Relaxed);
    println!("{sent} KeepAlives until it was proven again");
    assert!(sent >= 2, "{sent}");
}

/// An entry that may still be under the former lease can go with that at any moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_proven_in_a_new_term_before_every_entry_is_known_to_have_moved() {
    const LOST: u64 = 4;
    let servers = require!(servers(1).await);
    let proxy = Proxy::start(servers[0].address(), Framing::Http2).expect("a proxy");
    let backend = process(&[proxy.address()], LONG).await;
    enter(&backend).await;
    let queues = queues(&backend);
    queues.pace(Pace::Leading);
    join(&*queues, "a", 1).await;
    proven(&*queues).await;
    // Only a move names the record beside an entry, and compares the lease (field 8) it was under.
    let mut former = keep_alive_of(only_lease(&servers));
    former[0] = 8 << 3;
    for _ in 0..LOST {
        let former = former.clone();
        let has = |request: &[u8], part: &[u8]| request.windows(part.len()).any(|it| it == part);
        proxy.lose_answer_of(move |request| has(request, b"//holders/") && has(request, &former));
    }
    // A single server is in another term after it was started again.
    servers[0].restart().await.expect("it starts");
    let started = SystemClock::default().now();
    let mut session = queues.session();
    let newer = session.wait_for(|session| {
        session.proof().is_some_and(|proof| proof.from.at_least_since(started) > Duration::ZERO)
    });
    let number = soon("proven again", newer).await.expect("it is kept").number;
    assert_eq!(proxy.answers_lost(), LOST, "every move in doubt was made again before");
    assert_eq!(number, 1, "the session went on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_key_is_deleted_by_hand_is_over_and_another_follows() {
    let servers = require!(servers(1).await);
    let (_a, _, leader) = lead(&servers.addresses(), TTL, "a").await;
    let token = leader.mandate().token();
    let lease = only_lease(&servers);
    ask(&servers, &["del", &format!("{PREFIX}//sessions/{lease:x}")]);
    soon("lost", leader.lost()).await;
    let again = soon("elected again", leader.regain()).await.expect("elected");
    assert!(again.mandate().token() > token);
}

/// A join under a lease that its seat has left would vanish while it leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_under_a_lease_that_nobody_keeps_is_not_taken_for_ours() {
    let servers = require!(servers(1).await);
    let backend = process(&servers.addresses(), LONG).await;
    enter(&backend).await;
    let queues = queues(&backend);
    let entry = join(&*queues, "a", 1).await;
    queues.read(&key(), &ticket("a", 1), Freshness::Barrier).await.expect("it is ours");
    let granted = ask(&servers, &["lease", "grant", "600"]);
    let lease = granted.split_whitespace().nth(1).expect("lease ID granted with TTL(600s)");
    ask(&servers, &["put", &entry.name, "a", "--lease", lease]);
    let refused = queues.read(&key(), &ticket("a", 1), Freshness::Barrier).await;
    let error = refused.expect_err("it is under another lease");
    assert!(crate::support::chain(&error).contains("a lease that lapses"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_in_line_leads_without_a_look_unless_its_predecessor_was_written_since() {
    let servers = require!(servers(1).await);
    let (one, other) =
        (process(&servers.addresses(), LONG).await, process(&servers.addresses(), LONG).await);
    enter(&one).await;
    let (leaver, waiter) = (queues(&one), queues(&other));
    for (attempt, written, told) in [(1, false, Gone::Deleted), (2, true, Gone::DeletedMaybeEnded)]
    {
        let ahead = join(&*leaver, "a", attempt).await;
        let behind = join(&*waiter, "b", attempt).await;
        // The mark is not watched, so the order of the two watches does not matter.
        let gone = tokio::spawn({
            let (waiter, ahead) = (waiter.clone(), ahead.clone());
            async move { waiter.gone(&ahead).await }
        });
        if written {
            leaver.publish(&ahead, &Bytes::from_static(b"x")).await.expect("published");
        }
        assert_eq!(leaver.leave(&ahead, true).await.expect("deleted"), Left::Deleted);
        assert_eq!(soon("told", gone).await.expect("it ran"), told, "written: {written}");
        assert_eq!(waiter.leave(&behind, true).await.expect("deleted"), Left::Deleted);
    }
}

/// An older version of tenure writes only the mark when it ends an election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_is_known_to_have_changed_asks_for_a_look() {
    let servers = require!(servers(1).await);
    let (one, other) =
        (process(&servers.addresses(), LONG).await, process(&servers.addresses(), LONG).await);
    enter(&one).await;
    let (leaver, waiter) = (queues(&one), queues(&other));
    let generation = leaver.create(&key()).await.expect("it is open");
    let ahead = join(&*leaver, "a", 1).await;
    join(&*waiter, "b", 1).await;
    let mark = format!("{PREFIX}//lines/{NAME}");
    assert!(keys_under(&servers, PREFIX).contains(&mark), "{:?}", keys_under(&servers, PREFIX));
    let heard = tokio::spawn({
        let waiter = waiter.clone();
        async move { waiter.ended(&key(), generation).await }
    });
    ask(&servers, &["put", &mark, "changed"]);
    soon("it is heard", heard).await.expect("it ran");
    let gone = tokio::spawn({
        let (waiter, ahead) = (waiter.clone(), ahead.clone());
        async move { waiter.gone(&ahead).await }
    });
    assert_eq!(leaver.leave(&ahead, true).await.expect("deleted"), Left::Deleted);
    assert_eq!(soon("told", gone).await.expect("it ran"), Gone::DeletedMaybeEnded);
}

/// Regression: every attempt cost two round trips, and there were 16 of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_whose_first_changes_all_the_time_can_be_ended() {
    let servers = require!(servers(1).await);
    let backend = process(&servers.addresses(), LONG).await;
    enter(&backend).await;
    let operator = queues(&backend);
    let generation = operator.create(&key()).await.expect("it is open");
    let mut crowd = Vec::new();
    for number in 0..8 {
        let process = process(&servers.addresses(), LONG).await;
        crowd.push(tokio::spawn(async move {
            let (queues, name) = (queues(&process), format!("c{number}"));
            live(&*queues).await;
            for attempt in 1.. {
                let (ticket, holder) = (ticket(&name, attempt), holder(&name));
                let joined = queues.join(&key(), &ticket, &holder).await.expect("it joins");
                let Some(entry) = joined.entry else { return };
                let _ = queues.leave(&entry, true).await.expect("deleted");
                if !matches!(joined.queue, Queue::Open { .. }) {
                    return;
                }
            }
        }));
    }
    soon("it ends", operator.end(&key(), generation)).await.expect("ended");
    for candidate in crowd {
        soon("it hears of the end", candidate).await.expect("it ran");
    }
}

/// The end writes the first entry again.
///
/// The entry keeps its place, its value and its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_writes_the_first_in_line_again_as_it_was() {
    let servers = require!(servers(1).await);
    let backend = process(&servers.addresses(), LONG).await;
    enter(&backend).await;
    let queues = queues(&backend);
    let generation = queues.create(&key()).await.expect("it is open");
    let entry = join(&*queues, "a", 1).await;
    let shown = || ask(&servers, &["get", "-w", "json", &entry.name]);
    let field = |text: &str, name: &str| {
        let found: serde_json::Value = serde_json::from_str(text).expect("JSON");
        found["kvs"][0][name].clone()
    };
    let before = shown();
    queues.end(&key(), generation).await.expect("ended");
    let after = shown();
    for same in ["key", "value", "lease", "create_revision"] {
        assert_eq!(field(&before, same), field(&after, same), "{same}");
    }
    assert_ne!(field(&before, "mod_revision"), field(&after, "mod_revision"));
    queues.end(&key(), generation).await.expect("ending twice is no failure");
}
