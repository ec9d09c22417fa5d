//! The world: a cluster, its leaders and users, and a record of the true events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure::Key;
use tenure::protocol::Ask;
use tenure::store::{Put, StoreError};
use tenure_cluster::claims::AcknowledgedWrite;
use tenure_cluster::documents::{ClusterConfig, Keys, MemberId, OutcomeState, Page};
use tenure_cluster::input::{InputError, Window};
use tenure_cluster::leader::{Answer, Input, Request};
use tenure_cluster::local_writes::{LocalWrites, Sent};

use super::plot::Plot;
use super::rare::Rare;
use super::seat::{MS, Seat};
use super::store::{Store, one_in};
use super::users::SUBMITTED;
use crate::kernel::{Kernel, Promise, World};

/// How many processes there are that may lead, each with a node of its own.
pub(super) const PROCESSES: usize = 3;
/// The fewest slots. Real clusters have more; with few, all of them are full at times.
pub(super) const LEAST_SLOTS: usize = 8;
/// The acts of users before all faults end, and the most acts from then on.
const ACTS: u64 = 150;
const MOST_ACTS_AFTER: u64 = 2_000;

/// An event of the world.
#[derive(Debug)]
pub(super) enum Happening {
    /// Users act.
    Act,
    /// A request of a leader arrives at the store. A part of it may have been carried out.
    Arrives(u64, Ask, Request, Vec<Result<Put, StoreError>>),
    /// An answer arrives.
    Answered(u64, Ask, Answer),
    /// The source answers.
    Offered(u64, Result<Window, InputError>),
    /// The source was told of a task with this serial and name, or not.
    Committed(u64, u64, Option<String>),
    /// A leader's timer fires.
    Timer(u64, u64),
    /// Leaders are told that their wake-up document changed.
    WakeUp,
}

/// A simulated cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) kernel: Kernel<Happening, Rare>,
    pub(super) plot: Plot,
    pub(super) store: Store,
    pub(super) keys: Keys,
    pub(super) slots_key: Key,
    pub(super) letters_key: Key,
    /// The local writes between the leader and the node of each process.
    pub(super) processes: Vec<Arc<LocalWrites>>,
    /// Acknowledged writes of the processes that their leaders have not heard of yet.
    pub(super) untold: Vec<(usize, Sent, AcknowledgedWrite)>,
    pub(super) seats: Vec<Seat>,
    pub(super) token: u64,
    acts: u64,
    /// All faults are over.
    pub(super) healed: bool,
    /// The next page of the inbox to write.
    pub(super) page: u64,
    pub(super) submitted: usize,
    pub(super) receipts: BTreeMap<String, MemberId>,
    /// How each task ended, by serial.
    pub(super) ends: BTreeMap<u64, (String, OutcomeState)>,
    /// The items that the source was told of.
    pub(super) told: BTreeSet<String>,
    pub(super) retried: BTreeSet<u64>,
    /// Tasks that may be cancelled.
    pub(super) doubtful: BTreeSet<String>,
    /// The most slots that workers held at once.
    pub(super) most_held: usize,
}

impl Cluster {
    pub(super) fn new(mut kernel: Kernel<Happening, Rare>, plot: Plot) -> Cluster {
        let keys = Keys::new("test").expect("a name");
        kernel.schedule(0, Happening::Act);
        Cluster {
            kernel,
            plot,
            store: Store::new(plot.manner),
            slots_key: keys.slots(),
            letters_key: keys.letters(),
            keys,
            processes: (0..PROCESSES).map(|_| Arc::default()).collect(),
            untold: Vec::new(),
            seats: Vec::new(),
            token: 0,
            acts: 0,
            healed: false,
            page: 0,
            submitted: 0,
            receipts: BTreeMap::new(),
            ends: BTreeMap::new(),
            told: BTreeSet::new(),
            retried: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            most_held: 0,
        }
    }

