//! Rounds in which members leave, go silent, or are proven dead.

use async_trait::async_trait;
use tenure::store::{Mark, StoreError};
use tokio::sync::Notify;

use super::*;

#[test]
fn an_idle_member_leaves_the_list_when_its_lock_stood_still_and_not_before() {
    let mut stage = Stage::new();
    let (dead, alive, left) = (stage.join(7, 1), stage.join(8, 1), stage.join(9, 1));
    stage.renew(&left, 0);
    stage.pass(2 * SECOND);
    assert_eq!(stage.members(), [dead.clone(), alive.clone()], "one said that it left");
    for _ in 0..3 {
        stage.renew(&alive, 1);
        stage.pass(SECOND);
    }
    assert_eq!(stage.members().len(), 2, "its ttl is six seconds");
    for _ in 0..4 {
        stage.renew(&alive, 1);
        stage.pass(SECOND);
    }
    assert_eq!(stage.members(), [alive]);
    assert!(stage.read::<MemberLock>(&stage.client.keys.member(&dead)).is_none());
    assert!(stage.events().contains(&Event::Members(1)));
}

#[test]
fn a_member_that_holds_a_slot_stays_until_that_has_lapsed_too() {
    let mut stage = Stage::new();
    let dead = stage.join(7, 1);
    stage.submit(orders(1));
    stage.pass(4 * SECOND);
    let (key, slot) = stage.live().remove(0);
    stage.hold(&key, &slot, &dead);
    stage.pass(5 * SECOND);
    assert_eq!(stage.members(), [dead], "its lock is over, and its slot's is not");
    stage.pass(3 * SECOND);
    assert!(stage.members().is_empty());
}

/// Proves the death of every member when the test says so.
#[derive(Debug, Default)]
struct Oracle(Notify);

#[async_trait]
impl Presence for Oracle {
    fn mark(&self) -> Result<Mark, StoreError> {
        Ok(Mark(serde_json::Map::new()))
    }

    async fn gone(&self, _mark: &Mark) {
        self.0.notified().await;
    }
}

#[test]
fn a_member_that_is_proven_dead_leaves_the_list_at_once() {
    let oracle = Arc::new(Oracle::default());
    let mut stage = Stage::with_presence(oracle.clone());
    let dead = stage.join(7, 1);
    stage.pass(3 * SECOND);
    assert_eq!(stage.members(), [dead]);
    oracle.0.notify_one();
    assert!(stage.planner.settle().is_none());
    assert!(stage.members().is_empty(), "no time had to pass");
}
