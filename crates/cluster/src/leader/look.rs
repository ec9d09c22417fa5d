//! One look at all documents that a round's decision is based on.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure::store::{Document, Page, Version};
use tenure::{Key, Moment};

use crate::claims::AcknowledgedWrite;
use crate::client::Shown;
use crate::documents::{
    ClusterConfig, Cursor, DocumentError, Format, Keys, MOST_SLOTS, Nodes, Progress, Slot,
};
use crate::mutant::ClusterMutant;

/// The state of a key.
#[derive(Debug)]
pub(super) enum Sight<T> {
    /// There is no document.
    Absent,
    /// A valid document.
    Found(Version, Arc<T>),
    /// An invalid document.
    Garbled(Version, DocumentError),
    /// The store refuses to show it: it is far too large, or no document at all.
    Unreadable,
}

impl<T> Clone for Sight<T> {
    fn clone(&self) -> Sight<T> {
        match self {
            Sight::Absent => Sight::Absent,
            Sight::Found(version, content) => Sight::Found(version.clone(), content.clone()),
            Sight::Garbled(version, error) => Sight::Garbled(version.clone(), error.clone()),
            Sight::Unreadable => Sight::Unreadable,
        }
    }
}

impl<T: Format> Sight<T> {
    fn of(document: Option<Document>) -> Sight<T> {
        let Some(Document { version, body }) = document else { return Sight::Absent };
        match T::decode(&body) {
            Ok(content) => Sight::Found(version, Arc::new(content)),
            Err(error) => Sight::Garbled(version, error),
        }
    }

    /// Reuses the decoded document from before if the version is the same.
    fn after(document: Option<Document>, before: Option<&Sight<T>>) -> Sight<T> {
        match (&document, before) {
            (Some(document), Some(before)) if before.version() == Some(&document.version) => {
                before.clone()
            }
            _ => Sight::of(document),
        }
    }

    pub(super) fn version(&self) -> Option<&Version> {
        match self {
            Sight::Found(version, _) | Sight::Garbled(version, _) => Some(version),
            Sight::Absent | Sight::Unreadable => None,
        }
    }

    /// The version and the error of an invalid document.
    pub(super) fn error(&self) -> Option<(&Version, &DocumentError)> {
        match self {
            Sight::Garbled(version, error) => Some((version, error)),
            Sight::Absent | Sight::Found(..) | Sight::Unreadable => None,
        }
    }

    pub(super) fn content(&self) -> Option<&Arc<T>> {
        match self {
            Sight::Found(_, content) => Some(content),
            Sight::Absent | Sight::Garbled(..) | Sight::Unreadable => None,
        }
    }
}

/// All documents as they were found.
#[derive(Debug)]
pub(super) struct Look {
    keys: Arc<[Key]>,
    pub(super) cluster_config: Sight<ClusterConfig>,
    pub(super) nodes: Sight<Nodes>,
    pub(super) slots: Vec<Sight<Slot>>,
    /// The newest acknowledged write of this process to each slot.
    acknowledged: BTreeMap<usize, (Version, Arc<Slot>)>,
    /// The time after the answer arrived.
    pub(super) at: Moment,
    /// Some document turned out to differ from this look.
    pub(super) is_outdated: bool,
}

impl Default for Look {
    fn default() -> Look {
        Look {
            keys: Arc::new([]),
            cluster_config: Sight::Absent,
            nodes: Sight::Absent,
            slots: Vec::new(),
            acknowledged: BTreeMap::new(),
            at: Moment::default(),
            is_outdated: false,
        }
    }
}

impl Look {
    /// The documents to look at: the cluster's configuration, the node list and all slots, in one
    /// request.
    ///
    /// It takes two requests if there are more slots than last time.
    pub(super) fn keys(&mut self, keys: &Keys) -> Arc<[Key]> {
        if self.keys.is_empty() {
            self.keys = Arc::new([keys.cluster_config(), keys.nodes()]);
        }
        self.keys.clone()
    }

