//! One leader at a time, and the next after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use futures_util::future::{join_all, select_all};
use tenure::{Election, ElectionState, Error, Loss, Resignation, Role, Timing};

use super::Case;
use super::case::{candidate, soon, until};
use super::lag::Lag;

/// Many handles may open an election that does not exist yet at the same time.
pub async fn many_may_create_an_election_at_once(case: &Case) {
    let handles = join_all((0..20).map(|_| case.open())).await;
    join_all(handles.iter().map(|backend| case.enter(backend))).await;
    let standing = case.enter(&handles[0]).await.standing().await.expect("readable");
    assert_eq!((standing.state, standing.token), (ElectionState::Free, 0));
}

/// Of many candidates on many handles one leads, and the store names it.
pub async fn one_of_many_candidates_leads(case: &Case) {
    let mut candidacies = Vec::new();
    for number in 0..10 {
        let election = case.enter(&case.open().await).await;
        candidacies.push(election.stand(candidate(&format!("c{number}"))).expect("it stands"));
    }
    let statuses = candidacies.iter().map(|candidacy| candidacy.statuses()).collect::<Vec<_>>();
    let settled = statuses.into_iter().map(|mut statuses| async move {
        while let Some(status) = statuses.next().await {
            if matches!(status.role, Role::Leading { .. }) {
                return (status.candidate, None);
            }
            if let Some(leader) = status.follows {
                return (status.candidate, Some(leader.id));
            }
        }
        panic!("the candidacy is over");
    });
    let settled = soon("all to know their place", join_all(settled)).await;
    let leaders: Vec<_> = settled.iter().filter(|(_, follows)| follows.is_none()).collect();
    assert_eq!(leaders.len(), 1, "{settled:?}");
    assert!(
        settled.iter().all(|(_, follows)| follows.as_ref().is_none_or(|id| *id == leaders[0].0))
    );
}

/// While one candidate leads, no other mandate is valid.
///
/// That holds however often leaders change.
pub async fn never_two_lead_at_once(case: &Case) {
    let leading = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (leading, backend) = (leading.clone(), case.open().await);
        let election = case.enter(&backend).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let name = candidate(&format!("c{number}"));
                let leader = election.campaign(name).await.expect("elected");
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead at once");
                tokio::task::yield_now().await;
                assert!(leader.mandate().is_leader());
                leading.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(leader.resign().await, Resignation::Released);
            }
        }));
    }
    for task in tasks {
        soon("everyone's turns", task).await.expect("never two");
    }
}

/// A resignation hands over at once, long before the lease would expire.
pub async fn resigning_hands_over(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let first = case.lead(&one, "a").await;
    let mut second = case.enter(&other).await.stand(candidate("b")).expect("it stands");
    until("it follows", async || second.status().follows.is_some_and(|l| &*l.name == "a")).await;
    assert_eq!(first.resign().await, Resignation::Released);
    let second = soon("the hand-over", second.elected()).await.expect("elected");
    assert_eq!(second.status().followed.map(|l| l.name.to_string()), Some("a".into()));
}

