//! Rounds on a reliable store: nothing is lost, and each test checks one claim.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;

use super::super::Deposed;
use super::parts::{Hand, Working, client, member, now, order, timing};
use crate::cluster::Event;
use crate::cluster::client::ClusterClient;
use crate::cluster::documents::{
    ClusterConfig, Cursor, Entry, Format, Holding, Intent, Letter, MAX_NOTE_BYTES, MAX_TASK_BYTES,
    MemberId, MemberLock, NodeEntry, Nodes, Order, Outcome, OutcomeState, Page, Piece, Progress,
    Report, Slot, WakeUp, first_token,
};
use crate::cluster::error::ClusterError;
use crate::cluster::input::{End, InputError, Window, Windowed};
use crate::lease::record::MAX_NUMBER;
use crate::store::{
    Expect, MAX_DOCUMENT_BYTES, Mark, Presence, Put, StoreError, StoreExt as _, Version,
};
use crate::{Key, MemoryStore};

const SECOND: Duration = Duration::from_secs(1);

/// A cluster on a store that works, and its planner.
struct Stage {
    clock: Hand,
    client: ClusterClient,
    planner: Working,
}

impl Stage {
    fn new() -> Stage {
        Stage::with_source(None)
    }

    fn with_source(source: Option<Arc<dyn Windowed>>) -> Stage {
        let clock = Hand::new();
        let client = client(Arc::new(MemoryStore::new()), &clock);
        let planner = Working::new(&client, &clock, 1, source);
        Stage { clock, client, planner }
    }

    fn with_presence(presence: Arc<dyn Presence>) -> Stage {
        let mut stage = Stage::new();
        let backend = stage.client.backend.clone().with_presence(presence);
        stage.client = ClusterClient::open(&backend, "test").expect("a name");
        stage.elect(2);
        stage
    }

    /// Lets the next leader take over.
    fn elect(&mut self, token: u64) {
        self.planner = Working::new(&self.client, &self.clock, token, None);
    }

    fn pass(&mut self, span: Duration) {
        self.planner.settle_for(&self.clock, span);
    }

    fn read<T: Format>(&self, key: &Key) -> Option<(Version, T)> {
        now(self.client.read(key)).expect("memory serves")
    }

    fn write(&self, key: &Key, body: Bytes) {
        let found = now(self.client.store().get(key)).expect("memory serves");
        let expect = found.map_or(Expect::Absent, |found| Expect::At(found.version));
        let put = now(self.client.store().put(key, expect, body)).expect("memory serves");
        assert!(matches!(put, Put::Stored(_)));
    }

    fn delete(&self, key: &Key) {
        let found = now(self.client.store().get(key)).expect("memory serves").expect("it is there");
        let put = now(self.client.store().delete(key, found.version)).expect("memory serves");
        assert!(matches!(put, Put::Stored(_)));
    }

    fn cursor(&self) -> Cursor {
        self.read(&self.client.keys.cursor()).expect("a cursor").1
    }

    fn cluster_config(&self) -> ClusterConfig {
        self.read(&self.client.keys.cluster_config()).expect("a charter").1
    }

    fn submit(&self, orders: Vec<Order>) {
        now(self.client.submit(orders)).expect("the inbox has room");
    }

    fn slots(&self) -> Vec<(Key, Slot)> {
        let found = now(self.client.store().list(&self.client.keys.slots(), None, 20_000));
        let found = found.expect("memory serves").documents.into_iter();
        found
            .filter_map(|(key, document)| Some((key, Slot::decode(&document.body).ok()?)))
            .collect()
    }

    fn live(&self) -> Vec<(Key, Slot)> {
        self.slots().into_iter().filter(|(_, slot)| slot.is_live()).collect()
    }

    /// Ends every live task with `end`.
    fn end_all(&self, end: impl Fn(&Slot) -> Slot) -> usize {
        let live = self.live();
        live.iter().for_each(|(key, slot)| self.write(key, end(slot).encode()));
        live.len()
    }

    fn finish_all(&self) -> usize {
        self.end_all(|slot| slot.following(self.client.fresh_op(), Progress::Done { result: None }))
    }

    fn kill_all(&self, cancel: bool) -> usize {
        let dead = || Progress::Dead { error: "it failed".into() };
        self.end_all(|slot| Slot { cancel, ..slot.following(self.client.fresh_op(), dead()) })
    }

