//! Elections that are queues, on queues in memory, through the public API.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tenure::protocol::Holder;
use tenure::queue::{Left, Pace, SessionQueue, Ticket};
use tenure::store::{Expect, Store, StoreExt};
use tenure::{
    Backend, Candidacy, Candidate, Clock, Election, ElectionState, Error, Key, Loss, MemoryQueue,
    MemoryQueues, MemoryStore, Name, Protocol, Resignation, Role, TestClock, Timing,
};

const NAME: &str = "component/primary";
const TTL: Duration = Duration::from_secs(16);

/// A store and a server of queues for many processes, on a clock that stands still.
struct World {
    clock: TestClock,
    store: MemoryStore,
    queues: MemoryQueues,
}

impl World {
    fn new() -> World {
        let clock = TestClock::default();
        let queues = MemoryQueues::new(Arc::new(clock.clone()));
        World { clock, store: MemoryStore::new(), queues }
    }

    /// Starts another process.
    fn process(&self) -> (Backend, MemoryQueue) {
        let queue = self.queues.connect(TTL);
        let backend = Backend::new(Arc::new(self.store.clone()))
            .with_clock(Arc::new(self.clock.clone()))
            .with_queue(Arc::new(queue.clone()));
        (backend, queue)
    }

    /// Starts another process, and opens the one election that most tests need.
    async fn entered(&self) -> (Election, Backend, MemoryQueue) {
        let (backend, queue) = self.process();
        (open(&backend).await, backend, queue)
    }

    fn leases(&self) -> Backend {
        Backend::new(Arc::new(self.store.clone())).with_clock(Arc::new(self.clock.clone()))
    }

    /// Advances the clock in small steps, and lets all tasks run after each step.
    async fn pass(&self, span: Duration) {
        let step = TTL / 32;
        let mut left = span;
        while !left.is_zero() {
            let next = left.min(step);
            self.clock.advance(next);
            settle().await;
            left -= next;
        }
    }
}

fn key() -> Key {
    Key::election(&NAME.parse().expect("a good name"))
}

fn candidate(name: &str) -> Candidate {
    Candidate::new(name).expect("a good name")
}

async fn open(backend: &Backend) -> Election {
    Election::open(backend, NAME).await.expect("it opens")
}

