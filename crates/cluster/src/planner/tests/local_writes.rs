//! Rounds of a planner that relies on the writes of the node in its process.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_trait::async_trait;
use tenure::store::{
    Document, Expect, Page, Put, Reads, Store, StoreError, StoreExt as _, Version, Write,
};
use tenure::{Key, MemoryStore};

use super::parts::{Hand, Working, client, member, now, order};
use crate::claims::AcknowledgedWrite;
use crate::client::ClusterClient;
use crate::documents::{Cursor, Format as _, MemberId, NodeEntry, Nodes, Progress, Slot, WakeUp};

/// A store that counts how often many documents were read at once.
#[derive(Debug)]
struct Counted {
    memory: MemoryStore,
    looks: AtomicUsize,
    writes: AtomicUsize,
    reads: Reads,
}

#[async_trait]
impl Store for Counted {
    fn reads(&self) -> Reads {
        self.reads
    }

    fn notifies(&self) -> bool {
        self.memory.notifies()
    }

    fn forgets_deleted(&self) -> bool {
        self.memory.forgets_deleted()
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Document>>, StoreError> {
        self.looks.fetch_add(usize::from(keys.len() > 100), Relaxed);
        self.memory.get_many(keys).await
    }

    async fn put_many(&self, writes: Vec<Write>) -> Vec<Result<Put, StoreError>> {
        self.writes.fetch_add(writes.len(), Relaxed);
        self.memory.put_many(writes).await
    }

    async fn list(
        &self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.memory.list(prefix, after, limit).await
    }

    async fn changed(&self, key: &Key, seen: Option<&Version>) {
        self.memory.changed(key, seen).await;
    }
}

struct Stage {
    clock: Hand,
    store: Arc<Counted>,
    client: ClusterClient,
    planner: Working,
}

/// Creates a planner, with token 1, in the process of the node `members[0]`. In these tests that
/// node has the id of planners with token 1.
fn stage(reads: Reads, members: &[MemberId]) -> Stage {
    let clock = Hand::new();
    let memory = MemoryStore::new();
    let counts = (AtomicUsize::new(0), AtomicUsize::new(0));
    let store = Arc::new(Counted { memory, looks: counts.0, writes: counts.1, reads });
    let client = client(store.clone(), &clock);
    let entry = |token: &MemberId| NodeEntry {
        token: token.clone(),
        workers: 4,
        name: String::new(),
        draining: false,
    };
    let nodes = members.iter().map(entry).collect();
    let nodes = Nodes { nodes, dead: Vec::new(), revision: 1, op: client.fresh_op() };
    let put = now(client.store().put(&client.keys.nodes(), Expect::Absent, nodes.encode()));
    assert!(matches!(put, Ok(Put::Stored(_))));
    let planner = Working::new(&client, &clock, 1, None);
    let mut stage = Stage { clock, store, client, planner };
    stage.planner.settle_for(&stage.clock, Duration::from_millis(20));
    stage
}

impl Stage {
    fn submit(&self, many: usize) {
        let orders = (0..many).map(|number| order(&format!("task-{number}"))).collect();
        now(self.client.submit(orders)).expect("the inbox has room");
    }

    fn cursor(&self) -> Cursor {
        let found = now(self.client.read(&self.client.keys.cursor())).expect("memory serves");
        found.expect("a cursor").1
    }

    /// Does the tasks that the planner told its node of, and tells the planner. Returns their
    /// number.
    fn work(&self) -> usize {
        let told = self.planner.local_writes.take_filled();
        let sent = self.planner.local_writes.sending();
        for write_seen in &told {
            let done = Progress::Done { result: None };
            let content = Arc::new(write_seen.content.following(self.client.fresh_op(), done));
            let version = self.put(write_seen.slot, write_seen.version.clone(), &content);
            let write_seen = AcknowledgedWrite { slot: write_seen.slot, version, content };
            self.planner.local_writes.worked(sent, [write_seen]);
        }
        told.len()
    }

    fn put(&self, slot: usize, version: Version, content: &Slot) -> Version {
        let key = self.client.keys.slot(slot);
        let put = now(self.client.store().put(&key, Expect::At(version), content.encode()));
        let Ok(Put::Stored(version)) = put else { panic!("nobody else writes it: {put:?}") };
        version
    }

    fn rung(&self) -> u64 {
        let wake_up =
            now(self.client.read::<WakeUp>(&self.client.keys.wake_up())).expect("memory serves");
        wake_up.map_or(0, |(_, wake_up)| wake_up.rung)
    }

    fn settle(&mut self) {
        assert!(self.planner.settle().is_none(), "nobody deposed it");
    }
}

#[test]
fn a_planner_that_is_alone_counts_and_fills_by_what_it_hears_without_a_look() {
    let mut stage = stage(Reads::Linearizable, &[member(1)]);
    stage.submit(1_000);
    stage.settle();
    let looks = stage.store.looks.load(Relaxed);
    let mut worked = 0;
    for _ in 0..8 {
        worked += stage.work();
        stage.settle();
        stage.clock.advance(Duration::from_millis(5));
        stage.settle();
    }
    assert_eq!((worked, stage.cursor().done), (1_000, 1_000));
    assert_eq!(stage.store.looks.load(Relaxed), looks, "40 ms need no look");
    stage.clock.advance(Duration::from_millis(200));
    stage.settle();
    assert_eq!(stage.store.looks.load(Relaxed), looks + 1, "it looks all the same, once it may");
}

#[test]
fn on_a_weak_store_what_was_acknowledged_beside_it_is_not_written_again() {
    let mut stage = stage(Reads::Weak, &[member(1)]);
    stage.submit(100);
    stage.settle();
    let written = stage.store.writes.load(Relaxed);
    assert_eq!(stage.work(), 100);
    stage.clock.advance(Duration::from_millis(5));
    stage.settle();
    assert_eq!(stage.cursor().done, 100);
    // The worker writes the tasks. The planner writes the slots made vacant, the results, the
    // cursor, and a page of the inbox or two.
    let written = stage.store.writes.load(Relaxed) - written;
    assert!((200..210).contains(&written), "{written} writes");
}

#[test]
fn nobody_rings_for_nodes_that_are_not_there() {
    let rung = |members: &[MemberId]| {
        let mut stage = stage(Reads::Linearizable, members);
        let before = stage.rung();
        stage.submit(3);
        stage.planner.settle_for(&stage.clock, Duration::from_millis(250));
        stage.rung() - before
    };
    assert_eq!(rung(&[member(1)]), 0);
    assert_eq!(rung(&[member(1), member(2)]), 1);
}

#[test]
fn a_node_that_joins_is_noticed_while_the_planner_goes_by_what_it_hears() {
    let mut stage = stage(Reads::Linearizable, &[member(1)]);
    stage.submit(3);
    stage.settle();
    let key = stage.client.keys.nodes();
    let (version, nodes) = now(stage.client.read::<Nodes>(&key)).expect("memory").expect("a list");
    let joined = NodeEntry { token: member(2), ..nodes.nodes[0].clone() };
    let nodes = Nodes { nodes: vec![nodes.nodes[0].clone(), joined], revision: 2, ..nodes };
    let put = now(stage.client.store().put(&key, Expect::At(version), nodes.encode()));
    assert!(matches!(put, Ok(Put::Stored(_))));
    let before = stage.rung();
    stage.work();
    stage.planner.settle_for(&stage.clock, Duration::from_millis(250));
    assert!(stage.rung() > before, "what was filled before it came is rung for now");
}