    fn reports(&self) -> Vec<Report> {
        let pieces = (0..self.cursor().pieces).map(|n| self.client.keys.piece(n));
        pieces.flat_map(|key| self.read::<Piece>(&key).expect("a piece").1.reports).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.planner.events.try_recv().ok()).collect()
    }

    fn join(&self, number: u64, workers: u32) -> MemberId {
        let id = member(number);
        let key = self.client.keys.nodes();
        let op = self.client.fresh_op();
        let before = self.read::<Nodes>(&key).map(|(_, nodes)| nodes);
        let mut nodes =
            before.unwrap_or(Nodes { nodes: Vec::new(), dead: Vec::new(), revision: 0, op });
        let (token, name) = (id.clone(), String::new());
        nodes.nodes.push(NodeEntry { token, workers, name, draining: false });
        self.write(&key, nodes.encode());
        self.renew(&id, 1);
        id
    }

    fn renew(&self, id: &MemberId, expire: u64) {
        let mark = self.client.backend.presence().map(|presence| presence.mark());
        let lock = MemberLock {
            holder: id.clone(),
            expire,
            ttl: timing().ttl(),
            idle: 0,
            finished: 0,
            lists: false,
            presence: mark.transpose().expect("a mark"),
            revision: 1,
            op: self.client.fresh_op(),
        };
        self.write(&self.client.keys.member(id), lock.encode());
    }

    fn members(&self) -> Vec<MemberId> {
        let nodes = self.read::<Nodes>(&self.client.keys.nodes()).expect("a node list").1;
        nodes.nodes.into_iter().map(|node| node.token).collect()
    }

    /// The slots with tasks that wait for a worker.
    fn waiting(&self) -> Vec<(Key, Slot)> {
        let outstanding = |slot: &Slot| matches!(slot.progress, Progress::Outstanding { .. });
        self.slots().into_iter().filter(|(_, slot)| outstanding(slot)).collect()
    }

    /// Lets a member hold this slot, from now on.
    fn hold(&self, key: &Key, slot: &Slot, by: &MemberId) {
        let holding = Holding { member: by.clone(), expire: 1, presence: None, status: None };
        let held = slot.following(self.client.fresh_op(), Progress::Held(Arc::new(holding)));
        self.write(key, Slot { token: slot.token + 1, attempt: 1, ..held }.encode());
    }
}

fn orders(many: usize) -> Vec<Order> {
    (0..many).map(|number| order(&format!("task-{number}"))).collect()
}

#[test]
fn a_new_cluster_gets_its_documents_and_more_slots_when_workers_hold_most_of_them() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    assert_eq!((stage.cluster_config().slots, stage.cursor().leader), (256, 1));
    let node = stage.join(7, 40);
    stage.submit(orders(1000));
    stage.pass(5 * SECOND);
    assert_eq!(stage.cluster_config().slots, 256, "what waits there is enough for 40 workers");
    // Hold another half of the slots each time, for less than a ttl.
    for (held, slots) in [(128, 512), (256, 800)] {
        for (key, slot) in stage.waiting().into_iter().take(held) {
            stage.hold(&key, &slot, &node);
        }
        stage.pass(SECOND);
        assert_eq!((stage.cluster_config().slots, stage.live().len()), (slots, slots));
    }
    let nodes = stage.client.keys.nodes();
    stage.delete(&nodes);
    stage.pass(2 * SECOND);
    assert_eq!(stage.cluster_config().slots, 800, "it never shrinks");
}

/// Regression: a node list with 4 billion workers made 16,384 slots, for good.
#[test]
fn a_forged_count_of_workers_makes_no_slots_whatever_waits() {
    let mut stage = Stage::new();
    let node = stage.join(7, u32::MAX);
    stage.submit(orders(2000));
    stage.pass(5 * SECOND);
    for (key, slot) in stage.waiting().into_iter().take(4) {
        stage.hold(&key, &slot, &node);
    }
    stage.pass(2 * SECOND);
    assert_eq!((stage.cluster_config().slots, stage.live().len()), (256, 256));
}

