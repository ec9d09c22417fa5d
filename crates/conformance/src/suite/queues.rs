//! Promises of queues only: order, and no needless wake-ups.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt, join_all};
use tenure::protocol::Holder;
use tenure::queue::{Entry, Freshness, Gone, Left, Queue, SessionQueue, Ticket};
use tenure::{
    Backend, Candidacy, CandidateId, Election, ElectionState, Error, Key, Loss, Protocol, Role,
};

use super::Case;
use super::case::{candidate, in_line, lead, opened, soon, until};

/// A handle, if its elections are queues.
async fn queue(case: &Case) -> Option<Backend> {
    let backend = case.open().await;
    if in_line(&backend) {
        return Some(backend);
    }
    case.skip("its elections are no queues");
    None
}

/// Stands, and waits until the candidate is in line.
async fn stand(election: &Election, name: &str) -> Candidacy {
    let candidacy = election.stand(candidate(name)).expect("it stands");
    let id = candidacy.id();
    until("it is in line", async || {
        let listed = election.candidates().await.expect("a list").iter().any(|one| one.id == id);
        // The entry of a join whose answer is late is listed, too. It may be given up for another.
        let status = candidacy.status();
        listed && status.error.is_none() && (leads(&candidacy) || status.follows.is_some())
    })
    .await;
    candidacy
}

async fn names(election: &Election) -> Vec<String> {
    let found = election.candidates().await.expect("a list");
    assert!(found.iter().enumerate().all(|(at, one)| one.position == Some(at + 1)), "{found:?}");
    found.iter().map(|one| one.name.to_string()).collect()
}

fn leads(candidacy: &Candidacy) -> bool {
    matches!(candidacy.status().role, Role::Leading { .. })
}

/// Candidates of many handles lead in order of arrival, at rising tokens.
pub async fn first_come_is_first_led(case: &Case) {
    let Some(first) = queue(case).await else { return };
    let others = join_all((0..4).map(|_| case.open())).await;
    let mut waiting = Vec::new();
    for (number, backend) in [first].iter().chain(&others).enumerate() {
        let election = case.enter(backend).await;
        waiting.push(stand(&election, &format!("c{number}")).await);
    }
    let mut token = 0;
    for (number, mut candidacy) in waiting.into_iter().enumerate() {
        let leader = soon(&format!("c{number}"), candidacy.elected()).await.expect("elected");
        assert!(leader.mandate().token() > token);
        token = leader.mandate().token();
        leader.resign().await;
    }
}

/// A candidate that leaves the middle of the line changes no leader or order.
pub async fn the_middle_of_the_line_leaves_and_the_order_holds(case: &Case) {
    let Some(backend) = queue(case).await else { return };
    let election = case.enter(&backend).await;
    let leader = lead(&election, "a").await;
    let (mut second, third, mut fourth) =
        (stand(&election, "b").await, stand(&election, "c").await, stand(&election, "d").await);
    soon("the withdrawal", third.withdraw()).await;
    assert_eq!(names(&election).await, ["a", "b", "d"]);
    assert!(leader.mandate().is_leader() && !leads(&second) && !leads(&fourth));
    leader.resign().await;
    let second = soon("b", second.elected()).await.expect("elected");
    assert!(!leads(&fourth));
    second.resign().await;
    let _last = soon("d", fourth.elected()).await.expect("elected");
}

/// A waiting candidate can be withdrawn, and its entry is gone at once.
///
/// Others may wait behind it.
pub async fn a_candidate_that_waits_is_withdrawn_at_once(case: &Case) {
    let Some(backend) = queue(case).await else { return };
    let election = case.enter(&backend).await;
    let leader = lead(&election, "a").await;
    let (mut second, mut third) = (stand(&election, "b").await, stand(&election, "c").await);
    assert!(second.elected().now_or_never().is_none(), "a leads");
    soon("the withdrawal", second.withdraw()).await;
    assert_eq!(names(&election).await, ["a", "c"]);
    leader.resign().await;
    let _third = soon("c", third.elected()).await.expect("elected");
}

