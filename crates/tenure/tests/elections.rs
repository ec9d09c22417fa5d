//! Elections on the memory store, through the public API.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tenure::store::{Put, StoreExt};
use tenure::{
    Backend, Candidate, Election, ElectionState, Error, Key, Loss, MemoryStore, Resignation, Role,
    TestClock,
};

fn candidate(name: &str) -> Candidate {
    Candidate::new(name).expect("a good name")
}

async fn open(backend: &Backend) -> Election {
    Election::open(backend, "component/primary").await.expect("it opens")
}

async fn until(mut condition: impl AsyncFnMut() -> bool) {
    tokio::time::timeout(Duration::from_secs(10), async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("the condition holds within ten seconds");
}

#[tokio::test]
async fn the_first_candidate_leads_and_the_second_takes_over_when_it_resigns() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let first = election.campaign(candidate("a")).await.expect("elected");
    let mut second = election.stand(candidate("b")).expect("it stands");
    until(async || second.status().follows.is_some_and(|leader| &*leader.name == "a")).await;
    assert_eq!(first.resign().await, Resignation::Released);
    let second = second.elected().await.expect("elected");
    assert_eq!(second.mandate().token(), 2);
    assert_eq!(second.status().followed.map(|leader| leader.name.to_string()), Some("a".into()));
}

/// A table that was dropped and created anew looks like this to a candidate that stands again, as
/// `run --keep` does.
#[tokio::test]
async fn who_stands_again_is_never_elected_under_a_token_it_had() {
    let store = Arc::new(MemoryStore::new());
    let backend = Backend::new(store.clone());
    let election = open(&backend).await;
    for token in 1..=3 {
        let leader = election.campaign(candidate("a")).await.expect("elected");
        assert_eq!(leader.mandate().token(), token);
        leader.resign().await;
    }
    for key in ["elections/component/primary", "floors/component/primary"] {
        let key = Key::parse(key).expect("a good key");
        let found = store.get(&key).await.expect("it answers").expect("a document");
        let deleted = store.delete(&key, found.version).await;
        assert!(matches!(deleted, Ok(Put::Stored(_))), "{deleted:?}");
    }
    let mut candidacy = election.stand(candidate("a")).expect("it stands");
    let refused = candidacy.elected().await;
    assert!(matches!(refused, Err(Error::Regressed { found: 1, known: 3 })), "{refused:?}");
    // The candidacy is kept, but the wrong tenure is freed.
    until(async || matches!(candidacy.status().role, Role::Over(_))).await;
    // Opening the election anew is a decision to accept its tokens.
    let leader = open(&backend).await.campaign(candidate("b")).await.expect("elected");
    assert!(leader.mandate().token() > 1);
}

#[tokio::test]
async fn dropping_the_guard_revokes_every_mandate_at_once_and_frees_the_election() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let first = election.campaign(candidate("a")).await.expect("elected");
    let mandate = first.mandate();
    assert!(mandate.is_leader());
    drop(first);
    assert_eq!(mandate.check(), Err(Loss::Resigned));
    let second = election.campaign(candidate("b")).await.expect("elected");
    assert_eq!(second.mandate().token(), 2);
}

#[tokio::test]
async fn a_candidacy_goes_on_standing_when_the_wait_for_its_election_is_dropped() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let first = election.campaign(candidate("a")).await.expect("elected");
    let mut second = election.stand(candidate("b")).expect("it stands");
    tokio::select! {
        biased;
        won = second.elected() => panic!("another one leads: {won:?}"),
        () = tokio::task::yield_now() => {}
    }
    first.resign().await;
    let leadership = second.elected().await.expect("elected");
    assert_eq!(leadership.mandate().token(), 2);
    // The leadership owns the place now: the candidacy is no longer elected, and dropping it frees
    // nothing.
    assert!(matches!(second.elected().await, Err(Error::Finished)));
    drop(second);
    assert!(leadership.mandate().is_leader());
    leadership.resign().await;
}

#[tokio::test]
async fn a_waiting_candidate_that_withdraws_leaves_nothing_in_the_store() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let mut waiting = election.stand(candidate("b")).expect("it stands");
    until(async || election.candidates().await.expect("the store answers").len() == 2).await;
    tokio::select! {
        biased;
        won = waiting.elected() => panic!("another one leads: {won:?}"),
        // The program is told to shut down.
        () = tokio::task::yield_now() => {}
    }
    waiting.withdraw().await;
    let left = election.candidates().await.expect("the store answers");
    assert_eq!(left.len(), 1, "{left:?}");
    leader.resign().await;
}

