use super::*;
use crate::cluster::documents::first_token;

/// Slots as a store would keep them, with rising versions.
struct World {
    now: Moment,
    slots: Vec<(u64, Slot)>,
    writes: u64,
}

fn me(number: u128) -> MemberId {
    MemberId::from_bits(number)
}

fn timing() -> Timing {
    Timing::new(Duration::from_secs(6)).expect("it fits")
}

fn task(serial: u64) -> Arc<Assignment> {
    Arc::new(Assignment {
        serial,
        id: format!("task-{serial}"),
        kind: "k".into(),
        payload: Default::default(),
        attempts: 3,
        timeout: None,
        to: None,
        receipt: None,
    })
}

fn outstanding(serial: u64) -> Slot {
    Slot {
        task: task(serial),
        progress: Progress::Outstanding { avoid: None, error: None },
        cancel: false,
        token: first_token(serial),
        attempt: 0,
        ttl: timing().ttl(),
        revision: 1,
        op: Op::new(&me(99), serial),
    }
}

fn node(member: u128, reads: Reads) -> Claims {
    let kinds = BTreeSet::from(["k".to_owned()]);
    let settings = Settings {
        member: me(member),
        presence: None,
        timing: timing(),
        reads,
        kinds,
        seed: u64::try_from(member).expect("small") * 77,
    };
    let mut claims = Claims::new(settings);
    claims.take(Moment::default(), Input::Hands { most: 8, workers: 8 });
    claims.take(Moment::default(), Input::Place(Some(place(0, &[member], 8, 8))));
    claims
}

fn place(before: usize, members: &[u128], workers: usize, all_workers: usize) -> Place {
    let members = members.iter().map(|number| me(*number)).collect();
    Place { before, members, workers, all_workers }
}

impl World {
    fn with(slots: u64) -> World {
        let slots = (1..=slots).map(|serial| (1, outstanding(serial))).collect();
        World { now: Moment::default() + Duration::from_secs(1), slots, writes: 1 }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    fn seen(&self) -> Vec<Option<Seen>> {
        self.slots
            .iter()
            .map(|(version, slot)| {
                Some(Seen { version: Version::new(version.to_string()), slot: Ok(slot.clone()) })
            })
            .collect()
    }

    fn put(&mut self, write: &SlotWrite) -> Put {
        let (version, slot) = &mut self.slots[write.slot];
        if write.expect != Expect::At(Version::new(version.to_string())) {
            return Put::Conflict;
        }
        self.writes += 1;
        (*version, *slot) = (self.writes, (*write.body).clone());
        Put::Stored(Version::new(version.to_string()))
    }

    /// Serves a node until it asks for nothing more, and returns its other outputs.
    fn serve(&mut self, node: &mut Claims) -> Vec<Output> {
        let mut said = Vec::new();
        loop {
            let outputs = node.act(self.now, 0);
            let mut asked = false;
            for output in outputs {
                match output {
                    Output::Look(ask) => {
                        node.take(self.now, Input::Looked(ask, Ok(self.seen())));
                        asked = true;
                    }
                    Output::Write(ask, writes) => {
                        let answers = writes.iter().map(|write| Ok(self.put(write))).collect();
                        node.take(self.now, Input::Wrote(ask, answers));
                        asked = true;
                    }
                    other @ (Output::Begin { .. }
                    | Output::Extended(..)
                    | Output::MustStop(_)
                    | Output::Cancel(_)
                    | Output::Lost(_)
                    | Output::Settled(..)
                    | Output::Garbled(..)
                    | Output::RanDry) => said.push(other),
                }
            }
            if !asked {
                return said;
            }
        }
    }
}

fn begun(said: &[Output]) -> Vec<Claim> {
    said.iter()
        .filter_map(
            |output| {
                if let Output::Begin { claim, .. } = output { Some(*claim) } else { None }
            },
        )
        .collect()
}

#[test]
fn what_is_free_is_claimed_at_the_next_token_and_counted_from_the_sending() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let said = world.serve(&mut node);
    let Some(Output::Begin { claim, lease, attempt, .. }) = said.first() else {
        panic!("{said:?}");
    };
    assert_eq!(claim.token, first_token(1) + 1);
    assert_eq!((lease.from, lease.window, *attempt), (world.now, timing().window(), 1));
    assert_eq!(world.slots[0].1.attempt, 1);
}