/// The fencing token rises strictly, hand-over by hand-over.
pub async fn tokens_rise_at_every_hand_over(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let elections = [case.enter_briskly(&one).await, case.enter_briskly(&other).await];
    let mut tokens = Vec::new();
    for number in 0..20 {
        let election = &elections[number % 2];
        let leader =
            soon("the next leader", election.campaign(candidate("a"))).await.expect("elected");
        tokens.push(leader.mandate().token());
        leader.resign().await;
    }
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

/// Dropping the guard revokes its mandates at once and frees the election.
pub async fn dropping_the_guard_frees_the_election(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let leader = case.lead(&one, "a").await;
    let mandate = leader.mandate();
    drop(leader);
    assert_eq!(mandate.check(), Err(Loss::Resigned));
    assert!(case.lead(&other, "b").await.mandate().token() > mandate.token());
}

/// Closing a backend gives up everything it held.
pub async fn closing_a_backend_frees_what_it_held(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    let leader = case.lead(&one, "a").await;
    soon("the close", one.close()).await;
    assert!(!leader.mandate().is_leader());
    let _next = case.lead(&other, "b").await;
}

/// A silent leader is replaced at a higher token, after it has stopped.
pub async fn a_silent_leader_is_replaced_after_it_has_stopped(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let other = case.open().await;
    let first = case.lead_briskly(&one, "a").await;
    let mut second = case.enter_briskly(&other).await.stand(candidate("b")).expect("it stands");
    until("it follows", async || second.status().follows.is_some()).await;
    let mandate = first.mandate();
    faulty.cut();
    let second = soon("the take-over", second.elected()).await.expect("elected");
    assert_eq!(mandate.check(), Err(Loss::Expired));
    assert!(second.mandate().token() > mandate.token());
}

/// A leader that renews is not replaced, however long others wait.
pub async fn a_leader_that_renews_keeps_its_leadership(case: &Case) {
    let (one, other) = (case.open().await, case.open().await);
    // Long enough that a busy machine does not keep the leader from renewing: otherwise it would be
    // right to stop.
    let timing = Timing::new(case.brisk().ttl() * 3).expect("more room than before");
    let leader = case.enter_with(&one, timing).await.campaign(candidate("a")).await;
    let leader = leader.expect("elected");
    let rival = case.enter_with(&other, timing).await.stand(candidate("b")).expect("it stands");
    let mandate = leader.mandate();
    // The first lease is over by then.
    let over = std::time::Instant::now() + timing.ttl() * 3 / 2;
    while std::time::Instant::now() < over {
        soon("a renewal", mandate.renewed()).await;
    }
    assert!(mandate.is_leader(), "{:?}", mandate.check());
    assert!(matches!(rival.status().role, Role::Waiting), "{:?}", rival.status());
}

/// A candidate can win a lost leadership again, at a higher token.
pub async fn a_lost_leadership_can_be_regained(case: &Case) {
    let backend = case.open().await;
    let leader = case.lead_briskly(&backend, "a").await;
    let first = leader.mandate();
    leader.force_loss();
    assert_eq!(soon("the loss", leader.lost()).await, Loss::Forced);
    let again = soon("the regained leadership", leader.regain()).await.expect("elected again");
    assert!(again.mandate().token() > first.token());
    assert!(!first.is_leader(), "the old mandate stays void");
}

/// Work in a scope is dropped when leadership is lost.
pub async fn work_in_a_scope_is_dropped_on_loss(case: &Case) {
    struct Bell(Arc<AtomicU64>);
    impl Drop for Bell {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (backend, faulty) = case.faulty().await;
    let leader = case.lead_briskly(&backend, "a").await;
    let dropped = Arc::new(AtomicU64::new(0));
    let bell = Bell(dropped.clone());
    let lag = Lag::start();
    let outcome = leader.scope(async {
        let _bell = bell;
        faulty.cut();
        std::future::pending::<()>().await;
    });
    let outcome = soon("the loss", outcome).await;
    assert!(matches!(outcome, Err(Error::Lost(Loss::Expired))), "{outcome:?}");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    // Unless this machine was too busy to run the task in between.
    let in_time = leader.mandate().is_leader() || lag.longest().await > case.brisk().grace() / 4;
    assert!(in_time, "it is dropped while the lease still lasts");
}

/// Work that is done in time gives its result.
pub async fn work_in_a_scope_gives_its_result(case: &Case) {
    let backend = case.open().await;
    let leader = case.lead(&backend, "a").await;
    assert_eq!(leader.scope(async { 7 }).await.expect("in time"), 7);
}

/// A lock delay is waited after an unclean end of a tenure, and only then.
pub async fn a_lock_delay_is_waited_only_after_an_unclean_end(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let (other, name, delay) = (case.open().await, case.election(), case.brisk().ttl());
    let enter = |backend: &tenure::Backend| {
        let (backend, name, timing) = (backend.clone(), name.clone(), case.brisk());
        async move {
            let builder = Election::builder(&backend, &name).timing(timing).lock_delay(delay);
            builder.open().await.expect("it opens")
        }
    };
    let (election, rival) = (enter(&one).await, enter(&other).await);
    let first = election.campaign(candidate("a")).await.expect("elected");
    assert_eq!(first.resign().await, Resignation::Released);
    let first = soon("a clean hand-over", election.campaign(candidate("a"))).await;
    let first = first.expect("elected");
    let mut waiting = rival.stand(candidate("b")).expect("it stands");
    until("it follows", async || waiting.status().follows.is_some()).await;
    faulty.cut();
    soon("the loss", first.lost()).await;
    until("the mandate is over", async || !first.mandate().is_leader()).await;
    // The others respect the lease for a fifth of the ttl longer than its holder does, and then
    // comes the delay. The clock starts late and the wait can only be longer, so this cannot fail
    // by chance.
    let over = std::time::Instant::now();
    let _next = soon("the take-over", waiting.elected()).await.expect("elected");
    assert!(over.elapsed() >= delay, "after {:?}", over.elapsed());
}

/// Hundreds of elections share one handle.
///
/// One of them may be lost without the others.
pub async fn two_hundred_elections_share_one_handle(case: &Case) {
    let backend = case.open().await;
    let names: Vec<String> = (0..200).map(|n| format!("{}/e{n}", case.prefix())).collect();
    let opening = names.iter().map(|name| async {
        let builder = Election::builder(&backend, name).timing(case.calm());
        builder.create_if_missing(true).open().await.expect("it opens")
    });
    let elections = join_all(opening).await;
    let campaigns = elections.iter().map(|election| election.campaign(candidate("a")));
    let held = soon("all leaderships", join_all(campaigns)).await;
    let held: Vec<_> = held.into_iter().map(|leader| leader.expect("elected")).collect();
    held[7].force_loss();
    soon("the loss", held[7].lost()).await;
    let valid = held.iter().filter(|leader| leader.mandate().is_leader()).count();
    assert_eq!(valid, 199);
    soon("the close", backend.close()).await;
    assert!(held.iter().all(|leader| !leader.mandate().is_leader()));
    for election in &elections[..7] {
        assert_eq!(election.standing().await.expect("readable").state, ElectionState::Free);
    }
}

/// The first candidate that claims is the next leader; the others go on waiting.
pub async fn the_others_go_on_waiting_after_a_hand_over(case: &Case) {
    let backend = case.open().await;
    let election = case.enter(&backend).await;
    let first = election.campaign(candidate("a")).await.expect("elected");
    let mut token = first.mandate().token();
    let waiting = (0..5).map(|number| {
        let election = election.clone();
        Box::pin(async move { election.campaign(candidate(&format!("b{number}"))).await })
    });
    let waiting = select_all(waiting.collect::<Vec<_>>());
    let resigning = async {
        let follows = async || election.candidates().await.expect("a list").len() == 6;
        until("all stand", follows).await;
        first.resign().await
    };
    let ((second, _, mut rest), resigned) =
        soon("the hand-over", futures_util::future::join(waiting, resigning)).await;
    assert_eq!(resigned, Resignation::Released);
    let second = second.expect("elected");
    assert!(second.mandate().token() > token);
    token = second.mandate().token();
    second.resign().await;
    while !rest.is_empty() {
        let (next, _, others) = soon("the next leader", select_all(rest)).await;
        let next = next.expect("elected");
        assert!(next.mandate().token() > token);
        token = next.mandate().token();
        next.resign().await;
        rest = others;
    }
}