/// Lets everything happen that can happen without time passing.
async fn settle() {
    for _ in 0..400 {
        tokio::task::yield_now().await;
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = tokio::time::timeout(Duration::from_secs(20), future);
    limit.await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

fn leads(candidacy: &Candidacy) -> bool {
    matches!(candidacy.status().role, Role::Leading { .. })
}

#[tokio::test]
async fn an_election_at_a_key_needs_a_backend_without_a_queue() {
    let world = World::new();
    let (backend, _) = world.process();
    let (name, key) = (Name::parse("jobs/leaders").expect("a good name"), key());
    let timing = Timing::default();
    let refused = Election::at_key(&backend, name.clone(), key.clone(), timing);
    let error = refused.expect_err("its elections are queues");
    let (recorded, wanted) = (Protocol::Lease, Protocol::Queue);
    assert_eq!(
        error.to_string(),
        Error::Protocol { name: name.clone(), recorded, wanted }.to_string()
    );
    assert!(error.to_string().contains("?protocol=lease"), "{error}");
    let election = Election::at_key(&backend.without_queue(), name, key, timing);
    election.expect("a lease").ensure_lease().await.expect("created");
}

/// Stands in an election, and is in the queue when this returns.
async fn stand(election: &Election, name: &str) -> Candidacy {
    let candidacy = election.stand(candidate(name)).expect("it stands");
    settle().await;
    candidacy
}

async fn names(election: &Election) -> Vec<String> {
    let found = election.candidates().await.expect("a list");
    assert!(found.iter().enumerate().all(|(at, one)| one.position == Some(at + 1)), "{found:?}");
    found.iter().map(|one| one.name.to_string()).collect()
}

#[tokio::test]
async fn first_come_is_first_led() {
    let world = World::new();
    let mut waiting = Vec::new();
    let mut kept = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let (election, backend, _) = world.entered().await;
        waiting.push(stand(&election, name).await);
        kept.push((election, backend));
    }
    assert_eq!(names(&kept[0].0).await, ["a", "b", "c", "d"]);
    let mut token = 0;
    for (mut candidacy, name) in waiting.into_iter().zip(["a", "b", "c", "d"]) {
        let leader = within(name, candidacy.elected()).await.expect("elected");
        assert!(leader.mandate().token() > token);
        token = leader.mandate().token();
        assert_eq!(leader.status().followed.is_some(), name != "a", "whom {name} followed");
        assert_eq!(leader.resign().await, Resignation::Released);
    }
    assert_eq!(names(&kept[0].0).await, [""; 0]);
}

#[tokio::test]
async fn when_the_middle_leaves_the_order_of_the_others_holds() {
    let world = World::new();
    let (election, _backend, _) = world.entered().await;
    let first = stand(&election, "a").await;
    let second = stand(&election, "b").await;
    let mut third = stand(&election, "c").await;
    second.withdraw().await;
    settle().await;
    assert!(leads(&first) && !leads(&third), "only the first leads");
    first.withdraw().await;
    let _last = within("the last", third.elected()).await.expect("elected");
}

#[tokio::test]
async fn when_three_are_gone_at_once_the_fourth_leads() {
    let world = World::new();
    let (others, _one, session) = world.entered().await;
    let standing =
        [stand(&others, "a").await, stand(&others, "b").await, stand(&others, "c").await];
    let (election, _other, _) = world.entered().await;
    let mut fourth = stand(&election, "d").await;
    assert!(leads(&standing[0]));
    session.suspend();
    world.pass(TTL * 3 / 2).await;
    let leader = within("the fourth", fourth.elected()).await.expect("elected");
    assert!(leader.mandate().is_leader());
    assert_eq!(standing.iter().filter(|one| leads(one)).count(), 0);
}

#[tokio::test]
async fn only_the_next_in_queue_is_told_of_a_departure() {
    let world = World::new();
    let (election, _backend, _) = world.entered().await;
    let first = stand(&election, "a").await;
    let mut others = Vec::new();
    for name in ["b", "c", "d", "e"] {
        let (election, backend, queue) = world.entered().await;
        others.push((stand(&election, name).await, backend, queue));
    }
    let reads: Vec<u64> = others.iter().map(|(_, _, queue)| queue.counts().reads).collect();
    first.withdraw().await;
    settle().await;
    let told: Vec<u64> = others.iter().map(|(_, _, queue)| queue.counts().told).collect();
    assert_eq!(told, [1, 0, 0, 0]);
    let read: Vec<u64> = others.iter().map(|(_, _, queue)| queue.counts().reads).collect();
    assert_eq!(read, reads, "it leads without another look");
    assert!(leads(&others[0].0));
}

#[tokio::test]
async fn a_leader_whose_entry_an_operator_deletes_is_told_at_once_and_may_stand_again() {
    let world = World::new();
    let (election, _backend, _) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let token = leader.mandate().token();
    assert!(world.queues.delete_first(&key()));
    assert_eq!(within("the loss", leader.lost()).await, Loss::Vanished);
    assert!(!leader.mandate().is_leader());
    let again = within("the next tenure", leader.regain()).await.expect("elected again");
    assert!(again.mandate().token() > token);
}

#[tokio::test]
async fn a_lost_connection_suspends_and_a_found_one_resumes_with_the_same_token() {
    let world = World::new();
    let (election, _backend, session) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let token = leader.mandate().token();
    session.suspend();
    settle().await;
    let Role::Suspended { remaining, .. } = leader.status().role else {
        panic!("{:?}", leader.status());
    };
    assert!(!remaining.is_zero() && remaining <= TTL, "{remaining:?}");
    assert!(leader.mandate().is_leader(), "suspended is not lost");
    assert!(matches!(leader.status().error, Some(Error::Store(_))), "{:?}", leader.status());
    world.pass(TTL / 4).await;
    session.resume();
    settle().await;
    assert_eq!(leader.status().role, Role::Leading { token });
    assert!(leader.status().error.is_none(), "{:?}", leader.status());
    world.pass(TTL * 2).await;
    assert!(leader.mandate().is_leader(), "{:?}", leader.mandate().check());
}

/// A regression: a candidate with a record that was read before its session began reported that the
/// session was not connected.
#[tokio::test]
async fn a_session_that_is_about_to_begin_is_no_trouble() {
    let world = World::new();
    let queue = world.queues.connect_later(TTL);
    let backend = Backend::new(Arc::new(world.store.clone()))
        .with_clock(Arc::new(world.clock.clone()))
        .with_queue(Arc::new(queue.clone()));
    let candidacy = open(&backend).await.stand(candidate("a")).expect("it stands");
    settle().await;
    assert!(candidacy.status().error.is_none(), "{:?}", candidacy.status());
    queue.resume();
    settle().await;
    assert!(leads(&candidacy), "{:?}", candidacy.status());
    queue.suspend();
    settle().await;
    assert!(candidacy.status().error.is_some(), "a session that was lost is trouble");
}

/// The election was opened before the server had granted a session (issue 13, point 29).
#[tokio::test(start_paused = true)]
async fn a_grace_that_a_late_session_leaves_no_room_for_is_refused() {
    let world = World::new();
    let queue = world.queues.connect_later(TTL);
    let backend = Backend::new(Arc::new(world.store.clone()))
        .with_clock(Arc::new(world.clock.clone()))
        .with_queue(Arc::new(queue.clone()));
    let timing = Timing::new(TTL * 4).and_then(|timing| timing.with_grace(TTL / 2));
    let builder = Election::builder(&backend, NAME).create_if_missing(true);
    let election =
        builder.timing(timing.expect("good for a lease")).open().await.expect("it opens");
    let mut candidacy = election.stand(candidate("a")).expect("it stands");
    queue.resume();
    let refused = candidacy.elected().await;
    assert!(matches!(refused, Err(Error::Timing(_))), "{refused:?}");
    settle().await;
    assert!(matches!(candidacy.status().role, Role::Over(_)), "{:?}", candidacy.status());
    assert!(election.candidates().await.expect("a list").is_empty());
}

/// The token of the newest leadership is kept even if there is no candidate (issue 13, point 31).
#[tokio::test]
async fn a_free_queue_shows_the_highest_token_that_is_recorded() {
    let world = World::new();
    let (backend, _queue) = world.process();
    let builder = Election::builder(&backend, NAME).create_if_missing(true);
    let election = builder.lock_delay(TTL).open().await.expect("it opens");
    assert_eq!(election.standing().await.expect("readable").token, 0);
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let token = leader.mandate().token();
    leader.resign().await;
    let standing = election.standing().await.expect("readable");
    assert_eq!((standing.state, standing.token), (ElectionState::Free, token));
}

#[tokio::test]
async fn a_leader_that_stays_cut_off_stops_before_the_next_one_leads() {
    let world = World::new();
    let (election, _one, session) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let (other, _other, _) = world.entered().await;
    let next = stand(&other, "b").await;
    session.suspend();
    let mandate = leader.mandate();
    let mut stopped = false;
    for _ in 0..64 {
        world.pass(TTL / 32).await;
        stopped |= mandate.must_stop().is_some();
        assert!(!leads(&next) || stopped && !mandate.is_leader(), "two lead at once");
    }
    assert!(leads(&next), "{:?}", next.status());
    assert!(matches!(leader.status().role, Role::Lost { loss: Loss::Expired, .. }));
    session.resume();
    let again = tokio::spawn(leader.regain());
    settle().await;
    assert_eq!(names(&other).await, ["b", "a"]);
    next.withdraw().await;
    let again = within("its turn", again).await.expect("it ran").expect("elected");
    assert!(again.mandate().token() > mandate.token());
}

#[tokio::test]
async fn a_session_that_is_over_costs_the_leadership_at_once() {
    let world = World::new();
    let (election, _backend, session) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    session.expire();
    assert_eq!(within("the loss", leader.lost()).await, Loss::Expired);
    let again = within("the next tenure", leader.regain()).await.expect("elected again");
    assert!(again.mandate().is_leader());
}

#[tokio::test]
async fn a_join_whose_answer_is_lost_is_found_and_led_with() {
    let world = World::new();
    let (election, _backend, session) = world.entered().await;
    session.lose_answers(1);
    let candidacy = stand(&election, "a").await;
    world.pass(TTL / 8).await;
    assert!(leads(&candidacy), "{:?}", candidacy.status());
    assert_eq!((session.counts().lost, session.counts().joins), (1, 1));
    assert_eq!(names(&election).await, ["a"]);
}

#[tokio::test]
async fn a_campaign_that_is_cancelled_while_it_joins_leaves_nothing_in_queue() {
    let world = World::new();
    let (election, backend, session) = world.entered().await;
    for yields in 0..40 {
        session.lose_answers(u32::from(yields % 3 == 0));
        let campaign = tokio::spawn({
            let election = election.clone();
            async move { election.campaign(candidate("a")).await }
        });
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        campaign.abort();
        // A leadership that it won before it was aborted is dropped as well.
        drop(campaign.await);
        session.lose_answers(0);
        world.pass(TTL / 4).await;
        assert_eq!(names(&election).await, [""; 0], "after {yields} yields");
    }
    within("the close", backend.close()).await;
}

#[tokio::test]
async fn dropping_the_guard_or_closing_the_backend_frees_the_election() {
    let world = World::new();
    let (election, backend, _) = world.entered().await;
    let (other, _other, _) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let mandate = leader.mandate();
    drop(leader);
    assert_eq!(mandate.check(), Err(Loss::Resigned));
    let second = within("b", other.campaign(candidate("b"))).await.expect("elected");
    assert_eq!(second.resign().await, Resignation::Released);
    let third = within("a", election.campaign(candidate("a"))).await.expect("elected");
    within("the close", backend.close()).await;
    assert!(!third.mandate().is_leader());
    assert_eq!(names(&other).await, [""; 0]);
}

#[tokio::test]
async fn closing_while_the_store_is_away_ends_and_the_entry_goes_when_it_is_back() {
    let world = World::new();
    let (election, backend, session) = world.entered().await;
    let (other, _other, _) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    session.suspend();
    let closing = tokio::spawn({
        let backend = backend.clone();
        async move { backend.close().await }
    });
    settle().await;
    assert!(!leader.mandate().is_leader());
    assert_eq!(names(&other).await, ["a"]);
    session.resume();
    world.pass(TTL / 4).await;
    within("the close", closing).await.expect("it ran");
    assert_eq!(names(&other).await, [""; 0]);
}

#[tokio::test]
async fn a_close_does_not_wait_longer_than_the_ttl_for_a_store_that_is_away() {
    let world = World::new();
    let (election, backend, session) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    session.suspend();
    let closing = tokio::spawn(async move { backend.close().await });
    world.pass(TTL * 3 / 2).await;
    within("the close", closing).await.expect("it ran");
    assert!(!leader.mandate().is_leader());
}

#[tokio::test]
async fn an_end_reaches_everybody_and_lasts_until_the_election_is_created_again() {
    let world = World::new();
    let (election, backend, _) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let mut waiting = stand(&election, "b").await;
    election.end().await.expect("ended");
    assert_eq!(within("the loss", leader.lost()).await, Loss::Ended);
    let refused = within("the refusal", waiting.elected()).await;
    assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
    assert_eq!(leader.resign().await, Resignation::AlreadyLost);
    assert!(matches!(Election::open(&backend, NAME).await, Err(Error::Ended { .. })));
    assert_eq!(election.standing().await.expect("read").state, ElectionState::Ended);
    let again = Election::builder(&backend, NAME).create().await.expect("created");
    let token = leader.mandate().token();
    let next = within("the next", again.campaign(candidate("c"))).await.expect("elected");
    assert!(next.mandate().token() > token);
    // A handle from before the end works for the new generation as well.
    next.resign().await;
    let _last = within("the old handle", election.campaign(candidate("d"))).await.expect("elected");
}

#[tokio::test]
async fn a_deleted_election_is_as_if_it_had_never_been() {
    let world = World::new();
    let (election, backend, _) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let token = leader.mandate().token();
    let deleting = tokio::spawn({
        let election = election.clone();
        async move { election.delete().await }
    });
    assert_eq!(within("the loss", leader.lost()).await, Loss::Ended);
    assert!(!deleting.is_finished(), "its leader still stands");
    leader.resign().await;
    world.pass(Duration::from_secs(2)).await;
    within("the deletion", deleting).await.expect("it ran").expect("deleted");
    assert_eq!(election.standing().await.expect("read").state, ElectionState::Missing);
    assert_eq!(Election::list(&backend).await.expect("a list"), []);
    let refused = Election::builder(&backend, NAME).create_if_missing(false).open().await;
    assert!(matches!(refused, Err(Error::Missing { .. })), "{refused:?}");
    let again = open(&backend).await;
    let next = within("the next", again.campaign(candidate("b"))).await.expect("elected");
    assert!(next.mandate().token() > token, "tokens go on");
}

#[tokio::test]
async fn work_that_goes_on_keeps_a_deleted_queue_for_a_while_and_no_longer() {
    let world = World::new();
    let (election, _backend, _) = world.entered().await;
    let (other, _other, _) = world.entered().await;
    let leader = election.campaign(candidate("stubborn")).await.expect("elected");
    let deleting = tokio::spawn(async move { other.delete().await });
    world.pass(TTL * 3 / 4).await;
    assert!(!deleting.is_finished(), "its work goes on");
    assert_eq!(leader.mandate().check(), Err(Loss::Ended));
    // R T after the last proof of life, the entry is removed, even if the work goes on.
    world.pass(TTL).await;
    within("the deletion", deleting).await.expect("it ran").expect("deleted");
    assert!(matches!(leader.status().role, Role::Over(_)), "{:?}", leader.status());
}

#[tokio::test]
async fn a_deletion_names_those_who_do_not_leave_and_can_be_made_good() {
    let world = World::new();
    let (election, backend, _) = world.entered().await;
    // A foreign client, which ignores the end.
    let foreign = world.queues.connect(TTL);
    let id = tenure::CandidateId::parse("foreign").expect("a good id");
    let ticket = Ticket { candidate: id.clone(), attempt: 1 };
    let holder = Holder { id, name: "stubborn".into(), value: "".into(), presence: None };
    let joined = foreign.join(&key(), &ticket, &Arc::new(holder)).await.expect("joined");
    let deleting = tokio::spawn({
        let election = election.clone();
        async move { election.delete().await }
    });
    world.pass(TTL * 2 + Duration::from_secs(12)).await;
    let refused = within("the refusal", deleting).await.expect("it ran");
    let Err(Error::Occupied { who, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(who, "stubborn");
    assert_eq!(election.standing().await.expect("read").state, ElectionState::Ended);
    let left = foreign.leave(&joined.entry.expect("it stands"), false).await.expect("left");
    assert_eq!(left, Left::Deleted);
    election.delete().await.expect("deleted");
    assert_eq!(election.standing().await.expect("read").state, ElectionState::Missing);
    open(&backend).await;
}

#[tokio::test]
async fn a_candidate_of_an_election_deleted_before_it_stood_is_told_that_it_ended() {
    let world = World::new();
    let (election, _backend, _) = world.entered().await;
    election.delete().await.expect("deleted");
    let refused = within("the refusal", election.campaign(candidate("a"))).await;
    assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
}

#[tokio::test]
async fn the_first_openers_protocol_is_kept_and_the_other_is_refused() {
    let world = World::new();
    let (_election, backend, _) = world.entered().await;
    let leases = world.leases();
    let refused = Election::open(&leases, NAME).await;
    let Err(Error::Protocol { recorded, wanted, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!((*recorded, *wanted), (Protocol::Queue, Protocol::Lease));
    let says = refused.expect_err("refused").to_string();
    assert!(says.contains("queue") && says.contains("without ?protocol=lease"), "{says}");
    let named = Election::builder(&leases, NAME).build().expect("a name");
    assert!(matches!(named.end().await, Err(Error::Protocol { .. })));
    assert!(matches!(named.delete().await, Err(Error::Protocol { .. })));
    assert!(matches!(named.standing().await, Err(Error::Protocol { .. })));
    // A candidate that stands without having opened the election is refused, too.
    let candidacy = named.stand(candidate("a")).expect("it stands");
    settle().await;
    assert!(matches!(candidacy.status().error, Some(Error::Protocol { .. })));
    let listed = Election::list(&leases).await.expect("a list");
    assert_eq!(listed[0].state, ElectionState::Unseen);
    assert_eq!(Election::list(&backend).await.expect("a list")[0].state, ElectionState::Free);

    Election::open(&leases, "by/lease").await.expect("it opens");
    let refused = Election::open(&backend, "by/lease").await;
    assert!(matches!(refused, Err(Error::Protocol { .. })), "{refused:?}");
    let named = Election::builder(&backend, "by/lease").build().expect("a name");
    assert!(matches!(named.end().await, Err(Error::Protocol { .. })));
    assert!(matches!(named.delete().await, Err(Error::Protocol { .. })));
    assert!(matches!(named.standing().await, Err(Error::Protocol { .. })));
    let refused = within("the refusal", named.campaign(candidate("a"))).await;
    assert!(matches!(refused, Err(Error::Protocol { .. })), "{refused:?}");
}

#[tokio::test]
async fn of_two_first_openers_with_different_protocols_one_is_refused() {
    for number in 0..20 {
        let world = World::new();
        let (queues, _) = world.process();
        let leases = world.leases();
        let name = format!("race/{number}");
        let (one, other) =
            tokio::join!(Election::open(&queues, &name), Election::open(&leases, &name));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        let refused = one.err().or(other.err());
        assert!(matches!(refused, Some(Error::Protocol { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn whoever_stands_in_an_election_that_was_never_opened_is_told_that_it_is_missing() {
    let world = World::new();
    let (backend, _) = world.process();
    let named = Election::builder(&backend, NAME).build().expect("a name");
    let refused = within("the refusal", named.campaign(candidate("a"))).await;
    assert!(matches!(refused, Err(Error::Missing { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_backend_may_refuse_to_create_what_is_missing() {
    let world = World::new();
    let (backend, _) = world.process();
    let backend = backend.with_creation(false);
    assert!(matches!(Election::open(&backend, NAME).await, Err(Error::Missing { .. })));
    let opened = Election::builder(&backend, NAME).create_if_missing(true).open().await;
    opened.expect("asked to create");
    open(&backend).await;
}

#[tokio::test]
async fn a_lock_delay_is_waited_after_an_unclean_end_and_only_then() {
    let world = World::new();
    let delay = TTL * 2;
    let enter = async |backend: &Backend| {
        let builder = Election::builder(backend, NAME).lock_delay(delay);
        builder.open().await.expect("it opens")
    };
    let ((one, session), (other, _)) = (world.process(), world.process());
    let (election, rival) = (enter(&one).await, enter(&other).await);
    let first = election.campaign(candidate("a")).await.expect("elected");
    let next = stand(&rival, "b").await;
    assert_eq!(first.resign().await, Resignation::Released);
    settle().await;
    assert!(leads(&next), "after a clean end nobody waits: {:?}", next.status());
    let last = stand(&election, "a").await;
    next.withdraw().await;
    settle().await;
    assert!(leads(&last));
    let next = stand(&rival, "b").await;
    session.expire();
    settle().await;
    let waited = world.clock.now();
    assert_eq!(rival.standing().await.expect("read").state, ElectionState::Lapsed);
    world.pass(delay - TTL / 8).await;
    assert!(!leads(&next), "the lock delay is not over");
    world.pass(TTL / 4).await;
    assert!(leads(&next), "{:?}", next.status());
    assert!(world.clock.now().at_least_since(waited) >= delay);
    assert_eq!(rival.standing().await.expect("read").state, ElectionState::Led);
}

#[tokio::test]
async fn the_lock_delay_is_the_first_openers_for_everybody() {
    let world = World::new();
    let ((one, session), (other, _)) = (world.process(), world.process());
    let builder = Election::builder(&one, NAME).lock_delay(TTL);
    let election = builder.open().await.expect("it opens");
    let rival = Election::open(&other, NAME).await.expect("it opens");
    let _leader = election.campaign(candidate("a")).await.expect("elected");
    let next = stand(&rival, "b").await;
    session.expire();
    settle().await;
    assert!(!leads(&next), "it knows of the delay from the record");
    world.pass(TTL * 5 / 4).await;
    assert!(leads(&next));
}

#[tokio::test]
async fn a_value_is_published_and_read_by_everyone_who_looks() {
    let world = World::new();
    let (election, _backend, _) = world.entered().await;
    let (other, _other, _) = world.entered().await;
    let mut observer = other.observe().expect("it observes");
    let leader = election.campaign(candidate("a")).await.expect("elected");
    leader.publish("10.0.0.7:80").expect("short");
    let seen = async {
        loop {
            let standing = observer.next().await.expect("open").expect("read");
            if standing.leader.is_some_and(|leader| leader.value == "10.0.0.7:80") {
                return standing.token;
            }
        }
    };
    assert_eq!(within("the value", seen).await, leader.mandate().token());
    let waiting = stand(&other, "b").await;
    let follows = waiting.status().follows.expect("it follows");
    assert_eq!((&*follows.name, &follows.value[..]), ("a", &b"10.0.0.7:80"[..]));
    waiting.publish("mine").expect("short");
    settle().await;
    let listed = other.candidates().await.expect("a list");
    assert_eq!(listed[1].value, "mine");
}

#[tokio::test]
async fn an_observer_sees_an_election_through() {
    let world = World::new();
    let (backend, _) = world.process();
    let (watcher, _) = world.process();
    let watched = Election::builder(&watcher, NAME).build().expect("a name");
    let mut observer = watched.observe().expect("it observes");
    let mut next = async |state| {
        loop {
            let standing = within("a standing", observer.next()).await;
            let standing = standing.expect("open").expect("read");
            if standing.state == state {
                return standing;
            }
        }
    };
    next(ElectionState::Missing).await;
    let election = open(&backend).await;
    next(ElectionState::Free).await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    assert_eq!(next(ElectionState::Led).await.token, leader.mandate().token());
    leader.resign().await;
    next(ElectionState::Free).await;
    election.end().await.expect("ended");
    next(ElectionState::Ended).await;
    let deleting = tokio::spawn(async move { election.delete().await });
    next(ElectionState::Missing).await;
    deleting.await.expect("it ran").expect("deleted");
}

#[tokio::test]
async fn idle_followers_ask_nothing_but_look_together_every_half_minute() {
    const MANY: u64 = 100;
    let world = World::new();
    let (one, _) = world.process();
    let (other, session) = world.process();
    let mut kept = Vec::new();
    for number in 0..MANY {
        let name = format!("many/{number}");
        let leading = Election::open(&one, &name).await.expect("it opens");
        kept.push(stand(&leading, "a").await);
        let following = Election::open(&other, &name).await.expect("it opens");
        kept.push(stand(&following, "b").await);
        world.clock.advance(TTL / 200);
    }
    settle().await;
    assert_eq!(session.last_pace(), Pace::Leading, "each is the next of its queue");
    let (mut moments, mut busy) = (0, false);
    let mut before = session.counts().reads;
    let began = before;
    for _ in 0..(120 * 32 / 16) {
        world.pass(TTL / 32).await;
        let now = session.counts().reads;
        // Reads that continue from one step into the next belong to the same moment.
        moments += u64::from(now != before && !busy);
        busy = now != before;
        before = now;
    }
    assert!(before - began >= 3 * MANY && before - began <= 5 * MANY, "{} reads", before - began);
    assert!(moments <= 6, "they looked at {moments} moments in two minutes");
}

#[tokio::test]
async fn a_grace_that_no_session_leaves_room_for_is_refused() {
    let world = World::new();
    let (backend, _) = world.process();
    let timing = Timing::new(Duration::from_secs(60)).expect("long enough");
    let timing = timing.with_grace(Duration::from_secs(12)).expect("short enough");
    let refused = Election::builder(&backend, NAME).timing(timing).open().await;
    assert!(matches!(refused, Err(Error::Timing(_))), "{refused:?}");
}

#[tokio::test]
async fn the_pace_falls_when_nobody_leads_or_is_next() {
    let world = World::new();
    let (election, _backend, session) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    assert_eq!(session.last_pace(), Pace::Leading);
    leader.resign().await;
    settle().await;
    assert_eq!(session.last_pace(), Pace::Waiting);
}

#[tokio::test]
async fn a_session_closed_for_good_ends_every_candidacy() {
    let world = World::new();
    let (election, _backend, session) = world.entered().await;
    let leader = election.campaign(candidate("a")).await.expect("elected");
    let mut waiting = stand(&election, "b").await;
    session.close();
    within("the loss", leader.lost()).await;
    assert!(within("the refusal", waiting.elected()).await.is_err());
}

#[tokio::test]
async fn the_document_of_a_queue_says_so_and_nothing_of_who_leads() {
    let world = World::new();
    let (election, _backend, _) = world.entered().await;
    let _leader = election.campaign(candidate("a")).await.expect("elected");
    let document = world.store.get(&key()).await.expect("read").expect("there");
    let text = String::from_utf8(document.body.to_vec()).expect("text");
    assert!(text.starts_with("{\"protocol\":\"queue\""), "{text}");
    assert!(text.contains("\"state\":\"free\"") && text.contains("\"holder\":\"\""), "{text}");
    let candidates = world.store.list(&Key::candidates(election.name()), None, 10).await;
    assert_eq!(candidates.expect("a page").documents, []);
}

#[tokio::test]
async fn a_queue_that_other_clients_made_is_opened_as_it_is() {
    let world = World::new();
    let (backend, queue) = world.process();
    queue.create(&key()).await.expect("made by others");
    let backend = backend.with_creation(false);
    let election = open(&backend).await;
    let _leader = within("a", election.campaign(candidate("a"))).await.expect("elected");
}

#[tokio::test]
async fn garbage_in_the_record_is_reported_until_it_is_mended() {
    let world = World::new();
    let (election, _backend, _) = world.entered().await;
    let good = world.store.get(&key()).await.expect("read").expect("there");
    let put = world.store.put(&key(), Expect::At(good.version), "garbage".into()).await;
    let tenure::store::Put::Stored(version) = put.expect("written") else { panic!("a conflict") };
    let candidacy = stand(&election, "a").await;
    assert!(matches!(candidacy.status().error, Some(Error::Record { .. })));
    let mended = world.store.put(&key(), Expect::At(version), good.body).await.expect("written");
    assert!(matches!(mended, tenure::store::Put::Stored(_)));
    world.pass(Duration::from_secs(2)).await;
    assert!(leads(&candidacy), "{:?}", candidacy.status());
    assert!(candidacy.status().error.is_none());
}