#[tokio::test]
async fn withdrawing_a_candidacy_gives_up_the_leadership_that_it_won() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let mut candidacy = election.stand(candidate("a")).expect("it stands");
    let leadership = candidacy.elected().await.expect("elected");
    candidacy.withdraw().await;
    assert_eq!(leadership.mandate().check(), Err(Loss::Resigned));
    let next = election.campaign(candidate("b")).await.expect("elected");
    assert_eq!(next.mandate().token(), 2);
}

#[tokio::test]
async fn closing_a_backend_releases_leaders_and_candidates_that_were_just_dropped() {
    let store = Arc::new(MemoryStore::new());
    let backend = Backend::new(store.clone());
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let waiting = election.stand(candidate("b")).expect("it stands");
    until(async || election.candidates().await.expect("the store answers").len() == 2).await;
    // As at the end of `main`: both are dropped, and only the close is awaited.
    drop((leader, waiting));
    backend.close().await;
    let other = open(&Backend::new(store)).await;
    let standing = other.standing().await.expect("the store answers");
    assert!(matches!(standing.state, ElectionState::Free), "{standing:?}");
    assert!(other.candidates().await.expect("the store answers").is_empty());
}

#[tokio::test]
async fn a_cancelled_campaign_leaves_nothing_held() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    for _ in 0..50 {
        // The campaign is cancelled at an arbitrary point.
        let campaign = election.campaign(candidate("a"));
        let _ = tokio::time::timeout(Duration::from_micros(200), campaign).await;
    }
    let second = election.campaign(candidate("b")).await.expect("elected");
    assert_eq!(second.resign().await, Resignation::Released);
    until(async || election.candidates().await.expect("a list").is_empty()).await;
}

#[tokio::test]
async fn ending_tells_everyone_and_is_terminal_until_it_is_created_again() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let mut follower = election.stand(candidate("b")).expect("it stands");
    election.end().await.expect("ended");
    assert_eq!(leader.lost().await, Loss::Ended);
    assert!(matches!(follower.elected().await, Err(Error::Ended { .. })));
    assert_eq!(leader.resign().await, Resignation::AlreadyLost);
    let opened = Election::open(&backend, "component/primary").await;
    assert!(matches!(opened, Err(Error::Ended { .. })), "{opened:?}");
    election.end().await.expect("ending what has ended is a success");
    Election::builder(&backend, "component/primary").create().await.expect("created again");
    open(&backend).await;
}

#[tokio::test]
async fn the_leader_can_end_the_election_itself() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let mandate = leader.mandate();
    assert_eq!(leader.end().await.expect("ended"), Resignation::Released);
    assert!(!mandate.is_leader());
    assert_eq!(election.standing().await.expect("read").state, ElectionState::Ended);
}

#[tokio::test]
async fn ending_or_deleting_what_does_not_exist_is_a_success() {
    let backend = Backend::memory();
    let ended = Election::builder(&backend, "a").build().expect("a name");
    ended.end().await.expect("ended");
    assert!(matches!(Election::open(&backend, "a").await, Err(Error::Ended { .. })));
    let deleted = Election::builder(&backend, "b").build().expect("a name");
    deleted.delete().await.expect("deleted");
    Election::open(&backend, "b").await.expect("as if it had never been used");
}

#[tokio::test]
async fn a_deleted_election_is_hidden_and_its_tokens_go_on() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    assert_eq!(leader.resign().await, Resignation::Released);
    election.delete().await.expect("deleted");
    assert!(Election::list(&backend).await.expect("a list").is_empty());
    let again = open(&backend).await.campaign(candidate("b")).await.expect("elected");
    assert_eq!(again.mandate().token(), 2);
}

#[tokio::test]
async fn an_election_that_is_missing_is_refused_when_it_is_not_to_be_created() {
    let backend = Backend::memory();
    let opened = Election::builder(&backend, "a").create_if_missing(false).open().await;
    assert!(matches!(opened, Err(Error::Missing { .. })));
}

#[tokio::test]
async fn an_election_has_no_elections_below_it() {
    let backend = Backend::memory();
    Election::open(&backend, "a/b").await.expect("it opens");
    for name in ["a", "a/b/c"] {
        let refused = Election::open(&backend, name).await;
        assert!(matches!(refused, Err(Error::Nested { .. })), "{refused:?}");
    }
    Election::open(&backend, "a/c").await.expect("beside is no below");
}