/// Regression: a leader wrote a cursor with a revision that is too large.
///
/// It then refused to read that cursor.
#[test]
fn a_cursor_whose_revision_is_at_its_limit_is_left_as_it_is() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let key = stage.client.keys.cursor();
    let forged = Cursor { revision: MAX_NUMBER, ..stage.cursor() };
    stage.write(&key, forged.encode());
    stage.submit(orders(3));
    stage.pass(5 * SECOND);
    assert_eq!(stage.cursor(), forged, "it can still be read");
    let cluster_config = stage.client.keys.cluster_config();
    stage.write(
        &cluster_config,
        ClusterConfig { revision: MAX_NUMBER, ..stage.cluster_config() }.encode(),
    );
    assert!(matches!(now(stage.client.pause()), Err(ClusterError::Document { .. })));
    assert_eq!(stage.cluster_config().revision, MAX_NUMBER, "it can still be read");
}

#[test]
fn more_tasks_than_slots_are_each_counted_once() {
    let mut stage = Stage::new();
    stage.submit(orders(1000));
    let mut worked = 0;
    for _ in 0..40 {
        stage.pass(SECOND);
        assert!(stage.live().len() <= 256);
        worked += stage.finish_all();
    }
    assert_eq!(worked, 1000);
    let cursor = stage.cursor();
    assert_eq!((cursor.accepted, cursor.done, cursor.open()), (1000, 1000, 0));
    let ids: BTreeSet<String> = stage.reports().into_iter().map(|report| report.id).collect();
    assert_eq!((ids.len(), stage.reports().len()), (1000, 1000));
    assert!(stage.slots().iter().all(|(_, slot)| slot.progress == Progress::Vacant));
}

#[test]
fn a_submission_wakes_the_leader_and_the_leader_rings_the_bell() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let wake_up = stage.client.keys.wake_up();
    let before = stage.read::<WakeUp>(&wake_up).expect("it was rung at the start").1.rung;
    stage.submit(orders(3));
    assert!(stage.planner.settle().is_none());
    assert_eq!(stage.live().len(), 3, "no time had to pass");
    assert!(stage.read::<WakeUp>(&wake_up).expect("a bell").1.rung > before);
}

#[test]
fn a_nudge_wakes_the_leader() {
    let mut stage = Stage::new();
    stage.submit(orders(3));
    stage.pass(SECOND);
    stage.finish_all();
    assert!(stage.planner.settle().is_none());
    assert_eq!(stage.cursor().done, 0, "nobody told it");
    stage.planner.local_writes.call_planner();
    stage.pass(Duration::from_millis(50));
    assert_eq!(stage.cursor().done, 3);
}

#[test]
fn a_paused_cluster_counts_what_ends_and_takes_nothing_in() {
    let mut stage = Stage::new();
    stage.submit(orders(3));
    stage.pass(SECOND);
    let cluster_config = ClusterConfig { paused: true, ..stage.cluster_config() };
    stage.write(&stage.client.keys.cluster_config(), cluster_config.encode());
    stage.submit(orders(5));
    stage.finish_all();
    stage.pass(2 * SECOND);
    assert_eq!((stage.cursor().accepted, stage.cursor().done, stage.live().len()), (3, 3, 0));
    let cluster_config = ClusterConfig { paused: false, ..stage.cluster_config() };
    stage.write(&stage.client.keys.cluster_config(), cluster_config.encode());
    stage.pass(2 * SECOND);
    assert_eq!(stage.live().len(), 5);
}

#[test]
fn a_dead_task_becomes_a_letter_and_a_retry_brings_it_back_once() {
    let mut stage = Stage::new();
    stage.submit(orders(1));
    stage.pass(SECOND);
    stage.kill_all(false);
    stage.pass(2 * SECOND);
    let letters = now(stage.client.store().list(&stage.client.keys.letters(), None, 9));
    let letters = letters.expect("memory serves").documents;
    let [(key, letter)] = &letters[..] else { panic!("{letters:?}") };
    let letter = Letter::decode(&letter.body).expect("a letter");
    assert_eq!((letter.error.as_str(), letter.task.id.as_str()), ("it failed", "task-0"));
    assert_eq!((stage.cursor().dead, stage.live().len()), (1, 0));
    let retry = Entry::Retry(letter.task.serial);
    now(stage.client.enter(vec![retry.clone(), retry.clone()])).expect("room");
    stage.pass(SECOND);
    now(stage.client.enter(vec![retry])).expect("room");
    stage.pass(SECOND);
    assert_eq!(stage.live().len(), 1);
    let slot = &stage.live()[0].1;
    assert!(slot.task.serial > letter.task.serial && slot.attempt == 0);
    assert!(stage.read::<Letter>(key).is_none());
    assert_eq!((stage.cursor().accepted, stage.cursor().dead, stage.cursor().open()), (1, 0, 1));
}