/// The first three go with their process, and the fourth leads.
///
/// It watched only the third.
pub async fn three_gone_at_once_let_the_fourth_lead(case: &Case) {
    let Some(one) = queue(case).await else { return };
    let other = case.open().await;
    let (election, last) = (case.enter(&one).await, case.enter(&other).await);
    let gone =
        [stand(&election, "a").await, stand(&election, "b").await, stand(&election, "c").await];
    let mut fourth = stand(&last, "d").await;
    soon("the close", one.close()).await;
    let _next = soon("the fourth", fourth.elected()).await.expect("elected");
    assert!(gone.iter().all(|candidacy| !leads(candidacy)));
}

/// A departure makes one leader, and the rest of the line goes on waiting.
pub async fn only_the_next_in_line_leads_after_a_departure(case: &Case) {
    let Some(backend) = queue(case).await else { return };
    let election = case.enter(&backend).await;
    let leader = lead(&election, "a").await;
    let mut waiting = Vec::new();
    for number in 0..10 {
        waiting.push(stand(&election, &format!("b{number}")).await);
    }
    leader.resign().await;
    until("the next leads", async || leads(&waiting[0])).await;
    assert!(waiting[1..].iter().all(|candidacy| candidacy.status().role == Role::Waiting));
    assert_eq!(names(&election).await.len(), 10);
}

/// Candidates are listed in the order of the line, with places and current values.
pub async fn candidates_are_listed_in_the_order_of_the_line(case: &Case) {
    let Some(one) = queue(case).await else { return };
    let other = case.open().await;
    let elections = [case.enter(&one).await, case.enter(&other).await];
    let mut kept = Vec::new();
    for number in 0..6 {
        kept.push(stand(&elections[number % 2], &format!("c{number}")).await);
    }
    for election in &elections {
        let (listed, wanted) = (names(election).await, ["c0", "c1", "c2", "c3", "c4", "c5"]);
        let statuses: Vec<_> = kept.iter().map(Candidacy::status).collect();
        assert_eq!(listed, wanted, "{statuses:?}");
    }
    kept[3].publish("changed").expect("short");
    until("the change is listed", async || {
        elections[0].candidates().await.expect("a list")[3].value == "changed"
    })
    .await;
    assert_eq!(names(&elections[0]).await[3], "c3", "a change keeps its place");
}

/// An end during many joins ends all candidacies, and nothing stays in line.
pub async fn an_end_that_races_many_candidates_leaves_nobody_in_line(case: &Case) {
    let Some(one) = queue(case).await else { return };
    let other = case.open().await;
    let elections = [case.enter(&one).await, case.enter(&other).await];
    let standing: Vec<Candidacy> = (0..100)
        .map(|number| {
            let name = candidate(&format!("c{number}"));
            elections[number % 2].stand(name).expect("it stands")
        })
        .collect();
    elections[0].end().await.expect("ended");
    for mut candidacy in standing {
        match soon("its way out", candidacy.elected()).await {
            // The work ends with the guard.
            Ok(leader) => drop(leader),
            Err(error) => assert!(matches!(error, Error::Ended { .. }), "{error}"),
        }
    }
    until("nobody is in line", async || names(&elections[0]).await.is_empty()).await;
    let standing = elections[1].standing().await.expect("readable");
    assert_eq!(standing.state, ElectionState::Ended);
}