    /// Takes in the documents at [`Look::keys`]. Returns false if there are more slots to look at.
    pub(super) fn refresh(&mut self, keys: &Keys, shown: Vec<Shown>, now: Moment) -> bool {
        let mut shown = shown.into_iter();
        let cluster_config: Sight<ClusterConfig> = shown.next().map_or(Sight::Absent, sight);
        let nodes = shown.next().map_or(Sight::Absent, sight);
        let count = cluster_config.content().map_or(0, |cluster_config| cluster_config.slots);
        if count + 2 > self.keys.len() {
            let more = (self.keys.len() - 2)..count;
            let known = self.keys.iter().cloned();
            self.keys = known.chain(more.map(|number| keys.slot(number))).collect();
            return false;
        }
        let before = std::mem::take(&mut self.slots);
        let slots = shown.enumerate().map(|(number, shown)| match shown {
            Shown::Document(document) => Sight::after(document, before.get(number)),
            Shown::Refused => Sight::Unreadable,
        });
        self.slots = slots.collect();
        (self.cluster_config, self.nodes) = (cluster_config, nodes);
        (self.at, self.is_outdated) = (now, false);
        true
    }

    /// Takes in an acknowledged write of ours.
    pub(super) fn stored(&mut self, number: usize, version: Version, slot: Arc<Slot>) {
        self.acknowledged.insert(number, (version.clone(), slot.clone()));
        self.slots[number] = Sight::Found(version, slot);
    }

    /// Takes in an acknowledged write of the node in this process. Ignores slots that are missing
    /// or invalid: they need a look.
    pub(super) fn heard(&mut self, write_seen: AcknowledgedWrite) {
        let acknowledged = self.acknowledged.get(&write_seen.slot);
        let counts = match self.slots.get(write_seen.slot) {
            // A weak read may have shown an older state than a write that was acknowledged, and
            // counted, long ago.
            Some(Sight::Found(..))
                if acknowledged.is_some_and(|(_, it)| !write_seen.is_newer_than(it)) =>
            {
                false
            }
            // A look may have shown this version first. The acknowledgement proves more than a weak
            // read.
            Some(Sight::Found(version, known)) => {
                *version == write_seen.version || write_seen.is_newer_than(known)
            }
            Some(Sight::Absent | Sight::Garbled(..) | Sight::Unreadable) | None => false,
        };
        if counts || ClusterMutant::WritesGoBack.is_on() && write_seen.slot < self.slots.len() {
            self.stored(write_seen.slot, write_seen.version, write_seen.content);
        }
    }

    /// The tasks in slots that wait for a worker.
    pub(super) fn to_be_taken(&self) -> impl Iterator<Item = AcknowledgedWrite> {
        self.slots.iter().enumerate().filter_map(|(slot, sight)| match sight {
            Sight::Found(version, content) if is_outstanding(content) => {
                Some(AcknowledgedWrite { slot, version: version.clone(), content: content.clone() })
            }
            Sight::Found(..) | Sight::Absent | Sight::Garbled(..) | Sight::Unreadable => None,
        })
    }

    /// Returns true if an acknowledged write of this process made the slot's version.
    pub(super) fn is_acknowledged(&self, number: usize) -> bool {
        let version = self.slots[number].version();
        version.is_some() && self.acknowledged.get(&number).map(|(version, _)| version) == version
    }

    /// Returns true if the slot is missing or invalid.
    pub(super) fn is_lost(&self, number: usize) -> bool {
        matches!(self.slots.get(number), Some(Sight::Absent | Sight::Garbled(..)))
    }

