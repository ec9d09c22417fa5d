//! Lost answers, and a store that goes away and comes back.

use futures_util::StreamExt;
use tenure::lease::record::Record;
use tenure::{Election, ElectionState, Error, Key, Leadership, Loss, Resignation, Role};

use super::Case;
use super::case::{candidate, found, reads_prove, soon, until};
use super::lag::Lag;

async fn until_role(leader: &Leadership, what: &str, holds: impl Fn(&Role) -> bool) -> Role {
    let mut statuses = leader.statuses();
    let watching = async {
        loop {
            let status = statuses.next().await.expect("the candidacy goes on");
            if holds(&status.role) {
                return status.role;
            }
        }
    };
    soon(what, watching).await
}

/// A claim with a lost answer is found by reading.
///
/// The candidate leads, with the token it had claimed.
pub async fn a_claim_whose_answer_is_lost_is_found_by_reading(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let election = case.enter(&backend).await;
    faulty.lose_answers(&case.record(), 1);
    let leader = soon("the leadership", election.campaign(candidate("a"))).await.expect("elected");
    assert_eq!(faulty.lost(), 1);
    let record = found(&**backend.store(), &case.record()).await.body;
    let record = Record::decode(&record).expect("a record");
    assert_eq!(record.token, leader.mandate().token());
    if reads_prove(&**backend.store()) {
        assert_eq!(leader.mandate().token(), 1);
    }
}

/// Renewals with lost answers cost nothing where a read proves them.
pub async fn renewals_whose_answers_are_lost_keep_the_token(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let leader = case.lead_briskly(&backend, "a").await;
    if !reads_prove(&**backend.store()) {
        return case.skip("a weak read cannot prove a renewal");
    }
    let mandate = leader.mandate();
    faulty.lose_answers(&case.record(), 5);
    until("five answers were lost", async || faulty.lost() == 5).await;
    for _ in 0..6 {
        soon("a renewal", mandate.renewed()).await;
    }
    assert!(mandate.is_leader(), "{:?}", mandate.check());
}

/// Writes that had no effect are repeated.
pub async fn writes_that_had_no_effect_are_made_again(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let election = case.enter_briskly(&backend).await;
    faulty.refuse(&case.record(), 2);
    let leader = soon("the leadership", election.campaign(candidate("a"))).await.expect("elected");
    assert_eq!(faulty.refused(), 2);
    if reads_prove(&**backend.store()) {
        assert_eq!(leader.mandate().token(), 1);
    }
    assert!(leader.status().error.is_none(), "{:?}", leader.status().error);
}

/// A store that comes back in time costs nothing.
///
/// The leader is suspended, and then leads again with the same token.
pub async fn a_store_that_comes_back_in_time_costs_nothing(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let leader = case.lead_briskly(&backend, "a").await;
    let mandate = leader.mandate();
    let token = mandate.token();
    faulty.cut();
    let role = until_role(&leader, "the suspension", |r| matches!(r, Role::Suspended { .. })).await;
    let Role::Suspended { remaining, .. } = role else { panic!("{role:?}") };
    assert!(!remaining.is_zero() && mandate.is_leader(), "suspended is not lost");
    assert!(leader.status().error.is_some(), "it says what is wrong");
    faulty.heal();
    until_role(&leader, "the resumption", |role| *role == Role::Leading { token }).await;
    assert!(mandate.is_leader() && leader.status().error.is_none());
}

/// A store that stays away costs the leadership, by the leader's own clock alone.
pub async fn a_store_that_stays_away_costs_the_leadership(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let leader = case.lead_briskly(&backend, "a").await;
    let mandate = leader.mandate();
    let lag = Lag::start();
    faulty.cut();
    assert_eq!(soon("the loss", leader.lost()).await, Loss::Expired);
    // Unless this machine was too busy to run the task in between.
    let in_time = mandate.is_leader() || lag.longest().await > case.brisk().grace() / 4;
    assert!(in_time, "work is told to stop before the lease is over");
    until_role(&leader, "the loss in the status", |role| {
        matches!(role, Role::Lost { loss: Loss::Expired, .. })
    })
    .await;
    assert_eq!(mandate.check(), Err(Loss::Expired));
}