#[test]
fn what_another_holds_is_taken_only_after_its_version_stood_still_for_its_ttl() {
    let mut world = World::with(1);
    let mut first = node(1, Reads::Linearizable);
    let mut second = node(2, Reads::Linearizable);
    assert_eq!(begun(&world.serve(&mut first)).len(), 1);
    assert!(begun(&world.serve(&mut second)).is_empty());
    world.pass(timing().ttl() - Duration::from_millis(1));
    assert!(begun(&world.serve(&mut second)).is_empty());
    world.pass(Duration::from_millis(1));
    let said = world.serve(&mut second);
    assert_eq!(begun(&said), [Claim { slot: 0, token: first_token(1) + 2 }]);
}

#[test]
fn a_renewal_starts_the_wait_of_others_again_and_all_go_in_one_batch() {
    let mut world = World::with(3);
    let mut first = node(1, Reads::Linearizable);
    let mut second = node(2, Reads::Linearizable);
    world.serve(&mut first);
    world.serve(&mut second);
    world.pass(timing().heartbeat());
    let outputs = first.act(world.now, 0);
    let Some(Output::Write(_, writes)) = outputs.first() else { panic!("{outputs:?}") };
    assert_eq!(writes.len(), 3);
    assert!(writes.iter().all(|write| !write.lasting));
    writes.iter().for_each(|write| assert!(matches!(world.put(write), Put::Stored(_))));
    world.pass(timing().ttl() - timing().heartbeat());
    assert!(begun(&world.serve(&mut second)).is_empty());
}

#[test]
fn an_end_that_comes_after_somebody_elses_claim_is_refused() {
    let mut world = World::with(1);
    let mut first = node(1, Reads::Linearizable);
    let mut second = node(2, Reads::Linearizable);
    let claim = begun(&world.serve(&mut first))[0];
    world.serve(&mut second);
    world.pass(timing().ttl());
    let theirs = begun(&world.serve(&mut second))[0];
    first.take(world.now, Input::Ended(claim, Ending::Done(None)));
    let said = world.serve(&mut first);
    assert!(said.contains(&Output::Lost(claim)), "{said:?}");
    assert!(said.contains(&Output::Settled(claim, Verdict::Refused)), "{said:?}");
    second.take(world.now, Input::Ended(theirs, Ending::Done(Some("ok".into()))));
    assert!(world.serve(&mut second).contains(&Output::Settled(theirs, Verdict::Accepted)));
    assert_eq!(world.slots[0].1.progress, Progress::Done { result: Some("ok".into()) });
}

#[test]
fn an_end_that_comes_late_counts_when_nobody_else_came() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let claim = begun(&world.serve(&mut node))[0];
    world.pass(timing().ttl() * 2);
    node.take(world.now, Input::Ended(claim, Ending::Done(None)));
    let said = world.serve(&mut node);
    assert!(said.contains(&Output::Lost(claim)), "{said:?}");
    assert!(said.contains(&Output::Settled(claim, Verdict::Accepted)), "{said:?}");
}

#[test]
fn work_is_told_to_stop_before_its_window_ends_and_a_late_answer_takes_nothing_back() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let claim = begun(&world.serve(&mut node))[0];
    world.pass(timing().heartbeat());
    let outputs = node.act(world.now, 0);
    let Some(Output::Write(ask, writes)) = outputs.first() else { panic!("{outputs:?}") };
    let answers = writes.iter().map(|write| Ok(world.put(write))).collect();
    world.pass(timing().window() - timing().heartbeat() - timing().grace());
    let said = node.act(world.now, 0);
    assert!(said.contains(&Output::MustStop(claim)), "{said:?}");
    node.take(world.now, Input::Wrote(*ask, answers));
    world.pass(timing().grace());
    let said = world.serve(&mut node);
    assert!(said.contains(&Output::Lost(claim)), "{said:?}");
    assert!(!said.iter().any(|output| matches!(output, Output::Extended(..))), "{said:?}");
}

