//! Ending, deleting and creating again.

use futures_util::future::join_all;
use tenure::lease::record::Record;
use tenure::{Election, ElectionState, Error, Loss, Resignation, Role};

use super::Case;
use super::case::{candidate, found, opened, soon, until};

fn named(case: &Case, backend: &tenure::Backend) -> Election {
    Election::builder(backend, &case.election()).timing(case.calm()).build().expect("a good name")
}

async fn create(case: &Case, backend: &tenure::Backend) -> Election {
    let name = case.election();
    let builder = Election::builder(backend, &name).timing(case.calm());
    builder.create().await.expect("created again")
}

/// An end tells the leader and all waiting candidates, on every handle.
pub async fn an_end_tells_everyone(case: &Case) {
    let (one, other, third) = (case.open().await, case.open().await, case.open().await);
    let leader = case.lead(&one, "a").await;
    let mut waiting = case.enter(&other).await.stand(candidate("b")).expect("it stands");
    until("it follows", async || waiting.status().follows.is_some()).await;
    named(case, &third).end().await.expect("ended");
    let refused = soon("the end to reach who waits", waiting.elected()).await;
    assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
    // Without notifications the leader learns of the end at its next renewal, a heartbeat later.
    assert_eq!(soon("the end to reach the leader", leader.lost()).await, Loss::Ended);
    assert!(!leader.mandate().is_leader());
    assert_eq!(leader.resign().await, Resignation::AlreadyLost);
}

/// The leader may end the election itself.
pub async fn the_leader_can_end_it(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let leader = case.lead(&one, "a").await;
    let mut waiting = case.enter(&other).await.stand(candidate("b")).expect("it stands");
    assert_eq!(leader.end().await.expect("ended"), Resignation::Released);
    let refused = soon("the end to reach who waits", waiting.elected()).await;
    assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
    assert_eq!(named(case, &one).standing().await.expect("readable").state, ElectionState::Ended);
}

/// An end lasts: no candidate may enter until the election is created again.
pub async fn an_end_lasts_until_the_election_is_created_again(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let election = case.enter(&one).await;
    election.end().await.expect("ended");
    let name = case.election();
    for backend in [&one, &other] {
        let opened = super::case::opened(backend, &name).await;
        assert!(matches!(opened, Err(Error::Ended { .. })), "{opened:?}");
    }
    let refused = election.campaign(candidate("a")).await;
    assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
    let again = create(case, &other).await;
    let _leader = soon("the leadership", again.campaign(candidate("a"))).await.expect("elected");
}

/// Ending an ended or missing election is a success, and leaves it ended.
pub async fn ending_what_does_not_exist_is_a_success(case: &Case) {
    let backend = case.open().await;
    let election = named(case, &backend);
    election.end().await.expect("ended");
    election.end().await.expect("ended again");
    let name = case.election();
    let opened = super::case::opened(&backend, &name).await;
    assert!(matches!(opened, Err(Error::Ended { .. })), "{opened:?}");
}

/// Deleting a missing election is a success, and leaves nothing.
pub async fn deleting_what_does_not_exist_is_a_success(case: &Case) {
    let backend = case.open().await;
    let election = named(case, &backend);
    election.delete().await.expect("deleted");
    assert_eq!(election.standing().await.expect("readable").state, ElectionState::Missing);
    case.enter(&backend).await;
}

/// An election that is created again excludes earlier candidates.
///
/// It is a new generation.
pub async fn creating_again_makes_the_next_generation(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let other = case.open().await;
    let leader = case.lead_briskly(&one, "a").await;
    faulty.cut();
    named(case, &other).end().await.expect("ended");
    create(case, &other).await;
    let body = found(&**other.store(), &case.record()).await.body;
    let record = Record::decode(&body).expect("a record");
    assert_eq!((record.generation, record.token), (2, leader.mandate().token()));
    faulty.heal();
    let loss = soon("the loss", leader.lost()).await;
    assert!(matches!(loss, Loss::Ended | Loss::Expired), "{loss:?}");
    let refused = soon("the refusal", leader.regain()).await;
    assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
    assert!(case.lead_briskly(&other, "b").await.mandate().token() > 1);
}