/// Once the store is back, a candidate leads again, at a higher token.
pub async fn somebody_leads_again_once_the_store_is_back(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let (other, also_faulty) = case.faulty().await;
    let first = case.lead_briskly(&one, "a").await;
    let mut second = case.enter_briskly(&other).await.stand(candidate("b")).expect("it stands");
    until("it follows", async || second.status().follows.is_some()).await;
    let token = first.mandate().token();
    faulty.cut();
    also_faulty.cut();
    soon("the loss", first.lost()).await;
    until("the mandate is over", async || !first.mandate().is_leader()).await;
    faulty.heal();
    also_faulty.heal();
    let (regained, taken) = (Box::pin(first.regain()), Box::pin(second.elected()));
    let next = soon("the next leader", futures_util::future::select(regained, taken)).await;
    let (next, _) = next.factor_first();
    assert!(next.expect("elected").mandate().token() > token);
}

/// A leader that was cut off comes back as a candidate, and waits for its turn.
pub async fn a_leader_that_was_cut_off_comes_back_as_a_candidate(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let other = case.open().await;
    let first = case.lead_briskly(&one, "a").await;
    faulty.cut();
    let second = case.lead_briskly(&other, "b").await;
    assert!(!first.mandate().is_leader());
    faulty.heal();
    let regain = tokio::spawn(first.regain());
    let mandate = second.mandate();
    for _ in 0..5 {
        soon("a renewal", mandate.renewed()).await;
    }
    assert!(mandate.is_leader() && !regain.is_finished());
    second.resign().await;
    let third = soon("its turn", regain).await.expect("it ran").expect("elected again");
    assert!(third.mandate().token() > mandate.token());
}

/// A candidate waits for a store that is away, and says so.
pub async fn a_candidate_waits_for_a_store_that_is_away(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let election = case.enter_briskly(&backend).await;
    faulty.cut();
    let mut candidacy = election.stand(candidate("a")).expect("it stands");
    until("it says so", async || matches!(candidacy.status().error, Some(Error::Store(_)))).await;
    faulty.heal();
    let leader = soon("the leadership", candidacy.elected()).await.expect("elected");
    assert!(leader.status().error.is_none());
}

/// Opening, looking and ending fail when the store is away: no answer is made up.
pub async fn a_store_that_is_away_is_an_error(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let election = case.enter(&backend).await;
    faulty.cut();
    let name = case.election();
    let opened = super::case::opened(&backend, &name).await;
    assert!(matches!(opened, Err(Error::Store(_))), "{opened:?}");
    assert!(matches!(election.standing().await, Err(Error::Store(_))));
    assert!(matches!(election.candidates().await, Err(Error::Store(_))));
    assert!(matches!(Election::list(&backend).await, Err(Error::Store(_))));
    assert!(matches!(election.end().await, Err(Error::Store(_))));
}

/// A resignation while the store is away has an unknown outcome, with a time limit.
pub async fn resigning_while_the_store_is_away_is_unknown(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let other = case.open().await;
    let leader = case.lead_briskly(&one, "a").await;
    let mandate = leader.mandate();
    faulty.cut();
    let resignation = soon("an answer", leader.resign()).await;
    let Resignation::Unknown { frees_within } = resignation else { panic!("{resignation:?}") };
    assert!(frees_within <= case.brisk().ttl() && !mandate.is_leader());
    let _next = case.lead_briskly(&other, "b").await;
}

/// A resignation with a lost answer has released: the next candidate leads at once.
pub async fn a_resignation_whose_answer_is_lost_has_released(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let other = case.open().await;
    let leader = case.lead(&one, "a").await;
    faulty.lose_answers(&case.record(), 1);
    assert_eq!(soon("an answer", leader.resign()).await, Resignation::Released);
    let next = case.lead(&other, "b").await;
    assert_eq!(next.mandate().token(), 2);
}