#[test]
fn a_claim_whose_answer_was_lost_is_found_by_its_op() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let sent = world.now;
    let claim = loop {
        let outputs = node.act(world.now, 0);
        match &outputs[..] {
            [Output::Look(ask)] => node.take(world.now, Input::Looked(*ask, Ok(world.seen()))),
            [Output::Write(ask, writes)] => {
                let _ = world.put(&writes[0]);
                world.pass(Duration::from_millis(50));
                node.take(world.now, Input::Wrote(*ask, vec![Err(Fault::Indeterminate)]));
                break Claim { slot: 0, token: writes[0].body.token };
            }
            other => panic!("{other:?}"),
        }
    };
    let said = world.serve(&mut node);
    let Some(Output::Begin { claim: begun, lease, .. }) = said.first() else {
        panic!("{said:?}");
    };
    assert_eq!((*begun, lease.from), (claim, sent));
}

#[test]
fn on_a_weak_store_what_is_read_grants_nothing_until_it_is_written_again() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Weak);
    loop {
        let outputs = node.act(world.now, 0);
        match &outputs[..] {
            [Output::Look(ask)] => node.take(world.now, Input::Looked(*ask, Ok(world.seen()))),
            [Output::Write(ask, writes)] => {
                let _ = world.put(&writes[0]);
                world.pass(Duration::from_millis(50));
                node.take(world.now, Input::Wrote(*ask, vec![Err(Fault::Indeterminate)]));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let outputs = node.act(world.now, 0);
    let [Output::Look(ask)] = &outputs[..] else { panic!("{outputs:?}") };
    node.take(world.now, Input::Looked(*ask, Ok(world.seen())));
    world.pass(Duration::from_millis(50));
    let confirmed = world.now;
    let outputs = node.act(world.now, 0);
    assert!(begun(&outputs).is_empty(), "{outputs:?}");
    let Some(Output::Write(ask, writes)) = outputs.first() else { panic!("{outputs:?}") };
    let answers = writes.iter().map(|write| Ok(world.put(write))).collect();
    node.take(world.now, Input::Wrote(*ask, answers));
    let said = world.serve(&mut node);
    let Some(Output::Begin { lease, .. }) = said.first() else { panic!("{said:?}") };
    assert_eq!(lease.from, confirmed);
}

#[test]
fn a_first_take_leaves_others_their_share() {
    for (workers, expected) in [(vec![4, 4, 4], [4, 4, 4].to_vec()), (vec![5, 3], vec![10, 6])] {
        let total: usize = expected.iter().sum();
        let mut world = World::with(total as u64);
        let members: Vec<u128> = (1..=workers.len() as u128).collect();
        let all = workers.iter().sum();
        let workers_before = workers.clone();
        let taken: Vec<usize> = workers
            .iter()
            .enumerate()
            .map(|(position, workers)| {
                let mut node = node(members[position], Reads::Linearizable);
                node.take(world.now, Input::Hands { most: 16, workers: 16 });
                let before = workers_before[..position].iter().sum();
                let place = place(before, &members, *workers, all);
                node.take(world.now, Input::Place(Some(place)));
                // All nodes look at the same time, and then all take their share.
                let outputs = node.act(world.now, 0);
                let [Output::Look(ask)] = &outputs[..] else { panic!("{outputs:?}") };
                let fresh = World::with(total as u64).seen();
                node.take(world.now, Input::Looked(*ask, Ok(fresh)));
                let outputs = node.act(world.now, 0);
                let Some(Output::Write(_, writes)) = outputs.first() else { panic!("{outputs:?}") };
                let stored = writes.iter().map(|write| world.put(write));
                stored.filter(|put| matches!(put, Put::Stored(_))).count()
            })
            .collect();
        assert_eq!(taken, expected);
    }
}

#[test]
fn a_task_that_somebody_cancels_is_stopped_and_buried() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let claim = begun(&world.serve(&mut node))[0];
    let (version, slot) = &mut world.slots[0];
    *version = 1000;
    *slot =
        Slot { cancel: true, revision: slot.revision + 1, op: Op::new(&me(9), 1), ..slot.clone() };
    world.pass(timing().heartbeat());
    let said = world.serve(&mut node);
    assert!(said.contains(&Output::Cancel(claim)), "{said:?}");
    node.take(world.now, Input::Ended(claim, Ending::Cancelled));
    assert!(world.serve(&mut node).contains(&Output::Settled(claim, Verdict::Accepted)));
    assert!(world.slots[0].1.cancel);
    assert!(matches!(world.slots[0].1.progress, Progress::Dead { .. }));
}

#[test]
fn the_last_attempt_that_fails_makes_a_dead_letter_and_a_returned_one_does_not_count() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let claim = begun(&world.serve(&mut node))[0];
    node.take(world.now, Input::Ended(claim, Ending::Returned));
    let mut claim = begun(&world.serve(&mut node))[0];
    assert_eq!(world.slots[0].1.attempt, 1);
    for _ in 0..2 {
        node.take(world.now, Input::Ended(claim, Ending::Failed("no".into())));
        claim = begun(&world.serve(&mut node))[0];
    }
    node.take(world.now, Input::Ended(claim, Ending::Failed("no".into())));
    world.serve(&mut node);
    assert_eq!(world.slots[0].1.progress, Progress::Dead { error: "no".into() });
}