#[test]
fn a_cancelled_task_leaves_no_letter() {
    let mut stage = Stage::new();
    stage.submit(vec![Order { receipt: Some(member(9)), ..order("a") }]);
    stage.pass(SECOND);
    stage.kill_all(true);
    stage.pass(2 * SECOND);
    let letters = now(stage.client.store().list(&stage.client.keys.letters(), None, 9));
    assert!(letters.expect("memory serves").documents.is_empty());
    assert_eq!((stage.cursor().dead, stage.cursor().cancelled), (0, 1));
    let outcome = stage.read::<Outcome>(&stage.client.keys.outcome(&member(9)));
    assert_eq!(outcome.expect("somebody waits").1.state, OutcomeState::Cancelled);
}

#[test]
fn a_garbled_slot_is_told_of_once_and_left_alone() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let key = stage.client.keys.slot(3);
    stage.write(&key, "nonsense".into());
    stage.submit(orders(300));
    stage.pass(5 * SECOND);
    assert_eq!(stage.live().len(), 255);
    let garbled = stage.events().into_iter().filter(|event| matches!(event, Event::Garbled { .. }));
    assert_eq!(garbled.count(), 1);
    let found = now(stage.client.store().get(&key)).expect("memory serves").expect("still there");
    assert_eq!(found.body, "nonsense");
}

#[test]
fn a_garbled_cursor_is_told_of_and_never_overwritten() {
    let mut stage = Stage::new();
    let key = stage.client.keys.cursor();
    stage.write(&key, "nonsense".into());
    stage.pass(5 * SECOND);
    let found = now(stage.client.store().get(&key)).expect("memory serves").expect("still there");
    assert_eq!(found.body, "nonsense");
    assert!(stage.events().iter().any(|event| matches!(event, Event::Garbled { .. })));
}

#[test]
fn a_garbled_page_is_passed_over_and_its_place_used_again() {
    let mut stage = Stage::new();
    stage.write(&stage.client.keys.page(0), "nonsense".into());
    stage.submit(orders(3));
    stage.pass(2 * SECOND);
    assert_eq!((stage.live().len(), stage.cursor().page), (3, 2));
    let page = stage.read::<Page>(&stage.client.keys.page(0)).expect("a page").1;
    assert_eq!((page.number, page.entries.len()), (256, 0));
}

#[test]
fn a_charter_or_a_cursor_that_somebody_deleted_loses_no_slot_and_no_token() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let grown = ClusterConfig { slots: 800, ..stage.cluster_config() };
    stage.write(&stage.client.keys.cluster_config(), grown.encode());
    stage.submit(orders(700));
    stage.pass(5 * SECOND);
    assert_eq!(stage.live().len(), 700);
    let highest = stage.live().iter().map(|(_, slot)| slot.task.serial).max();
    stage.delete(&stage.client.keys.cluster_config());
    stage.pass(2 * SECOND);
    assert!(stage.cluster_config().slots >= 700, "{}", stage.cluster_config().slots);
    stage.delete(&stage.client.keys.cursor());
    stage.elect(2);
    stage.pass(2 * SECOND);
    assert!(Some(stage.cursor().next) > highest);
}

#[test]
fn a_planner_stops_when_a_later_leader_has_the_cursor_and_changes_nothing_more() {
    let mut stage = Stage::new();
    stage.submit(orders(3));
    stage.pass(SECOND);
    let mut second = Working::new(&stage.client, &stage.clock, 2, None);
    assert!(second.settle().is_none());
    stage.submit(orders(3));
    stage.clock.advance(SECOND);
    let over = stage.planner.settle().expect("it stops");
    assert_eq!(over.expect("no error"), Deposed { by: 2 });
    second.settle_for(&stage.clock, SECOND);
    assert_eq!((stage.cursor().leader, stage.cursor().accepted, stage.live().len()), (2, 6, 6));
}

