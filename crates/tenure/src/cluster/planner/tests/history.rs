//! Whole histories of planners on an unreliable store.
//!
//! Planners are cut off anywhere, race each other and lose answers, while others work and submit.
//! In the end every task must be counted once, with the right outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;

use super::parts::{Chance, Hand, Working, client, member, now, order};
use super::rough::{Manner, Rough};
use crate::cluster::Cancellation;
use crate::cluster::claims::AcknowledgedWrite;
use crate::cluster::client::ClusterClient;
use crate::cluster::documents::{
    ClusterConfig, Cursor, Entry, Format as _, Holding, LEAST_SLOTS, Letter, MemberId, NodeEntry,
    Nodes, OutcomeState, Page, Piece, Progress, Report, Slot,
};
use crate::cluster::input::{End, InputError, Window, Windowed};
use crate::cluster::local_writes::{LocalWrites, Sent};
use crate::store::{Expect, Put, StoreExt as _, Version};
use crate::{Key, MemoryStore};
use futures_util::FutureExt as _;

/// How many tasks are submitted, and how many the source has.
const SUBMITTED: usize = 40;
const LISTED: usize = 30;
/// How many more are submitted at the start of a history with a backlog: they fill all slots.
const BACKLOG: usize = LEAST_SLOTS + 40;
const STEPS_OF_BACKLOG: usize = 120;
/// How many processes there are that may plan, each with a node of its own.
const PROCESSES: usize = 3;
/// The steps of a history before all faults end, and the most steps from then on.
const STEPS: usize = 600;
const MOST_STEPS_AFTER: usize = 2000;

/// The kind of a history.
#[derive(Clone, Copy, Debug)]
struct Plot {
    manner: Manner,
    /// Several planners work at once, and all but one of them should not.
    races: bool,
    /// Dead letters are brought back.
    retries: bool,
    /// A planner is cut off once in this many steps.
    cuts: usize,
    /// The node list says that there are billions of workers.
    forged: bool,
}

impl Plot {
    /// Draws the kind of a history.
    ///
    /// A late write of a dead letter may restore the letter after it was brought back, and only
    /// another retry of it would show that. So no history has both late writes and retries.
    fn of(seed: u64) -> Plot {
        let chance = Chance::new(seed ^ 0x706C_6F74);
        let weak = chance.one_in(2);
        let retries = chance.one_in(2);
        let rough = |often: usize| if chance.one_in(3) { 0 } else { often + chance.below(often) };
        let manner = Manner {
            polls: chance.below(4),
            refused: rough(60),
            unanswered: rough(60),
            late: if retries { 0 } else { rough(80) },
            weak,
            stale: if weak { rough(40) } else { 0 },
            phantom: if weak { rough(60) } else { 0 },
        };
        let cuts = if chance.one_in(4) { 0 } else { 5 + chance.below(60) };
        let races = !retries && chance.one_in(2);
        Plot { manner, races, retries, cuts, forged: chance.one_in(2) }
    }
}

/// A source of numbered items, some of which cannot be tasks.
struct Items {
    chance: Chance,
    calm: AtomicBool,
    told: Mutex<BTreeSet<String>>,
}

impl Items {
    fn id(number: usize) -> String {
        format!("listed-{number}")
    }

    fn is_refused(id: &str) -> bool {
        id.strip_prefix("listed-").is_some_and(|number| number.ends_with('7'))
    }

    fn fails(&self, often: usize) -> bool {
        !self.calm.load(Relaxed) && self.chance.one_in(often)
    }