/// A queue is refused to candidates with leases, and the other way round.
pub async fn the_other_protocol_is_refused(case: &Case) {
    let Some(backend) = queue(case).await else { return };
    let leases = case.open().await.without_queue();
    case.enter(&backend).await;
    let refused = opened(&leases, &case.election()).await;
    let Err(Error::Protocol { recorded, wanted, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((recorded, wanted), (Protocol::Queue, Protocol::Lease));
    let name = format!("{}/by-lease", case.prefix());
    opened(&leases, &name).await.expect("it opens");
    let refused = opened(&backend, &name).await;
    let Err(Error::Protocol { recorded, wanted, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((recorded, wanted), (Protocol::Lease, Protocol::Queue));
}

/// If two first openers use different protocols, one of them is refused.
pub async fn of_two_first_openers_with_different_protocols_one_is_refused(case: &Case) {
    let Some(backend) = queue(case).await else { return };
    let leases = case.open().await.without_queue();
    for number in 0..10 {
        let name = format!("{}/race-{number}", case.prefix());
        let (one, other) = tokio::join!(opened(&backend, &name), opened(&leases, &name));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        let refused = one.err().or(other.err());
        assert!(matches!(refused, Some(Error::Protocol { .. })), "{refused:?}");
    }
}

/// A lock delay is waited after an abandoned tenure, but not after a resignation.
pub async fn a_lock_delay_is_waited_after_an_unclean_end_only(case: &Case) {
    let Some(one) = queue(case).await else { return };
    let other = case.open().await;
    // Longer than the entry of an abandoned leader stands, so that the two cannot be confused.
    let delay = case.brisk().ttl() * 3;
    let enter = async |backend: &Backend| {
        let name = case.election();
        let builder = Election::builder(backend, &name).create_if_missing(true).lock_delay(delay);
        builder.open().await.expect("it opens")
    };
    let (election, rival) = (enter(&one).await, enter(&other).await);
    let first = lead(&election, "a").await;
    let mut second = stand(&rival, "b").await;
    let began = std::time::Instant::now();
    first.resign().await;
    let second = soon("a clean hand-over", second.elected()).await.expect("elected");
    assert!(began.elapsed() < delay, "nobody waits after a clean end: {:?}", began.elapsed());
    let mut third = stand(&election, "c").await;
    let began = std::time::Instant::now();
    let _ = second.abandon();
    let third = soon("the take-over", third.elected()).await.expect("elected");
    assert!(began.elapsed() >= delay, "after {:?}", began.elapsed());
    assert!(third.mandate().is_leader());
}

/// A candidate that lost its tenure stands again behind the candidates that waited.
pub async fn a_lost_tenures_entry_goes_to_the_end_of_the_line(case: &Case) {
    let Some(backend) = queue(case).await else { return };
    let election = case.enter(&backend).await;
    let leader = lead(&election, "a").await;
    let mut second = stand(&election, "b").await;
    let token = leader.mandate().token();
    leader.force_loss();
    soon("the loss", leader.lost()).await;
    assert!(!leads(&second), "its entry stands while its work may go on");
    let again = tokio::spawn(leader.regain());
    let second = soon("b", second.elected()).await.expect("elected");
    until("it stands again", async || names(&election).await == ["b", "a"]).await;
    assert!(!again.is_finished());
    second.resign().await;
    let again = soon("its turn", again).await.expect("it ran").expect("elected again");
    assert!(again.mandate().token() > token);
}

/// A leader is told at once when an operator deletes its entry.
///
/// It stands again at the end of the line if it asks to.
pub async fn a_leader_whose_entry_is_deleted_is_told_at_once(case: &Case) {
    let Some(one) = queue(case).await else { return };
    let other = case.open().await;
    let election = case.enter(&one).await;
    let leader = lead(&election, "a").await;
    let mut second = stand(&case.enter(&other).await, "b").await;
    // Any handle can act as the operator: it deletes the entry that it is given.
    let lines = other.queue().expect("its elections are queues");
    let line = lines.look(&case.record(), Freshness::Session).await.expect("readable");
    let Queue::Open { places, .. } = line else { panic!("{line:?}") };
    let left = lines.leave(&places[0].entry, false).await.expect("deleted");
    assert_eq!(left, Left::Deleted);
    assert_eq!(soon("the loss", leader.lost()).await, Loss::Vanished);
    assert!(!leader.mandate().is_leader());
    let token = leader.mandate().token();
    let again = tokio::spawn(leader.regain());
    let second = soon("b", second.elected()).await.expect("elected");
    until("it stands again", async || names(&election).await == ["b", "a"]).await;
    second.resign().await;
    let again = soon("its turn", again).await.expect("it ran").expect("elected again");
    assert!(again.mandate().token() > token);
}

/// A deletion of the entry ahead is no turn to lead if the election ended first.
///
/// This also holds for a candidate that has not heard of the end.
pub async fn the_deletion_that_follows_an_end_is_nobodys_turn(case: &Case) {
    let Some(one) = queue(case).await else { return };
    let other = case.open().await;
    delete_after_the_end(case, [&one, &other, &one]).await;
}

/// The same between two candidates of one process.
///
/// An operator deletes the leader's entry.
pub async fn a_deletion_after_the_end_is_no_turn_for_a_candidate_of_the_same_process(case: &Case) {
    let Some(one) = queue(case).await else { return };
    let operator = case.open().await;
    delete_after_the_end(case, [&one, &one, &operator]).await;
}

/// Stands with two handles, ends the election by the third, and deletes an entry.
///
/// The third handle deletes the entry of the first.
async fn delete_after_the_end(case: &Case, backends: [&Backend; 3]) {
    let (first, second) = (Arc::new(holder("a")), Arc::new(holder("b")));
    case.enter(backends[0]).await;
    let record = case.record();
    let [leader, waiter, operator] = backends.map(lines);
    let generation = leader.create(&record).await.expect("it is open");
    let ahead = joined(&*leader, &record, &first).await;
    joined(&*waiter, &record, &second).await;
    let line = waiter.read(&record, &ticket(&second), Freshness::Session).await.expect("readable");
    let Queue::Open { places, .. } = line else { panic!("{line:?}") };
    assert_eq!(places.first().map(|place| &place.entry), Some(&ahead));
    // The candidate waits for the entry and not for the end: the order of the two notices must not
    // matter.
    let mut gone = std::pin::pin!(waiter.gone(&ahead));
    let early = tokio::time::timeout(Duration::from_millis(50), gone.as_mut()).await;
    assert_ne!(early, Ok(Gone::Deleted), "it stands");
    operator.end(&record, generation).await.expect("ended");
    let left = operator.leave(&ahead, true).await.expect("deleted");
    assert_eq!(left, Left::Deleted);
    let told = match early {
        Ok(told) => told,
        Err(_) => soon("the deletion is heard of", gone).await,
    };
    assert_ne!(told, Gone::Deleted, "only a look may decide");
    let line = waiter.read(&record, &ticket(&second), Freshness::Session).await.expect("readable");
    assert!(matches!(line, Queue::Ended { .. }), "{line:?}");
}

fn lines(backend: &Backend) -> Arc<dyn SessionQueue> {
    backend.queue().expect("its elections are queues").clone()
}

fn holder(name: &str) -> Holder {
    let id = CandidateId::parse(name).expect("a good id");
    Holder { id, name: name.into(), value: Bytes::new(), presence: None }
}

fn ticket(holder: &Holder) -> Ticket {
    Ticket { candidate: holder.id.clone(), attempt: 1 }
}

/// Joins without a machine, once there is a session.
async fn joined(lines: &dyn SessionQueue, record: &Key, holder: &Arc<Holder>) -> Entry {
    let mut session = lines.session();
    let live = session.wait_for(|session| session.is_live());
    soon("there is a session", live).await.expect("the queue lives");
    let joined = lines.join(record, &ticket(holder), holder).await.expect("it joins");
    joined.entry.expect("the election is open")
}

/// A missing line is created only on request.
pub async fn a_missing_line_is_created_only_when_asked_for(case: &Case) {
    let Some(backend) = queue(case).await else { return };
    let backend = backend.with_creation(false);
    let name = case.election();
    let refused = Election::open(&backend, &name).await;
    assert!(matches!(refused, Err(Error::Missing { .. })), "{refused:?}");
    opened(&backend, &name).await.expect("asked to create");
    Election::open(&backend, &name).await.expect("it is there now");
}

/// A deletion waits until all candidates have left.
///
/// Then the name is as if never used.
pub async fn a_deleted_line_leaves_nothing_and_can_be_made_again(case: &Case) {
    let Some(one) = queue(case).await else { return };
    let other = case.open().await;
    let election = case.enter(&one).await;
    let leader = lead(&election, "a").await;
    let token = leader.mandate().token();
    let rival = case.enter(&other).await;
    let deleting = tokio::spawn({
        let rival = rival.clone();
        async move { rival.delete().await }
    });
    soon("the loss", leader.lost()).await;
    leader.resign().await;
    soon("the deletion", deleting).await.expect("it ran").expect("deleted");
    assert_eq!(rival.standing().await.expect("readable").state, ElectionState::Missing);
    let listed = Election::list(&other).await.expect("a list");
    assert!(listed.iter().all(|standing| standing.election != *rival.name()), "{listed:?}");
    let again = case.enter(&other).await;
    assert!(lead(&again, "b").await.mandate().token() > token, "tokens go on");
}
