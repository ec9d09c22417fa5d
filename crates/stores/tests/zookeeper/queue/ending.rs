//! The end of elections, and elections made anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tenure::queue::{Freshness, Queue};
use tenure::store::Fault;
use tenure::{Election, ElectionState, Error, Loss, Standing};
use tenure_harness::{Direction, Failure, Zookeeper, require, zookeeper};
use tenure_stores::zookeeper::{Acl, Lifetime};

use crate::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everyone_is_told_of_the_end_and_leaves_by_itself() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let leader = program.lead("a").await;
    let other = Program::at(&server.addresses(), CALM).await;
    let mut waiting = other.stand("b", 1).await;
    let operator = Program::at(&server.addresses(), CALM).await;
    operator.election().await.end().await.expect("ended");
    assert_eq!(soon("the leader is told", leader.lost()).await, Loss::Ended);
    let told = soon("the follower is told", waiting.elected()).await.expect_err("nobody leads");
    assert!(matches!(told, Error::Ended { .. }), "{told:?}");
    // The leader's entry stands until its work has ended.
    leader.resign().await;
    until("everybody has left", || async { operator.standing().await.is_empty() }).await;
    let late = Election::open(&other.backend, NAME).await.expect_err("it has ended");
    assert!(matches!(late, Error::Ended { .. }), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_that_joins_during_the_end_is_told_and_leaves_nothing() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let election = program.election().await;
    let other = Program::at(&server.addresses(), CALM).await;
    other.election().await.end().await.expect("ended");
    // This election was opened before, and does not know of the end.
    let told = soon("told", election.campaign(candidate("late"))).await.expect_err("it has ended");
    assert!(matches!(told, Error::Ended { .. }), "{told:?}");
    until("nothing is left", || async { other.standing().await.is_empty() }).await;
    let named = Election::builder(&other.backend, NAME).build().expect("a good name");
    named.delete().await.expect("deleted");
    let told = soon("told", election.campaign(candidate("later"))).await.expect_err("it is gone");
    assert!(matches!(told, Error::Ended { .. } | Error::Missing { .. }), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_made_again_has_higher_generations_and_tokens() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let first = program.lead("a").await;
    let Queue::Open { generation, .. } = program.look().await else { panic!("it is open") };
    let (token, election) = (first.mandate().token(), program.election().await);
    first.end().await.expect("ended");
    let again = Election::builder(&program.backend, NAME).create().await.expect("made again");
    let second = soon("elected", again.campaign(candidate("b"))).await.expect("elected");
    assert!(second.mandate().token() > token);
    let Queue::Open { generation: next, .. } = program.look().await else { panic!("it is open") };
    assert!(next > generation);
    second.resign().await;
    // Deleted and made anew: higher still.
    election.delete().await.expect("deleted");
    assert_eq!(program.look().await, Queue::Missing);
    let third = program.lead("c").await;
    assert!(third.mandate().token() > second.mandate().token());
}

/// Regression: `open` believed a server that lags behind (issue 13, point 12).
///
/// Such a server may call an election missing or ended although it was made since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_is_missing_or_over_only_behind_a_write_that_a_quorum_takes() {
    const MULTI: i32 = 14;
    let server = require!(single().await);
    let proxy = proxy(server[0].address());
    let program = Program::at(&[proxy.address()], CALM).await;
    let other = Program::at(&server.addresses(), CALM).await;
    let writes = Arc::new(AtomicUsize::new(0));
    let counter = writes.clone();
    proxy.observe(move |message| {
        let is_write = message.bytes.get(8..12) == Some(&MULTI.to_be_bytes()[..]);
        let counts = message.direction == Direction::ToServer && is_write;
        counter.fetch_add(usize::from(counts), Ordering::SeqCst);
    });
    let survey = || async { program.queue().survey(&key()).await.expect("a look") };
    assert_eq!(survey().await, Queue::Missing);
    assert_eq!(writes.load(Ordering::SeqCst), 1);
    let election = other.election().await;
    assert!(matches!(survey().await, Queue::Open { .. }));
    assert_eq!(writes.load(Ordering::SeqCst), 1, "whoever joins is told the rest");
    election.end().await.expect("ended");
    assert!(matches!(survey().await, Queue::Ended { .. }));
    assert_eq!(writes.load(Ordering::SeqCst), 2);
}

/// Three servers, of which one can be made to lag behind: cut off from the others, it notices after
/// a minute.
async fn lagging() -> Result<(Zookeeper, usize), Failure> {
    let mut options = zookeeper::Options { partitions: true, ..options() };
    options.settings.push(("syncLimit".to_owned(), "300".to_owned()));
    let servers = Zookeeper::ensemble(3, options).await?;
    let behind = (servers.settled(None).await? + 1) % 3;
    Ok((servers, behind))
}