    async fn hesitate(&self) {
        let mut left = self.chance.below(4);
        std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

#[async_trait]
impl Windowed for Items {
    async fn outstanding(&self, position: Option<&str>, max: usize) -> Result<Window, InputError> {
        self.hesitate().await;
        if self.fails(10) {
            return Err(InputError("it fails now and then".into()));
        }
        let from: usize = position.map_or(0, |position| position.parse().expect("our own"));
        let to = (from + 1 + from % 9).min(from + max).min(LISTED);
        let orders = (from..to).map(|number| {
            let mut order = order(&Items::id(number));
            if Items::is_refused(&order.id) {
                order.kind.clear();
            }
            order
        });
        let (orders, drained) = (orders.collect(), to == LISTED);
        Ok(Window { orders, position: Some(to.to_string()), drained })
    }

    async fn commit(&self, id: &str, _payload: &[u8], _end: End) -> Result<(), InputError> {
        self.hesitate().await;
        if self.fails(6) {
            return Err(InputError("it fails now and then".into()));
        }
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        Ok(())
    }
}

/// A cluster, its workers, and a record of the true events.
struct World {
    plot: Plot,
    chance: Chance,
    clock: Hand,
    rough: Arc<Rough>,
    /// The documents as planners see them.
    client: ClusterClient,
    /// The documents as they are.
    truth: ClusterClient,
    /// The local writes between the planner and the node of each process.
    processes: Vec<Arc<LocalWrites>>,
    /// Acknowledged writes of the processes that their planners have not heard of yet.
    untold: Vec<(Arc<LocalWrites>, Sent, AcknowledgedWrite)>,
    items: Arc<Items>,
    planners: Vec<Working>,
    token: u64,
    submitted: usize,
    receipts: BTreeMap<String, MemberId>,
    /// How each task ended, by serial.
    ends: BTreeMap<u64, (String, OutcomeState)>,
    retried: BTreeSet<u64>,
    /// Tasks that are cancelled for certain; `doubtful` has those that may be.
    cancelled: BTreeSet<String>,
    doubtful: BTreeSet<String>,
    /// The most slots that workers held at once.
    most_held: usize,
}

impl World {
    fn new(seed: u64, plot: Plot) -> World {
        let (chance, clock, memory) = (Chance::new(seed), Hand::new(), MemoryStore::new());
        let rough = Arc::new(Rough::new(memory.clone(), chance.clone(), plot.manner));
        let items = Arc::new(Items {
            chance: chance.clone(),
            calm: AtomicBool::new(false),
            told: Mutex::default(),
        });
        World {
            plot,
            clock: clock.clone(),
            client: client(rough.clone(), &clock),
            truth: client(Arc::new(memory), &clock),
            processes: (0..PROCESSES).map(|_| Arc::default()).collect(),
            untold: Vec::new(),
            rough,
            chance,
            items,
            planners: Vec::new(),
            token: 0,
            submitted: 0,
            receipts: BTreeMap::new(),
            ends: BTreeMap::new(),
            retried: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            most_held: 0,
        }
    }

    fn elect(&mut self) {
        self.token += 1;
        let source: Arc<dyn Windowed> = self.items.clone();
        let plans = |local_writes: &Arc<LocalWrites>| {
            self.planners.iter().any(|it| Arc::ptr_eq(&it.local_writes, local_writes))
        };
        let free: Vec<_> =
            self.processes.iter().filter(|local_writes| !plans(local_writes)).cloned().collect();
        let local_writes = free[self.chance.below(free.len())].clone();
        self.list_node(member(self.token));
        let planner =
            Working::beside(local_writes, &self.client, &self.clock, self.token, Some(source));
        self.planners.push(planner);
    }

    /// Lists the planner's node, sometimes alone: then the planner relies on local writes.
    fn list_node(&self, node: MemberId) {
        let key = self.truth.keys.nodes();
        let version = now(self.truth.store().get(&key)).expect("memory").map(|found| found.version);
        let expect = version.map_or(Expect::Absent, Expect::At);
        let workers = if self.plot.forged { u32::MAX } else { 1 };
        let entry = |token| NodeEntry { token, workers, name: String::new(), draining: false };
        let mut nodes = vec![entry(node)];
        if self.chance.one_in(2) {
            nodes.push(entry(member(7)));
        }
        let nodes = Nodes { nodes, dead: Vec::new(), revision: 1, op: self.truth.fresh_op() };
        let _ = now(self.truth.store().put(&key, expect, nodes.encode()));
    }

    /// Tells planners of acknowledged writes, sooner or later and in any order.
    ///
    /// It mostly picks writes of a process that already plans.
    fn tell(&mut self) {
        for _ in 0..self.untold.len().min(8) {
            let index = self.chance.below(self.untold.len());
            let plans = self.untold[index].0.has_planner();
            if self.chance.one_in(if plans { 3 } else { 200 }) {
                let (local_writes, sent, write_seen) = self.untold.swap_remove(index);
                local_writes.worked(sent, [write_seen]);
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let most = if self.plot.races { 3 } else { 1 };
        if self.planners.is_empty() || self.planners.len() < most && self.chance.one_in(80) {
            self.elect();
        }
        let index = self.chance.below(self.planners.len());
        for _ in 0..=self.chance.below(12) {
            match self.planners[index].poll() {
                Poll::Pending => {}
                Poll::Ready(Ok(_)) if self.plot.races || self.plot.manner.late > 0 => {
                    drop(self.planners.remove(index));
                    break;
                }
                Poll::Ready(over) => return Err(format!("a planner gave up: {over:?}")),
            }
        }
        if self.chance.one_in(self.plot.cuts) && !self.planners.is_empty() {
            let index = self.chance.below(self.planners.len());
            drop(self.planners.remove(index));
        }
        self.clock.advance(Duration::from_millis(match self.chance.below(20) {
            0 => 2_000,
            1 => 200,
            _ => 3,
        }));
        match self.chance.below(8) {
            0 => self.submit(),
            1 if self.plot.retries => self.retry(),
            2 if self.chance.one_in(12) => self.cancel(),
            3 if self.chance.one_in(40) => self.flip_pause(true),
            4 if self.chance.one_in(10) => self.flip_pause(false),
            _ => self.work(),
        }
        self.tell();
        self.check_slots()
    }

    /// Slots double at most, and only while workers hold half of them, whatever the node list says.
    fn check_slots(&self) -> Result<(), String> {
        let cluster_config =
            now(self.truth.read::<ClusterConfig>(&self.truth.keys.cluster_config()))
                .expect("memory");
        let slots = cluster_config.map_or(0, |(_, cluster_config)| cluster_config.slots);
        if slots > LEAST_SLOTS.max(4 * self.most_held) {
            return Err(format!("{slots} slots, and workers never held {}", self.most_held + 1));
        }
        Ok(())
    }

    fn submit(&mut self) {
        let many = (1 + self.chance.below(6)).min(SUBMITTED.saturating_sub(self.submitted));
        self.submit_many(many);
    }

    fn submit_many(&mut self, many: usize) {
        let numbers = self.submitted..self.submitted + many;
        let orders = numbers.map(|number| {
            let mut order = order(&format!("submitted-{number}"));
            order.attempts = 2;
            if number % 3 == 0 {
                let receipt = member(1_000 + number as u64);
                order.receipt = Some(receipt.clone());
                self.receipts.insert(order.id.clone(), receipt);
            }
            order
        });
        let orders = orders.collect();
        self.submitted += many;
        now(self.truth.submit(orders)).expect("the inbox has room");
    }

    /// All slots that hold a task.
    fn slots(&self) -> Vec<(Key, Version, Slot)> {
        let found = now(self.truth.store().list(&self.truth.keys.slots(), None, 2_000));
        let found = found.expect("memory serves").documents.into_iter();
        // Decoding all the vacant slots would take most of the time.
        let used = found.filter(|(_, document)| {
            std::str::from_utf8(&document.body).is_ok_and(|body| body.contains("\"id\":"))
        });
        let slot = |document: &crate::Document| Slot::decode(&document.body).expect("a slot");
        used.map(|(key, document)| (key, document.version.clone(), slot(&document))).collect()
    }

    /// Makes progress on a few tasks.
    fn work(&mut self) {
        for _ in 0..1 + self.chance.below(4) {
            let mut live: Vec<_> =
                self.slots().into_iter().filter(|(_, _, slot)| slot.is_live()).collect();
            if live.is_empty() {
                return;
            }
            let held = live.iter().filter(|(_, _, slot)| slot.holding().is_some()).count();
            self.most_held = self.most_held.max(held + 1);
            let (key, version, slot) = live.swap_remove(self.chance.below(live.len()));
            let local_writes = self.processes[self.chance.below(PROCESSES)].clone();
            let sent = local_writes.sending();
            let after = self.worked(slot);
            let put = now(self.truth.store().put(&key, Expect::At(version), after.encode()));
            let Ok(Put::Stored(version)) = put else { panic!("something came between: {put:?}") };
            self.note_end(&after);
            let number = key.below(&self.truth.keys.slots()).and_then(|name| name.parse().ok());
            let slot = number.expect("a slot has a number");
            self.untold.push((
                local_writes,
                sent,
                AcknowledgedWrite { slot, version, content: Arc::new(after) },
            ));
        }
    }

    fn worked(&self, slot: Slot) -> Slot {
        let op = self.truth.fresh_op();
        if slot.holding().is_none() {
            let (member, presence, status) = (member(7), None, None);
            let held = Holding { member, expire: 1, presence, status };
            let claimed = slot.following(op, Progress::Held(Arc::new(held)));
            return Slot { token: slot.token + 1, attempt: slot.attempt + 1, ..claimed };
        }
        let fails = self.chance.one_in(4);
        let progress = match fails {
            false => Progress::Done { result: Some(format!("{} is done", slot.task.id)) },
            true if slot.is_exhausted() => Progress::Dead { error: "it failed".into() },
            true => Progress::Outstanding { avoid: None, error: Some("it failed".into()) },
        };
        slot.following(op, progress)
    }

    fn note_end(&mut self, slot: &Slot) {
        let state = match slot.progress {
            Progress::Done { .. } => OutcomeState::Done,
            Progress::Dead { .. } if slot.cancel => OutcomeState::Cancelled,
            Progress::Dead { .. } => OutcomeState::Dead,
            Progress::Vacant | Progress::Outstanding { .. } | Progress::Held(_) => return,
        };
        self.ends.insert(slot.task.serial, (slot.task.id.clone(), state));
    }

    fn letters(&self) -> BTreeSet<u64> {
        let found = now(self.truth.store().list(&self.truth.keys.letters(), None, 2_000));
        let found = found.expect("memory serves").documents;
        let letters = found.iter().map(|(_, document)| Letter::decode(&document.body));
        letters.map(|letter| letter.expect("a letter").task.serial).collect()
    }

    fn retry(&mut self) {
        // On a weak store, an old read may hide that the task is not counted yet.
        let uncounted: BTreeSet<u64> = match self.plot.manner.weak {
            true => self.slots().iter().map(|(_, _, slot)| slot.task.serial).collect(),
            false => BTreeSet::new(),
        };
        let fresh = |serial: &u64| !self.retried.contains(serial) && !uncounted.contains(serial);
        let Some(serial) = self.letters().into_iter().find(fresh) else { return };
        self.retried.insert(serial);
        let twice = vec![Entry::Retry(serial); 1 + self.chance.below(2)];
        now(self.truth.enter(twice)).expect("the inbox has room");
    }

    /// Cancels a submitted task, in the inbox or in a slot.
    fn cancel(&mut self) {
        let with_receipt: Vec<_> = self.receipts.clone().into_iter().collect();
        if with_receipt.is_empty() {
            return;
        }
        let (id, receipt) = with_receipt[self.chance.below(with_receipt.len())].clone();
        match self.truth.cancel_submitted(&receipt).now_or_never() {
            Some(Ok(Cancellation::Cancelled)) => {
                self.cancelled.insert(id);
            }
            // The cancellation was only requested, or would have to wait, and is dropped.
            Some(Ok(Cancellation::Asked)) | None => {
                self.doubtful.insert(id);
            }
            Some(Ok(Cancellation::NotFound)) => {}
            Some(Err(error)) => panic!("cancelling failed: {error}"),
        }
        self.slots().iter().for_each(|(_, _, slot)| self.note_end(slot));
    }

    fn flip_pause(&mut self, paused: bool) {
        let key = self.truth.keys.cluster_config();
        let Some((version, cluster_config)) =
            now(self.truth.read::<ClusterConfig>(&key)).expect("memory")
        else {
            return;
        };
        let (revision, op) = (cluster_config.revision + 1, self.truth.fresh_op());
        let after = ClusterConfig { paused, revision, op, ..cluster_config };
        let _ = now(self.truth.store().put(&key, Expect::At(version), after.encode()));
    }

    fn cursor(&self) -> Option<Cursor> {
        now(self.truth.read(&self.truth.keys.cursor())).expect("memory").map(|(_, cursor)| cursor)
    }

    fn is_at_rest(&self) -> bool {
        let Some(cursor) = self.cursor() else { return false };
        let page = now(self.truth.read::<Page>(&self.truth.keys.page(cursor.page)));
        let unread = page.expect("memory").is_some_and(|(_, page)| !page.entries.is_empty());
        cursor.drained && cursor.open() == 0 && !unread && self.slots().is_empty()
    }

    /// Ends all faults, and lets one planner finish.
    fn finish(&mut self) -> Result<(), String> {
        self.planners.clear();
        self.rough.heal();
        self.items.calm.store(true, Relaxed);
        self.flip_pause(false);
        while self.submitted < SUBMITTED {
            self.submit();
        }
        self.elect();
        for _ in 0..MOST_STEPS_AFTER {
            for _ in 0..12 {
                if let Poll::Ready(over) = self.planners[0].poll() {
                    return Err(format!("the last planner gave up: {over:?}"));
                }
            }
            self.clock.advance(Duration::from_millis(20));
            self.work();
            if self.is_at_rest() {
                self.planners[0].settle();
                return Ok(());
            }
        }
        Err(format!(
            "it does not end: {:?}",
            self.cursor().map(|c| (c.accepted, c.open(), c.intents.len(), c.page, c.drained))
        ))
    }

    fn reports(&self) -> Result<BTreeMap<u64, Report>, String> {
        let cursor = self.cursor().ok_or("the cursor is gone")?;
        let mut reports = BTreeMap::new();
        for number in 0..cursor.pieces {
            let piece = now(self.truth.read::<Piece>(&self.truth.keys.piece(number)));
            let (_, piece) =
                piece.expect("memory").ok_or_else(|| format!("piece {number} is missing"))?;
            for report in piece.reports {
                if let Some(before) = reports.insert(report.serial, report) {
                    return Err(format!("counted twice: {before:?}"));
                }
            }
        }
        Ok(reports)
    }

    /// Checks that the cluster's records agree with the true events.
    fn audit(&self) -> Result<(), String> {
        let reports = self.reports()?;
        let counted = reports
            .values()
            .filter(|report| !Items::is_refused(&report.id))
            .map(|report| (report.serial, (report.id.clone(), report.state)));
        let counted: BTreeMap<_, _> = counted.collect();
        if counted != self.ends {
            return Err(differences(&counted, &self.ends));
        }
        let letters = self.letters();
        let mut expected_letters = BTreeSet::new();
        let (mut done, mut dead, mut cancelled, mut accepted) = (0, 0, 0, 0);
        let listed = (0..LISTED).map(Items::id);
        for id in (0..SUBMITTED).map(|number| format!("submitted-{number}")).chain(listed) {
            let of_id: Vec<&Report> = reports.values().filter(|report| report.id == id).collect();
            accepted += u64::from(!of_id.is_empty());
            let again = of_id.iter().filter(|report| {
                self.retried.contains(&report.serial) && !letters.contains(&report.serial)
            });
            let may_be_none = self.cancelled.contains(&id) || self.doubtful.contains(&id);
            let expected = 1 + again.count();
            if of_id.len() != expected && !(may_be_none && of_id.is_empty()) {
                return Err(format!("{id} was taken in {} times: {of_id:?}", of_id.len()));
            }
            let Some((last, earlier)) = of_id.split_last() else { continue };
            if earlier.iter().any(|report| report.state != OutcomeState::Dead) {
                return Err(format!("{id} was done before it was retried: {of_id:?}"));
            }
            if self.cancelled.contains(&id) && last.state != OutcomeState::Cancelled {
                return Err(format!("{id} was cancelled, and then {last:?}"));
            }
            match last.state {
                OutcomeState::Done => done += 1,
                OutcomeState::Cancelled => cancelled += 1,
                OutcomeState::Dead => {
                    dead += 1;
                    if !Items::is_refused(&id) {
                        expected_letters.insert(last.serial);
                    }
                }
            }
        }
        if letters != expected_letters {
            return Err(format!("dead letters {letters:?} instead of {expected_letters:?}"));
        }
        let cursor = self.cursor().ok_or("the cursor is gone")?;
        let totals = (cursor.accepted, cursor.done, cursor.dead, cursor.cancelled);
        if totals != (accepted, done, dead, cancelled) {
            let expected = (accepted, done, dead, cancelled);
            return Err(format!("the books say {totals:?} instead of {expected:?}"));
        }
        self.audit_others(&reports)
    }

    fn audit_others(&self, reports: &BTreeMap<u64, Report>) -> Result<(), String> {
        let told = self.items.told.lock().unwrap_or_else(PoisonError::into_inner);
        for id in (0..LISTED).map(Items::id).filter(|id| !Items::is_refused(id)) {
            if !told.contains(&id) {
                return Err(format!("the source was never told of {id}"));
            }
        }
        for (id, receipt) in &self.receipts {
            let outcome = now(self.truth.store().get(&self.truth.keys.outcome(receipt)));
            let has_ended = reports.values().any(|report| report.id == *id);
            if has_ended && outcome.expect("memory").is_none() {
                return Err(format!("whoever waits for {id} is not told"));
            }
        }
        let pages = now(self.truth.store().list(
            &self.truth.keys.root().child("inbox").expect("a key"),
            None,
            2_000,
        ));
        for (key, document) in pages.expect("memory").documents {
            if !Page::decode(&document.body).expect("a page").entries.is_empty() {
                return Err(format!("{key} was taken and not freed"));
            }
        }
        Ok(())
    }
}

type Ends = BTreeMap<u64, (String, OutcomeState)>;

fn differences(counted: &Ends, ended: &Ends) -> String {
    let mut says = String::from("counted is not what happened:");
    for (serial, end) in counted {
        if ended.get(serial) != Some(end) {
            let _ = write!(says, " {serial} counted as {end:?}, was {:?};", ended.get(serial));
        }
    }
    for (serial, end) in ended.iter().filter(|(serial, _)| !counted.contains_key(serial)) {
        let _ = write!(says, " {serial} ended as {end:?} and is not counted;");
    }
    says
}

/// Plays a history. Returns an error that says how it went wrong.
fn play(seed: u64) -> Result<(), String> {
    let plot = Plot::of(seed);
    let mut world = World::new(seed, plot);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.finish()?;
    world.audit()
}

/// Plays the beginning of a history in which more tasks wait than there are slots, and the node
/// list is forged.
fn play_backlog(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed, Plot { forged: true, ..Plot::of(seed) });
    world.submit_many(BACKLOG);
    (0..STEPS_OF_BACKLOG).try_for_each(|_| world.step())
}

/// From where, and how many: `PLANNER_SEEDS=1000:500` for more of them than a usual run has time
/// for.
fn seeds(usually: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("PLANNER_SEEDS").ok();
    let asked = asked.as_deref().and_then(|asked| asked.split_once(':'));
    let asked = asked.and_then(|(from, many)| Some((from.parse().ok()?, many.parse().ok()?)));
    let (from, many): (u64, u64) = asked.unwrap_or((0, usually));
    from..from + many
}

#[test]
fn whatever_is_cut_off_or_lost_every_task_is_counted_once_and_as_what_it_was() {
    for seed in seeds(16) {
        if let Err(wrong) = play(seed) {
            panic!("seed {seed}, {:?}: {wrong}", Plot::of(seed));
        }
    }
}

#[test]
fn a_backlog_makes_no_slots_that_workers_do_not_need() {
    for seed in seeds(6) {
        if let Err(wrong) = play_backlog(seed) {
            panic!("seed {seed}, {:?}: {wrong}", Plot::of(seed));
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn slots_that_a_backlog_makes_are_noticed() {
    use crate::cluster::mutant::{ClusterMutant, break_rule};

    break_rule(Some(ClusterMutant::BacklogMakesSlots));
    let noticed = seeds(40).find_map(|seed| play_backlog(seed).err().map(|wrong| (seed, wrong)));
    break_rule(None);
    let (seed, wrong) = noticed.expect("a backlog made slots, and no history showed it");
    println!("seed {seed}: {wrong}");
}

#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_of_the_planner_is_noticed() {
    use crate::cluster::mutant::{ClusterMutant, break_rule};

    for mutant in [
        ClusterMutant::CursorFirst,
        ClusterMutant::SlotsFirst,
        ClusterMutant::CountsTwice,
        ClusterMutant::WeakCounts,
        ClusterMutant::WeakFills,
        ClusterMutant::ForgetsRecordedIntents,
        ClusterMutant::PageFreedEarly,
        ClusterMutant::OldWritesCount,
        ClusterMutant::WritesGoBack,
        ClusterMutant::RetryKeepsLetter,
    ] {
        break_rule(Some(mutant));
        let noticed = seeds(400).find_map(|seed| play(seed).err().map(|wrong| (seed, wrong)));
        break_rule(None);
        let (seed, wrong) = noticed.unwrap_or_else(|| panic!("nobody noticed {mutant:?}"));
        println!("{mutant:?}: seed {seed}: {wrong}");
    }
}