#[test]
fn a_holder_that_is_proven_dead_loses_its_task_at_once() {
    let mut world = World::with(1);
    let mark = Mark([("pid".to_owned(), 7.into())].into_iter().collect());
    let mut first = node(1, Reads::Linearizable);
    first.settings.presence = Some(mark.clone());
    let mut second = node(2, Reads::Linearizable);
    world.serve(&mut first);
    assert!(begun(&world.serve(&mut second)).is_empty());
    assert_eq!(second.foreign_marks().collect::<Vec<_>>(), [&mark]);
    second.take(world.now, Input::HolderGone(mark));
    assert_eq!(begun(&world.serve(&mut second)).len(), 1);
}

#[test]
fn what_makes_no_sense_is_told_once_and_left_alone() {
    let world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let garbled = |node: &mut Claims| {
        let error = DocumentError::TooLong { document: "slot", bytes: 1 << 20 };
        let version = Version::new("7");
        let outputs = node.act(world.now, 0);
        let [Output::Look(ask)] = &outputs[..] else { panic!("{outputs:?}") };
        let seen = vec![Some(Seen { version, slot: Err(error) })];
        node.take(world.now, Input::Looked(*ask, Ok(seen)));
        node.act(world.now, 0)
    };
    let said = garbled(&mut node);
    assert!(matches!(said[..], [Output::Garbled(0, _)]), "{said:?}");
    node.take(world.now, Input::WakeUp);
    assert!(garbled(&mut node).is_empty());
}

/// The simulation cannot detect this mutant.
///
/// There the task's mandate is closed for good, even if the machine revives the lease.
#[cfg(feature = "mutants")]
#[test]
fn a_late_answer_that_revives_is_noticed() {
    use crate::cluster::mutant::{ClusterMutant, break_rule};

    let test = work_is_told_to_stop_before_its_window_ends_and_a_late_answer_takes_nothing_back;
    break_rule(Some(ClusterMutant::LateAnswerRevives));
    let noticed = std::panic::catch_unwind(test).is_err();
    break_rule(None);
    assert!(noticed);
}

fn told(world: &World, slot: usize) -> AcknowledgedWrite {
    let (version, content) = &world.slots[slot];
    let version = Version::new(version.to_string());
    AcknowledgedWrite { slot, version, content: Arc::new(content.clone()) }
}

fn looks(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| matches!(output, Output::Look(_))).count()
}