    /// Users act, leaders come and go, and time passes.
    fn act(&mut self) {
        self.acts += 1;
        if self.healed {
            return self.act_in_peace();
        }
        if self.acts > ACTS {
            return self.heal();
        }
        let most = if self.plot.races { PROCESSES } else { 1 };
        if self.seats.is_empty() || self.seats.len() < most && one_in(&mut self.kernel.rng, 40) {
            self.elect();
        }
        if one_in(&mut self.kernel.rng, self.plot.cuts) && !self.seats.is_empty() {
            self.cut();
        }
        match self.kernel.rng.below(8) {
            0 => self.submit(),
            1 if self.plot.retries => self.retry(),
            2 if one_in(&mut self.kernel.rng, 12) => self.cancel(),
            3 if one_in(&mut self.kernel.rng, 40) => self.flip_pause(true),
            4 if one_in(&mut self.kernel.rng, 10) => self.flip_pause(false),
            _ => self.work(),
        }
        self.tell();
        if self.acts.is_multiple_of(8) {
            self.check_slots();
        }
        let after = match self.kernel.rng.below(20) {
            0 => 2_000 * MS,
            1 => 200 * MS,
            _ => self.kernel.rng.between(MS, 6 * MS),
        };
        self.kernel.schedule(after, Happening::Act);
    }

    /// Slots double at most, and only while workers hold half of them, whatever the node list says.
    fn check_slots(&mut self) {
        let config = self.store.read::<ClusterConfig>(&self.keys.cluster_config());
        let slots = config.map_or(0, |(_, config)| config.slots);
        if slots > LEAST_SLOTS {
            self.kernel.saw(Rare::MoreSlots);
        }
        // A look that local writes have changed since may show slots as held at once that were held
        // one after the other: up to twice as many as there were. Weak reads may show any number.
        if !self.plot.manner.weak && slots > LEAST_SLOTS.max(8 * self.most_held) {
            let how = format!("{slots} slots, and workers never held {}", self.most_held + 1);
            self.kernel.breaks(Promise::Counted, how);
        }
    }

    /// Ends all faults, and lets one leader finish.
    fn heal(&mut self) {
        self.kernel.note(|| "all faults end".into());
        self.seats.clear();
        self.store.heal();
        (self.healed, self.acts) = (true, 0);
        self.flip_pause(false);
        self.elect();
        self.kernel.schedule(MS, Happening::Act);
    }

    fn act_in_peace(&mut self) {
        if self.submitted < SUBMITTED {
            self.submit();
        }
        self.work();
        if self.acts.is_multiple_of(8) && self.is_at_rest() {
            if let Err(how) = self.audit() {
                self.kernel.breaks(Promise::Counted, how);
            }
            return self.kernel.end();
        }
        if self.acts > MOST_ACTS_AFTER {
            let cursor = self.cursor();
            let open = cursor.map(|it| (it.accepted, it.open(), it.intents.len(), it.page));
            let unfreed = self.unfreed_page();
            let how = format!("it does not end: {open:?}, {unfreed:?} is not freed");
            self.kernel.breaks(Promise::Recovery, how);
        }
        self.kernel.schedule(20 * MS, Happening::Act);
    }

    fn is_at_rest(&self) -> bool {
        let Some(cursor) = self.cursor() else { return false };
        let page = self.store.read::<Page>(&self.keys.page(cursor.page));
        let unread = page.is_some_and(|(_, page)| !page.entries.is_empty());
        let all = self.submitted == SUBMITTED && cursor.drained;
        let is_counted = all && cursor.open() == 0 && !unread && self.slots().is_empty();
        is_counted && self.unfreed_page().is_none()
    }

    /// A page that was taken and not freed. The leader frees pages after all tasks are counted.
    fn unfreed_page(&self) -> Option<Key> {
        let mut keys = (0..self.page).map(|number| self.keys.page(number));
        keys.find(|key| {
            self.store.read::<Page>(key).is_some_and(|(_, page)| !page.entries.is_empty())
        })
    }
}

impl World for Cluster {
    type Happening = Happening;
    type Rare = Rare;

    fn kernel(&mut self) -> &mut Kernel<Happening, Rare> {
        &mut self.kernel
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Act => self.act(),
            Happening::Arrives(leader, ask, request, outcomes) => {
                self.arrives(leader, ask, request, outcomes);
            }
            Happening::Answered(leader, ask, answer) => self.answered(leader, ask, answer),
            Happening::Offered(leader, offered) => self.input(leader, Input::Offered(offered)),
            Happening::Committed(leader, serial, told) => {
                let result = match told {
                    Some(id) => {
                        self.told.insert(id);
                        Ok(())
                    }
                    None => Err(InputError("it fails now and then".into())),
                };
                self.input(leader, Input::Committed(serial, result));
            }
            Happening::Timer(leader, setting) => self.timer_fires(leader, setting),
            Happening::WakeUp => self.wake(|| Input::WakeUp, |_| true),
        }
        for rare in std::mem::take(&mut self.store.saw) {
            self.kernel.saw(rare);
        }
    }
}