#[tokio::test]
async fn values_are_read_by_observers_and_followers() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let mut observer = election.observe().expect("it observes");
    let first = observer.next().await.expect("a standing").expect("readable");
    assert_eq!(first.state, ElectionState::Free);
    let with_value = candidate("a").with_value("10.0.0.7:80").expect("short");
    let leader = election.campaign(with_value).await.expect("elected");
    let seen = loop {
        let seen = observer.next().await.expect("open").expect("readable");
        if seen.state == ElectionState::Led {
            break seen;
        }
    };
    assert_eq!(seen.leader.expect("somebody").value, "10.0.0.7:80");
    leader.publish("10.0.0.8:80").expect("short");
    let seen = observer.next().await.expect("open").expect("readable");
    assert_eq!(seen.leader.expect("somebody").value, "10.0.0.8:80");
    let listed = election.candidates().await.expect("a list");
    assert_eq!(listed.len(), 1);
    assert!(leader.publish(vec![0; 5000]).is_err());
}

#[tokio::test]
async fn a_lost_leadership_drops_the_work_in_its_scope_and_can_be_regained() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let outcome = leader
        .scope(async {
            leader.force_loss();
            std::future::pending::<()>().await;
        })
        .await;
    assert!(matches!(outcome, Err(Error::Lost(Loss::Forced))), "{outcome:?}");
    assert!(matches!(leader.status().role, Role::Lost { token: 1, .. }));
    let again = leader.regain().await.expect("elected again");
    assert_eq!(again.mandate().token(), 2);
    assert_eq!(again.scope(async { 7 }).await.expect("in time"), 7);
}

#[tokio::test]
async fn a_deleted_record_ends_the_tenure_with_its_own_error() {
    let store = MemoryStore::new();
    let backend = Backend::new(Arc::new(store.clone()));
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let key = Key::parse("elections/component/primary").expect("a key");
    let document = store.get(&key).await.expect("read").expect("there");
    let _ = store.delete(&key, document.version).await.expect("deleted");
    assert_eq!(leader.lost().await, Loss::Vanished);
    assert!(matches!(leader.regain().await, Err(Error::Vanished)));
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_is_lost_by_the_clock_alone() {
    let clock = TestClock::default();
    let backend = Backend::memory().with_clock(Arc::new(clock.clone()));
    let election = open(&backend).await;
    let campaign = election.campaign(candidate("a"));
    // A free election is claimed after a small jitter, and this clock does not advance by itself.
    let ticking = async {
        loop {
            clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
        }
    };
    let leader = tokio::select! {
        leader = campaign => leader.expect("elected"),
        () = ticking => unreachable!(),
    };
    let mandate = leader.mandate();
    clock.set_wall(u64::MAX / 2);
    assert!(mandate.is_leader(), "the wall clock changes nothing");
    clock.suspend(Duration::from_secs(13));
    assert_eq!(mandate.check(), Err(Loss::Expired), "asleep for longer than the window");
    assert_eq!(leader.lost().await, Loss::Expired);
}

#[tokio::test]
async fn hundreds_of_elections_share_one_driver_and_close_releases_them_all() {
    let backend = Backend::memory();
    let mut held = Vec::new();
    for number in 0..300 {
        let election = Election::open(&backend, &format!("e{number}")).await.expect("it opens");
        held.push(election.stand(candidate("a")).expect("it stands"));
    }
    let held = futures_util::future::try_join_all(
        held.into_iter().map(|mut c| async move { c.elected().await }),
    );
    let held = held.await.expect("all elected");
    backend.close().await;
    assert!(held.iter().all(|leadership| !leadership.mandate().is_leader()));
    let all = Election::list(&backend).await.expect("a list");
    assert!(all.iter().all(|standing| standing.state == ElectionState::Free));
    assert_eq!(all.len(), 300);
}

#[tokio::test]
async fn the_status_stream_tells_the_story_and_closes() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let mut statuses = leader.statuses();
    assert!(matches!(statuses.next().await.expect("one").role, Role::Leading { token: 1 }));
    assert_eq!(leader.resign().await, Resignation::Released);
    let mut last = None;
    while let Some(status) = statuses.next().await {
        last = Some(status.role);
    }
    assert!(matches!(last, Some(Role::Over(_))), "{last:?}");
}

#[tokio::test]
async fn resigning_again_gives_the_same_answer() {
    let backend = Backend::memory();
    let election = open(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    assert_eq!(leader.resign().await, Resignation::Released);
    assert_eq!(leader.resign().await, Resignation::Released);
    assert!(!leader.mandate().is_leader());
    assert!(matches!(leader.publish("x"), Err(Error::Finished)), "a finished candidacy refuses");
}