    /// Slots that the store refuses to show.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = usize> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, sight)| matches!(sight, Sight::Unreadable)).map(|(number, _)| number)
    }

    /// Returns true if the leader must not take anything in.
    pub(super) fn is_paused(&self) -> bool {
        self.cluster_config.content().is_some_and(|cluster_config| cluster_config.paused)
    }

    /// Returns true if a slot holds this task, ended or not.
    pub(super) fn shows(&self, serial: u64) -> bool {
        let is_here =
            |slot: &Arc<Slot>| slot.task.serial == serial && slot.progress != Progress::Vacant;
        self.slots.iter().filter_map(Sight::content).any(is_here)
    }

    /// The number of tasks in slots that wait for a worker.
    pub(super) fn outstanding(&self) -> usize {
        self.slots.iter().filter_map(Sight::content).filter(|slot| is_outstanding(slot)).count()
    }

    /// Returns true if more slots would give workers more to do.
    ///
    /// There must be no free slot for another task, and workers must hold at least half of the
    /// slots. Tasks that wait in slots are already a supply.
    pub(super) fn is_crowded(&self) -> bool {
        let mut held = 0;
        for sight in &self.slots {
            match sight {
                Sight::Absent => return false,
                Sight::Found(_, slot) => match slot.progress {
                    Progress::Vacant | Progress::Done { .. } | Progress::Dead { .. } => {
                        return false;
                    }
                    Progress::Outstanding { .. } => {}
                    Progress::Held(_) => held += 1,
                },
                Sight::Garbled(..) | Sight::Unreadable => {}
            }
        }
        2 * held >= self.slots.len() || ClusterMutant::BacklogMakesSlots.is_on()
    }

    /// The free slots, in an order that keeps neighbours far apart.
    ///
    /// Nodes begin to look at different places.
    pub(super) fn free(&self) -> Vec<usize> {
        let is_free = |number: &usize| match &self.slots[*number] {
            Sight::Absent => true,
            Sight::Found(_, slot) => slot.progress == Progress::Vacant,
            Sight::Garbled(..) | Sight::Unreadable => false,
        };
        let mut free: Vec<usize> = (0..self.slots.len()).filter(is_free).collect();
        free.sort_by_key(|number| spread(*number));
        free
    }

    /// The slots with ended tasks, the oldest first. Ignores serials that were never given out.
    pub(super) fn ended(&self, cursor: &Cursor) -> Vec<(usize, Arc<Slot>)> {
        let ended = self.slots.iter().enumerate().filter_map(|(number, sight)| match sight {
            Sight::Found(_, slot) if is_ended(slot) && slot.task.serial < cursor.next => {
                Some((number, slot.clone()))
            }
            Sight::Absent | Sight::Found(..) | Sight::Garbled(..) | Sight::Unreadable => None,
        });
        let mut ended: Vec<_> = ended.collect();
        ended.sort_by_key(|(_, slot)| slot.task.serial);
        ended
    }
}

fn is_outstanding(slot: &Slot) -> bool {
    matches!(slot.progress, Progress::Outstanding { .. })
}

fn is_ended(slot: &Slot) -> bool {
    matches!(slot.progress, Progress::Done { .. } | Progress::Dead { .. })
}

/// A sort key that keeps neighbours far apart (multiplication by the golden ratio). It is the same
/// for all processes.
fn spread(slot: usize) -> u32 {
    u32::try_from(slot).unwrap_or(u32::MAX).wrapping_mul(0x9E37_79B1)
}

/// The number of slots that these nodes need.
pub(super) fn wanted_slots(nodes: Option<&Nodes>, least: usize) -> usize {
    let workers = nodes.into_iter().flat_map(|nodes| &nodes.nodes).map(|node| node.workers);
    let workers: u64 = workers.map(u64::from).sum();
    usize::try_from(workers.saturating_mul(20)).unwrap_or(MOST_SLOTS).clamp(least, MOST_SLOTS)
}

fn sight<T: Format>(shown: Shown) -> Sight<T> {
    match shown {
        Shown::Document(document) => Sight::of(document),
        Shown::Refused => Sight::Unreadable,
    }
}

/// The number of slots that this page of a listing proves.
pub(super) fn count_slots(keys: &Keys, page: &Page) -> usize {
    let slots = keys.slots();
    let numbers = page.documents.iter().filter_map(|(key, _)| key.below(&slots)?.parse().ok());
    let most = numbers.max().map_or(0, |number: usize| number.saturating_add(1));
    most.min(MOST_SLOTS)
}