/// Both took the answer of such a server for final (issue 13, point 12).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lags_behind_neither_ends_nor_removes_an_election_by_itself() {
    let (servers, behind) = require!(lagging().await);
    // Each in a session of its own: a write that is not answered would hold back the reads of the
    // others.
    let lagging = [servers[behind].address()];
    let programs = join_all((0..3).map(|_| Program::at(&lagging, CALM))).await;
    let other = Program::at(&[servers[(behind + 1) % 3].address()], CALM).await;
    servers.isolate(behind).expect("it is cut off");
    let generation = soon("made", other.queue().create(&key())).await.expect("made");
    for program in &programs {
        assert_eq!(program.look().await, Queue::Missing, "it lags behind");
    }
    let [looks, ends, removes] = [0, 1, 2].map(|number: usize| programs[number].queue());
    let (key, barrier) = (key(), Freshness::Barrier);
    let all = async {
        tokio::join!(looks.look(&key, barrier), ends.end(&key, generation), removes.remove(&key))
    };
    let (looked, ended, removed) = soon("all are answered", all).await;
    assert!(looked.is_err(), "{looked:?}");
    assert!(ended.is_err(), "{ended:?}");
    assert!(removed.is_err(), "{removed:?}");
    servers.rejoin(behind).expect("it is back");
    until("it is ended", || async { ends.end(&key, generation).await.is_ok() }).await;
    let queue = other.queue().look(&key, barrier).await.expect("a look");
    assert!(matches!(queue, Queue::Ended { .. }), "{queue:?}");
}

/// Both took the answer of such a server for final (issue 13, point 12).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lags_behind_calls_no_election_missing_or_made_by_itself() {
    const UNHEARD_OF: &str = "jobs/unheard-of";
    let (servers, behind) = require!(lagging().await);
    let lagging = [servers[behind].address()];
    let [looks, creates] = [Program::at(&lagging, CALM).await, Program::at(&lagging, CALM).await];
    let other = Program::at(&[servers[(behind + 1) % 3].address()], CALM).await;
    let election = other.election().await;
    until("it has heard of it", || async { creates.look().await != Queue::Missing }).await;
    let Queue::Open { generation, .. } = creates.look().await else { panic!("it is open") };
    servers.isolate(behind).expect("it is cut off");
    soon("ended", election.end()).await.expect("ended");
    let unheard_of = Election::builder(&other.backend, UNHEARD_OF);
    soon("made", unheard_of.create()).await.expect("made");

    let unheard_of = Election::builder(&looks.backend, UNHEARD_OF).build().expect("a good name");
    let shown = looks.queue().look(&key_of(UNHEARD_OF), Freshness::Session).await;
    assert_eq!(shown.expect("it answers"), Queue::Missing, "it lags behind");
    assert!(matches!(creates.look().await, Queue::Open { .. }), "it lags behind");
    let again = || Election::builder(&creates.backend, NAME).create();
    let both = async { tokio::join!(unheard_of.standing(), again()) };
    let (standing, created) = soon("both are answered", both).await;
    assert!(standing.is_err(), "{standing:?}");
    assert!(created.is_err(), "it believed that the election is open");

    servers.rejoin(behind).expect("it is back");
    let is_open = |standing: Standing| standing.state == ElectionState::Free;
    until("it is shown", || async { unheard_of.standing().await.is_ok_and(is_open) }).await;
    until("it is made again", || async { again().await.is_ok() }).await;
    let line = other.queue().look(&key(), Freshness::Barrier).await.expect("a look");
    let Queue::Open { generation: next, .. } = line else { panic!("it is open: {line:?}") };
    assert!(next > generation);
}

/// It saw an earlier generation that had ended, and left the one that there was open (issue 13,
/// point 12).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_through_a_server_that_lagged_behind_ends_the_election_that_there_is() {
    const SYNC: i32 = 9;
    const MULTI: i32 = 14;
    let (servers, behind) = require!(lagging().await);
    let proxy = proxy(servers[behind].address());
    // A request may take a tenth of that: as long as the servers need to find each other again.
    let session = Duration::from_secs(60);
    let program = Program::at(&[proxy.address()], session).await;
    let other = Program::at(&[servers[(behind + 1) % 3].address()], session).await;
    let election = program.election().await;
    election.end().await.expect("ended");
    servers.isolate(behind).expect("it is cut off");
    soon("made", Election::builder(&other.backend, NAME).create()).await.expect("made again");
    assert!(matches!(program.look().await, Queue::Ended { .. }), "it lags behind");
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    proxy.observe(move |message| {
        let asks = |kind: i32| message.bytes.get(8..12) == Some(&kind.to_be_bytes()[..]);
        let counts = message.direction == Direction::ToServer && (asks(SYNC) || asks(MULTI));
        counter.fetch_add(usize::from(counts), Ordering::SeqCst);
    });
    // It lags until something is asked of the others, and no longer.
    let back = async {
        until("the others are asked", || async { asked.load(Ordering::SeqCst) > 0 }).await;
        servers.rejoin(behind).expect("it is back");
    };
    let (first, ()) = tokio::join!(election.end(), back);
    if first.is_err() {
        until("it is ended", || async { election.end().await.is_ok() }).await;
    }
    // The other server may lag behind too.
    let queue = other.queue().look(&key(), Freshness::Barrier).await.expect("a look");
    assert!(matches!(queue, Queue::Ended { .. }), "{first:?}: {queue:?}");
}

