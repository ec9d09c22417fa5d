use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::json;
use tenure::store::{Expect, Put};
use tenure::{Candidate, Election, MemoryStore};

use super::*;
use crate::documents::{NodeEntry, Nodes, Share};
use crate::input::{Inputs, PartitionContext};

/// Long enough for anything to finish on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An input with partitions that only record their runs.
#[derive(Default)]
struct Probe {
    partitions: Mutex<Vec<Partition>>,
    /// The tokens under which each partition runs now.
    running: watch::Sender<BTreeMap<String, Vec<u64>>>,
    begun: watch::Sender<u64>,
    asked: watch::Sender<u64>,
    twice: Mutex<Vec<String>>,
}

struct OfMember(Arc<Probe>);

struct Running<'a>(&'a Probe, String, u64);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| {
            let tokens = running.entry(self.1.clone()).or_default();
            tokens.retain(|token| *token != self.2);
        });
    }
}

#[async_trait]
impl Supervised for OfMember {
    async fn partitions(&self, _members: &[NodeEntry]) -> Result<Vec<Partition>, InputError> {
        self.0.asked.send_modify(|asked| *asked += 1);
        Ok(self.0.partitions.lock().expect("not poisoned").clone())
    }

    async fn run(
        &self,
        partition: &Partition,
        context: &PartitionContext,
    ) -> Result<(), InputError> {
        let (name, token) = (partition.0.to_string(), context.mandate.token());
        let _running = Running(&self.0, name.clone(), token);
        self.0.running.send_modify(|running| {
            let tokens = running.entry(name.clone()).or_default();
            tokens.push(token);
            if tokens.len() > 1 {
                self.0.twice.lock().expect("not poisoned").push(name.clone());
            }
        });
        self.0.begun.send_modify(|begun| *begun += 1);
        match partition.0.as_str() {
            Some("fails") => Err(InputError("as it was asked to".into())),
            Some("panics") => panic!("as it was asked to"),
            _ => std::future::pending().await,
        }
    }
}

struct Stage {
    store: Arc<MemoryStore>,
    probe: Arc<Probe>,
}

/// One member's runner; dropping it ends the member.
struct Player {
    leading: watch::Sender<bool>,
    _runner: JoinSet<()>,
}

fn member(number: u32) -> MemberId {
    MemberId::from_bits(u128::from(number))
}

impl Stage {
    fn new(partitions: Vec<serde_json::Value>) -> Stage {
        let probe = Arc::new(Probe::default());
        *probe.partitions.lock().expect("not poisoned") =
            partitions.into_iter().map(Partition).collect();
        Stage { store: Arc::new(MemoryStore::new()), probe }
    }

    fn client(&self) -> ClusterClient {
        let backend = Backend::new(self.store.clone());
        ClusterClient::open(&backend, "a/b/c/d/e").expect("a good name")
    }

    fn enter(&self, number: u32, leads: bool) -> Player {
        let (leading, told) = watch::channel(leads);
        let mut runner = JoinSet::new();
        let timing = Timing::new(Duration::from_secs(2)).expect("it fits");
        let input = Arc::new(OfMember(self.probe.clone()));
        runner.spawn(run_supervised(
            "poll".into(),
            input,
            self.client(),
            member(number),
            timing,
            told,
        ));
        Player { leading, _runner: runner }
    }

    async fn list(&self, members: &[u32]) {
        let client = self.client();
        let nodes = |op| Nodes {
            nodes: members
                .iter()
                .map(|number| NodeEntry {
                    token: member(*number),
                    workers: 1,
                    name: String::new(),
                    draining: false,
                })
                .collect(),
            dead: Vec::new(),
            revision: 1,
            op,
        };
        let key = client.keys.nodes();
        let changed = client.update::<Nodes>(&key, |nodes| &nodes.op, |_, op| Ok(Some(nodes(op))));
        changed.await.expect("the store serves");
    }