#[test]
fn what_a_leader_beside_it_tells_is_claimed_without_a_look() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    world.slots[0].1.progress = Progress::Vacant;
    world.serve(&mut node);
    node.take(world.now, Input::Fed(true));
    node.take(world.now, Input::WakeUp);
    world.slots[0] = (2, Slot { revision: 2, ..outstanding(2) });
    node.take(world.now, Input::Told(vec![told(&world, 0)]));
    let outputs = node.act(world.now, 0);
    assert!(matches!(&outputs[..], [Output::Write(_, writes)] if writes.len() == 1), "{outputs:?}");
}

#[test]
fn a_node_that_is_told_by_a_leader_beside_it_looks_now_and_then_all_the_same() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    node.take(world.now, Input::Fed(true));
    world.serve(&mut node);
    node.take(world.now, Input::WakeUp);
    assert_eq!(looks(&node.act(world.now, 0)), 0);
    let wake = node.wake(world.now).expect("it looks again");
    world.now = wake;
    assert_eq!(looks(&node.act(world.now, 0)), 1);
}

#[test]
fn what_is_told_late_changes_nothing_that_is_known_better() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let before = told(&world, 0);
    let claim = begun(&world.serve(&mut node))[0];
    node.take(world.now, Input::Told(vec![before.clone()]));
    assert!(begun(&world.serve(&mut node)).is_empty(), "it holds that already");
    node.take(world.now, Input::Ended(claim, Ending::Done(None)));
    let said = world.serve(&mut node);
    assert!(said.contains(&Output::Settled(claim, Verdict::Accepted)), "{said:?}");
    node.take(world.now, Input::Told(vec![before]));
    assert!(begun(&world.serve(&mut node)).is_empty(), "it is done");
}

#[test]
fn the_last_attempt_is_claimed_only_by_a_node_that_can_begin_it_at_once() {
    let mut world = World::with(6);
    for (_, slot) in &mut world.slots[..4] {
        slot.attempt = slot.task.attempts - 1;
    }
    let mut node = node(1, Reads::Linearizable);
    node.take(world.now, Input::Hands { most: 8, workers: 2 });
    let said = world.serve(&mut node);
    let slots = |said: &[Output]| begun(said).iter().map(|claim| claim.slot).collect::<Vec<_>>();
    assert_eq!(slots(&said), [0, 1, 4, 5], "two can begin, and others may wait for a worker");
    let claims = begun(&said);
    for (claim, taken) in [(claims[2], 0), (claims[3], 0), (claims[0], 1)] {
        node.take(world.now, Input::Ended(claim, Ending::Done(None)));
        assert_eq!(begun(&world.serve(&mut node)).len(), taken);
    }
}

#[test]
fn what_is_for_another_is_not_taken_on_hearsay() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    world.slots[0].1.progress = Progress::Vacant;
    world.serve(&mut node);
    node.take(world.now, Input::Fed(true));
    let mut addressed = outstanding(2);
    addressed.revision = 2;
    Arc::make_mut(&mut addressed.task).to = Some(me(2));
    world.slots[0] = (2, addressed);
    // The leader tells the node of the task before the node knows that the other member joined.
    node.take(world.now, Input::Told(vec![told(&world, 0)]));
    assert!(begun(&world.serve(&mut node)).is_empty());
    node.take(world.now, Input::Place(Some(place(0, &[1, 2], 8, 16))));
    world.pass(timing().heartbeat());
    assert!(begun(&world.serve(&mut node)).is_empty(), "the other one is there");
}

#[test]
fn a_claim_without_an_answer_is_unsettled_until_its_window_is_over() {
    let mut world = World::with(1);
    let mut node = node(1, Reads::Linearizable);
    let Some(Output::Look(look)) = node.act(world.now, 0).pop() else { panic!("no look") };
    node.take(world.now, Input::Looked(look, Ok(world.seen())));
    let sent = node.act(world.now, 0);
    assert!(matches!(sent[..], [Output::Write(..)]), "{sent:?}");
    node.take(world.now, Input::Hands { most: 0, workers: 8 });
    assert_eq!(node.unsettled(world.now), 1);
    world.pass(timing().window() - Duration::from_millis(1));
    assert_eq!(node.unsettled(world.now), 1);
    world.pass(Duration::from_millis(1));
    assert_eq!(node.unsettled(world.now), 0);
}