/// Both waited for such a node, and spoke of candidates (issue 13, point 15).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_session_below_an_ended_election_is_named_at_once() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let leader = program.lead("a").await;
    let operator = operator(server[0].address()).await;
    let by_hand = format!("{NODE}/x-n-0000000000");
    operator.create(&by_hand, "x", Lifetime::Lasting, &Acl::open()).await.expect("made");
    leader.end().await.expect("ended");
    until("everybody has left", || async { nodes(&operator).await.len() == 1 }).await;
    let election = Election::builder(&program.backend, NAME).build().expect("a good name");
    for refused in [
        soon("told", election.delete()).await,
        soon("told", Election::builder(&program.backend, NAME).create()).await.map(drop),
    ] {
        let Err(Error::Store(refused)) = refused else { panic!("{refused:?}") };
        let says = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
        assert_eq!(refused.fault, Fault::Permanent, "{says}");
        assert!(says.contains(&by_hand), "{says}");
    }
    let (data, _) = operator.data(&by_hand).await.expect("it is left alone");
    assert_eq!(data, b"x");
    operator.delete(&by_hand, None).await.expect("deleted");
    election.delete().await.expect("deleted");
    let _leader = program.lead("b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_that_somebody_else_deletes_is_over_for_those_who_stood_in_it() {
    let server = require!(single().await);
    let program = Program::at(&server.addresses(), CALM).await;
    let leader = program.lead("a").await;
    let mut waiting = program.stand("b", 1).await;
    let operator = operator(server[0].address()).await;
    // As `deleteall` does it. Candidates of the deleted election have no part in one made again
    // quickly.
    for node in nodes(&operator).await.into_iter().rev() {
        operator.delete(&node, None).await.expect("deleted");
    }
    while let Err(error) = operator.delete(NODE, None).await {
        println!("again: {error}");
        for node in nodes(&operator).await {
            let _ = operator.delete(&node, None).await;
        }
    }
    let loss = soon("the leader is told", leader.lost()).await;
    assert!(matches!(loss, Loss::Ended | Loss::Vanished), "{loss:?}");
    // Between two deletions the follower may stand again, and lead for a moment: its own entry may
    // go first, and the leader's before the election itself. Then it also loses its lead.
    let told = match soon("the follower is told", waiting.elected()).await {
        Ok(led) => {
            let loss = soon("the follower loses it", led.lost()).await;
            assert!(matches!(loss, Loss::Ended | Loss::Vanished), "{loss:?}");
            soon("told", led.regain()).await.expect_err("it is over")
        }
        Err(told) => told,
    };
    assert!(matches!(told, Error::Ended { .. } | Error::Missing { .. }), "{told:?}");
    let regained = soon("told", leader.regain()).await.expect_err("it is over");
    assert!(matches!(regained, Error::Ended { .. } | Error::Missing { .. }), "{regained:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_candidates_that_race_a_deletion_all_leave_and_the_node_is_gone() {
    const PROGRAMS: usize = 20;
    const EACH: usize = 50;
    let server = require!(single().await);
    let (addresses, session) = (server.addresses(), Duration::from_secs(30));
    let programs = join_all((0..PROGRAMS).map(|_| Program::at(&addresses, session))).await;
    let programs = Arc::new(programs);
    let election = programs[0].election().await;
    let candidacies: Vec<_> =
        join_all(programs.iter().enumerate().map(|(number, program)| async move {
            let election = program.election().await;
            let name = |each| format!("c{number}-{each}");
            (0..EACH)
                .map(|each| election.stand(candidate(&name(each))).expect("it stands"))
                .collect::<Vec<_>>()
        }))
        .await
        .into_iter()
        .flatten()
        .collect();
    // Some are in the queue by then, and some are joining.
    until("half of them are in the queue", || async {
        programs[0].standing().await.len() > PROGRAMS * EACH / 2
    })
    .await;
    let began = std::time::Instant::now();
    let exits = candidacies.into_iter().map(|mut candidacy| async move {
        match candidacy.elected().await {
            // It led when the election ended. Its work is over at once.
            Ok(leader) => {
                soon("told", leader.lost()).await;
                leader.resign().await;
            }
            Err(error) => {
                assert!(matches!(error, Error::Ended { .. } | Error::Missing { .. }), "{error:?}")
            }
        }
    });
    let (deleted, _) = tokio::join!(election.delete(), join_all(exits));
    let took = began.elapsed();
    deleted.expect("deleted");
    assert_eq!(programs[0].look().await, Queue::Missing);
    // This takes seconds on an idle machine. The benchmarks measure it.
    println!("all gone within {took:?}");
    assert!(took < Duration::from_secs(60), "{took:?}");
}