    fn plan_key(&self) -> Key {
        self.client().keys.plan("poll").expect("a good name")
    }

    async fn plan(&self) -> Option<Plan> {
        let document = self.store.get(&self.plan_key()).await.expect("the store serves")?;
        Plan::decode(&document.body).ok()
    }

    /// Waits for a plan for these members, and returns how many partitions each has.
    async fn planned(&self, members: &[u32]) -> Vec<usize> {
        let members: Vec<MemberId> = members.iter().copied().map(member).collect();
        let planned = async {
            loop {
                match self.plan().await {
                    Some(plan) if plan.is_for(members.iter()) => {
                        return plan.shares.iter().map(|share| share.partitions.len()).collect();
                    }
                    Some(_) | None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, planned).await.expect("a plan")
    }

    /// Waits until `count` partitions run, and checks that none ever ran twice at once.
    async fn runs(&self, count: usize) -> BTreeMap<String, u64> {
        let mut running = self.probe.running.subscribe();
        let all = |running: &BTreeMap<String, Vec<u64>>| {
            running.values().filter(|tokens| !tokens.is_empty()).count() == count
        };
        let running = tokio::time::timeout(PATIENCE, running.wait_for(all)).await;
        let running = running.expect("they run").expect("the probe lives").clone();
        assert_eq!(*self.probe.twice.lock().expect("not poisoned"), Vec::<String>::new());
        running.into_iter().filter_map(|(name, tokens)| Some((name, *tokens.first()?))).collect()
    }
}

fn numbers(count: u32) -> Vec<serde_json::Value> {
    (0..count).map(|number| json!(number)).collect()
}

#[tokio::test]
async fn three_members_share_twelve_partitions_evenly() {
    let stage = Stage::new(numbers(12));
    stage.list(&[1, 2, 3]).await;
    let _players = [stage.enter(1, false), stage.enter(2, true), stage.enter(3, false)];
    assert_eq!(stage.planned(&[1, 2, 3]).await, [4, 4, 4]);
    assert_eq!(stage.runs(12).await.len(), 12);
    assert_eq!(*stage.probe.asked.borrow(), 1);
}

#[tokio::test]
async fn nobody_plans_who_does_not_lead_and_a_new_leader_keeps_the_plan() {
    let stage = Stage::new(numbers(2));
    stage.list(&[1, 2]).await;
    let first = stage.enter(1, false);
    let second = stage.enter(2, false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(stage.plan().await, None);
    first.leading.send_replace(true);
    stage.planned(&[1, 2]).await;
    stage.runs(2).await;
    let plan = stage.plan().await;
    first.leading.send_replace(false);
    second.leading.send_replace(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(stage.plan().await, plan);
    assert_eq!(*stage.probe.asked.borrow(), 1);
}

#[tokio::test]
async fn a_newcomer_takes_its_part_and_the_rest_goes_on_undisturbed() {
    let stage = Stage::new(numbers(6));
    stage.list(&[1, 2]).await;
    let _players = [stage.enter(1, true), stage.enter(2, false)];
    let before = stage.runs(6).await;
    stage.list(&[1, 2, 3]).await;
    let _third = stage.enter(3, false);
    assert_eq!(stage.planned(&[1, 2, 3]).await, [2, 2, 2]);
    // Only the partitions that moved were begun again, at a greater token.
    let mut begun = stage.probe.begun.subscribe();
    let moved = tokio::time::timeout(PATIENCE, begun.wait_for(|begun| *begun == 8)).await;
    moved.expect("two moved").expect("the probe lives");
    let after = stage.runs(6).await;
    let risen = after.iter().filter(|(name, token)| **token > before[*name]).count();
    let same = after.iter().filter(|(name, token)| **token == before[*name]).count();
    assert_eq!((risen, same), (2, 4));
}

#[tokio::test]
async fn the_partitions_of_a_member_that_left_the_list_are_taken_over() {
    let stage = Stage::new(numbers(5));
    stage.list(&[1, 2]).await;
    let _first = stage.enter(1, true);
    let second = stage.enter(2, false);
    stage.runs(5).await;
    drop(second);
    stage.list(&[1]).await;
    assert_eq!(stage.planned(&[1]).await, [5]);
    stage.runs(5).await;
}

#[tokio::test]
async fn a_partition_waits_for_its_lease_whoever_the_plan_gives_it_to() {
    let stage = Stage::new(numbers(1));
    let shares = vec![Share { member: member(1), partitions: numbers(1) }];
    let plan = Plan { shares, revision: 1, op: stage.client().fresh_op() };
    let lease = plan.share_of(&member(1)).into_keys().next().expect("one");
    let name = format!("clusters/a/b/c/d/e/poll-{lease}");
    let backend = Backend::new(stage.store.clone());
    let election = Election::open(&backend, &name).await.expect("an election");
    let candidate = Candidate::new("somebody who has not heard").expect("a name");
    let held = election.campaign(candidate).await.expect("it is free");
    stage.list(&[1]).await;
    let _player = stage.enter(1, true);
    stage.planned(&[1]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(*stage.probe.begun.borrow(), 0);
    let token = held.mandate().token();
    held.resign().await;
    assert!(stage.runs(1).await["0"] > token);
}

#[tokio::test]
async fn a_partition_that_fails_or_panics_is_started_again_at_a_greater_token() {
    let stage = Stage::new(vec![json!("fails"), json!("panics")]);
    stage.list(&[1]).await;
    let _player = stage.enter(1, true);
    let mut begun = stage.probe.begun.subscribe();
    let again = tokio::time::timeout(PATIENCE, begun.wait_for(|begun| *begun >= 6)).await;
    again.expect("again and again").expect("the probe lives");
    assert!(stage.probe.twice.lock().expect("not poisoned").is_empty());
}

#[tokio::test]
async fn a_plan_that_makes_no_sense_is_written_over() {
    let stage = Stage::new(numbers(1));
    let garbage = stage.store.put(&stage.plan_key(), Expect::Absent, "{".into()).await;
    assert!(matches!(garbage, Ok(Put::Stored(_))));
    stage.list(&[1]).await;
    let _player = stage.enter(1, true);
    stage.runs(1).await;
}

#[tokio::test]
async fn too_many_partitions_and_too_large_ones_are_no_plan() {
    for (partitions, says) in [
        (numbers(1025), "it has 1025 partitions; at most 1024 are allowed"),
        (vec![json!("x".repeat(62_000))], "at most 61440 are allowed"),
    ] {
        let stage = Stage::new(partitions);
        stage.list(&[1]).await;
        let supervision = Supervision {
            name: "poll".into(),
            input: Arc::new(OfMember(stage.probe.clone())),
            client: stage.client(),
            backend: Backend::memory(),
            me: member(1),
            timing: Timing::default(),
            plan: stage.plan_key(),
        };
        let error = supervision.plan_once().await.err().expect("it cannot be planned");
        assert!(error.0.contains(says), "{error}");
        assert_eq!(stage.plan().await, None);
    }
    let stage = Stage::new(numbers(1024));
    stage.list(&[1]).await;
    let _leader = stage.enter(9, true);
    assert_eq!(stage.planned(&[1]).await, [1024]);
}

#[test]
fn names_that_cannot_be_used_are_refused_before_anything_starts() {
    let inputs = |names: &[&str]| {
        names
            .iter()
            .fold(Inputs::new(), |inputs, name| inputs.supervised(name, OfMember(Arc::default())))
    };
    assert!(inputs(&["poll", "other"]).check().is_ok());
    for (names, says) in [
        (&["a/b"][..], "segments"),
        (&[""], "empty"),
        (&["poll", "poll"], "two inputs have the name poll"),
        (&[&*"x".repeat(65)], "65 bytes"),
    ] {
        let error = inputs(names).check().expect_err("refused");
        assert!(error.to_string().contains(says), "{error}");
    }
}
