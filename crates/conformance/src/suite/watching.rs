//! Observers and statuses.

use futures_util::StreamExt;
use tenure::{Election, ElectionState, Loss, Observer, Role, Standing};

use super::Case;
use super::case::{candidate, in_line, overwrite, soon, until};

async fn next(observer: &mut Observer, state: ElectionState) -> Standing {
    let watching = async {
        loop {
            let seen = observer.next().await.expect("it goes on").expect("readable");
            if seen.state == state {
                return seen;
            }
        }
    };
    soon(&format!("the observer to see {state:?}"), watching).await
}

/// An observer on another handle sees an election from creation to deletion.
pub async fn an_observer_sees_an_election_through(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let name = case.election();
    let watched = Election::builder(&other, &name).timing(case.brisk()).build().expect("a name");
    let mut observer = watched.observe().expect("it observes");
    next(&mut observer, ElectionState::Missing).await;
    let election = case.enter(&one).await;
    next(&mut observer, ElectionState::Free).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let led = next(&mut observer, ElectionState::Led).await;
    let token = leader.mandate().token();
    assert_eq!((led.token, &*led.leader.expect("somebody leads").name), (token, "a"));
    leader.resign().await;
    assert_eq!(next(&mut observer, ElectionState::Free).await.leader, None);
    election.end().await.expect("ended");
    next(&mut observer, ElectionState::Ended).await;
    election.delete().await.expect("deleted");
    let missing = next(&mut observer, ElectionState::Missing).await;
    // Nothing is left of a deleted line; the record of a lease keeps its token.
    assert_eq!(missing.token, if in_line(&other) { 0 } else { token });
}

/// An observer sees a silent leader lapse, and the next one lead.
pub async fn an_observer_sees_a_silent_leader_lapse(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let (other, third) = (case.open().await, case.open().await);
    let _leader = case.lead_briskly(&one, "a").await;
    let mut observer = case.enter_briskly(&other).await.observe().expect("it observes");
    next(&mut observer, ElectionState::Led).await;
    faulty.cut();
    let lapsed = next(&mut observer, ElectionState::Lapsed).await;
    assert_eq!(&*lapsed.leader.expect("it is known who led").name, "a");
    let _next = case.lead_briskly(&third, "b").await;
    let led = next(&mut observer, ElectionState::Led).await;
    assert_eq!((led.token, &*led.leader.expect("somebody leads").name), (2, "b"));
}

/// Renewals do not wake an observer.
///
/// It sees one item per tenure, and knows its newest end.
pub async fn an_observer_is_not_woken_by_renewals(case: &Case) {
    case.on_leases();
    let (one, other) = (case.open().await, case.open().await);
    let leader = case.lead_briskly(&one, "a").await;
    let mut observer = case.enter_briskly(&other).await.observe().expect("it observes");
    let first = next(&mut observer, ElectionState::Led).await;
    let mandate = leader.mandate();
    for _ in 0..8 {
        soon("a renewal", mandate.renewed()).await;
    }
    until("the newest end is known", async || {
        observer.latest().is_some_and(|seen| seen.is_ok_and(|seen| seen.expire > first.expire))
    })
    .await;
    let waiting = async { observer.next().await };
    let news = tokio::time::timeout(case.brisk().ttl() / 2, waiting).await;
    assert!(news.is_err(), "{news:?}");
}

/// Any number of observers, on one handle and on several, see the same.
pub async fn many_observers_see_the_same(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let elections = [case.enter(&one).await, case.enter(&other).await];
    let mut observers: Vec<Observer> =
        (0..40).map(|n| elections[n % 2].observe().expect("it observes")).collect();
    for observer in &mut observers {
        next(observer, ElectionState::Free).await;
    }
    let leader = elections[0].campaign(candidate("a")).await.expect("elected");
    for observer in &mut observers {
        assert_eq!(next(observer, ElectionState::Led).await.token, leader.mandate().token());
    }
}

/// An observer reports a record that makes no sense, and goes on once it is mended.
pub async fn an_observer_reports_garbage_and_goes_on(case: &Case) {
    case.on_leases();
    let (backend, store) = (case.open().await, case.store().await);
    let election = case.enter_briskly(&backend).await;
    let good = super::case::found(&*store, &case.record()).await.body;
    let mut observer = election.observe().expect("it observes");
    next(&mut observer, ElectionState::Free).await;
    overwrite(&*store, &case.record(), "garbage").await;
    let reporting = async {
        while !matches!(observer.next().await, Some(Err(tenure::Error::Record { .. }))) {}
    };
    soon("the report", reporting).await;
    overwrite(&*store, &case.record(), good).await;
    next(&mut observer, ElectionState::Free).await;
}

/// An observer reports that the store is away, and goes on when it is back.
pub async fn an_observer_reports_a_store_that_is_away(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let election = case.enter_briskly(&backend).await;
    let mut observer = election.observe().expect("it observes");
    next(&mut observer, ElectionState::Free).await;
    faulty.cut();
    let reporting =
        async { while !matches!(observer.next().await, Some(Err(tenure::Error::Store(_)))) {} };
    soon("the report", reporting).await;
    faulty.heal();
    next(&mut observer, ElectionState::Free).await;
}

/// The status stream shows a candidacy's course, and closes at its end.
///
/// The present status comes first.
pub async fn a_status_stream_tells_the_story_and_closes(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let first = case.lead(&one, "a").await;
    let election = case.enter(&other).await;
    let second = election.stand(candidate("b")).expect("it stands");
    let mut statuses = second.statuses();
    let mut story = async |holds: &dyn Fn(&tenure::Status) -> bool| {
        let watching = async {
            loop {
                let status = statuses.next().await.expect("the stream goes on");
                if holds(&status) {
                    return status;
                }
            }
        };
        soon("the status", watching).await
    };
    // A slow reader misses statuses that were replaced, so these two may come as one.
    story(&|status| {
        status.role == Role::Waiting
            && status.follows.as_ref().is_some_and(|leader| &*leader.name == "a")
    })
    .await;
    first.resign().await;
    let token = first.mandate().token();
    let led = story(&|status| matches!(status.role, Role::Leading { .. })).await;
    assert!(led.role.token() > Some(token), "{led:?}");
    assert_eq!(led.followed.map(|leader| leader.name.to_string()), Some("a".into()));
    election.end().await.expect("ended");
    story(&|status| matches!(status.role, Role::Over(_))).await;
    // The stream closes with the last handle on the candidacy.
    drop(second);
    assert!(soon("the stream to close", statuses.next()).await.is_none());
}

/// A leader's statuses say that it lost its leadership, and why.
pub async fn a_leaders_status_says_why_it_was_lost(case: &Case) {
    let backend = case.open().await;
    let leader = case.lead(&backend, "a").await;
    let token = leader.mandate().token();
    leader.force_loss();
    soon("the loss", leader.lost()).await;
    until("the status says so", async || {
        leader.status().role == Role::Lost { token, loss: Loss::Forced }
    })
    .await;
}