/// An end with a lost answer has ended, and says so.
pub async fn an_end_whose_answer_is_lost_has_ended(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let election = case.enter(&backend).await;
    faulty.lose_answers(&case.record(), 1);
    election.end().await.expect("ended");
    assert_eq!(election.standing().await.expect("readable").state, ElectionState::Ended);
    assert_eq!(faulty.lost(), 1);
}

/// A creation with a lost answer has created one generation, not two.
pub async fn a_creation_whose_answer_is_lost_has_created_once(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    faulty.lose_answers(&case.record(), 1);
    case.enter(&backend).await;
    let record = found(&**backend.store(), &case.record()).await.body;
    let record = Record::decode(&record).expect("a record");
    assert_eq!((record.generation, record.token, faulty.lost()), (1, 0, 1));
}

/// A campaign that is cancelled while its claim is in flight leaves nothing held.
pub async fn a_campaign_cancelled_before_its_claim_arrives_leaves_nothing_held(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let other = case.open().await;
    let mut held = faulty.hold_write(&case.record_led_once(&one).await);
    let election = case.enter(&one).await;
    let candidacy = election.stand(candidate("a")).expect("it stands");
    soon("the claim", held.arrived()).await;
    drop(candidacy);
    let mut next = case.enter(&other).await.stand(candidate("b")).expect("it stands");
    held.release();
    // The lease would last longer than this waits, so only a release lets the next candidate lead.
    let _next = soon("the next leader", next.elected()).await.expect("elected");
}

/// A campaign that is cancelled before it learns of its win releases the lease.
pub async fn a_campaign_cancelled_before_its_answer_gives_back_what_it_won(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let other = case.open().await;
    let mut held = faulty.hold_answer(&case.record_led_once(&one).await);
    let election = case.enter(&one).await;
    let candidacy = election.stand(candidate("a")).expect("it stands");
    soon("the claim", held.arrived()).await;
    drop(candidacy);
    let next = case.lead(&other, "b").await;
    assert_eq!(next.mandate().token(), 3, "the claim had been applied");
    held.release();
}

/// An answer that comes after the end of the lease it granted revives no leader.
pub async fn an_answer_that_comes_too_late_revives_nobody(case: &Case) {
    let (one, faulty) = case.faulty().await;
    let other = case.open().await;
    let first = case.lead_briskly(&one, "a").await;
    let mandate = first.mandate();
    let mut held = faulty.hold_answer(&case.record());
    soon("a renewal", held.arrived()).await;
    faulty.cut();
    let second = case.lead_briskly(&other, "b").await;
    faulty.heal();
    held.release();
    for _ in 0..3 {
        soon("a renewal", second.mandate().renewed()).await;
    }
    assert!(second.mandate().is_leader() && !mandate.is_leader());
    assert_eq!(mandate.check(), Err(Loss::Expired));
}

/// A candidate that leaves while its list entry is in flight removes the entry.
pub async fn a_candidate_that_leaves_before_it_is_listed_is_not_listed(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let election = case.enter(&backend).await;
    let mut held = faulty.hold_next_below(&Key::candidates(election.name()));
    let candidacy = election.stand(candidate("a")).expect("it stands");
    soon("the entry", held.arrived()).await;
    let withdrawing = tokio::spawn(candidacy.withdraw());
    soon("the withdrawal", withdrawing).await.expect("it ran");
    held.release();
    soon("the close", backend.close()).await;
    assert_eq!(election.candidates().await.expect("a list"), []);
}

/// A candidate that could not write its entry is listed a little later.
pub async fn a_candidate_is_listed_once_the_store_is_back(case: &Case) {
    let (backend, faulty) = case.faulty().await;
    let election = case.enter_briskly(&backend).await;
    faulty.cut();
    let candidacy = election.stand(candidate("a")).expect("it stands");
    until("it says so", async || candidacy.status().error.is_some()).await;
    faulty.heal();
    until("it is listed", async || election.candidates().await.expect("a list").len() == 1).await;
}