#[test]
fn a_successor_finishes_what_was_recorded_before_anything_else() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    let before = stage.cursor();
    let task = order("recorded").numbered(before.next);
    let (slot, serial) = (17, before.next);
    let intents = vec![Intent { slot, serial, task: Some(task), letter: None }];
    let (next, accepted, op) = (before.next + 1, 1, stage.client.fresh_op());
    let recorded = Cursor { intents, next, accepted, op, ..before };
    stage.write(&stage.client.keys.cursor(), recorded.encode());
    stage.write(&stage.client.keys.slot(17), "nonsense is in the way".into());
    stage.elect(2);
    stage.pass(SECOND);
    let slot = stage.read::<Slot>(&stage.client.keys.slot(17)).expect("it was written").1;
    assert_eq!((slot.token, slot.task.id.as_str()), (first_token(serial), "recorded"));
}

#[test]
fn a_page_that_was_taken_and_not_freed_is_freed_by_the_successor() {
    let mut stage = Stage::new();
    stage.pass(SECOND);
    stage.submit(orders(3));
    let page = stage.read::<Page>(&stage.client.keys.page(0)).expect("a page").1;
    stage.pass(SECOND);
    assert_eq!(stage.cursor().page, 1);
    stage.write(&stage.client.keys.page(0), page.encode());
    stage.elect(2);
    stage.pass(SECOND);
    let page = stage.read::<Page>(&stage.client.keys.page(0)).expect("a page").1;
    assert_eq!((page.number, page.entries.len()), (256, 0));
    assert_eq!(stage.cursor().accepted, 3);
}

#[test]
fn a_piece_that_nobody_counted_is_replaced() {
    let mut stage = Stage::new();
    stage.submit(orders(2));
    stage.pass(SECOND);
    stage.write(&stage.client.keys.piece(0), "left by somebody who was cut off".into());
    stage.finish_all();
    stage.pass(2 * SECOND);
    assert_eq!((stage.reports().len(), stage.cursor().done), (2, 2));
}

#[test]
fn large_results_go_into_as_many_pieces_as_they_need() {
    let mut stage = Stage::new();
    stage.submit(orders(200));
    stage.pass(2 * SECOND);
    let result = || Some("\u{1}".repeat(MAX_NOTE_BYTES));
    stage.end_all(|slot| {
        slot.following(stage.client.fresh_op(), Progress::Done { result: result() })
    });
    stage.pass(20 * SECOND);
    assert_eq!((stage.cursor().done, stage.reports().len()), (200, 200));
    for number in 0..stage.cursor().pieces {
        let piece = now(stage.client.store().get(&stage.client.keys.piece(number)));
        let bytes = piece.expect("memory serves").expect("a piece").body.len();
        assert!(bytes <= MAX_DOCUMENT_BYTES, "{bytes}");
    }
}

#[test]
fn large_tasks_are_taken_in_as_they_fit() {
    let mut stage = Stage::new();
    let large = |order: Order| Order { payload: vec![7; MAX_TASK_BYTES].into(), ..order };
    stage.submit(orders(30).into_iter().map(large).collect());
    stage.pass(5 * SECOND);
    assert_eq!((stage.cursor().accepted, stage.live().len()), (30, 30));
}

#[test]
fn outcomes_that_nobody_came_for_are_removed_after_an_hour() {
    let mut stage = Stage::new();
    stage.submit(vec![Order { receipt: Some(member(9)), ..order("a") }]);
    stage.pass(SECOND);
    stage.finish_all();
    stage.pass(2 * SECOND);
    let key = stage.client.keys.outcome(&member(9));
    for _ in 0..6 {
        assert!(stage.read::<Outcome>(&key).is_some());
        stage.clock.advance(Duration::from_secs(9 * 60));
        stage.pass(SECOND);
    }
    stage.clock.advance(Duration::from_secs(30 * 60));
    stage.pass(SECOND);
    assert!(stage.read::<Outcome>(&key).is_none());
}

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

#[test]
fn a_node_list_or_a_charter_that_makes_no_sense_is_told_of_and_work_goes_on() {
    let mut stage = Stage::new();
    stage.write(&stage.client.keys.nodes(), "nonsense".into());
    stage.write(&stage.client.keys.cluster_config(), "nonsense".into());
    stage.submit(orders(3));
    stage.pass(5 * SECOND);
    assert_eq!((stage.live().len(), stage.cluster_config().slots), (3, 256));
    let garbled = stage.events().into_iter().filter(|event| matches!(event, Event::Garbled { .. }));
    assert_eq!(garbled.count(), 2);
    let nodes = now(stage.client.store().get(&stage.client.keys.nodes()));
    assert_eq!(nodes.expect("memory serves").expect("still there").body, "nonsense");
}

