//! Rounds on a reliable store: nothing is lost, and each test checks one claim.

mod damage;
mod members;
mod slots;
mod source;
mod succession;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure::store::{Expect, Presence, Put, StoreExt as _, Version};
use tenure::{Key, MemoryStore};

use super::parts::{Hand, Working, client, member, now, order, timing};
use crate::Event;
use crate::client::ClusterClient;
use crate::documents::{
    ClusterConfig, Cursor, Format, Holding, MemberId, MemberLock, NodeEntry, Nodes, Order, Piece,
    Progress, Report, Slot,
};
use crate::input::Windowed;

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
