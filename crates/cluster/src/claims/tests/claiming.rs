//! Tests of which task a node claims, and when.

use super::*;

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