/// A source of numbered items that the test controls.
#[derive(Default)]
struct Items {
    /// How many items there are. Without more items the source waits.
    many: AtomicUsize,
    bytes: usize,
    drains: bool,
    asked: Mutex<Vec<usize>>,
    told: Mutex<Vec<String>>,
    /// The item that this source refuses to commit.
    deaf: Option<&'static str>,
}

impl Items {
    fn told(&self) -> BTreeSet<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[async_trait]
impl Windowed for Items {
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(max);
        let from: usize = position.map_or(0, |position| position.parse().expect("our own"));
        let many = self.many.load(Relaxed);
        if from == many && !self.drains {
            return std::future::pending().await;
        }
        let to = many.min(from + max);
        let orders = (from..to).map(|number| {
            let payload = vec![7; self.bytes].into();
            Order { payload, ..order(&format!("listed-{number}")) }
        });
        let (orders, drained) = (orders.collect(), self.drains && to == many);
        Ok(Window { orders, position: Some(to.to_string()), drained })
    }

    async fn commit(&self, id: &str, _payload: &[u8], _end: End) -> Result<(), InputError> {
        if self.deaf == Some(id) {
            return Err(InputError("it does not listen".into()));
        }
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_owned());
        Ok(())
    }
}

#[test]
fn a_source_is_read_to_its_end_and_told_of_each_item() {
    let items = Arc::new(Items { many: 700.into(), drains: true, ..Items::default() });
    let mut stage = Stage::with_source(Some(items.clone()));
    let mut worked = 0;
    for _ in 0..12 {
        stage.pass(SECOND);
        worked += stage.finish_all();
    }
    assert_eq!(worked, 700);
    let cursor = stage.cursor();
    assert_eq!((cursor.accepted, cursor.done, cursor.drained), (700, 700, true));
    assert_eq!(items.told().len(), 700);
}

#[test]
fn a_source_that_waits_holds_nobody_up() {
    let items = Arc::new(Items::default());
    let mut stage = Stage::with_source(Some(items.clone()));
    stage.pass(SECOND);
    stage.submit(orders(3));
    stage.pass(SECOND);
    assert_eq!(stage.live().len(), 3);
    stage.finish_all();
    stage.pass(2 * SECOND);
    assert_eq!(stage.cursor().done, 3);
    assert_eq!(items.asked.lock().unwrap_or_else(PoisonError::into_inner).len(), 1);
}

#[test]
fn a_window_that_is_too_large_for_the_cursor_is_asked_for_in_parts() {
    let items = Items { many: 40.into(), bytes: 10_000, drains: true, ..Items::default() };
    let mut stage = Stage::with_source(Some(Arc::new(items)));
    stage.pass(5 * SECOND);
    assert_eq!((stage.cursor().accepted, stage.live().len()), (40, 40));
    assert!(stage.cursor().drained);
}

#[test]
fn an_item_that_its_source_takes_no_note_of_waits_and_no_other_does() {
    let deaf = Some("listed-3");
    let items = Arc::new(Items { many: 9.into(), drains: true, deaf, ..Items::default() });
    let mut stage = Stage::with_source(Some(items.clone()));
    stage.pass(SECOND);
    stage.finish_all();
    stage.pass(20 * SECOND);
    assert_eq!((stage.cursor().done, items.told().len()), (8, 8));
}

#[test]
fn what_a_slot_has_lost_is_put_back_while_the_cursor_knows_it() {
    let mut stage = Stage::new();
    stage.submit(orders(3));
    stage.pass(SECOND);
    let lost: Vec<Key> = stage.live().into_iter().map(|(key, _)| key).collect();
    stage.write(&lost[0], Bytes::from_static(b"garbage"));
    stage.delete(&lost[1]);
    stage.planner.local_writes.call_planner();
    stage.pass(SECOND);
    assert_eq!(stage.live().len(), 3);
    stage.finish_all();
    stage.planner.local_writes.call_planner();
    stage.pass(SECOND);
    assert_eq!((stage.cursor().accepted, stage.cursor().done), (3, 3));
}
