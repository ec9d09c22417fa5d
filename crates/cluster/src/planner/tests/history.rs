//! Whole histories of planners on an unreliable store.
//!
//! Planners are cut off anywhere, race each other and lose answers, while others work and submit.
//! In the end every task must be counted once, with the right outcome.

mod audit;
mod items;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tenure::MemoryStore;
use tenure::store::{Expect, StoreExt as _};

use self::items::Items;
use super::parts::{Chance, Hand, Working, client, member, now};
use super::rough::{Manner, Rough};
use crate::claims::AcknowledgedWrite;
use crate::client::ClusterClient;
use crate::documents::{
    ClusterConfig, Cursor, Format as _, LEAST_SLOTS, MemberId, NodeEntry, Nodes, OutcomeState, Page,
};
use crate::input::Windowed;
use crate::local_writes::{LocalWrites, Sent};

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
    use crate::mutant::{ClusterMutant, break_rule};

    break_rule(Some(ClusterMutant::BacklogMakesSlots));
    let noticed = seeds(40).find_map(|seed| play_backlog(seed).err().map(|wrong| (seed, wrong)));
    break_rule(None);
    let (seed, wrong) = noticed.expect("a backlog made slots, and no history showed it");
    println!("seed {seed}: {wrong}");
}

#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_of_the_planner_is_noticed() {
    use crate::mutant::{ClusterMutant, break_rule};

    for mutant in [
        ClusterMutant::CursorFirst,
        ClusterMutant::SlotsFirst,
        ClusterMutant::CountsTwice,
        ClusterMutant::WeakCounts,
        ClusterMutant::WeakFills,
        ClusterMutant::ForgetsRecordedIntents,
        ClusterMutant::PageFreedEarly,
        // OldWritesCount needs more histories than there is time for here: since the leader forgets
        // its look with the cursor, an old write seldom meets one. `simulate-leader` notices it.
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