/// Creating an existing election leaves it as it is, its leader included.
pub async fn creating_what_exists_changes_nothing(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let leader = case.lead(&one, "a").await;
    create(case, &other).await;
    let standing = named(case, &other).standing().await.expect("readable");
    assert_eq!(standing.state, ElectionState::Led);
    assert_eq!(standing.token, leader.mandate().token());
    assert!(leader.mandate().is_leader());
}

/// A deleted election is hidden, and its tokens go on when its name is used again.
pub async fn a_deleted_election_is_hidden_and_its_tokens_go_on(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let election = case.enter(&one).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    assert_eq!(leader.resign().await, Resignation::Released);
    election.delete().await.expect("deleted");
    assert_eq!(election.standing().await.expect("readable").state, ElectionState::Missing);
    until("it is no longer listed", async || {
        let listed = Election::list(&other).await.expect("a list");
        listed.iter().all(|standing| standing.election != *election.name())
    })
    .await;
    let missing = Election::builder(&other, election.name().as_str()).create_if_missing(false);
    let missing = missing.open().await;
    assert!(matches!(missing, Err(Error::Missing { .. })), "{missing:?}");
    let next = case.lead(&other, "b").await;
    assert!(next.mandate().token() > leader.mandate().token());
}

/// Deleting an election tells all candidates, as an end does.
pub async fn deleting_tells_everyone(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let leader = case.lead(&one, "a").await;
    named(case, &other).delete().await.expect("deleted");
    assert_eq!(soon("the end to reach the leader", leader.lost()).await, Loss::Ended);
}

/// A missing election is refused unless it may be created.
pub async fn a_missing_election_is_refused_when_it_is_not_to_be_created(case: &Case) {
    let (backend, name) = (case.open().await, case.election());
    let opened = Election::builder(&backend, &name).create_if_missing(false).open().await;
    assert!(matches!(opened, Err(Error::Missing { .. })), "{opened:?}");
    assert_eq!(
        named(case, &backend).standing().await.expect("readable").state,
        ElectionState::Missing
    );
}

/// An election has no elections above or below it; those beside it are fine.
pub async fn nested_elections_are_refused(case: &Case) {
    let (backend, root) = (case.open().await, case.prefix());
    let name = |below: &str| format!("{root}/{below}");
    opened(&backend, &name("a/b")).await.expect("it opens");
    for nested in ["a", "a/b/c", "a/b/c/d"] {
        let refused = opened(&backend, &name(nested)).await;
        assert!(matches!(refused, Err(Error::Nested { .. })), "{refused:?}");
    }
    for beside in ["a/c", "a/bb", "ab", "a-b"] {
        opened(&backend, &name(beside)).await.expect("beside is not below");
    }
    let first = opened(&backend, &name("a/b")).await.expect("it opens");
    first.delete().await.expect("deleted");
    opened(&backend, &name("a/b/c")).await.expect("what was deleted is in nobody's way");
}

/// A finished candidacy refuses further use.
pub async fn a_finished_candidacy_refuses_further_use(case: &Case) {
    let backend = case.open().await;
    let election = case.enter(&backend).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    election.end().await.expect("ended");
    until("it is over", async || matches!(leader.status().role, Role::Over(_))).await;
    let refused = leader.publish("too late");
    assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
    let refused = leader.regain().await;
    assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
}

/// Concurrent ends, deletions and creations leave an election that works.
pub async fn ends_and_creations_by_many_at_once_leave_it_working(case: &Case) {
    let handles = join_all((0..5).map(|_| case.open())).await;
    let chaos = handles.iter().enumerate().map(|(number, backend)| async move {
        let election = named(case, backend);
        for round in 0..6 {
            match (number + round) % 3 {
                0 => election.end().await.expect("ended"),
                1 => drop(create(case, backend).await),
                _ => election.delete().await.expect("deleted"),
            }
        }
    });
    join_all(chaos).await;
    let election = create(case, &handles[0]).await;
    let _leader = soon("the leadership", election.campaign(candidate("a"))).await.expect("elected");
}
