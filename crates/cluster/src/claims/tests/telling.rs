//! Tests of slots that the leader in the same process tells a node of.

use super::*;

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
